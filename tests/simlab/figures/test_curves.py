"""Truncation, skipping and freezing of several models and tasks; only seeds are averaged."""

from itertools import product

import numpy as np
import pytest

from simlab.figures.curves import plot_freezing, plot_skipping, plot_truncation
from simlab.figures.style import draw_curves
from simlab.results.results import FREEZING, SECONDS, TRAINED, TRUNCATIONS, ResultRow
from support.lab.drawing import drawable
from support.lab.result_rows import LAYERS, curve, majority, triangle

NONE = drawable([])
TASKS, MODELS = ("rte", "mnli"), ("roberta", "albert", "electra")


def lines(axis):
    """Return the named lines of a panel."""
    named = {line.get_label(): line.get_ydata() for line in axis.lines}
    return {name: list(values) for name, values in named.items() if not name.startswith("_")}


def thin(axis):
    return [line for line in axis.lines if line.get_label().startswith("_")]


def rising(start):
    return pytest.approx([start + layer / 10 for layer in range(LAYERS)])


def test_different_models_are_not_averaged():
    modes = ("truncation-untuned", "truncation-tuned")
    rows = [row for mode in modes for row in curve("FT[1]", mode=mode)]
    rows += [row for mode in modes for row in curve("FT[2]", start=0.1, mode=mode)]
    one, other = plot_truncation(drawable(rows), NONE).axes
    assert (one.get_title(), other.get_title()) == ("FT[1]", "FT[2]")
    assert lines(one) == {"untuned": rising(0.5), "tuned": rising(0.5)}
    assert lines(other) == {"untuned": rising(0.1), "tuned": rising(0.1)}
    assert thin(one) == []


def test_seeds_of_one_model_are_averaged_and_stay_visible():
    rows = [row for seed in (1, 2) for row in curve(f"FT[{seed}]", seed, start=0.1 * seed)]
    (axis,) = plot_truncation(drawable([*rows, *curve("ORIG", 1)]), NONE).axes
    assert lines(axis) == {"FT[1–2], mean of 2 seeds": rising(0.15), "ORIG": rising(0.5)}
    assert sorted(line.get_ydata()[0] for line in thin(axis)) == pytest.approx([0.1, 0.2])


def test_a_layer_that_a_seed_lacks_has_no_mean():
    rows = [*curve("FT", 1), *curve("FT", 2)]
    rows[2] = ResultRow(**{**vars(rows[2]), "value": np.nan})
    (axis,) = plot_truncation(drawable(rows), NONE).axes
    np.testing.assert_allclose(lines(axis)["FT, mean of 2 seeds"], [0.5, 0.6, np.nan, 0.8])


def test_models_stand_below_each_other_and_tasks_side_by_side():
    rows, places = [], list(product(MODELS, TASKS))
    for place, (model, task) in enumerate(places):
        for seed, mode in product((1, 2), TRUNCATIONS.values()):
            start = 0.1 * place + 0.02 * seed
            rows += curve(f"{model} FT[{seed}]", seed, start, mode, task)
    baselines = [majority("rte", 0.3), majority("mnli", 0.4)]
    figure = plot_truncation(drawable(rows), drawable(baselines))
    assert len(figure.axes) == len(places)
    for place, (axis, (_, task)) in enumerate(zip(figure.axes, places, strict=True)):
        found = lines(axis)
        assert found.pop("majority class")[0] == {"rte": 0.3, "mnli": 0.4}[task]
        assert found == dict.fromkeys(TRUNCATIONS, rising(0.1 * place + 0.03))
        assert len(thin(axis)) == 6
    names = [axis.get_ylabel() for axis in figure.axes if axis.get_ylabel()]
    assert names == [f"{model} FT[1–2]" for model in MODELS]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [*TRUNCATIONS, "majority class"]


def test_two_metrics_of_a_task_are_not_mixed():
    rows = [*curve("FT"), *curve("FT", start=0.1, measure="f1")]
    one, other = plot_truncation(drawable(rows), NONE).axes
    assert lines(one) == {"untuned": rising(0.5)}
    assert lines(other) == {"untuned": rising(0.1)}


def test_an_interval_is_a_band():
    frame = drawable(curve("FT"))
    frame = frame.assign(low=frame["value"] - 0.25, high=frame["value"] + 0.25)
    (axis,) = plot_truncation(frame, NONE).axes
    (band,) = axis.collections
    (path,) = band.get_paths()
    assert path.get_extents().bounds == pytest.approx((0, 0.25, LAYERS - 1, 0.8))
    (axis,) = plot_truncation(drawable(curve("FT")), NONE).axes
    assert list(axis.collections) == []


def test_seeds_are_lines_without_bands():
    """Five bands over each other would be one smear."""
    frame = drawable([row for seed in (1, 2) for row in curve(f"FT[{seed}]", seed=seed)])
    frame = frame.assign(low=frame["value"] - 0.25, high=frame["value"] + 0.25)
    (axis,) = plot_truncation(frame, NONE).axes
    assert list(axis.collections) == []
    assert len(thin(axis)) == 2


def test_many_curves_of_one_panel_have_looks_of_their_own():
    from matplotlib.figure import Figure

    models = [f"M{number}" for number in sorted(range(1, 31), key=str)]
    axis = Figure().subplots()
    draw_curves(axis, drawable([row for model in models for row in curve(model)]))
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in axis.lines}
    assert len(looks) == len(models)
    assert list(lines(axis))[:3] == ["M1", "M2", "M3"]


def test_triangles_of_models_and_tasks_have_a_colour_scale_for_each_task():
    places = list(product(MODELS, TASKS))
    start = dict(zip(places, np.linspace(0.5, 0.9, len(places)), strict=True))
    rows = [row for m, t in places for row in triangle(f"{m}-{t}", start=start[m, t], task=t)]
    figure = plot_skipping(drawable(rows))
    axes = [axis for axis in figure.axes if axis.images]
    assert len(axes) == len(places)
    for axis, place in zip(axes, places, strict=True):
        drawn = axis.images[0].get_array().filled(np.nan)
        assert drawn[0, 0] == pytest.approx(start[place] - 0.1)
        assert np.isfinite(drawn).sum() == LAYERS * (LAYERS + 1) / 2
    scales = [axis.images[0].get_clim() for axis in axes]
    assert scales[0::2] == 3 * scales[:1]
    assert scales[1::2] == 3 * scales[1:2]
    assert scales[0] != scales[1]


def test_seeds_of_a_triangle_have_a_panel_each():
    figure = plot_skipping(drawable([*triangle("FT", 1), *triangle("FT", 2, 0.8)]))
    titles = [axis.get_title() for axis in figure.axes if axis.images]
    assert [title.replace("\n", " ") for title in titles] == [
        "FT (seed 1) (whole: .90)",
        "FT (seed 2) (whole: .80)",
    ]


def freezing(task, metric="accuracy", start=0.5, **more):
    return [
        ResultRow(
            experiment=FREEZING,
            label_x=way,
            seed_x=1,
            value=start,
            task=task,
            n=9,
            measure=m,
            **more,
        )
        for way, m in product(("none", "top:2"), (metric, TRAINED, SECONDS))
    ]


def test_freezing_of_several_tasks_is_one_figure():
    rows = [*freezing("rt"), *freezing("stsb", "spearman")]
    titles = [axis.get_title() for axis in plot_freezing(drawable(rows)).axes]
    assert titles == [
        *("held-out accuracy", TRAINED, SECONDS),
        *("held-out spearman", TRAINED, SECONDS),
    ]


def test_freezing_names_the_model_where_a_task_has_several():
    names = ("bert", "albert")
    rows = [row for name in names for row in freezing("rt", base_x=name)]
    for some, ends in ((rows, [f" ({name})" for name in names]), (rows[:6], [""])):
        axis = plot_freezing(drawable(some)).axes[0]
        drawn = {text.get_text() for text in axis.get_yticklabels()}
        assert drawn == {way + end for way, end in product(("none", "top:2"), ends)}


def test_curves_of_several_tasks_are_one_file(names_of_files):
    tasks = [f"t{number}" for number in range(4)]
    rows = [row for task in tasks for row in (*curve("FT", task=task), *triangle("FT", task=task))]
    rows += [row for task in tasks for row in freezing(task)]
    stems = ["all-tasks-truncation", "all-tasks-freezing", "all-tasks-skipping"]
    assert names_of_files(drawable(rows)) == stems


def test_the_legend_names_the_bands_once():
    frame = drawable([*curve("FT"), *curve("ORIG", start=0.2)])
    frame = frame.assign(low=frame["value"] - 0.25, high=frame["value"] + 0.25)
    (legend,) = plot_truncation(frame, NONE).legends
    names = [text.get_text() for text in legend.get_texts()]
    assert sorted(names) == ["95 % interval", "FT", "ORIG"]


def test_the_legend_stands_below_the_panel_and_takes_no_room_of_the_curves():
    figure = plot_truncation(drawable([*curve("FT[1]", 1), *curve("ORIG", 1, start=0.2)]), NONE)
    figure.draw_without_rendering()
    (axis,) = figure.axes
    legend = figure.legends[0].get_window_extent()
    layers = next(text for text in figure.texts if text.get_text().startswith("layer whose"))
    below = [label.get_window_extent().y0 for label in axis.get_xticklabels()]
    height = layers.get_window_extent()
    assert height.y1 < min(below)
    # The empty lines of the text are the place of the legend.
    lines = layers.get_text().count("\n") + 1
    assert legend.y1 <= height.y1 - height.height / lines
    assert legend.y0 >= 0  # of the figure
    highest = max(line.get_ydata().max() for line in axis.lines)
    low, high = axis.get_ylim()
    assert high - highest < 0.1 * (high - low)
