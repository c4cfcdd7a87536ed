"""Every figure that a results table has rows for, written to files: nothing is computed here."""

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
) -> list[Path]:
    """Draw every figure that the results have rows for.

    Parameters
    ----------
    results
        Results files or folders of them, or the table that `read_results` made of them.
    out
        Folder for the figures.
    formats
        ``png``, ``pdf`` or ``svg``.
    comparisons
        Which grids to show, in order; by default the four of P's figure 1 if a measure has all of
        them, else all it has, and every joint grid.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    UserError
        Unknown format, a comparison that the table lacks, or nothing to draw.

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
    """A figure for every measure, with a panel for every comparison."""
    files: list[Path] = []
    for _, rows in grids.groupby(["task", *MEASURE_COLUMNS], dropna=False, sort=False):
        first = rows.iloc[0]
        figure = plot_grids(_ordered(rows, comparisons), blocks)
        files += _save(figure, folder / f"{first['task']}-{_file_name(first)}", formats)
    return files


def _save_models(
    grids: pd.DataFrame, scores: pd.DataFrame, folder: Path, formats: Sequence[str]
) -> list[Path]:
    """A figure for every joint comparison, with a panel for every measure and for the scores."""
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
        raise UserError(f"--comparison {missing[0]}: wanted one that is in the results ({names})")


def _ordered(rows: pd.DataFrame, comparisons: Sequence[str]) -> pd.DataFrame:
    """Keep the wanted comparisons of one measure in the wanted order, as an ordered categorical."""
    import pandas as pd

    wanted = list(comparisons)
    if not wanted:
        found = list(dict.fromkeys(rows["comparison"]))
        wanted = list(FIGURE_1) if set(FIGURE_1) <= set(found) else found
    kept = rows[rows["comparison"].isin(wanted)]
    return kept.assign(comparison=pd.Categorical(kept["comparison"], wanted, ordered=True))


def _file_name(first: pd.Series) -> str:
    """Measure, and what distinguishes it: kind, kernel, estimator and options if not the usual."""
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
            # Into memory first: on a full disk matplotlib's writers end in errors of their own.
            drawn = BytesIO()
            figure.savefig(drawn, format=name, dpi=PNG_DPI)
            write_bytes(file, drawn.getvalue())
    return files
