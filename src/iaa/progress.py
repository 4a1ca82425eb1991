"""Progress bars on stderr, shown only in a terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
