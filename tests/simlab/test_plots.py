"""Figures come from the table alone and show every value of it."""

import subprocess
import sys

import numpy as np
import pytest

from simlab.errors import UserError
from simlab.plots import plot_grids, plot_results, plot_truncation
from simlab.results import BASELINE, MAJORITY, TRUNCATION, ResultRow, to_frame

LAYERS = 4
MODELS = {
    "ORIG-ORIG": ("ORIG", "ORIG"),
    "FT-ORIG": ("FT[1]", "ORIG"),
    "FT-FT": ("FT[1]", "FT[1]"),
    "FT[1]-FT[2]": ("FT[1]", "FT[2]"),
}


def grid_rows(estimator):
    rng = np.random.default_rng(0)
    return [
        ResultRow(
            comparison=name,
            measure="cka",
            estimator=estimator,
            kernel="linear",
            model_x=x,
            model_y=y,
            layer_x=i,
            layer_y=j,
            value=rng.uniform() if i else np.nan,
            n=9,
            task="rt",
        )
        for name, (x, y) in MODELS.items()
        for i in range(LAYERS)
        for j in range(LAYERS)
    ]


def curve_rows():
    common = {"measure": "accuracy", "n": 9, "task": "rt"}
    curve = [
        ResultRow(comparison=TRUNCATION, model_x=name, layer_x=l, value=0.5 + l / 10, **common)
        for name in ("FT[1]", "FT[2]")
        for l in range(LAYERS)
    ]
    return [*curve, ResultRow(comparison=BASELINE, model_x=MAJORITY, value=0.52, **common)]


@pytest.fixture
def frame():
    return to_frame([*grid_rows("biased"), *grid_rows("unbiased"), *curve_rows()])


def test_every_format_of_every_figure_is_written(tmp_path, frame):
    files = plot_results(frame, tmp_path, ("png", "pdf", "svg"))
    names = {
        f"rt-{stem}.{kind}"
        for stem in ("cka-biased", "cka-unbiased", "truncation")
        for kind in ("png", "pdf", "svg")
    }
    assert {file.name for file in files} == names == {file.name for file in tmp_path.iterdir()}
    assert all(file.stat().st_size > 2000 for file in files)
    magic = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
    assert all(file.read_bytes().startswith(magic[file.suffix[1:]]) for file in files)


def test_four_panels_share_one_scale_and_print_their_values(frame):
    rows = frame[frame["estimator"] == "biased"]
    figure = plot_grids(rows)
    panels = [axis for axis in figure.axes if axis.images]
    assert sorted(axis.get_title() for axis in panels) == sorted(
        name.replace("-", "–") for name in MODELS
    )
    assert len({axis.images[0].get_clim() for axis in panels}) == 1
    for axis in panels:
        name = axis.get_title().replace("–", "-")
        x, y = MODELS[name]
        assert axis.get_ylabel() == f"layer of {x}"
        assert axis.get_xlabel() == f"layer of {y}"
        table = rows[rows["comparison"] == name].pivot(
            index="layer_x", columns="layer_y", values="value"
        )
        np.testing.assert_array_equal(axis.images[0].get_array().filled(np.nan), table)
        printed = [text.get_text() for text in axis.texts]
        assert [text for text in printed if text] == [
            f"{value:.2f}".replace("0.", ".", 1) if value < 0.995 else "1.0"
            for value in table.to_numpy().ravel()
            if not np.isnan(value)
        ]


def test_curve_has_every_layer_and_the_majority_line(frame):
    figure = plot_truncation(
        frame[frame["comparison"] == TRUNCATION], frame[frame["comparison"] == BASELINE]
    )
    (axis,) = figure.axes
    lines = {line.get_label(): line.get_ydata() for line in axis.lines}
    assert list(lines) == ["FT[1]", "FT[2]", MAJORITY]
    np.testing.assert_allclose(lines["FT[1]"], [0.5, 0.6, 0.7, 0.8])
    assert set(lines[MAJORITY]) == {0.52}


def test_comparisons_can_be_chosen_and_must_exist(tmp_path, frame):
    files = plot_results(frame, tmp_path, ("png",), ["FT-FT"])
    assert files
    with pytest.raises(UserError, match=r"--comparison X-Y.*ORIG-ORIG"):
        plot_results(frame, tmp_path, ("png",), ["X-Y"])
    with pytest.raises(UserError, match="--format gif"):
        plot_results(frame, tmp_path, ("gif",))


def test_drawing_loads_no_numerics():
    code = "import sys, simlab.plots; print([m for m in ('torch', 'simcore') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
