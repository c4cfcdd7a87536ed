"""Grids of two models: every grid has its panel, and models and tasks share a figure."""

import numpy as np
import pandas as pd
import pytest

from simlab.figures.grids import FIGURE_1, draw_sheet, headings, panels_of, sheets_of
from simlab.results.results import to_frame
from support.lab.drawing import drawable, grids_figure
from support.lab.result_rows import LAYERS, grid

TASKS = ("rte", "mnli", "stsb")
MODELS = ("roberta", "albert")


def panels(rows):
    return panels_of(drawable(rows))


def images(figure):
    return [axis for axis in figure.axes if axis.images and axis.get_label() != "<colorbar>"]


def shown(axis):
    return axis.images[0].get_array().filled(np.nan)


def values(rows, **labels):
    frame = to_frame(rows)
    for name, value in labels.items():
        frame = frame[frame[name] == value]
    return frame.pivot(index="layer_x", columns="layer_y", values="value").to_numpy()


def names_of_lines(figure):
    """Return the names left of the first column."""
    return [axis.get_ylabel() for axis in figure.axes if axis.images and axis.get_ylabel()]


def test_two_models_under_one_name_have_two_panels():
    rows = [row for seed, name in enumerate(MODELS) for row in grid("FT-FT", name, name, seed)]
    axes = images(grids_figure(to_frame(rows)))
    assert [axis.get_ylabel() for axis in axes] == ["layer of roberta", "layer of albert"]
    for axis, model in zip(axes, MODELS, strict=True):
        np.testing.assert_array_equal(shown(axis), values(rows, label_x=model))


def test_both_directions_of_a_measure_are_shown():
    rows = [*grid("A-B", "A", "B", measure="linreg"), *grid("A-B", "B", "A", 1, measure="linreg")]
    axes = images(grids_figure(to_frame(rows)))
    assert [axis.get_ylabel() for axis in axes] == ["layer of A", "layer of B"]
    np.testing.assert_array_equal(shown(axes[1]), values(rows, label_x="B"))


def test_equal_labels_are_told_apart():
    rows = [*grid("FT-FT", "FT", "FT"), *grid("FT-FT", "FT", "FT", 1, n=20)]
    rows += [*grid("A-A", "A", "A", 2, (1, 1)), *grid("A-A", "A", "A", 3, (2, 2))]
    titles = [axis.get_title().replace("\n", " ") for axis in images(grids_figure(to_frame(rows)))]
    assert titles == [
        "FT × FT (n = 9)",
        "FT × FT (n = 20)",
        "A × A (seed 1 and seed 1) (n = 9)",
        "A × A (seed 2 and seed 2) (n = 9)",
    ]


def papers_rows():
    """Return FT-FT and FT-ORIG of two models on three tasks, with the task in the labels."""
    return [
        row
        for place, (task, model) in enumerate((t, m) for t in TASKS for m in MODELS)
        for comparison, y in (("FT-FT", f"{model}-{task}-FT"), ("FT-ORIG", model))
        for row in grid(comparison, f"{model}-{task}-FT", y, 10 * place + len(y), task=task)
    ]


def test_models_stand_below_each_other_and_tasks_side_by_side(monkeypatch):
    monkeypatch.setattr("simlab.figures.grids.MOST_PANELS", 4)
    rows = papers_rows()
    sheets = {sheet.word: sheet for sheet in sheets_of(drawable(rows))}
    assert {word: len(sheet.panels) for word, sheet in sheets.items()} == {"FT-FT": 6, "FT-ORIG": 6}
    figure = draw_sheet(sheets["FT-ORIG"])
    assert names_of_lines(figure) == ["roberta-FT ↑\nroberta →", "albert-FT ↑\nalbert →"]
    assert [axis.get_title() for axis in figure.axes[:3]] == [f"{task}\nn = 9" for task in TASKS]
    for axis, (model, task) in zip(
        images(figure), ((m, t) for m in MODELS for t in TASKS), strict=True
    ):
        wanted = values(rows, comparison="FT-ORIG", label_x=f"{model}-{task}-FT")
        np.testing.assert_array_equal(shown(axis), wanted)


def test_a_task_without_a_model_is_left_empty():
    rows = [row for row in papers_rows() if (row.task, row.label_y) != ("stsb", "albert")]
    rows = [row for row in rows if row.comparison == "FT-ORIG"]
    figure = grids_figure(to_frame(rows))
    assert len(images(figure)) == 5
    assert not figure.axes[5].get_frame_on()


def test_unlike_grids_of_several_tasks_are_no_matrix():
    rows = [
        row for task in TASKS for row in grid(f"about {task} alone", "A", f"x{task}", task=task)
    ]
    titles = [axis.get_title() for axis in images(grids_figure(to_frame(rows)))]
    assert [title.replace("\n", " ") for title in titles] == [
        f"{t} · about {t} alone" for t in TASKS
    ]


def figure_1(task="rt", more=()):
    pairs = {"ORIG-ORIG": ("ORIG", "ORIG"), "FT-ORIG": ("FT", "ORIG"), "FT-FT": ("FT", "FT")}
    pairs |= {"FT[1]-FT[2]": ("FT", "FT[2]"), **dict(more)}
    return [row for name, pair in pairs.items() for row in grid(name, *pair, task=task)]


def test_figure_1_has_its_four_comparisons_and_the_others_follow():
    found = drawable(figure_1(more={"A-A": ("A", "A")}))
    parts = {sheet.word: [p.comparison for p in sheet.panels] for sheet in sheets_of(found)}
    assert parts == {"": list(FIGURE_1), "others": ["A-A"]}
    assert [len(sheet.panels) for sheet in sheets_of(found, ordered=True)] == [5]


def test_titles_of_one_figure_have_one_form():
    """A figure had "ORIG-ORIG" beside "FT[1] × ORIG"."""
    assert headings(panels_of(drawable(figure_1()))) == list(FIGURE_1)
    another_seed = [*figure_1(), *grid("FT-ORIG", "FT[2]", "ORIG")]
    pairs = ["ORIG × ORIG", "FT × ORIG", "FT[2] × ORIG", "FT × FT", "FT × FT[2]"]
    assert sorted(headings(panels_of(drawable(another_seed)))) == sorted(pairs)
    twice = [*grid("A-B", "A", "B"), *grid("my own", "A", "B"), *grid("my own", "A", "C")]
    named = headings(panels_of(drawable(twice)))
    assert named == ["A × B (A-B)", "A × B (my own)", "A × C"]


def names_of(rows):
    """Return the names of the figures; drawing them takes most of the time."""
    return [sheet.name for sheet in sheets_of(drawable(rows))]


def test_figure_1_of_one_model_stays_beside_that_of_all_tasks():
    rows = [row for task in ("rt", "stsb") for row in figure_1(task)]
    assert names_of(rows) == ["rt-cka-biased", "stsb-cka-biased", "all-tasks-cka-biased"]


def of_model(model, task, seeds=(1, 2)):
    """Return the comparisons of figure 1 of a model and its fine-tunings, as a sweep has them."""
    bases, orig = {"base_x": model, "base_y": model, "task": task}, f"{model}-ORIG"
    tuned = [f"{model}-FT[{seed}]" for seed in seeds]
    rows = grid("ORIG-ORIG", orig, orig, **bases)
    for name in tuned:
        rows += [*grid("FT-ORIG", name, orig, **bases), *grid("FT-FT", name, name, **bases)]
    return rows + grid("FT[1]-FT[2]", *tuned[:2], **bases)


def test_each_of_several_models_has_figure_1_of_each_task():
    """The paper shows ALBERT on RTE alone."""
    models, tasks = (*MODELS, "electra"), ("rte", "mnli")
    rows = [row for task in tasks for model in models for row in of_model(model, task)]
    own = [f"{task}-cka-biased-{model}" for task in tasks for model in models]
    assert names_of(rows)[: len(own)] == own
    sheet = {sheet.name: sheet for sheet in sheets_of(drawable(rows))}["rte-cka-biased-albert"]
    assert {panel.task for panel in sheet.panels} == {"rte"}
    assert {name for panel in sheet.panels for name in (panel.x, panel.y)} == {
        *("albert-ORIG", "albert-FT[1]", "albert-FT[2]")
    }
    comparisons = [panel.comparison for panel in sheet.panels]
    assert list(dict.fromkeys(comparisons)) == list(FIGURE_1)
    assert len(comparisons) == 6
    of_one = [row for row in rows if row.task == "rte"]
    assert [name in names_of(of_one) for name in own] == [True] * 3 + [False] * 3
    many = [row for task in tasks for row in of_model("albert", task, seeds=range(1, 8))]
    assert not {*own} & {*names_of(many)}  # 16 panels are too many for a figure


def test_a_sweep_of_tasks_and_models_gives_few_files_with_every_grid():
    models, tasks = [f"M{n}" for n in (1, 10, 2)], [f"task{n}" for n in range(6)]
    rows = [row for t in tasks for m in models for row in grid("FT-FT", m, m, task=t)]
    rows += [row for t in tasks for m in models for row in grid("FT-ORIG", m, "O", task=t)]
    sheets = list(sheets_of(drawable(rows)))
    sizes = [(sheet.word, len(sheet.panels)) for sheet in sheets]
    assert sizes == [("FT-ORIG", 18), ("FT-FT", 18)]
    figure = draw_sheet(sheets[1])
    assert names_of_lines(figure) == ["M1", "M2", "M10"]


def test_large_figures_are_split_into_several_files(tmp_path):
    rows = [row for n in range(14) for row in grid(f"A-B{n}", "A", f"B{n}")]
    assert [len(sheet.panels) for sheet in sheets_of(drawable(rows))] == [7, 7]


@pytest.fixture
def resampled():
    """Return a grid with intervals and p-values."""
    frame = to_frame(grid("FT-FT", "FT", "FT"))
    low, high = frame["value"] - 0.125, frame["value"] + 0.25
    pvalue = frame["value"].lt(0.3).map({True: 0.2, False: 0.01})
    return frame.assign(low=low, high=high, pvalue=pvalue)


def test_intervals_and_high_p_values_are_shown(resampled):
    figure = grids_figure(resampled)
    (axis,) = images(figure)
    first = resampled.iloc[0]
    interval = f"{first['low']:.2f}–{first['high']:.2f}".replace("0.", ".")
    assert interval in [text.get_text() for text in axis.texts]
    (dots,) = axis.collections
    weak = resampled[resampled["pvalue"] > 0.05]
    assert 0 < len(weak) < LAYERS**2
    places = {(round(x), round(y)) for x, y in dots.get_offsets()}
    assert places == set(zip(weak["layer_y"], weak["layer_x"], strict=True))
    assert "Dots: p > .05" in figure.get_supxlabel()
    assert "95 % interval" in figure.get_supxlabel()
    assert "Dots" not in grids_figure(to_frame(grid("FT-FT", "FT", "FT"))).get_supxlabel()
    sure = grids_figure(resampled.assign(pvalue=0.01)).get_supxlabel()
    assert "All p ≤ .05" in sure
    assert "Dots" not in sure


def test_a_figure_says_why_an_interval_leaves_the_range_of_the_measure(resampled):
    inside = resampled.assign(high=resampled["value"].clip(upper=0.9))
    assert "may leave the range" not in grids_figure(inside).get_supxlabel()
    beyond = resampled.assign(high=resampled["value"] + 0.1)
    other = inside.assign(label_x="FT2", label_y="FT2")
    for frame in (beyond, pd.concat([other, beyond])):  # one panel of two is enough
        note = " ".join(grids_figure(frame).get_supxlabel().split())
        assert "symmetric, so that an end may leave the range of the measure" in note
