"""Progress bars on stderr, shown only in a terminal."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class Bar:
    """A bar over a known number of items, with a text next to it."""

    def __init__(self, bar: Progress, task: TaskID, rate: str) -> None:
        self._bar, self._task, self._rate = bar, task, rate
        self._began, self._count = time.monotonic(), 0

    def advance(self, count: int = 1, text: str | None = None) -> None:
        """Some more items are done."""
        self._count += count
        if self._rate and text is None:
            speed = self._count / max(time.monotonic() - self._began, 1e-9)
            text = f"{speed:,.0f} {self._rate}"
        self._bar.advance(self._task, count)
        if text is not None:
            self.show(text)

    def show(self, text: str) -> None:
        """What is being done right now."""
        self._bar.update(self._task, text=text)


class TimeLeft:
    """How much of a known amount of work is done, in time: every kind of work at the pace it had so far."""

    def __init__(self, todo: Mapping[str, int], cost: Mapping[str, float]) -> None:
        """``cost`` is what one of each kind takes, relative to the others, until it has been measured."""
        self._todo, self._cost = dict(todo), cost
        self._done = dict.fromkeys(todo, 0)
        self._spent = dict.fromkeys(todo, 0.0)
        self._last = time.monotonic()

    def done(self, kind: str, count: int = 1) -> None:
        """Some work of a kind is done: the time since the last call was spent on it."""
        now = time.monotonic()
        self._spent[kind] += now - self._last
        self._done[kind] += count
        self._last = now

    @property
    def seconds(self) -> float:
        """Seconds left; infinite before anything is done."""
        measured = sum(self._cost[kind] * count for kind, count in self._done.items())
        if not measured:
            return float("inf")
        unit = sum(self._spent.values()) / measured
        return sum(
            max(self._todo[kind] - count, 0)
            * (self._spent[kind] / count if count else unit * self._cost[kind])
            for kind, count in self._done.items()
        )

    @property
    def share(self) -> float:
        """The share of the time that has passed."""
        spent = sum(self._spent.values())
        return spent / (spent + self.seconds)


class WorkBar:
    """A bar over work of several kinds, with a text next to it."""

    def __init__(self, bar: Progress, left: TimeLeft) -> None:
        self._bar, self._left = bar, left
        self._task = bar.add_task("", total=1.0, text="starting", left="")

    def advance(self, kind: str, count: int = 1, text: str | None = None) -> None:
        """Some work of a kind is done."""
        self._left.done(kind, count)
        left = str(timedelta(seconds=round(self._left.seconds)))
        self._bar.update(self._task, completed=self._left.share, left=left)
        if text is not None:
            self.show(text)

    def show(self, text: str) -> None:
        """What is being done right now."""
        self._bar.update(self._task, text=text)


@contextmanager
def working(todo: Mapping[str, int], cost: Mapping[str, float], *, quiet: bool = False) -> Iterator[WorkBar]:
    """A bar over work of several kinds with the time left, as ``TimeLeft`` estimates it."""
    columns = BarColumn(), TextColumn("{task.fields[left]}"), TextColumn("{task.fields[text]}")
    with _bar(*columns, quiet=quiet) as bar:
        yield WorkBar(bar, TimeLeft(todo, cost))


@contextmanager
def counting(total: int, *, done: int = 0, rate: str = "", quiet: bool = False) -> Iterator[Bar]:
    """A bar over ``total`` items with the time left; ``rate`` names a speed to show, as ``images/s``."""
    columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[text]}")
    with _bar(*columns, quiet=quiet) as bar:
        yield Bar(bar, bar.add_task("", total=total, completed=done, text="starting"), rate)


@contextmanager
def progress(text: str, *, quiet: bool = False) -> Iterator[Callable[[float], None]]:
    """A bar with the time left; call what it yields with the share that is done, between 0 and 1."""
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with _bar(*columns, quiet=quiet) as bar:
        task = bar.add_task(text, total=1.0)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def tracking(text: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A bar over items; call what it yields with the number done and the number of all, 0 if unknown."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with _bar(*columns, quiet=quiet) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


def _bar(
    *columns: BarColumn | MofNCompleteColumn | TimeRemainingColumn | TextColumn, quiet: bool
) -> Progress:
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
