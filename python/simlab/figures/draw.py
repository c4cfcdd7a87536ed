"""Draw every figure that a results table has rows for, and write the figures to files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.errors import UserError
from simlab.figures.alignment import alignment_figures
from simlab.figures.freezing import plot_freezing
from simlab.figures.grids import plot_grids
from simlab.figures.joint import MEASURE_COLUMNS, plot_models
from simlab.figures.metrics import of_metric
from simlab.figures.skipping import plot_skipping
from simlab.figures.style import PNG_DPI, STYLE, unusual_options
from simlab.figures.training import plot_training
from simlab.figures.truncation import plot_truncation
from simlab.representations.kinds import CLS
from simlab.store.files import write_bytes
from simlab.store.results import (
    BASELINE,
    BLOCK_SCORE,
    BLOCKS,
    FREEZING,
    LOCALIZATION,
    SKIPPING,
    TRAINING_CKA,
    TRUNCATIONS,
    is_alignment,
    is_joint,
    read_results,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")
FIGURE_1 = ("ORIG-ORIG", "FT-ORIG", "FT-FT", "FT[1]-FT[2]")


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
        Results files, folders of results files, or a table that `read_results` made.
    out
        Folder for the figures.
    formats
        ``png``, ``pdf`` or ``svg``.
    comparisons
        Names of the grids to show, in order. By default, all joint grids, and for each measure the
        four comparisons of Phang et al. 2021, figure 1, or all comparisons if one of the four is
        missing.
    metric
        Name of the metric to show, such as ``accuracy``; None shows the main metric of each task,
        as does a task without rows of `metric`.

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
    >>> from simlab import TaskOptions, extract, grid, plot
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = extract("minilm", "rt", "runs/reps/orig", label="ORIG", task_options=few)
    >>> step = grid("runs/reps/orig", "runs/results/orig.parquet", estimator="biased")
    >>> plot("runs/results/orig.parquet", "runs/figures", formats=["svg"])
    [PosixPath('runs/figures/rt-cka-biased.svg')]
    """
    import pandas as pd

    folder = Path(out)
    frame = results if isinstance(results, pd.DataFrame) else read_results(results)
    for name in formats:
        if name not in FORMATS:
            raise UserError(f"--format {name}: wanted one of {', '.join(FORMATS)}")
    frame = of_metric(frame, metric)
    aligned = is_alignment(frame)
    alignment, frame = frame[aligned], frame[~aligned]
    grids = frame[frame["layer_y"].notna() & (frame["comparison"] != SKIPPING)]
    _require_comparisons(grids, comparisons)
    if comparisons:
        grids = grids[grids["comparison"].isin(comparisons)]
    keys = grids[["task", "comparison"]].agg(tuple, axis=1)
    joint = keys.isin([key for key, rows in grids.groupby(keys) if is_joint(rows)])
    scores = frame[frame["comparison"] == LOCALIZATION]
    blocks = frame[frame["comparison"].isin((BLOCKS, BLOCK_SCORE))]
    files = _save_pairs(grids[~joint], blocks, folder, formats, comparisons)
    files += _save_models(grids[joint], scores, folder, formats)
    for task, rows in frame[frame["comparison"].isin(TRUNCATIONS.values())].groupby("task"):
        baseline = frame[(frame["comparison"] == BASELINE) & (frame["task"] == task)]
        files += _save(plot_truncation(rows, baseline), folder / f"{task}-truncation", formats)
    for task, rows in frame[frame["comparison"] == FREEZING].groupby("task"):
        files += _save(plot_freezing(rows), folder / f"{task}-freezing", formats)
    for task, rows in frame[frame["comparison"] == SKIPPING].groupby("task"):
        files += _save(plot_skipping(rows), folder / f"{task}-skipping", formats)
    records = frame[frame["comparison"] == TRAINING_CKA]
    for (task, kind, estimator), rows in records.groupby(["task", "kind", "estimator"]):
        name = f"{task}-{TRAINING_CKA}-{kind}-{estimator}"
        files += _save(plot_training(rows), folder / name, formats)
    for name, figure in alignment_figures(alignment).items():
        files += _save(figure, folder / name, formats)
    if not files:
        raise UserError("results: wanted rows with a grid, a curve or a triangle, found none")
    return files


def _save_pairs(
    grids: pd.DataFrame,
    blocks: pd.DataFrame,
    folder: Path,
    formats: Sequence[str],
    comparisons: Sequence[str],
) -> list[Path]:
    """Write a figure for every measure, with a panel for every comparison; return the files."""
    files: list[Path] = []
    for _, rows in grids.groupby(["task", *MEASURE_COLUMNS], dropna=False, sort=False):
        first = rows.iloc[0]
        figure = plot_grids(_ordered(rows, comparisons), blocks)
        files += _save(figure, folder / f"{first['task']}-{_file_name(first)}", formats)
    return files


def _save_models(
    grids: pd.DataFrame, scores: pd.DataFrame, folder: Path, formats: Sequence[str]
) -> list[Path]:
    """Write a figure for every joint comparison, and return the files.

    A figure has a panel for every measure, and a panel for the localization scores.
    """
    files: list[Path] = []
    for task in dict.fromkeys([*grids["task"], *scores["task"]]):
        mine = scores[scores["task"] == task]
        parts = list(grids[grids["task"] == task].groupby("comparison", sort=False))
        for comparison, rows in parts or [("", grids.iloc[:0])]:
            of_rows = mine["model_x"].isin(set(rows["model_x"])) if len(rows) else slice(None)
            name = f"{task}-models" + (f"-{_slug(comparison)}" if len(parts) > 1 else "")
            files += _save(plot_models(rows, mine[of_rows]), folder / name, formats)
    return files


def _require_comparisons(grids: pd.DataFrame, comparisons: Sequence[str]) -> None:
    found = list(dict.fromkeys(grids["comparison"]))
    missing = [name for name in comparisons if name not in found]
    if missing:
        names = ", ".join(found) or "none"
        raise UserError(f"--comparison {missing[0]}: wanted a comparison in the results ({names})")


def _ordered(rows: pd.DataFrame, comparisons: Sequence[str]) -> pd.DataFrame:
    """Return the rows of the wanted comparisons, with `comparison` as an ordered categorical."""
    import pandas as pd

    wanted = list(comparisons)
    if not wanted:
        found = list(dict.fromkeys(rows["comparison"]))
        wanted = list(FIGURE_1) if set(FIGURE_1) <= set(found) else found
    kept = rows[rows["comparison"].isin(wanted)]
    return kept.assign(comparison=pd.Categorical(kept["comparison"], wanted, ordered=True))


def _file_name(first: pd.Series) -> str:
    """Return the measure, and its kind, kernel, estimator and options where they are not usual."""
    usual = (CLS, "linear")
    parts = [first[name] for name in ("measure", "kind", "kernel", "estimator")]
    options = unusual_options(first["measure"], first["options"])
    parts += [f"{name}-{value}" for name, value in options.items()]
    return "-".join(_slug(part) for part in parts if isinstance(part, str) and part not in usual)


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")


def _save(figure: Figure, stem: Path, formats: Sequence[str]) -> list[Path]:
    import matplotlib as mpl

    files = [stem.with_name(f"{stem.name}.{name}") for name in formats]
    with mpl.rc_context(STYLE):
        for file, name in zip(files, formats, strict=True):
            # Into memory first: on a full disk matplotlib would raise errors of other types.
            drawn = BytesIO()
            figure.savefig(drawn, format=name, dpi=PNG_DPI)
            write_bytes(file, drawn.getvalue())
    return files
