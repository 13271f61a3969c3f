"""Progress of a long job: a bar with rate and time left on a terminal, and a plain line every ten seconds elsewhere.

Everything goes to standard error, so the output of a command stays clean.
"""

import sys
import time
from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

_SECONDS_BETWEEN_LINES = 10.0


def announce(message: str) -> None:
    """Write one line on what happens next to standard error."""
    print(message, file=sys.stderr, flush=True)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:.3g}/s")


class _Bar(RichProgress):
    """A bar with its note on a line below, which a narrow terminal cuts and does not wrap."""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield from (
            Text(task.fields["note"], no_wrap=True, overflow="ellipsis") for task in self.tasks if task.fields["note"]
        )


class Progress:
    """Show progress: `with Progress("preparing", unit="documents", total=249) as progress: progress.advance(1)`."""

    def __init__(self, what: str, *, unit: str, total: int | None, done: int = 0) -> None:
        self.what, self.unit, self.total, self.done, self.note = what, unit, total, done, ""
        self._first = done
        self._began = self._said = time.monotonic()
        console = Console(stderr=True)
        self._bar: _Bar | None = None
        if console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
            self._bar = _Bar(*columns, _Rate(), TimeRemainingColumn(), console=console)
            self._task = self._bar.add_task(what, total=total, completed=done, note="")

    def __enter__(self) -> "Progress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count: int, note: str = "") -> None:
        """Add to the number of finished units, and update the bar or print a line, with the note."""
        self.done, self.note = self.done + count, note
        if self._bar is not None:
            self._bar.update(self._task, advance=count, note=note)
        elif time.monotonic() - self._said >= _SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            print(self.line(self._said - self._began), file=sys.stderr, flush=True)

    def line(self, seconds: float) -> str:
        """Return the line for a log after that many seconds."""
        rate = (self.done - self._first) / seconds if seconds > 0 else 0.0
        of_total = "" if self.total is None else f" of {self.total}"
        text = f"{self.what}: {self.done}{of_total} {self.unit}, {rate:.3g}/s"
        if self.total is not None and rate > 0:
            left = max(0, self.total - self.done) / rate
            text += f", {left:.0f} s left" if left < 120 else f", {left / 60:.0f} min left"
        return f"{text}; {self.note}" if self.note else text
