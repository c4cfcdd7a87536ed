"""``simcore report``: write one page that shows results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(report)


def report(
    results: Annotated[
        list[Path], typer.Argument(help="Results files, or folders of results files.")
    ],
    out: Annotated[Path, typer.Option(help="The page (.html).")] = Path("report.html"),
    title: Annotated[
        str | None, typer.Option(help="Heading; default: the name of the first results.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="Metric of the curves; default: the main metric of each task."),
    ] = None,
    exact: Annotated[
        bool, typer.Option(help="Store float32 values instead of 16 bits with a stated step.")
    ] = False,
    watch: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Write the page anew when results change; look every so many seconds. A browser "
            "that shows the page loads it again.",
        ),
    ] = None,
) -> None:
    """Write one page to look at: grids to pan, zoom and compare, curves, and what was run.

    The page is one file that a browser opens from disk; it needs no network.

    Example: `simcore report runs/demo/results --out runs/demo/report.html`
    """
    from simlab.errors import UserError, WriteError
    from simlab.report.watch import watched
    from simlab.report.write import require_page, write_report
    from simlab.store import console

    require_page(out)
    for _ in watched(results, watch):
        try:
            file = write_report(
                results, out, title=title, metric=metric, exact=exact, renewed=watch
            )
        except UserError as error:
            if watch is None or isinstance(error, WriteError):
                raise
            console.note(f"waiting for results that can be shown: {error}")
            continue
        size = file.stat().st_size / 2**20
        console.out.print(f"{file} ({size:.1f} MB): open it in a browser", markup=False)
