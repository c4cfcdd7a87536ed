"""Terminal output: messages and tables on standard output, progress and notes on standard error."""

from __future__ import annotations

import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from rich.table import Table

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)
# Wider than any row, so that a table takes the width of its longest row.
_PIPED_WIDTH = 100_000
_INDENT = 4


def note(message: str) -> None:
    """Print `message` as a note on standard error; the command continues."""
    err.print(f"[yellow]note:[/] {escape(message)}")


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


def print_rows(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of texts, or a paragraph for each row where the terminal is too narrow.

    Parameters
    ----------
    names
        Names of the columns. A paragraph begins with the value of the first column, without its
        name; each further value follows the name of its column.
    """
    from rich import box
    from rich.measure import Measurement
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    needed = Measurement.get(out, out.options.update(width=_PIPED_WIDTH), table).maximum
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

    Parameters
    ----------
    entries
        For each entry its head, and pairs of a name and a text; a pair without a text is left out.
    """
    indent = " " * _INDENT
    for head, texts in entries:
        print(textwrap.fill(head, out.width, subsequent_indent=indent, break_on_hyphens=False))
        for name, text in texts:
            if text:
                line = f"{indent}{name}: {text}"
                more: dict[str, Any] = {"subsequent_indent": 2 * indent, "break_on_hyphens": False}
                print(textwrap.fill(line, out.width, **more))


@contextmanager
def progress(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar with the time left, and give a function that adds to the count.

    On a terminal the bar disappears when the block ends. Elsewhere nothing is drawn.
    """
    columns = (
        TextColumn("  {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
    with bar:
        task = bar.add_task(description, total=total)
        yield lambda count: bar.advance(task, count)
