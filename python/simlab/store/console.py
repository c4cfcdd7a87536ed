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
from typing import Any

from rich.console import Console
from rich.markup import escape

from simlab.errors import spelled

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)
# Wider than any row, so that a table takes the width of its longest row.
_PIPED_WIDTH = 100_000
_INDENT = 4
LINE_SECONDS = 60.0  # the longest silence of a log while something is done
_DRAW_SECONDS = 0.1
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


def print_rows(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of texts, or `print_entries` where the terminal is too narrow."""
    from rich import box
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    table = Table(*names, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*map(Text, row))
    # Where FORCE_COLOR or TTY_COMPATIBLE is set, as in many CI systems, rich takes a pipe for a
    # terminal.
    if not sys.stdout.isatty():
        wide = Console(width=_PIPED_WIDTH, highlight=False)
        with wide.capture() as printed:
            wide.print(table)
        lines = [line.rstrip() for line in printed.get().split("\n")]
        print("\n".join(line for line in lines if line))
    elif Measurement.get(out, out.options.update(width=_PIPED_WIDTH), table).maximum <= out.width:
        out.print(table)
    else:
        named = [list(zip(names, row, strict=True)) for row in rows]
        print_entries([(first, texts) for (_, first), *texts in named])


def print_entries(entries: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> None:
    """Print entries of a head line and named texts, wrapped, for texts too long for a table."""
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
    """Return whether standard error is a terminal, on which bars are drawn."""
    # Where FORCE_COLOR is set, rich takes a pipe for a terminal.
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

    def counted(self) -> str:
        """Return the title and the count: ``sweep 6/27``."""
        return f"{self.title} {self.count():,}/{self.total:,}"

    def time_left(self) -> str:
        """Return the expected time to the end in words; empty if it is not known."""
        left = self.left()
        return "" if left is None else f"about {span(left)} left"


@contextmanager
def metered(meter: Meter) -> Iterator[None]:
    """Show a meter while the block runs."""
    ended = threading.Event()
    show = _draw if is_drawn() else _log
    thread = threading.Thread(target=show, args=(meter, ended), daemon=True, name="progress")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _log(meter: Meter, ended: threading.Event) -> None:
    global _last_line
    _last_line = _last_line or time.monotonic()
    while not ended.wait(max(0.0, _last_line + LINE_SECONDS - time.monotonic())):
        state = "; ".join(filter(None, [meter.running(), meter.time_left()]))
        log_line(": ".join(filter(None, [meter.counted(), state])))


def _draw(meter: Meter, ended: threading.Event) -> None:
    from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn
    from rich.table import Column
    from rich.text import Text

    class Cut(TextColumn):
        """A text that a narrow terminal cuts before any other column."""

        def render(self, task: Task) -> Text:
            return Text(meter.running(), no_wrap=True, overflow="ellipsis")

    count = TextColumn("  {task.description}", markup=False)
    left = TextColumn("{task.fields[left]}", markup=False)
    running = Cut("", table_column=Column())
    columns = (count, BarColumn(_BAR_WIDTH), TimeElapsedColumn(), left, running)
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(meter.counted(), total=meter.total, left="")
        while not ended.wait(_DRAW_SECONDS):
            bar.update(task, completed=meter.count(), description=meter.counted())
            bar.update(task, left=meter.time_left())


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
