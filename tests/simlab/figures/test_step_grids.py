"""One layer at every step of a training with itself at every other step, as heatmaps."""

from itertools import pairwise

import numpy as np

from simlab.figures.draw import plot
from simlab.figures.joint import draw_steps
from simlab.figures.table import is_of_steps
from simlab.results.labels import at_step
from simlab.results.results import JOINT, ResultRow, to_frame
from support.lab.drawing import drawable
from support.lab.result_rows import joint_grid

STEPS = (1000, 20, 3)  # out of order


def value(x, y, seed):
    return 1 / (1 + abs(x - y)) + seed / 100


def rows_of(seeds=(0, 1), layer=2, steps=STEPS):
    return [
        ResultRow(
            experiment=JOINT,
            comparison=f"mini-ORIG[{seed}] steps, layer {layer}",
            grid=f"{seed}-{layer}",
            measure="cka",
            kind="cls",
            estimator="biased",
            kernel="linear",
            label_x=at_step(f"mini-ORIG[{seed}]", x),
            label_y=at_step(f"mini-ORIG[{seed}]", y),
            seed_x=seed,
            seed_y=seed,
            step_x=x,
            step_y=y,
            layer_x=layer,
            layer_y=layer,
            value=value(x, y, seed),
            n=32,
            task="reviews",
        )
        for seed in seeds
        for x in steps
        for y in steps
    ]


def test_each_run_is_a_panel_with_its_steps_in_order():
    figure = draw_steps(drawable(rows_of()))
    figure.draw_without_rendering()
    panels = [axis for axis in figure.axes if axis.get_title()]
    assert [axis.get_title() for axis in panels] == ["mini-ORIG[0]", "mini-ORIG[1]"]
    for seed, axis in enumerate(panels):
        wanted = [[value(x, y, seed) for y in sorted(STEPS)] for x in sorted(STEPS)]
        np.testing.assert_array_equal(axis.images[0].get_array(), wanted)
        assert [text.get_text() for text in axis.get_yticklabels()] == ["3", "20", "1,000"]
    assert "Layer 2 at every step" in figure.get_suptitle()


def test_hundreds_of_steps_have_labels_that_do_not_overlap():
    figure = draw_steps(drawable(rows_of(seeds=(0,), steps=range(0, 150_000, 3000))))
    figure.draw_without_rendering()
    labels = [t for t in figure.axes[0].get_yticklabels() if t.get_text()]
    boxes = [label.get_window_extent() for label in labels]
    assert 5 < len(labels) < 50
    assert all(low.y1 <= high.y0 for low, high in pairwise(boxes))


def test_only_one_layer_of_one_run_is_a_grid_of_steps():
    frame = drawable([*rows_of(), *joint_grid(["M1", "M2"])])
    chosen = is_of_steps(frame)
    assert chosen.sum() == 2 * len(STEPS) ** 2
    assert set(frame[chosen]["label_x"].str.partition("[")[0]) == {"mini-ORIG"}
    two_layers = drawable([*rows_of(), *(_moved(row) for row in rows_of(layer=3))])
    assert not is_of_steps(two_layers).any()


def _moved(row):
    """Return a row of another layer in the same comparison."""
    return ResultRow(**{**vars(row), "comparison": row.comparison.replace("3", "2")})


def test_each_layer_has_a_file(tmp_path):
    frame = to_frame([*rows_of(), *rows_of(layer=0)])
    files = plot(frame.assign(file="a"), tmp_path, formats=["svg"])
    assert sorted(file.name for file in files) == [
        "reviews-steps-2-cka-biased.svg",
        "reviews-steps-emb-cka-biased.svg",
    ]
