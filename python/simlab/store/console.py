"""Terminal output: messages and tables on standard output, progress and notes on standard error.

Progress is a bar on a terminal, and lines elsewhere: a log (a file, or the output of a batch
system) gets a line at least each minute while something is done. The minute counts from the last
line, whichever block wrote it, so that a command of many short steps is not silent either.
"""

from __future__ import annotations

import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from simlab.errors import spelled

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress
    from rich.table import Table

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)
# Wider than any row, so that a table takes the width of its longest row.
_PIPED_WIDTH = 100_000
_INDENT = 4
LINE_SECONDS = 60.0  # the longest silence of a log while something is done
_BAR_WIDTH = 24
_SPANS = (("d", 86_400), ("h", 3_600), ("min", 60))
_last_line: float | None = None


def note(message: str) -> None:
    """Print `message` as a note on standard error; the command continues."""
    err.print(f"[yellow]note:[/] {escape(spelled(message))}")


@cache
def note_once(message: str) -> None:
    """Print a note, once in this process: its subject is read again in each step."""
    note(message)


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Collect the warnings raised inside the block (a loss became NaN), and print them as notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        note(message)


def print_table(table: Table) -> None:
    """Print `table`, fitted to the terminal; into a pipe or file, print every row on one line.

    `isatty` decides and not rich: where FORCE_COLOR or TTY_COMPATIBLE is set, as in many CI
    systems, rich takes a pipe for a terminal.
    """
    if sys.stdout.isatty():
        out.print(table)
        return
    wide = Console(width=_PIPED_WIDTH, highlight=False)
    with wide.capture() as printed:
        wide.print(table)
    lines = [line.rstrip() for line in printed.get().split("\n")]
    print("\n".join(line for line in lines if line))


def print_rows(
    names: Sequence[str], rows: Sequence[Sequence[str]], *, fold: int | None = None
) -> None:
    """Print a table of texts, or a paragraph for each row where the terminal is too narrow.

    A paragraph begins with the value of the first column, without its name; each further value
    follows the name of its column. Before there are paragraphs, the first column may be folded to
    width `fold`.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.measure import Measurement
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(names):
        table.add_column(name, no_wrap=number > 0 or fold is None, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    needed = Measurement.get(out, out.options.update(width=_PIPED_WIDTH), table).maximum
    widest = max(cell_len(text) for text in (names[0], *(row[0] for row in rows)))
    if fold is not None:
        needed -= max(0, widest - fold)
    if not sys.stdout.isatty() or needed <= out.width:
        print_table(table)
        return
    for row in rows:
        out.print(Text(row[0], style="bold"), soft_wrap=False)
        parts = [
            Text.assemble((f"{name}:", "dim"), " ", value)
            for name, value in zip(names[1:], row[1:], strict=True)
        ]
        out.print(Padding(Text(" · ").join(parts), (0, 0, 0, _INDENT)), soft_wrap=False)


def print_entries(entries: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> None:
    """Print entries of a head line and named texts, wrapped, for texts too long for a table.

    An entry has its head, and pairs of a name and a text; a pair without a text is left out.
    """
    indent = " " * _INDENT
    for head, texts in entries:
        print(textwrap.fill(head, out.width, subsequent_indent=indent, break_on_hyphens=False))
        for name, text in texts:
            if text:
                line = f"{indent}{name}: {text}"
                more: dict[str, Any] = {"subsequent_indent": 2 * indent, "break_on_hyphens": False}
                print(textwrap.fill(line, out.width, **more))


def span(seconds: float) -> str:
    """Return a time in words: ``2.5 h``."""
    for unit, one in _SPANS:
        if seconds >= one:
            return f"{seconds / one:.1f} {unit}"
    return f"{seconds:.0f} s"


def is_drawn() -> bool:
    """Return whether standard error is a terminal, on which bars are drawn.

    `isatty` is asked besides rich: where FORCE_COLOR is set, rich takes a pipe for a terminal.
    """
    return sys.stderr.isatty() and err.is_terminal and not err.is_dumb_terminal


def log_line(text: str) -> None:
    """Write a line with the time, unless standard error is a terminal."""
    global _last_line
    _last_line = time.monotonic()
    if not is_drawn():
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", file=sys.stderr, flush=True)


@dataclass
class Meter:
    """A count on its way to a total."""

    title: str  # what is counted, in a few words
    total: int
    count: Callable[[], int]  # returns the count of now
    left: Callable[[], float | None]  # returns the expected seconds to the end; None if not known
    running: Callable[[], str] = lambda: ""  # returns what is done now, in a few words

    def line(self) -> str:
        """Return the state in one line."""
        parts = [self.running(), self.time_left()]
        return ": ".join(filter(None, [self.counted(), "; ".join(filter(None, parts))]))

    def counted(self) -> str:
        """Return the title and the count: ``sweep 6/27``."""
        return f"{self.title} {self.count():,}/{self.total:,}"

    def time_left(self) -> str:
        """Return the expected time to the end in words; empty if it is not known."""
        left = self.left()
        return "" if left is None else f"about {span(left)} left"


@contextmanager
def metered(meter: Meter) -> Iterator[None]:
    """Show a meter while the block runs.

    On a terminal it is a bar, which disappears when the block ends. Elsewhere it is a line whenever
    a minute has passed since the last line.
    """
    if is_drawn():
        with _bar(meter):
            yield
        return
    global _last_line
    _last_line = _last_line or time.monotonic()
    ended = threading.Event()

    def write_lines() -> None:
        while not ended.wait(max(0.0, (_last_line or 0.0) + LINE_SECONDS - time.monotonic())):
            log_line(meter.line())

    writer = threading.Thread(target=write_lines, daemon=True, name="progress")
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how far a loop is (`metered`), and give a function that adds to its count."""
    done, begun = 0, time.monotonic()

    def advance(count: int) -> None:
        nonlocal done
        done += count

    def left() -> float | None:
        return (time.monotonic() - begun) / done * (total - done) if done else None

    with metered(Meter(title, total, lambda: done, left)):
        yield advance


def _bar(meter: Meter) -> Progress:
    """Return a bar that asks the meter whenever it is drawn anew."""
    from rich.progress import Progress, ProgressColumn, Task, TimeElapsedColumn
    from rich.progress_bar import ProgressBar
    from rich.table import Column
    from rich.text import Text

    class Asked(ProgressColumn):
        """A column that shows what a function returns."""

        def __init__(self, show: Callable[[], RenderableType], whole: bool = True) -> None:
            super().__init__(Column(no_wrap=whole))  # a narrow terminal cuts the others first
            self.show = show

        def render(self, task: Task) -> RenderableType:
            return self.show()

    columns = (
        Asked(lambda: Text(f"  {meter.counted()}")),
        Asked(lambda: ProgressBar(meter.total, meter.count(), width=_BAR_WIDTH)),
        TimeElapsedColumn(),
        Asked(lambda: Text(meter.time_left())),
        Asked(lambda: Text(meter.running(), no_wrap=True, overflow="ellipsis"), whole=False),
    )
    bar = Progress(*columns, console=err, transient=True)
    bar.add_task("", total=meter.total)
    return bar
