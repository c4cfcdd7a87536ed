"""Localization scores from stored joint grids."""

import dataclasses

import numpy as np
import pytest

from simcore import localization_score
from simlab import localize, read_results
from simlab.errors import UserError
from simlab.results.results import GRID, JOINT, LOCALIZATION, ResultRow, to_frame, write_results
from simlab.similarity.localization import STANDARDIZED
from support.lab.commandline import check_refused
from support.lab.drawing import joint_figure
from support.tolerance import FLOAT64_RELATIVE

MODELS = (("ORIG", None), ("FT", 1))
LAYERS = 3


def joint_rows(measure, values, kind="word-last", options=None):
    names = [(model, seed, layer) for model, seed in MODELS for layer in range(LAYERS)]
    return [
        ResultRow(
            experiment=JOINT,
            comparison="both",
            measure=measure,
            kind=kind,
            options=options,
            label_x=x[0],
            seed_x=x[1],
            layer_x=x[2],
            label_y=y[0],
            seed_y=y[1],
            layer_y=y[2],
            value=values[i, j],
            n=50,
            task="rt",
        )
        for i, x in enumerate(names)
        for j, y in enumerate(names)
    ]


@pytest.fixture
def grids():
    rng = np.random.default_rng(0)
    return {name: rng.uniform(size=(2 * LAYERS,) * 2) for name in ("neuronsim", "svcca")}


def store(path, *rows):
    write_results(to_frame([row for part in rows for row in part]), path)
    return path


def test_scores_are_column_means_without_the_diagonal(tmp_path, grids):
    for name, values in grids.items():
        store(tmp_path / "in" / f"{name}.parquet", joint_rows(name, values))
    out = tmp_path / "out.parquet"
    localize(tmp_path / "in", out)
    frame = read_results(out)
    difference = grids["neuronsim"] - grids["svcca"]
    np.fill_diagonal(difference, 0)
    np.testing.assert_allclose(frame["value"], difference.sum(0) / 5, rtol=FLOAT64_RELATIVE)
    assert list(frame["label_x"]) == ["ORIG"] * 3 + ["FT"] * 3
    assert list(frame["layer_x"]) == [0, 1, 2] * 2
    assert frame["seed_x"].fillna(0).tolist() == [0, 0, 0, 1, 1, 1]
    assert set(frame["experiment"]) == {LOCALIZATION}
    assert set(frame["kind"]) == {"word-last"}


def test_standardized_scores_are_another_definition(tmp_path, grids, simcore):
    """Those of the notebooks behind the paper's figures; the rows say so, and name their grid."""
    for name, values in grids.items():
        store(tmp_path / "in" / f"{name}.parquet", joint_rows(name, values))
    out = tmp_path / "out.parquet"
    for arguments in (("--standardize",), ("--paper", "wu2020", "--overwrite")):
        code, *_ = simcore("localize", tmp_path / "in", "--out", out, *arguments)
        assert code == 0
        frame = read_results(out)
        want = localization_score(grids["neuronsim"], grids["svcca"], standardize=True)
        np.testing.assert_allclose(frame["value"], want, rtol=FLOAT64_RELATIVE)
        assert set(frame["options"]) == {STANDARDIZED}
        assert set(frame["comparison"]) == {"both"}
    check_refused(simcore("localize", tmp_path / "in", "--out", out), "--overwrite")


def test_a_figure_has_a_panel_for_each_definition(tmp_path, grids):
    rows = [joint_rows(name, values) for name, values in grids.items()]
    path = store(tmp_path / "in.parquet", *rows)
    for standardize in (False, True):
        localize(path, tmp_path / f"{standardize}.parquet", standardize=standardize)
    scores = read_results([tmp_path / "False.parquet", tmp_path / "True.parquet"])
    figure = joint_figure(read_results(path), scores)
    titles = [axis.get_title() for axis in figure.axes]
    assert titles.count("Localization score") == 1
    assert titles.count("Localization score, standardized") == 1


def test_an_undefined_layer_has_no_score_and_takes_no_part(tmp_path, grids):
    whole = {name: values.copy() for name, values in grids.items()}
    for values in grids.values():
        values[0] = values[:, 0] = np.nan
    rows = [joint_rows(name, values) for name, values in grids.items()]
    localize(store(tmp_path / "in.parquet", *rows), tmp_path / "out.parquet")
    found = read_results(tmp_path / "out.parquet")["value"].to_numpy()
    difference = (whole["neuronsim"] - whole["svcca"])[1:, 1:]
    np.fill_diagonal(difference, 0)
    assert np.isnan(found[0])
    np.testing.assert_allclose(found[1:], difference.sum(0) / 4, rtol=FLOAT64_RELATIVE)


def test_the_own_output_in_the_same_folder_is_no_input(tmp_path, grids):
    rows = [joint_rows(name, values) for name, values in grids.items()]
    store(tmp_path / "grids.parquet", *rows)
    assert not localize(tmp_path, tmp_path / "out.parquet").skipped
    assert localize(tmp_path, tmp_path / "out.parquet").skipped


def test_a_copy_of_a_grid_is_the_same_grid(tmp_path, grids):
    rows = [joint_rows(name, values) for name, values in grids.items()]
    localize(store(tmp_path / "one.parquet", *rows), tmp_path / "once.parquet")
    localize(store(tmp_path / "two.parquet", *rows, *rows), tmp_path / "twice.parquet")
    once, twice = (read_results(tmp_path / f"{name}.parquet") for name in ("once", "twice"))
    assert once.drop(columns="grid").equals(twice.drop(columns="grid"))


def test_missing_double_and_different_grids_are_refused(tmp_path, grids):
    neuronsim = joint_rows("neuronsim", grids["neuronsim"])
    svcca = joint_rows("svcca", grids["svcca"])
    pair = [dataclasses.replace(row, experiment=GRID) for row in neuronsim + svcca]
    again = joint_rows("svcca", grids["svcca"], options='{"truncation": 3}')
    other = joint_rows("neuronsim", grids["neuronsim"] / 2)
    fewer = [dataclasses.replace(row, n=7) for row in neuronsim]
    of_means = joint_rows("neuronsim", grids["neuronsim"], kind="mean")
    cases = {
        "wanted joint grids of neuronsim and svcca": [pair],
        "wanted one grid of svcca, found 0": [neuronsim],
        "wanted one grid of svcca, found 2": [neuronsim, svcca, again],
        "wanted one grid of neuronsim, found 2": [neuronsim, other, svcca],
        "wanted one grid of neuronsim, found 3": [neuronsim, fewer, of_means, svcca],
        "same layers of one kind": [neuronsim, joint_rows("svcca", grids["svcca"], kind="mean")],
    }
    for message, rows in cases.items():
        path = store(tmp_path / "in.parquet", *rows)
        with pytest.raises(UserError, match=message):
            localize(path, tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()
