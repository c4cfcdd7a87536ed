"""Blocks in tables: rows, the command, and outlines."""

import dataclasses
import json

import numpy as np
import pytest

from simlab.errors import UserError
from simlab.results.reading import read_results
from simlab.results.results import (
    BLOCK_SCORE,
    BLOCKS,
    GRID,
    GRID_COLUMNS,
    ResultRow,
    to_frame,
    write_results,
)
from simlab.similarity.blocks import block_rows, blocks
from support.lab.commandline import check_refused
from support.lab.drawing import grids_figure


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
    ((found, rows),) = block_rows(read_results(results))
    assert found.clusters == ((1, 2), (3, 4, 5))
    frame = to_frame(rows)
    assert frame["experiment"].tolist() == [BLOCK_SCORE, *[BLOCKS] * 5]
    assert frame["value"].tolist() == pytest.approx([1.0, 1, 1, 2, 2, 2])
    assert frame["layer_x"].tolist()[1:] == [1, 2, 3, 4, 5]
    original = read_results(results).iloc[0]
    for name in set(GRID_COLUMNS) - {"bandwidth", "options"}:
        assert set(frame[name]) == {original[name]}
    assert frame["options"].isna().all()
    score = rows[0]
    assert (score.pvalue, score.calibrated) == (found.pvalue, found.calibrated)
    assert np.isnan([score.low, score.high]).all()
    assert json.loads(score.resampling) == {"bootstrap": 0, "permutations": 200, "seed": 0}


def test_the_command_prints_writes_and_leads_to_outlines(tmp_path, simcore):
    path, out = tmp_path / "grid.parquet", tmp_path / "blocks.parquet"
    write_results(to_frame(rows_of(planted((2, 3, 3), 1.0, 0.2))), path)
    code, printed, errors = simcore("blocks", path, "--clusters", 3, "--out", out)
    assert (code, errors) == (0, [])
    (line,) = [line for line in printed.splitlines() if "FT[1]" in line]
    assert "1–2 | 3–5 | 6–8" in line
    assert "1.00" in line
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
