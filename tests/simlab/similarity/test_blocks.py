"""Blocks in tables: rows, intervals, the command, and outlines."""

import dataclasses
import json

import numpy as np
import pytest

from simcore import stats
from simlab.errors import UserError
from simlab.experiments.align_study import align_study
from simlab.representations.extract import extract
from simlab.representations.folder import load_representations
from simlab.representations.options import ExtractOptions
from simlab.similarity.block_scores import GridScores, find_blocks
from simlab.similarity.blocks import block_rows, blocks
from simlab.similarity.grids import grid as compute_grid
from simlab.store.reading import read_results
from simlab.store.results import (
    ALIGNMENT,
    BLOCK_SCORE,
    BLOCKS,
    GRID,
    GRID_COLUMNS,
    RELATIVE,
    WITHIN,
    ResultRow,
    to_frame,
    write_results,
)
from support.lab.commandline import check_refused
from support.lab.drawing import grids_figure
from support.tolerance import FLOAT32_MEASURE


def planted(sizes, within=1.0, between=0.0):
    """Similarity of planted blocks."""
    block = np.repeat(np.arange(len(sizes)), sizes)
    return np.where(np.equal.outer(block, block), within, between)


def rows_of(similarity, x="FT[1]", y="FT[1]", comparison="FT-FT", experiment=GRID):
    """Rows of a grid whose layers are numbered from 1."""
    return [
        ResultRow(
            experiment=experiment,
            comparison=comparison,
            measure="cka",
            kind="mean",
            estimator="biased",
            kernel="linear",
            label_x=x,
            label_y=y,
            seed_x=1,
            seed_y=1 if x == y else None,
            layer_x=i + 1,
            layer_y=j + 1,
            value=value,
            n=9,
            task="rt",
        )
        for (i, j), value in np.ndenumerate(similarity)
    ]


@pytest.fixture
def results(tmp_path):
    """A results file with an FT-FT grid of two blocks and a grid of two models."""
    rows = rows_of(planted((2, 3))) + rows_of(planted((2, 3)), y="ORIG", comparison="FT-ORIG")
    path = tmp_path / "grids.parquet"
    write_results(to_frame(rows), path)
    return path


def test_rows_number_the_clusters_of_grids_of_a_model_with_itself(results):
    (two, fixed), (best, rows) = block_rows(read_results(results))
    assert two.clusters == best.clusters == ((1, 2), (3, 4, 5))
    frame = to_frame(rows)
    assert frame["experiment"].tolist() == [BLOCK_SCORE, *[BLOCKS] * 5]
    assert frame["value"].tolist() == pytest.approx([1.0, 1, 1, 2, 2, 2])
    assert frame["layer_x"].tolist()[1:] == [1, 2, 3, 4, 5]
    original = read_results(results).iloc[0]
    for name in set(GRID_COLUMNS) - {"bandwidth", "options"}:
        assert set(frame[name]) == {original[name]}
    assert frame["options"].isna().all()
    assert {json.loads(row.options)["clusters"] for row in fixed} == {2}
    score = rows[0]
    assert (score.pvalue, score.calibrated) == (best.pvalue, best.calibrated)
    assert np.isnan([score.low, score.high]).all()
    assert json.loads(score.resampling) == {"bootstrap": 0, "permutations": 200, "seed": 0}


def test_the_command_prints_writes_and_leads_to_outlines_of_the_best(tmp_path, simcore):
    """Three blocks, of which the fixed number of two clusters joins two."""
    path, out = tmp_path / "grid.parquet", tmp_path / "blocks.parquet"
    write_results(to_frame(rows_of(planted((2, 3, 3), 1.0, 0.2))), path)
    code, printed, errors = simcore("blocks", path, "--out", out)
    assert (code, errors) == (0, [])
    lines = [line for line in printed.splitlines() if "FT[1]" in line]
    assert len(lines) == 2
    assert "1–2 | 3–5 | 6–8" in lines[1]
    assert "1.00" in lines[1]
    assert "clusters" not in lines[0]
    frame = read_results([path, out])
    grids = frame[frame["layer_y"].notna()]
    found = frame[frame["experiment"].isin((BLOCKS, BLOCK_SCORE))]
    figure = grids_figure(grids.assign(comparison=grids["comparison"].astype("category")), found)
    (axis, *_) = figure.axes
    drawn = [(p.get_xy(), p.get_width(), p.get_height()) for p in axis.patches]
    assert drawn == [((-0.5, -0.5), 2, 2), ((1.5, 1.5), 3, 3), ((4.5, 4.5), 3, 3)]
    assert "block score 1.00 (p " in axis.get_title()


def test_the_draws_belong_to_the_key(results, tmp_path):
    out = tmp_path / "blocks.parquet"
    blocks(results, out)
    blocks(results, out)
    for changed in ({"clusters": 3}, {"permutations": 20}, {"resampling_seed": 1}):
        with pytest.raises(UserError, match="overwrite=True"):
            blocks(results, out, **changed)


def test_grids_of_two_steps_have_blocks_of_their_own():
    """Two models with one label would otherwise be one grid, and a pair of steps a model."""
    rows = [
        dataclasses.replace(row, step_x=x, step_y=y)
        for x, y, sizes in ((1, 1, (2, 4)), (9, 9, (3, 3)), (1, 9, (4, 2)))
        for row in rows_of(planted(sizes))
    ]
    found = {(rows[0].step_x, one.clusters) for one, rows in block_rows(to_frame(rows))}
    assert found == {(1, ((1, 2), (3, 4, 5, 6))), (9, ((1, 2, 3), (4, 5, 6)))}


@pytest.fixture(scope="module")
def stored(tmp_path_factory, tiny_bert, review_task):
    """A folder with the representations of the words of ten texts, and a grid of them."""
    folder = tmp_path_factory.mktemp("stored")
    options = ExtractOptions(kind="word-last", limit=10)
    extract(tiny_bert, review_task, folder / "reps", options, label="A", seed=2)
    compute_grid(folder / "reps", folder / "grid.parquet")
    return folder


def test_intervals_are_those_of_halves_of_the_texts(stored, tmp_path, simcore):
    out, files = tmp_path / "blocks.parquet", (stored / "grid.parquet", stored / "reps")
    code, printed, _ = simcore("blocks", *files, "--bootstrap", 12, "--out", out)
    assert code == 0
    assert "95 %" in printed
    frame = read_results(out)
    scores = frame[frame["experiment"] == BLOCK_SCORE]
    assert len(scores) == 4
    assert (scores["low"] < scores["value"]).all()
    assert (scores["value"] < scores["high"]).all()
    part = load_representations(stored / "reps")
    texts = [int(row.split(":")[0].split("-")[-1]) for row in part.ids]
    drawn = stats.bootstrap_ci(
        part.layers, method="half", groups=texts, resamples=12, return_draws=True
    )
    values = GridScores(drawn.observed).of_grids(drawn.draws, 2)
    row = scores[(scores["estimator"] == "biased") & scores["options"].notna()].iloc[0]
    below = 1.959964 * values.std(ddof=1)
    assert row["value"] - row["low"] == pytest.approx(below, abs=FLOAT32_MEASURE)


def test_representations_that_belong_to_no_grid_are_refused(stored, tmp_path, results, simcore):
    folder, table = stored / "reps", read_results(stored / "grid.parquet")
    check_refused(simcore("blocks", results, folder), "--bootstrap: wanted 1 or more with")
    check_refused(simcore("blocks", results, "--bootstrap", 9), "wanted representation folders")
    outcome = simcore("blocks", results, folder, "--bootstrap", 9)
    check_refused(outcome, "wanted representations of a grid in the results, found A (word-last")
    other = tmp_path / "other.parquet"
    write_results(table.assign(value=table["value"] - 0.1), other)
    outcome = simcore("blocks", other, folder, "--bootstrap", 9)
    check_refused(outcome, "found others with the same label")


def errors_of(similarity, comparison="FT", part="heldout"):
    """Rows of a grid of errors of maps."""
    options = json.dumps({"method": "linear", "rows": part})
    return [
        dataclasses.replace(row, measure=RELATIVE, options=options, estimator=None, kernel=None)
        for row in rows_of(1 - similarity, comparison=comparison, experiment=WITHIN)
    ]


def test_errors_of_maps_are_a_grid_of_their_complement():
    similarity = 0.3 + 0.4 * planted((2, 3))
    table = [*errors_of(similarity), *errors_of(similarity, part="train")]
    (two, rows), (best, _) = block_rows(to_frame(table))
    assert best.clusters == two.clusters == ((1, 2), (3, 4, 5))
    assert two.score == pytest.approx(find_blocks(similarity, 2).score)
    assert two.within == pytest.approx(0.7)
    assert rows[0].measure == RELATIVE


def test_blocks_of_two_studies_with_the_same_labels_can_be_told_apart():
    studies = ("a", "b")
    table = [row for name in studies for row in errors_of(planted((2, 3)), comparison=name)]
    found = [
        json.loads(row.options)["study"] for _, rows in block_rows(to_frame(table)) for row in rows
    ]
    names = [f"alignment within: {study}" for study in studies]
    assert sorted(set(found)) == names
    assert found.count(names[0]) == found.count(names[1])


def test_maps_from_each_layer_to_the_same_layer_are_no_grid():
    some = [row for row in errors_of(planted((2, 3))) if row.layer_x == row.layer_y]
    with pytest.raises(UserError, match="found FT"):
        list(block_rows(to_frame(dataclasses.replace(r, experiment=ALIGNMENT) for r in some)))


def test_a_study_of_real_maps_has_blocks(stored, tmp_path):
    study = {"methods": ("linear",), "within": True, "heldout_share": 0.3}
    align_study([stored / "reps"], tmp_path / "study", **study)
    (two, rows), _ = blocks(tmp_path / "study")
    assert len(two.clusters) == 2
    assert rows[0].measure == RELATIVE


def test_a_table_without_such_a_grid_is_refused(tmp_path, simcore):
    path = tmp_path / "grids.parquet"
    write_results(to_frame(rows_of(planted((2, 3)), y="ORIG", comparison="FT-ORIG")), path)
    code, _, errors = simcore("blocks", path)
    assert (code, len(errors)) == (2, 1)
    assert "wanted a grid of a model with itself (FT-FT), found FT-ORIG" in errors[0]
    with pytest.raises(UserError):
        list(block_rows(read_results(path)))


def test_more_clusters_than_layers_are_refused(results, simcore):
    outcome = simcore("blocks", results, "--clusters", 6)
    check_refused(outcome, "grid of FT[1]: clusters: wanted 2 to 5 defined layers, found 6")


def test_a_folder_is_not_overwritten(results, simcore, tmp_path):
    out = tmp_path / "out.parquet"
    out.mkdir()
    outcome = simcore("blocks", results, "--out", out, "--overwrite")
    check_refused(outcome, f"--out {out}: wanted a results file, found a folder")
