"""What a person sees while waiting: a bar with the time left, in a terminal alone."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class Display:
    """A bar over all steps of a run with what matters of the last one."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar, self._task = bar, task

    def step(self, epoch: int, epochs: int, loss: float, synthetic: float, speed: float) -> None:
        """One step is done."""
        words = (
            f"epoch {epoch + 1}/{epochs}  loss {loss:.3f}  synthetic {synthetic:.0%}  {speed:,.0f} images/s"
        )
        self._bar.update(self._task, advance=1, words=words)

    def say(self, words: str) -> None:
        """What happens between steps."""
        self._bar.update(self._task, words=words)


@contextmanager
def display(steps: int, *, done: int = 0, quiet: bool = False) -> Iterator[Display]:
    """A bar on stderr; nothing at all with ``quiet`` or where stderr is no terminal."""
    console = Console(stderr=True)
    off = quiet or not console.is_terminal
    columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[words]}")
    with Progress(*columns, console=console, transient=True, disable=off) as bar:
        yield Display(bar, bar.add_task("", total=steps, completed=done, words="starting"))
