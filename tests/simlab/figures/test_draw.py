"""Figures come from the table alone and show every value of it."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from simlab.errors import UserError
from simlab.figures import grids, style
from simlab.figures.curves import plot_truncation
from simlab.figures.draw import plot
from simlab.figures.style import heat_colours, short
from simlab.figures.table import complete
from simlab.results.results import (
    BASELINE,
    BLOCK_SCORE,
    LOCALIZATION,
    MAJORITY,
    TRUNCATION,
    joint_table,
    to_frame,
)
from support.lab.drawing import grids_figure, joint_figure
from support.lab.result_rows import curve, grid, joint_grid, majority
from support.processes import python

JOINT = ("ORIG", "FT[2]", "FT[1]")  # not in alphabetical order: the stored order counts
MODELS = {
    "ORIG-ORIG": ("ORIG", "ORIG"),
    "FT-ORIG": ("FT[1]", "ORIG"),
    "FT-FT": ("FT[1]", "FT[1]"),
    "FT[1]-FT[2]": ("FT[1]", "FT[2]"),
}


def grid_rows(estimator):
    """Return four grids whose embedding output has no value."""
    return [
        row if row.layer_x else replace(row, value=np.nan)
        for name, (x, y) in MODELS.items()
        for row in grid(name, x, y, estimator=estimator)
    ]


def score_rows():
    return [
        row
        for place, model in enumerate(JOINT)
        for row in curve(model, start=place, mode=LOCALIZATION, measure=LOCALIZATION)
    ]


def curve_rows():
    return [*curve("FT[1]"), *curve("FT[2]"), majority()]


@pytest.fixture
def frame():
    return to_frame([*grid_rows("biased"), *grid_rows("unbiased"), *curve_rows()])


def test_every_format_of_every_figure_is_written(tmp_path):
    rows = to_frame([*grid_rows("biased"), *curve_rows()])
    files = plot(rows, tmp_path, ("png", "pdf", "svg"), comparisons=("ORIG-ORIG",))
    names = {
        f"rt-{stem}.{kind}"
        for stem in ("cka-biased", "truncation")
        for kind in ("png", "pdf", "svg")
    }
    assert {file.name for file in files} == names == {file.name for file in tmp_path.iterdir()}
    assert all(file.stat().st_size > 2000 for file in files)
    magic = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
    assert all(file.read_bytes().startswith(magic[file.suffix[1:]]) for file in files)


def test_comparisons_are_drawn_in_the_order_that_is_asked_for(tmp_path, monkeypatch):
    """The grids come after other rows, and in another order."""
    titles = []

    def draw_sheet(sheet, blocks):
        titles.extend(panel.comparison for panel in sheet.panels)
        return Figure()

    monkeypatch.setattr(grids, "draw_sheet", draw_sheet)
    frame = to_frame([*curve_rows(), *grid_rows("biased")])
    plot(frame, tmp_path, ("png",), comparisons=("FT-FT", "ORIG-ORIG"))
    assert titles == ["FT-FT", "ORIG-ORIG"]


def test_four_panels_share_one_scale_and_print_their_values(frame):
    rows = frame[frame["estimator"] == "biased"]
    figure = grids_figure(rows)
    panels = [axis for axis in figure.axes if axis.images]
    assert sorted(axis.get_title() for axis in panels) == sorted(MODELS)
    assert len({axis.images[0].get_clim() for axis in panels}) == 1
    for axis in panels:
        name = axis.get_title()
        x, y = MODELS[name]
        assert axis.get_ylabel() == f"layer of {x}"
        assert axis.get_xlabel() == f"layer of {y}"
        table = rows[rows["comparison"] == name].pivot(
            index="layer_x", columns="layer_y", values="value"
        )
        np.testing.assert_array_equal(axis.images[0].get_array().filled(np.nan), table)
        assert axis.get_ylim() == (-0.5, len(table) - 0.5)  # the first layer is at the bottom
        printed = [text.get_text() for text in axis.texts]
        assert [text for text in printed if text] == [
            f"{value:.2f}".removeprefix("0")
            for value in table.to_numpy().ravel()
            if not np.isnan(value)
        ]


def test_titles_of_grids_with_a_block_score_do_not_run_into_each_other():
    names = [f"minilm-FT[{seed}]" for seed in range(1, 5)]
    grids = [grid("FT-FT", name, name) for name in names]
    rows = [row for of_model in grids for row in of_model]
    scores = [
        replace(first, experiment=BLOCK_SCORE, layer_x=None, layer_y=None, value=0.12, pvalue=0.5)
        for first, *_ in grids
    ]
    figure = grids_figure(to_frame(rows), to_frame(scores))
    figure.draw_without_rendering()
    first, second, third, _ = (axis.title.get_window_extent() for axis in figure.axes[:4])
    assert figure.axes[0].get_title().endswith("\nblock score .12 (p .50)")
    assert first.x1 < second.x0
    assert third.y1 < figure.axes[0].xaxis.label.get_window_extent().y0


def test_cells_have_the_digits_of_the_page():
    values = (0.934, -0.5, 1.0, 0.9958, 0.004, -0.001, 10.5, 31536.0, np.nan)
    assert [short(value) for value in values] == [
        *(".93", "-.50", "1.00", "1.00", ".00", ".00", "10.50", "3e+4", "")
    ]


def test_equal_layers_have_the_last_colour_in_grids_of_distances():
    """Bounded distances end at their bound, others at the largest of all panels."""
    for measure, highest in (("angular", 1.0), ("rsm-difference", 7.0)):
        rows = [
            replace(row, value=scale * abs(row.layer_x - row.layer_y))
            for y, scale in (("B", 0.2), ("C", highest / 3 if highest > 1 else 0.1))
            for row in grid(f"A-{y}", "A", y, measure=measure)
        ]
        figure = grids_figure(to_frame(rows))
        images = [axis.images[0] for axis in figure.axes if axis.images]
        for image in images:
            assert image.get_clim() == (0.0, pytest.approx(highest))
            assert image.cmap(image.norm(0.0)) == pytest.approx(heat_colours()(1.0), abs=0.02)
            assert style._on(image, 0.0) == "black"
            assert style._on(image, highest) == "white"


def test_curve_has_every_layer_and_the_majority_line(frame):
    frame = complete(frame)
    figure = plot_truncation(
        frame[frame["experiment"] == TRUNCATION], frame[frame["experiment"] == BASELINE]
    )
    (axis,) = figure.axes
    lines = {line.get_label(): line.get_ydata() for line in axis.lines}
    assert list(lines) == ["FT[1]", "FT[2]", MAJORITY]
    np.testing.assert_allclose(lines["FT[1]"], [0.5, 0.6, 0.7, 0.8])
    assert set(lines[MAJORITY]) == {0.52}


def test_comparisons_must_exist(tmp_path, frame):
    with pytest.raises(UserError, match=r"comparisons='X-Y'.*ORIG-ORIG"):
        plot(frame, tmp_path, ("png",), ["X-Y"])
    with pytest.raises(UserError, match="formats='gif'"):
        plot(frame, tmp_path, ("gif",))


@pytest.mark.deep
def test_drawing_loads_no_numerics():
    code = "import sys, simlab.figures.alignment, simlab.figures.grids, simlab.figures.joint; "
    code += "print([m for m in ('torch', 'simcore') if m in sys.modules])"
    assert python("-c", code).stdout.strip() == "[]"


def test_joint_figure_has_a_panel_per_measure_and_the_scores():
    attention = joint_grid(JOINT, measure="attention-js")
    attention = [replace(row, kind="attention") for row in attention if row.layer_x and row.layer_y]
    rows = to_frame([*attention, *joint_grid(JOINT, measure="neuronsim")])
    figure = joint_figure(rows, to_frame(score_rows()))
    panels = [axis for axis in figure.axes if axis.images]
    assert [axis.get_title() for axis in panels] == [
        "Neuronsim\nword-last, n = 9 rows",
        "Attention, Jensen–Shannon\nattention, n = 9 sentences",
    ]
    for axis, measure in zip(panels, ("neuronsim", "attention-js"), strict=True):
        _, values = joint_table(rows[rows["measure"] == measure])
        np.testing.assert_array_equal(axis.images[0].get_array(), values)
        layers = len(values) // 3
        names = ["emb", "1", "2", "3"][-layers:]
        assert [text.get_text() for text in axis.get_xticklabels()] == 3 * names
        borders = [layers - 0.5, 2 * layers - 0.5]
        assert sorted(line.get_xdata()[0] for line in axis.lines if line.get_xdata()[0] > 0) == (
            borders
        )
        for outer in axis.child_axes:
            texts = (*outer.get_xticklabels(), *outer.get_yticklabels())
            assert set(JOINT) <= {text.get_text() for text in texts}
    assert panels[0].images[0].get_clim() == (0.0, 1.0)
    assert panels[1].images[0].get_clim() == (1 - np.log(2), 1.0)
    (scores,) = [axis for axis in figure.axes if axis.get_title() == "Localization score"]
    lines = {line.get_label(): list(line.get_ydata()) for line in scores.lines}
    assert [name for name in lines if name in JOINT] == list(JOINT)
    np.testing.assert_allclose(lines["FT[2]"], [1, 1.1, 1.2, 1.3])


def test_every_joint_comparison_has_its_file_and_pairs_keep_theirs(names_of_files, frame):
    joint = to_frame([*joint_grid(JOINT), *score_rows()])
    assert set(names_of_files(pd.concat([frame, joint]))) == {
        *("rt-cka-biased", "rt-cka-unbiased", "rt-models", "rt-truncation")
    }
    two = to_frame([*joint_grid(JOINT), *joint_grid(JOINT, comparison="A + B")])
    assert names_of_files(two) == ["rt-models-all", "rt-models-A-B"]
    assert names_of_files(to_frame(score_rows())) == ["rt-models"]


def test_file_names_tell_measures_options_and_kinds_apart(names_of_files):
    rows = [
        grid("A-A", "A", "A", measure="svcca", kind=kind, options=options)[0]
        for kind in ("cls", "word-last")
        for options in (
            '{"standardize": false, "truncation": 0.99}',
            '{"standardize": false, "truncation": 20}',
        )
    ]
    assert names_of_files(to_frame(rows)) == [
        "rt-svcca",
        "rt-svcca-truncation-20",
        "rt-svcca-word-last",
        "rt-svcca-word-last-truncation-20",
    ]
    title = grids_figure(to_frame(rows[1:2])).get_suptitle()
    assert title.startswith("SVCCA (truncation 20) between layers")
