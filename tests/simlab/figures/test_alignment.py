"""Figures of alignment, injection and complexity: what is averaged over what, and what never."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex

from simlab.figures.alignment import MOST_APART, alignment_figures
from simlab.figures.style import BLUE
from simlab.results.results import COMPLEXITY, INJECTION, NUCLEAR, ResultRow, Side
from support.lab.drawing import drawable
from support.tolerance import FLOAT64_RELATIVE

PAIRS = [("A", "B"), ("A", "C"), ("B", "C")]


def row(value, *, pair=PAIRS[0], layers=(1, 1), part="heldout", work="alignment", **options):
    measure = options.pop("measure", "alignment-error")
    options = {"method": "linear", "rows": part, **options}
    return ResultRow(
        experiment=work,
        comparison="ft",
        measure=measure,
        kind="mean",
        options=json.dumps(options),
        label_x=pair[0],
        label_y=pair[1],
        layer_x=layers[0],
        layer_y=layers[1],
        value=value,
        n=9,
        task="rt",
    )


def figures_of(rows):
    return alignment_figures(drawable(rows))


def panels_of(figure):
    """Return the panels of a figure, without the places that are left empty."""
    return [axis for axis in figure.axes if axis.axison]


def bars(axis):
    """Return heights and spreads of the bars of a panel, by the tick below and the rows."""
    names = [label.get_text() for label in axis.get_xticklabels()]
    found = {}
    for bar in (bar for container in axis.containers for bar in container.patches):
        centre = bar.get_x() + bar.get_width() / 2
        lines = [line for line in axis.lines if abs(np.nanmean(line.get_xdata()) - centre) < 0.01]
        ends = np.nan_to_num(lines[0].get_ydata(), nan=bar.get_height()) if lines else [0.0]
        part = "heldout" if to_hex(bar.get_facecolor()) == to_hex(BLUE) else "train"
        found[names[round(centre)], part] = (bar.get_height(), np.ptp(ends) / 2)
    return found


def test_pairs_at_another_step_of_a_training_have_a_panel_of_their_own():
    """Untrained models are not averaged with trained ones."""
    rows = [
        replace(
            row(value, pair=(f"A[0] @ {step}", f"A[1] @ {step}"), work=work, layers=layers),
            step_x=step,
            step_y=step,
        )
        for work, layers in (("alignment", (1, 1)), ("alignment across", (1, 2)))
        for step, value in ((0, 0.25), (1000, 0.5))
    ]
    figures = figures_of(rows)
    for name in ("rt-alignment-mean-layers-linear", "rt-alignment-mean-across-linear"):
        titles = [axis.get_title() for axis in panels_of(figures[name]) if axis.get_title()]
        assert titles == [f"ft, step {one} (1 ordered pair)" for one in ("0", "1,000")], name


def test_bars_are_means_and_spreads_over_pairs_not_over_layers():
    values = {("A", "B"): (0.1, 0.9), ("A", "C"): (0.2, 1.0), ("B", "C"): (0.0, 1.1)}
    rows = [
        row(value, pair=pair, layers=(layer, layer), part=part, method=method)
        for pair, of_layers in values.items()
        for layer, value in enumerate(of_layers, 1)
        for part in ("train", "heldout")
        for method in ("linear", "inn")
    ]
    figure = figures_of(rows)["rt-alignment-mean-methods"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["train", "heldout"]
    means = [np.mean(of_layers) for of_layers in values.values()]
    expected = (np.mean(means), np.std(means, ddof=1))
    found = bars(figure.axes[0])
    assert set(found) == {(m, p) for m in ("linear", "inn") for p in ("train", "heldout")}
    for height_and_spread in found.values():
        assert height_and_spread == pytest.approx(expected, rel=FLOAT64_RELATIVE)


def test_a_panel_has_rows_of_one_protocol():
    choices = [
        {},
        {"map": "shared"},
        {"map": "shared", "judge": "folders"},
        {"pairs": 3, "pair_seed": 1},
    ]
    rows = [
        row(number + 1.0, method=method, measure=measure, **chosen)
        for number, chosen in enumerate(choices)
        for method in ("linear", "cca")
        for measure in ("alignment-error", "alignment-mse")
    ]
    found = figures_of(rows)
    for end in ("", "-mse"):
        methods = panels_of(found[f"rt-alignment-mean-methods{end}"])
        assert [set(bars(axis).values()) for axis in methods] == [
            {(number + 1.0, 0.0)} for number in range(4)
        ]
        titles = [axis.get_title() for axis in methods]
        for title, words in zip(
            titles, ("ft (", "a shared", "other folders", "3 drawn"), strict=True
        ):
            assert words in title
        assert len(panels_of(found[f"rt-alignment-mean-layers-linear{end}"])) == 4


def test_another_training_is_a_method_of_its_own():
    rows = [row(1.0), row(2.0, method="inn"), row(3.0, method="inn", training="ren2023")]
    found = figures_of(rows)
    (axis,) = found["rt-alignment-mean-methods"].axes
    heights = {name: height for (name, _), (height, _) in bars(axis).items()}
    assert heights == {"linear": 1.0, "inn": 2.0, "inn (ren2023)": 3.0}
    assert "rt-alignment-mean-layers-inn-ren2023-" in found


def test_layers_across_models_are_means_over_pairs():
    rows = [
        row(10 * i + j + k, pair=pair, layers=(i, j), work="alignment across")
        for k, pair in enumerate(PAIRS)
        for i in range(3)
        for j in range(3)
    ]
    axis, _ = figures_of(rows)["rt-alignment-mean-across-linear"].axes
    shown = axis.images[0].get_array()
    assert np.array_equal(shown, [[10 * i + j + 1 for j in range(3)] for i in range(3)])


def test_heads_are_ordered_by_layer():
    rows = [
        row(
            1000 * i + 100 * a + 10 * j + b + k,
            pair=pair,
            layers=(i, j),
            work="alignment across",
            head_x=a,
            head_y=b,
        )
        for k, pair in enumerate(PAIRS)
        for i in (1, 2)
        for j in (1, 2)
        for a in (0, 1)
        for b in (0, 1)
    ]
    axis, _ = figures_of(rows[::-1])["rt-alignment-mean-heads-linear"].axes
    shown = np.asarray(axis.images[0].get_array())
    assert shown[0].tolist() == [1011.0, 1012.0, 1021.0, 1022.0]
    assert shown[:, 3].tolist() == [1022.0, 1122.0, 2022.0, 2122.0]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["1", "2"]
    assert list(axis.get_xticks()) == [0.5, 2.5]


def within(models, study="ft"):
    """Return the errors from layer 1 to layer 2 within models, each 0.1 times its seed."""
    return [
        replace(
            row(0.1 * seed, pair=(f"M[{seed}]",) * 2, layers=layers, work="alignment within"),
            comparison=study,
            base_x="minilm",
            seed_x=seed,
            seed_y=seed,
        )
        for seed in range(models)
        for layers in ((1, 2), (2, 1))
    ]


def test_many_models_are_one_panel_of_their_mean():
    few, many = (
        panels_of(figures_of(within(count))["rt-alignment-mean-within-linear"])
        for count in (MOST_APART, MOST_APART + 1)
    )
    heat = [[axis for axis in axes if axis.get_xlabel() == "to layer"] for axes in (few, many)]
    assert [axis.get_title() for axis in heat[0]] == [f"M[{seed}]" for seed in range(MOST_APART)]
    assert [axis.get_title() for axis in heat[1]] == ["M[0–6], mean over 7 models"]
    values = heat[1][0].images[0].get_array()
    np.testing.assert_allclose(values[0, 1], 0.3, rtol=FLOAT64_RELATIVE)


def test_titles_of_panels_do_not_run_into_each_other():
    choices = {"judge": "folders", "pairs": 8, "pair_seed": 0, "directions": "one"}
    rows = [row(0.1, pair=pair, **choices) for pair in PAIRS]
    rows += [row(0.2, pair=pair) for pair in PAIRS]
    figure = figures_of(rows)["rt-alignment-mean-layers-linear"]
    figure.draw_without_rendering()
    titles = [axis.title.get_window_extent() for axis in panels_of(figure)]
    assert len(titles) == 2
    assert titles[0].x1 < titles[1].x0


# Not in the order of figures.
METHODS = ("random-labels", "identity", "linear", "linear-gd", "itself")
VALUES = {"itself": 0.9, "identity": 0.7, "linear": 0.8, "linear-gd": 0.5, "random-labels": 0.5}


FORTH, BACK = (("FT[1]", 1), ("FT[2]", 2)), (("FT[2]", 2), ("FT[1]", 1))


def injection(method, pair, value, **protocol):
    options = {"work": INJECTION, "measure": "accuracy", "layers": (6, 6), **protocol}
    sides = Side(*pair[0], base="minilm").columns("x") | Side(*pair[1], base="minilm").columns("y")
    return replace(row(value, method=method, **options), kind="cls", n=100, **sides)


def widths(axis):
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
    figure = figures_of(rows)["rt-injection"]
    tokens, mean = sorted(figure.axes[:2], key=lambda axis: len(axis.patches))
    assert tokens.get_title() == "layer 6, classifier token"
    assert mean.get_title() == "layer 6, classifier token\nfitted on means of texts"
    assert list(widths(tokens)) == ["itself", "identity", "linear", "linear gd", "random labels"]
    assert list(widths(mean))[3:5] == ["linear gd", "linear gd (ren2023)"]
    np.testing.assert_allclose(list(widths(tokens).values()), [0.9, 0.7, 0.8, 0.5, 0.5])
    np.testing.assert_allclose(list(widths(mean).values()), [0.45, 0.35, 0.4, 0.25, 0.3, 0.25])
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
    figure = figures_of(rows)["rt-injection"]
    (panel,) = (axis for axis in figure.axes if axis.patches)
    np.testing.assert_allclose(widths(panel)["linear"], 0.5)
    assert "over 2 pairs" in figure.get_suptitle()


def test_pairs_of_other_models_are_never_averaged():
    pairs = [(("minilm", None), ("roberta", None)), (("electra", None), ("bert", None))]
    rows = [injection("linear", pair, value) for pair, value in zip(pairs, (0.9, 0.1), strict=True)]
    figure = figures_of(rows)["rt-injection"]
    shown = {axis.get_title(): widths(axis)["linear"] for axis in figure.axes if axis.patches}
    title = "\nlayer 6, classifier token"
    wanted = {f"A: electra, B: bert{title}": 0.1, f"A: minilm, B: roberta{title}": 0.9}
    assert shown == pytest.approx(wanted)
    assert "pairs" not in figure.get_suptitle()


def curve(study, seed, n, start):
    """Return the norms of the layers of a model."""
    model = {"label_x": "FT", "label_y": None, "base_x": "minilm", "seed_x": seed}
    rows = [
        row(start + layer, work=COMPLEXITY, measure=NUCLEAR, layers=(layer, None))
        for layer in range(3)
    ]
    return [replace(of_layer, comparison=study, n=n, **model) for of_layer in rows]


def test_seeds_with_one_label_have_a_curve_each():
    rows = [*curve("a", 1, 100, 0.0), *curve("b", 2, 4000, 10.0), *curve("b", 1, 4000, 20.0)]
    rows += curve("c", 1, 100, 0.0)  # the same model in another study
    figure = figures_of(rows)["rt-alignment-mean-complexity"]
    starts = [line.get_ydata()[0] for line in figure.axes[0].lines]
    np.testing.assert_array_equal(sorted(starts), [0.0, 10.0, 20.0])


def test_many_models_are_drawn_as_their_mean():
    rows = []
    for seed in range(8):
        rows += [replace(one, label_x=f"FT[{seed}]") for one in curve("a", seed, 9, float(seed))]
    figure = figures_of(rows)["rt-alignment-mean-complexity"]
    (label,) = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert label == "FT[0–7]"
    bold = max(figure.axes[0].lines, key=lambda line: line.get_linewidth())
    np.testing.assert_allclose(bold.get_ydata(), [3.5, 4.5, 5.5], rtol=FLOAT64_RELATIVE)
    assert len(figure.axes[0].lines) == 9
