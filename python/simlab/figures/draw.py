"""Draw every figure that a results table has rows for, and write the figures to files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.errors import UserError, argument
from simlab.figures.alignment import alignment_figures
from simlab.figures.freezing import plot_freezing
from simlab.figures.grids import draw_panels
from simlab.figures.joint import draw_joint, in_files, joint_grids
from simlab.figures.pairs import figures_of, panels_of
from simlab.figures.skipping import plot_influence, plot_skipping
from simlab.figures.style import PNG_DPI, STYLE, unusual_settings
from simlab.figures.table import MEASURE_COLUMNS, distinguish, read_table, with_calibrated
from simlab.figures.training import between_steps, plot_training
from simlab.figures.truncation import plot_truncation
from simlab.representations.kinds import CLS
from simlab.store.files import write_bytes
from simlab.store.labels import run_names
from simlab.store.results import (
    ALIGNMENTS,
    BASELINE,
    BLOCK_SCORE,
    BLOCKS,
    FREEZING,
    GRID,
    GRIDS,
    INFLUENCE,
    JOINT,
    LOCALIZATION,
    SKIPPING,
    TRUNCATIONS,
)
from simlab.store.tracks import TRAINING
from simlab.tasks.metrics import of_metric

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")
ALL_TASKS = "all-tasks"  # the first word of a file that shows several tasks


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
    >>> from simlab import TaskOptions, extract, grid, plot
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = extract("minilm", "rt", "runs/reps/orig", label="ORIG", task_options=few)
    >>> step = grid("runs/reps/orig", "runs/results/orig.parquet", estimator="biased")
    >>> plot("runs/results/orig.parquet", "runs/figures", formats=["svg"])
    [PosixPath('runs/figures/rt-cka-biased.svg')]
    """
    for name in formats:
        if name not in FORMATS:
            raise UserError(f"{argument('formats', name)}: wanted one of {', '.join(FORMATS)}")
    frame = distinguish(of_metric(read_table(results), metric))
    files: list[Path] = []
    used: set[str] = set()
    for name, figure in _figures(frame, comparisons):
        files += _save(figure, Path(out) / _unused(name, used), formats)
    if not files:
        raise UserError("results: wanted rows with a grid, a curve or a triangle, found none")
    return files


def _figures(frame: pd.DataFrame, comparisons: Sequence[str]) -> Iterator[tuple[str, Figure]]:
    """Yield all figures with the names of their files, which may be equal."""
    # Grids of steps are curves, and heatmaps where their comparison is asked for.
    steps = between_steps(frame) & (not comparisons)
    yield from _grid_figures(frame[~steps], comparisons)
    yield from _step_figures(frame[steps])
    for name, figure, _ in curve_figures(frame):
        yield name, figure


def _grid_figures(frame: pd.DataFrame, comparisons: Sequence[str]) -> Iterator[tuple[str, Figure]]:
    """Yield the figures of grids and of the scores of their layers."""
    grids = frame[frame["experiment"].isin(GRIDS)]
    _require_comparisons(grids, comparisons)
    grids = with_calibrated(_chosen(grids, comparisons))
    blocks = frame[frame["experiment"].isin((BLOCKS, BLOCK_SCORE))]
    pairs, joint = grids[grids["experiment"] == GRID], grids[grids["experiment"] == JOINT]
    yield from _pair_figures(pairs, blocks, ordered=bool(comparisons))
    yield from _joint_figures(joint, frame[frame["experiment"] == LOCALIZATION])


def curve_figures(frame: pd.DataFrame) -> Iterator[tuple[str, Figure, pd.DataFrame]]:
    """Yield the figures that are no grids, with the names of their files and their rows.

    Parameters
    ----------
    frame
        A table that `distinguish` returned, with one metric of each task.
    """
    baselines = frame[frame["experiment"] == BASELINE]
    curves = frame[frame["experiment"].isin(TRUNCATIONS.values())]
    if len(curves):
        yield f"{_task(curves)}-truncation", plot_truncation(curves, baselines), curves
    others = {FREEZING: plot_freezing, SKIPPING: plot_skipping, INFLUENCE: plot_influence}
    for experiment, plot_all in others.items():
        rows = frame[frame["experiment"] == experiment]
        if len(rows):
            yield f"{_task(rows)}-{experiment}", plot_all(rows), rows
    records = frame[(frame["experiment"] == TRAINING) & (frame["layer_x"] == frame["layer_y"])]
    by = ["task", "comparison", *MEASURE_COLUMNS]
    for (task, reference, *_), rows in records.groupby(by, dropna=False, sort=False):
        name = "-".join([task, TRAINING, reference, *_measure_words(rows.iloc[0])])
        yield name, plot_training(rows), rows
    alignment = frame[frame["experiment"].isin(ALIGNMENTS)]
    for name, figure in alignment_figures(alignment).items():
        yield name, figure, alignment


def _step_figures(rows: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
    """Yield figures of every layer over the steps of a training, for each step of reference.

    A heatmap for each of hundreds of steps would show less.
    """
    rows = rows[rows["layer_x"] == rows["layer_y"]]
    rows = rows.assign(label_x=run_names(rows["label_x"]))
    by = ["task", "comparison", *MEASURE_COLUMNS]
    for (task, reference, *_), part in rows.groupby(by, dropna=False, sort=False):
        yield "-".join([task, reference, *_measure_words(part.iloc[0])]), plot_training(part)


def _pair_figures(
    grids: pd.DataFrame, blocks: pd.DataFrame, ordered: bool
) -> Iterator[tuple[str, Figure]]:
    """Yield the figures of grids of two models, at least one for every measure."""
    for _, rows in grids.groupby(list(MEASURE_COLUMNS), dropna=False, sort=False):
        panels = panels_of(rows)
        for word, part in figures_of(panels, ordered):
            tasks = {panel.task for panel in part}
            parts = [tasks.pop() if len(tasks) == 1 else ALL_TASKS, *_measure_words(rows.iloc[0])]
            yield "-".join([*parts, *([word] if word else [])]), draw_panels(part, blocks)


def _joint_figures(grids: pd.DataFrame, scores: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
    """Yield the figures of joint grids, with a panel for every measure and for the scores."""
    for task in dict.fromkeys([*grids["task"], *scores["task"]]):
        mine = scores[scores["task"] == task]
        shown = mine.index[:0]
        parts = list(grids[grids["task"] == task].groupby(["comparison", "source"], sort=False))
        for (comparison, source), rows in parts:
            of_rows = mine[mine["label_x"].isin(set(rows["label_x"]))]
            of_rows = of_rows[of_rows["comparison"].fillna(comparison) == comparison]
            shown = shown.union(of_rows.index)
            words = [comparison, *([source] if source else [])] if len(parts) > 1 else []
            yield from _files_of_joint("-".join([task, "models", *words]), rows, of_rows)
        rest = mine.drop(index=shown)
        if len(rest):
            yield f"{task}-models" + ("-scores" if parts else ""), draw_joint([], rest)


def _files_of_joint(
    name: str, rows: pd.DataFrame, scores: pd.DataFrame
) -> Iterator[tuple[str, Figure]]:
    files = list(in_files(joint_grids(rows), scores))
    for grids, with_scores in files:
        first = grids[0].rows.iloc[0] if grids else None
        words = ["localization"] if first is None else _measure_words(first)
        words = words if len(files) > 1 else []
        yield "-".join([name, *words]), draw_joint(grids, scores if with_scores else scores[:0])


def _task(rows: pd.DataFrame) -> str:
    return str(rows.iloc[0]["task"]) if rows["task"].nunique() == 1 else ALL_TASKS


def _require_comparisons(grids: pd.DataFrame, comparisons: Sequence[str]) -> None:
    names = list(dict.fromkeys(grids["comparison"]))
    missing = [name for name in comparisons if name not in names]
    if missing:
        raise UserError(
            f"{argument('comparisons', missing[0])}: wanted a comparison in the results "
            f"({', '.join(names) or 'none'})"
        )


def _chosen(grids: pd.DataFrame, comparisons: Sequence[str]) -> pd.DataFrame:
    """Return the rows of the wanted comparisons in the wanted order; without a wish, all rows."""
    if not comparisons:
        return grids
    rank = grids["comparison"].map({name: place for place, name in enumerate(comparisons)})
    return grids.loc[rank.dropna().sort_values(kind="stable").index]


def _measure_words(first: pd.Series) -> list[str]:
    """Return the measure, and its kind, kernel, estimator and options where they are not usual."""
    usual = (CLS, "linear", "")
    parts = [first[name] for name in ("measure", "kind", "kernel", "estimator")]
    parts += [f"{name}-{value}" for name, value in unusual_settings(first).items()]
    parts.append(first["quantity"])
    return [part for part in parts if isinstance(part, str) and part not in usual]


def _unused(name: str, used: set[str]) -> str:
    """Return `name` as part of a file name, with a number if another file has this name."""
    stem = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")
    unique, number = stem, 1
    while unique.lower() in used:  # some systems do not tell upper case from lower case
        number += 1
        unique = f"{stem}-{number}"
    used.add(unique.lower())
    return unique


def drawn(figure: Figure, format: str) -> bytes:
    """Return the content of a file of `figure`; the formats are `FORMATS`."""
    import matplotlib as mpl

    # Into memory first: on a full disk matplotlib would raise errors of other types.
    stream = BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(stream, format=format, dpi=PNG_DPI)
    return stream.getvalue()


def _save(figure: Figure, stem: Path, formats: Sequence[str]) -> list[Path]:
    files = [stem.with_name(f"{stem.name}.{name}") for name in formats]
    for file, name in zip(files, formats, strict=True):
        write_bytes(file, drawn(figure, name))
    return files
