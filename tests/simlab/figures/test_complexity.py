"""The figure of complexity: a curve for each model, seed and number of rows."""

import json
from dataclasses import replace

import numpy as np

from simlab.figures.alignment import alignment_figures
from simlab.results.results import COMPLEXITY, NUCLEAR, ResultRow
from support.lab.drawing import drawable
from support.tolerance import FLOAT64_RELATIVE


def curve(study, seed, n, start):
    return [
        ResultRow(
            experiment=COMPLEXITY,
            comparison=study,
            measure=NUCLEAR,
            kind="mean",
            options=json.dumps({}),
            label_x="FT",
            base_x="minilm",
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
    figure = alignment_figures(drawable(rows))["rt-alignment-mean-complexity"]
    starts = [line.get_ydata()[0] for line in figure.axes[0].lines]
    np.testing.assert_array_equal(sorted(starts), [0.0, 10.0, 20.0])


def test_many_models_are_drawn_as_their_mean():
    rows = []
    for seed in range(8):
        rows += [replace(one, label_x=f"FT[{seed}]") for one in curve("a", seed, 9, float(seed))]
    figure = alignment_figures(drawable(rows))["rt-alignment-mean-complexity"]
    (label,) = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert label == "FT[0–7]"
    bold = max(figure.axes[0].lines, key=lambda line: line.get_linewidth())
    np.testing.assert_allclose(bold.get_ydata(), [3.5, 4.5, 5.5], rtol=FLOAT64_RELATIVE)
    assert len(figure.axes[0].lines) == 9
