"""Figures, drawn from the results table alone: nothing is computed here.

`plot_grids` follows Phang et al. 2021, figure 1: one heatmap per comparison, one colour scale.
`plot_truncation` follows their figure 3: the metric when layer l goes straight to the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simlab.errors import UserError
from simlab.files import atomic_file
from simlab.results import BASELINE, MAJORITY, TRUNCATION

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")
FIGURE_1 = ("ORIG-ORIG", "FT-ORIG", "FT-FT", "FT[1]-FT[2]")
PNG_DPI = 200
# A panel is wide enough for two digits in every cell; beyond so many layers they would be noise.
_CELL_INCHES, _SMALLEST_PANEL, _MOST_LAYERS_WITH_VALUES = 0.36, 2.6, 30
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
_MARKERS = ("o", "s", "^", "D", "v", "P")
_UNDEFINED_NOTE = (
    "Grey: undefined, the layer does not vary over the examples "
    "(at the embedding output, “emb”, CLS is always the same vector)."
)
_STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.linewidth": 0.8,
    "savefig.bbox": "tight",
    "savefig.pad_inches": 0.05,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
}


@dataclass(frozen=True)
class Panel:
    """One heatmap: `values` is [layers of x, layers of y]; x goes up the side, as in P."""

    title: str
    side: str
    bottom: str
    values: np.ndarray


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
        Which grids to show, in order; by default the four of P's figure 1 if all are there,
        else all that are there.

    Raises
    ------
    UserError
        Unknown format, a comparison that the table lacks, or nothing to draw.
    """
    for name in formats:
        if name not in FORMATS:
            raise UserError(f"--format {name}: wanted one of {', '.join(FORMATS)}")
    files: list[Path] = []
    grids = frame[frame["layer_y"].notna()]
    if comparisons or len(grids):
        grids = _choose(grids, comparisons)
    for key, rows in grids.groupby(["task", "measure", "kernel", "estimator"], dropna=False):
        name = "-".join(str(part) for part in key[1:] if part == part and part != "linear")
        files += _save(plot_grids(rows), folder / f"{key[0]}-{name}", formats)
    for task, rows in frame[frame["comparison"] == TRUNCATION].groupby("task"):
        baseline = frame[(frame["comparison"] == BASELINE) & (frame["task"] == task)]
        files += _save(plot_truncation(rows, baseline), folder / f"{task}-truncation", formats)
    if not files:
        raise UserError("results: wanted rows with a grid or a truncation curve, found neither")
    return files


def plot_grids(rows: pd.DataFrame) -> Figure:
    """Heatmaps of all comparisons in `rows` (one measure, one estimator) on one colour scale."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    panels = _panels(rows)
    columns = int(np.ceil(np.sqrt(len(panels))))
    lines = -(-len(panels) // columns)
    most = max(max(panel.values.shape) for panel in panels)
    side = max(_SMALLEST_PANEL, _CELL_INCHES * most)
    low = min(0.0, min(float(np.nanmin(panel.values, initial=0.0)) for panel in panels))
    with mpl.rc_context(_STYLE):
        size = (columns * (side + 0.6) + 0.9, lines * (side + 0.75) + 0.55)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False).ravel()
        for axis, panel in zip(axes, panels, strict=False):
            image = _draw_panel(axis, panel, low)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        bar = figure.colorbar(image, ax=axes, shrink=0.7, aspect=32, pad=0.02)
        bar.set_label(_measure_name(rows))
        bar.outline.set_visible(False)
        figure.suptitle(_headline(rows), fontsize=11)
        if any(np.isnan(panel.values).any() for panel in panels):
            figure.supxlabel(_UNDEFINED_NOTE, fontsize=7.5, color="0.35")
    return figure


def plot_truncation(rows: pd.DataFrame, baseline: pd.DataFrame) -> Figure:
    """The held-out metric against the layer fed to the head, with the majority-class line."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(4.8, 3.3), layout="constrained")
        axis = figure.subplots()
        for index, (model, curve) in enumerate(rows.groupby("model_x")):
            curve = curve.sort_values("layer_x")
            axis.plot(
                curve["layer_x"].astype(int),
                curve["value"],
                color=_COLOURS[index % len(_COLOURS)],
                marker=_MARKERS[index % len(_MARKERS)],
                markersize=5,
                linewidth=1.6,
                label=model,
                clip_on=False,
                zorder=3,
            )
        for value in baseline.loc[baseline["model_x"] == MAJORITY, "value"][:1]:
            axis.axhline(value, color="0.35", linestyle=(0, (5, 3)), linewidth=1.2, label=MAJORITY)
        _finish_truncation(axis, rows)
    return figure


def _finish_truncation(axis: Axes, rows: pd.DataFrame) -> None:
    first = rows.iloc[0]
    layers = range(int(rows["layer_x"].max()) + 1)
    axis.set_xticks(layers, _layer_names(len(layers)))
    axis.set_xlabel("layer whose CLS vector goes to the task head")
    axis.set_ylabel(f"held-out {first['measure']}")
    axis.set_title(f"Untuned truncation · task {first['task']} · n = {first['n']:,}")
    axis.grid(axis="y", color="0.9", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="upper left")


def _choose(grids: pd.DataFrame, comparisons: Sequence[str]) -> pd.DataFrame:
    """Keep the wanted comparisons in the wanted order, as an ordered categorical."""
    import pandas as pd

    found = list(dict.fromkeys(grids["comparison"]))
    wanted = list(comparisons)
    if not wanted:
        wanted = list(FIGURE_1) if set(FIGURE_1) <= set(found) else found
    missing = [name for name in wanted if name not in found]
    if missing:
        names = ", ".join(found) or "none"
        raise UserError(f"--comparison {missing[0]}: wanted one that is in the results ({names})")
    kept = grids[grids["comparison"].isin(wanted)]
    return kept.assign(comparison=pd.Categorical(kept["comparison"], wanted, ordered=True))


def _panels(rows: pd.DataFrame) -> list[Panel]:
    """One panel per comparison; of several restarts the first is shown."""
    panels = []
    for comparison, grid in rows.groupby("comparison", observed=True):
        first = grid.iloc[0]
        same = (grid["model_x"] == first["model_x"]) & (grid["model_y"] == first["model_y"])
        table = grid[same].pivot(index="layer_x", columns="layer_y", values="value")
        panels.append(
            Panel(
                str(comparison).replace("-", "–"),
                first["model_x"],
                first["model_y"],
                table.sort_index().sort_index(axis=1).to_numpy(),
            )
        )
    return panels


def _draw_panel(axis: Axes, panel: Panel, low: float):
    import matplotlib as mpl

    values = panel.values
    colours = mpl.colormaps["viridis"].with_extremes(bad="0.90")
    image = axis.imshow(values, origin="lower", cmap=colours, vmin=low, vmax=1.0)
    axis.set_title(panel.title, fontweight="bold")
    axis.set_ylabel(f"layer of {panel.side}")
    axis.set_xlabel(f"layer of {panel.bottom}")
    axis.set_yticks(range(values.shape[0]), _layer_names(values.shape[0]))
    axis.set_xticks(range(values.shape[1]), _layer_names(values.shape[1]))
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    if max(values.shape) <= _MOST_LAYERS_WITH_VALUES:
        for (row, column), value in np.ndenumerate(values):
            light = image.norm(value) < 0.6
            axis.text(
                column,
                row,
                _short(value),
                ha="center",
                va="center",
                fontsize=7.5,
                color="white" if light else "black",
            )
    return image


def _headline(rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    name = _measure_name(rows)
    return f"{name[0].upper()}{name[1:]} between layers · task {first['task']} · n = {first['n']:,}"


def _layer_names(count: int) -> list[str]:
    return ["emb", *map(str, range(1, count))]


def _short(value: float) -> str:
    """Two decimals without the leading zero, as P's figures: 0.93 is .93."""
    if np.isnan(value):
        return ""
    return f"{value:.2f}".replace("0.", ".", 1) if abs(value) < 0.995 else f"{value:.1f}"


def _measure_name(rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    kernel = {"linear": "linear ", "rbf": "RBF "}.get(first["kernel"], "")
    return f"{kernel}{str(first['measure']).upper()} ({first['estimator']})"


def _save(figure: Figure, stem: Path, formats: Sequence[str]) -> list[Path]:
    import matplotlib as mpl

    files = [stem.with_name(f"{stem.name}.{name}") for name in formats]
    with mpl.rc_context(_STYLE):
        for file in files:
            with atomic_file(file) as partial:
                figure.savefig(partial, dpi=PNG_DPI)
    return files
