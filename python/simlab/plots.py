"""Figures, drawn from the results table alone: nothing is computed here.

`plot_grids` follows Phang et al. 2021, figure 1: one heatmap per comparison, one colour scale.
`plot_truncation` follows their figure 3: the metric when layer l goes straight to the head.
Grids of several models at once and localization scores are drawn by `modelplots`, the triangles of
skipped spans by `skipplots`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simlab.alignplots import alignment_figures
from simlab.blockplots import outline_blocks
from simlab.errors import UserError
from simlab.files import write_bytes
from simlab.freezeplots import plot_freezing
from simlab.kinds import CLS
from simlab.look import (
    PNG_DPI,
    STYLE,
    draw_curves,
    draw_modes,
    heat_colours,
    layer_names,
    lowest_colour,
    measure_name,
    short,
    unusual_options,
)
from simlab.modelplots import MEASURE_COLUMNS, plot_models
from simlab.results import (
    BASELINE,
    BLOCK_SCORE,
    BLOCKS,
    FREEZING,
    LOCALIZATION,
    MAJORITY,
    SKIPPING,
    TRUNCATIONS,
    is_alignment,
    is_joint,
)
from simlab.skipplots import plot_skipping

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")
FIGURE_1 = ("ORIG-ORIG", "FT-ORIG", "FT-FT", "FT[1]-FT[2]")
_UNDEFINED_NOTE = "Grey: undefined, the layer does not vary over the examples"
_CLS_NOTE = " (at the embedding output, “emb”, CLS is always the same vector)"
# A panel is wide enough for two digits in every cell; beyond so many layers they would be noise.
_CELL_INCHES, _SMALLEST_PANEL, _MOST_LAYERS_WITH_VALUES = 0.36, 2.6, 30


@dataclass(frozen=True)
class Panel:
    """One heatmap: `values` is [layers of x, layers of y]; x goes up the side, as in P."""

    title: str
    side: str
    bottom: str
    values: np.ndarray
    x_layers: list[int]
    y_layers: list[int]
    rows: pd.DataFrame


def plot_results(
    frame: pd.DataFrame,
    folder: Path,
    formats: Sequence[str] = ("png", "pdf"),
    comparisons: Sequence[str] = (),
) -> list[Path]:
    """Draw every figure that the table has rows for; return the files written.

    Parameters
    ----------
    frame
        A results table (`results.read_results`).
    comparisons
        Which grids to show, in order; by default the four of P's figure 1 if a measure has all of
        them, else all it has, and every joint grid.

    Raises
    ------
    UserError
        Unknown format, a comparison that the table lacks, or nothing to draw.
    """
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


def plot_grids(rows: pd.DataFrame, blocks: pd.DataFrame | None = None) -> Figure:
    """Heatmaps of all comparisons in `rows` (one measure, one estimator) on one colour scale.

    Clusters of layers that `blocks` (rows of `simcore blocks`) has for them are outlined.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    panels = _panels(rows)
    columns = int(np.ceil(np.sqrt(len(panels))))
    lines = -(-len(panels) // columns)
    most = max(max(panel.values.shape) for panel in panels)
    side = max(_SMALLEST_PANEL, _CELL_INCHES * most)
    low = min(lowest_colour(rows.iloc[0]["measure"], panel.values) for panel in panels)
    with mpl.rc_context(STYLE):
        size = (columns * (side + 0.6) + 0.9, lines * (side + 0.75) + 0.55)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False).ravel()
        for axis, panel in zip(axes, panels, strict=False):
            image = _draw_panel(axis, panel, low)
            if blocks is not None:
                outline_blocks(axis, panel.rows, panel.x_layers, blocks)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        bar = figure.colorbar(image, ax=axes, shrink=0.7, aspect=32, pad=0.02)
        bar.set_label(measure_name(rows))
        bar.outline.set_visible(False)
        figure.suptitle(_headline(rows), fontsize=11)
        if any(np.isnan(panel.values).any() for panel in panels):
            note = _UNDEFINED_NOTE + (_CLS_NOTE if str(rows.iloc[0]["kind"]) == CLS else "")
            figure.supxlabel(f"{note}.", fontsize=7.5, color="0.35")
    return figure


def plot_truncation(rows: pd.DataFrame, baseline: pd.DataFrame) -> Figure:
    """The held-out metric against the layer fed to the head, with the majority-class line.

    A line for each model, or where `rows` have several modes a line for each mode.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(4.8, 3.3), layout="constrained")
        axis = figure.subplots()
        modes = [mode for mode, name in TRUNCATIONS.items() if name in set(rows["comparison"])]
        if len(modes) == 1:
            draw_curves(axis, rows)
        else:
            draw_modes(axis, rows, {TRUNCATIONS[mode]: mode for mode in modes})
        for value in baseline.loc[baseline["model_x"] == MAJORITY, "value"][:1]:
            axis.axhline(value, color="0.35", linestyle=(0, (5, 3)), linewidth=1.2, label=MAJORITY)
        _finish_truncation(axis, rows, modes)
    return figure


def _finish_truncation(axis: Axes, rows: pd.DataFrame, modes: Sequence[str]) -> None:
    first = rows.iloc[0]
    what = f"{modes[0].capitalize()} truncation" if len(modes) == 1 else "Truncation"
    axis.set_xlabel("layer whose classifier vector goes to the task head")
    axis.set_ylabel(f"held-out {first['measure']}")
    axis.set_title(f"{what} · task {first['task']} · n = {first['n']:,}")
    axis.legend(frameon=False, loc="upper left" if len(modes) == 1 else "best")


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


def _panels(rows: pd.DataFrame) -> list[Panel]:
    """One panel per comparison; of several restarts the first is shown."""
    panels = []
    for comparison, grid in rows.groupby("comparison", observed=True):
        first = grid.iloc[0]
        same = (grid["model_x"] == first["model_x"]) & (grid["model_y"] == first["model_y"])
        table = grid[same].pivot(index="layer_x", columns="layer_y", values="value")
        table = table.sort_index().sort_index(axis=1)
        panels.append(
            Panel(
                str(comparison).replace("-", "–"),
                first["model_x"],
                first["model_y"],
                table.to_numpy(),
                [int(layer) for layer in table.index],
                [int(layer) for layer in table.columns],
                grid[same],
            )
        )
    return panels


def _draw_panel(axis: Axes, panel: Panel, low: float):
    values = panel.values
    image = axis.imshow(values, origin="lower", cmap=heat_colours(), vmin=low, vmax=1.0)
    axis.set_title(panel.title, fontweight="bold")
    axis.set_ylabel(f"layer of {panel.side}")
    axis.set_xlabel(f"layer of {panel.bottom}")
    axis.set_yticks(range(values.shape[0]), layer_names(panel.x_layers))
    axis.set_xticks(range(values.shape[1]), layer_names(panel.y_layers))
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    if max(values.shape) <= _MOST_LAYERS_WITH_VALUES:
        for (row, column), value in np.ndenumerate(values):
            light = image.norm(value) < 0.6
            axis.text(
                column,
                row,
                short(value),
                ha="center",
                va="center",
                fontsize=7.5,
                color="white" if light else "black",
            )
    return image


def _headline(rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    name = measure_name(rows)
    return f"{name[0].upper()}{name[1:]} between layers · task {first['task']} · n = {first['n']:,}"


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
