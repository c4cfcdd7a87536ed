"""Draw every figure that a results table has rows for, and write the figures to files.

Modules that load pandas and matplotlib are imported when there is something to draw.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.errors import UserError, argument, require_known
from simlab.results.reading import read_table
from simlab.results.results import (
    ALIGNMENTS,
    BASELINE,
    BLOCK_SCORE,
    BLOCKS,
    FREEZING,
    GRIDS,
    INFLUENCE,
    LOCALIZATION,
    SKIPPING,
    TRUNCATIONS,
)
from simlab.store.files import write_bytes
from simlab.tasks.task import of_metric

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")


def plot(
    results: pd.DataFrame | str | Path | Sequence[str | Path],
    out: str | Path,
    formats: Sequence[str] = ("png", "pdf"),
    comparisons: Sequence[str] = (),
    metric: str | None = None,
) -> list[Path]:
    """Draw every figure that the results have rows for.

    Parameters
    ----------
    results
        Results files, or folders of results files; in Python also a table that `read_results` made.
    out
        Folder for the figures.
    formats
        Formats: ``png``, ``pdf`` or ``svg``.
    comparisons
        Comparisons to show, in order; default: all, and the four of Phang et al. 2021 (figure 1)
        first.
    metric
        Metric to show, such as ``accuracy``, for tasks that have it; None is the main metric of
        each task.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    UserError
        A format is unknown, the table does not have a comparison or the metric, or there is nothing
        to draw.

    Examples
    --------
    >>> from simlab import TaskOptions, influence, plot
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = influence("minilm", "rt", "runs/results/influence.parquet", task_options=few)
    >>> plot(step.path, "runs/figures", formats=["svg"])
    [PosixPath('runs/figures/rt-influence.svg')]
    """
    from simlab.figures.table import without_copies

    for name in formats:
        require_known("formats", name, FORMATS)
    table = without_copies(of_metric(read_table(results), metric))
    files: list[Path] = []
    used: set[str] = set()
    for name, figure in _figures(table, comparisons):
        stem = _unused(name, used)
        for format in formats:
            files.append(Path(out) / f"{stem}.{format}")
            write_bytes(files[-1], drawn(figure, format))
    if not files:
        raise UserError("results: wanted rows with a grid, a curve or a triangle, found none")
    return files


def _figures(table: pd.DataFrame, comparisons: Sequence[str]) -> Iterator[tuple[str, Figure]]:
    """Yield all figures with the names of their files, which may be equal."""
    from simlab.figures.grids import draw_sheet, sheets_of
    from simlab.figures.joint import joint_figures
    from simlab.figures.table import MEASURED, between_steps

    # Grids of steps are curves, and heatmaps where their comparison is asked for.
    inside = table["experiment"].isin(GRIDS) & (~between_steps(table) | bool(comparisons))
    grids, others = _chosen(table[inside], comparisons), table[~inside]
    experiment = others["experiment"]
    blocks = others[experiment.isin((BLOCKS, BLOCK_SCORE))]
    pairs, joint = (grids[grids["experiment"] == name] for name in GRIDS)
    for _, rows in pairs.groupby(MEASURED, sort=False, observed=True):
        for sheet in sheets_of(rows, bool(comparisons)):
            yield sheet.name, draw_sheet(sheet, blocks)
    yield from joint_figures(joint, others[experiment == LOCALIZATION])
    for name, figure, _ in curve_figures(others):
        yield name, figure


def _chosen(grids: pd.DataFrame, comparisons: Sequence[str]) -> pd.DataFrame:
    """Return the rows of the wanted comparisons in the wanted order; without a wish, all rows."""
    if not comparisons:
        return grids
    names = list(dict.fromkeys(grids["comparison"]))
    missing = [name for name in comparisons if name not in names]
    if missing:
        raise UserError(
            f"{argument('comparisons', missing[0])}: wanted a comparison in the results "
            f"({', '.join(names) or 'none'})"
        )
    rank = grids["comparison"].map({name: place for place, name in enumerate(comparisons)})
    return grids.loc[rank.dropna().sort_values(kind="stable").index]


def curve_figures(table: pd.DataFrame) -> Iterator[tuple[str, Figure, pd.DataFrame]]:
    """Yield the figures that are no heatmaps of grids: the name of the file, figure and rows."""
    from simlab.figures.alignment import alignment_figures
    from simlab.figures.curves import (
        plot_freezing,
        plot_influence,
        plot_skipping,
        plot_truncation,
        training_figures,
    )
    from simlab.figures.table import task_name

    experiment = table["experiment"]
    baselines = table[experiment == BASELINE]
    curves = table[experiment.isin(TRUNCATIONS.values())]
    if len(curves):
        name = f"{task_name(curves['task'])}-truncation"
        yield name, plot_truncation(curves, baselines), curves
    others = {FREEZING: plot_freezing, SKIPPING: plot_skipping, INFLUENCE: plot_influence}
    for name, plot_all in others.items():
        rows = table[experiment == name]
        if len(rows):
            yield f"{task_name(rows['task'])}-{name}", plot_all(rows), rows
    yield from training_figures(table)
    alignment = table[experiment.isin(ALIGNMENTS)]
    if len(alignment):
        for name, figure in alignment_figures(alignment).items():
            yield name, figure, alignment


def _unused(name: str, used: set[str]) -> str:
    """Return `name` as part of a file name, with a number if another file has this name."""
    stem = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")
    # Some systems do not tell upper case from lower case.
    names = (stem, *(f"{stem}-{number}" for number in range(2, len(used) + 3)))
    unique = next(name for name in names if name.lower() not in used)
    used.add(unique.lower())
    return unique


def drawn(figure: Figure, format: str) -> bytes:
    """Return the content of a file of `figure`; the formats are `FORMATS`."""
    import matplotlib as mpl

    from simlab.figures.style import PNG_DPI, STYLE

    # Into memory first: on a full disk matplotlib would raise errors of other types.
    stream = BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(stream, format=format, dpi=PNG_DPI)
    return stream.getvalue()
