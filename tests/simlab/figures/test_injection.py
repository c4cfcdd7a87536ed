"""The figure of injections: a panel for each protocol, a bar for each method and training."""

import json
import re

import numpy as np
import pytest

from simlab.figures.alignment import alignment_figures
from simlab.results.results import INJECTION, ResultRow, Side
from support.lab.drawing import drawable

# Not in the order of figures.
METHODS = (
    "random-labels",
    "identity",
    "linear",
    "linear-gd",
    "itself",
)
VALUES = {"itself": 0.9, "identity": 0.7, "linear": 0.8, "linear-gd": 0.5, "random-labels": 0.5}


FORTH, BACK = (("FT[1]", 1), ("FT[2]", 2)), (("FT[2]", 2), ("FT[1]", 1))


def injection(method, pair, value, **protocol):
    return ResultRow(
        experiment=INJECTION,
        measure="accuracy",
        kind="cls",
        options=json.dumps({"method": method, **protocol}),
        **Side(*pair[0], base="minilm").columns("x"),
        **Side(*pair[1], base="minilm").columns("y"),
        layer_x=6,
        layer_y=6,
        value=value,
        n=100,
        task="rt",
    )


def bars(axis):
    names = [label.get_text() for label in axis.get_yticklabels()]
    return dict(zip(names, [bar.get_width() for bar in axis.patches], strict=True))


def test_protocols_are_panels_and_bars_are_means_over_pairs():
    rows = []
    for change, pair in ((-0.1, FORTH), (0.1, BACK)):
        rows += [injection(name, pair, VALUES[name] + change) for name in METHODS]
        means = {"fit_on": "mean", "continue_with": "model"}
        rows += [injection(name, pair, VALUES[name] / 2 + change, **means) for name in METHODS]
        published = {**means, "training": "ren2023"}
        rows.append(injection("linear-gd", pair, 0.3 + change, **published))
    # The same baseline of another file is no further pair.
    rows.append(injection("itself", FORTH, 0.8))
    figure = alignment_figures(drawable(rows))["rt-injection"]
    tokens, mean = sorted(figure.axes[:2], key=lambda axis: len(axis.patches))
    assert tokens.get_title() == "layer 6, classifier token"
    assert mean.get_title() == "layer 6, classifier token\nfitted on means of texts"
    assert list(bars(tokens)) == ["itself", "identity", "linear", "linear gd", "random labels"]
    assert list(bars(mean))[3:5] == ["linear gd", "linear gd (ren2023)"]
    np.testing.assert_allclose(list(bars(tokens).values()), [0.9, 0.7, 0.8, 0.5, 0.5])
    np.testing.assert_allclose(list(bars(mean).values()), [0.45, 0.35, 0.4, 0.25, 0.3, 0.25])
    chance = next(line for line in mean.lines if line.get_label() == "chance")
    assert chance.get_xdata()[0] == 0.25
    assert re.search(r"\nA: .+, B: .+\n", figure.get_suptitle())
    assert "over 2 pairs" in figure.get_suptitle()


@pytest.mark.parametrize(
    "pairs",
    [
        [(("FT", 1), ("FT", 2)), (("FT", 2), ("FT", 3))],
        [(("multiberts-0", 0), ("multiberts-1", 1)), (("multiberts-2", 2),) * 2],
    ],
    ids=["one label", "several labels"],
)
def test_seeds_of_one_model_are_averaged(pairs):
    rows = [injection("linear", pair, value) for pair, value in zip(pairs, (0.9, 0.1), strict=True)]
    figure = alignment_figures(drawable(rows))["rt-injection"]
    (panel,) = (axis for axis in figure.axes if axis.patches)
    np.testing.assert_allclose(bars(panel)["linear"], 0.5)
    assert "over 2 pairs" in figure.get_suptitle()


def test_pairs_of_other_models_are_never_averaged():
    pairs = [(("minilm", None), ("roberta", None)), (("electra", None), ("bert", None))]
    rows = [injection("linear", pair, value) for pair, value in zip(pairs, (0.9, 0.1), strict=True)]
    figure = alignment_figures(drawable(rows))["rt-injection"]
    shown = {axis.get_title(): bars(axis)["linear"] for axis in figure.axes if axis.patches}
    title = "\nlayer 6, classifier token"
    wanted = {f"A: electra, B: bert{title}": 0.1, f"A: minilm, B: roberta{title}": 0.9}
    assert shown == pytest.approx(wanted)
    assert "pairs" not in figure.get_suptitle()
