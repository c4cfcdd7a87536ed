"""``simcore status``: what is done, running, failed and waiting in the folder of a sweep."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

_SECONDS = 5.0


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(status)


def status(
    folder: Annotated[Path, typer.Argument(help="Folder of a sweep (--out of `simcore sweep`).")],
    watch: Annotated[
        bool, typer.Option("--watch", help="Print the status anew every 5 seconds, until Ctrl-C.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Print the status of a sweep, which may be running: jobs by kind, rate, time left, last error.

    Example: `simcore status runs/phang --watch`
    """
    try:
        _print_status(folder, as_json)
        while watch:
            time.sleep(_SECONDS)
            _print_status(folder, as_json)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _print_status(folder: Path, as_json: bool) -> None:
    from simlab.store import console
    from simlab.sweeps.show import status_lines, status_table
    from simlab.sweeps.status import read_status

    found = read_status(folder)
    if as_json:
        print(json.dumps(found.as_dict()), flush=True)
        return
    console.print_rows(*status_table(found))
    for line in status_lines(found):
        console.out.print(line, markup=False)
