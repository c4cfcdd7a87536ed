"""The figure of complexity: a curve for each model, seed and number of rows."""

import json

import numpy as np

from simlab.figures.alignment import alignment_figures
from simlab.store.results import COMPLEXITY, NUCLEAR, ResultRow, to_frame


def curve(study, seed, n, start):
    return [
        ResultRow(
            comparison=f"{COMPLEXITY}: {study}",
            measure=NUCLEAR,
            kind="mean",
            options=json.dumps({}),
            model_x="FT",
            seed_x=seed,
            layer_x=layer,
            value=start + layer,
            n=n,
            task="rt",
        )
        for layer in range(3)
    ]


def test_seeds_with_one_label_have_a_curve_each():
    rows = [*curve("a", 1, 100, 0.0), *curve("b", 2, 4000, 10.0), *curve("b", 1, 4000, 20.0)]
    rows += curve("c", 1, 100, 0.0)  # the same model in another study
    figure = alignment_figures(to_frame(rows))["rt-alignment-mean-complexity"]
    starts = [line.get_ydata()[0] for line in figure.axes[0].lines]
    np.testing.assert_array_equal(sorted(starts), [0.0, 10.0, 20.0])
