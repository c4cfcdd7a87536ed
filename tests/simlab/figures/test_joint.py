"""Joint grids of many models: their order, names, lines and files."""

from itertools import pairwise

import numpy as np
import pytest

from simlab.figures.joint import draw_joint, in_files, joint_grids
from simlab.results.results import joint_table, to_frame
from support.lab.drawing import drawable, joint_figure
from support.lab.result_rows import joint_grid

CROWD = [f"M{number}" for number in range(100)]
MANY = [f"M{number}" for number in sorted(range(1, 26), key=str)]  # M1, M10, M11, ...
LONG = [f"bert-base-multilingual-uncased-seed-{number}" for number in range(3)]


def grids(rows):
    return joint_grids(drawable(rows))


def test_models_are_in_natural_order_with_their_values():
    rows = to_frame(joint_grid(["M1", "M10", "M2"]))
    figure = joint_figure(rows, rows.iloc[:0])
    stored, values = joint_table(rows)
    order = [
        stored.index(layer)
        for name in ("M1", "M2", "M10")
        for layer in stored
        if layer.model == name
    ]
    np.testing.assert_array_equal(
        figure.axes[0].images[0].get_array(), values[np.ix_(order, order)]
    )
    below, beside = figure.axes[0].child_axes
    wanted = ["M1", "M2", "M10"]
    assert [text.get_text() for text in below.get_xticklabels()] == wanted
    assert [text.get_text() for text in beside.get_yticklabels()] == wanted


def boxes(labels):
    """Return the extents of the labels with a text."""
    return [label.get_window_extent() for label in labels if label.get_text()]


@pytest.mark.parametrize(
    ("models", "layers", "turned"),
    [
        pytest.param(MANY, 7, False, marks=pytest.mark.deep),
        (MANY, 1, True),
        pytest.param(LONG, 4, True, marks=pytest.mark.deep),
        pytest.param(CROWD, 1, True, marks=pytest.mark.deep),
    ],
)
def test_no_label_lies_over_another_and_lines_leave_the_cells_visible(models, layers, turned):
    (grid,) = grids(joint_grid(models, layers=layers))
    assert grid.turned == turned
    figure = draw_joint([grid], to_frame([]))
    figure.draw_without_rendering()
    axis = figure.axes[0]
    below, beside = axis.child_axes
    width = axis.get_window_extent().width
    assert width > 3.2 * figure.dpi  # long names do not take the room of the cells
    for labels in (below.get_xticklabels(), axis.get_xticklabels()):
        for left, right in pairwise(boxes(labels)):
            assert left.x1 <= right.x0
    for labels in (beside.get_yticklabels(), axis.get_yticklabels()):
        for lower, upper in pairwise(boxes(labels)):
            assert lower.y1 <= upper.y0
    numbers = max((box.x1 for box in boxes(axis.get_yticklabels())), default=np.inf)
    names = max(box.x1 for box in boxes(beside.get_yticklabels()))
    assert names <= numbers
    cell = width / len(grid.layers) / figure.dpi * 72
    assert all(line.get_linewidth() <= 0.3 * cell for line in axis.lines)


def test_the_last_layer_of_every_model_has_a_label():
    (one,) = grids(joint_grid([f"FT[{seed}]" for seed in range(6)], layers=7))
    figure = draw_joint([one], to_frame([]))
    figure.draw_without_rendering()
    axis, bar = figure.axes
    assert figure.get_suptitle().endswith(" · task rt · word-last, n = 9 rows")
    assert bar.get_ylabel() == "SVCCA"
    for labels in (axis.get_xticklabels(), axis.get_yticklabels()):
        assert [label.get_text() for label in labels].count("6") == 6
    for left, right in pairwise(boxes(axis.get_xticklabels())):
        assert left.x1 <= right.x0


def test_large_grids_have_a_file_each_and_small_ones_share_a_file(names_of_files):
    measures = ("cka", "svcca", "rsa")
    small = [row for name in measures for row in joint_grid(["A", "B"], measure=name)]
    assert [len(part) for part, _ in in_files(grids(small), to_frame([]))] == [3]
    many = [f"M{number}" for number in range(30)]
    large = [row for name in measures[:2] for row in joint_grid(many, measure=name, layers=3)]
    assert [len(part) for part, _ in in_files(grids(large), to_frame([]))] == [1, 1]
    stems = ["rt-models-cka-word-last", "rt-models-svcca-word-last"]
    assert names_of_files(to_frame(large)) == stems


def test_every_high_p_value_of_a_joint_grid_is_marked():
    frame = to_frame(joint_grid(["A", "B"]))
    frame = frame.assign(pvalue=0.01)
    frame.loc[3, "pvalue"] = 0.5
    figure = joint_figure(frame, frame.iloc[:0])
    (dots,) = figure.axes[0].collections
    assert dots.get_offsets().tolist() == [[3.0, 0.0]]
    assert "Dots: p > .05" in figure.get_supxlabel()
