"""The nuclear norm of every layer (Ren et al. 2023, appendix B.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simlab.figures.alignment_panels import MOST_APART, finish, panels, titled
from simlab.figures.names import DETAILS
from simlab.figures.style import draw_curves
from simlab.store.results import NUCLEAR, NUCLEAR_RAW

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_LABELS = {
    NUCLEAR: "nuclear norm at unit Frobenius norm",
    NUCLEAR_RAW: "nuclear norm of the rows as they are",
}


# Rows of one model and layer, which two studies may both have; seeds and numbers of rows differ.
_MODEL = ["label_x", "seed_x", *DETAILS, "layer_x"]


def plot_complexity(rows: pd.DataFrame) -> Figure:
    """Draw the nuclear norms of each layer: a panel per measure, a line per model.

    If there are more than `MOST_APART` models, the mean over seeds is drawn, with a thin line for
    each seed.
    """
    measures = [measure for measure in _LABELS if measure in set(rows["measure"])]
    figure, axes = panels(len(measures))
    for axis, measure in zip(axes, measures, strict=True):
        # A model may be in two studies.
        of_measure = rows[rows["measure"] == measure].drop_duplicates(_MODEL)
        draw_curves(axis, of_measure, len(of_measure[_MODEL[:2]].drop_duplicates()) > MOST_APART)
        finish(axis, "", "layer", _LABELS[measure])
    axes[0].legend(frameon=False, fontsize=7)
    return titled(figure, rows, "Complexity of layers")
