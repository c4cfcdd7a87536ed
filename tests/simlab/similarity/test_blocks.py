"""Blocks: the best split is the best of all splits, and the score means what it says."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from simlab.errors import UserError
from simlab.figures.grids import plot_grids
from simlab.similarity.blocks import LOWEST_SCORE, block_rows, excess, find_blocks
from simlab.store.results import (
    BLOCK_SCORE,
    BLOCKS,
    GRID_COLUMNS,
    ResultRow,
    read_results,
    to_frame,
    write_results,
)
from support.lab.commandline import check_refused
from support.tolerance import FLOAT64_RELATIVE

LAYERS = 24


def distances(count=LAYERS):
    return np.abs(np.subtract.outer(np.arange(count), np.arange(count)))


def planted(sizes, within=1.0, between=0.0):
    """Similarity of planted blocks."""
    block = np.repeat(np.arange(len(sizes)), sizes)
    return np.where(np.equal.outer(block, block), within, between)


def noise(count, seed):
    drawn = np.random.default_rng(seed).uniform(size=(count, count))
    return (drawn + drawn.T) / 2


def sizes_of(blocks):
    return [len(cluster) for cluster in blocks.clusters]


def splits(count, clusters):
    """Return all splits of `count` layers into contiguous clusters."""
    for inner in combinations(range(1, count), clusters - 1):
        edges = (0, *inner, count)
        yield [range(a, b) for a, b in pairwise(edges)]


def total(values, split):
    return sum(values[i, j] for cluster in split for i, j in combinations(cluster, 2))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("seed", range(3))
def test_no_contiguous_split_is_better(count, seed):
    similarity = noise(count, seed)
    band = np.array([similarity[distances(count) == d].mean() for d in range(count)])
    expected = band[distances(count)]
    best = [
        max(total(similarity - expected, split) for split in splits(count, clusters))
        for clusters in range(1, count + 1)
    ]
    found = find_blocks(similarity)
    np.testing.assert_allclose(found.excess_by_count, best, atol=FLOAT64_RELATIVE)
    np.testing.assert_allclose(excess(similarity), similarity - expected, atol=FLOAT64_RELATIVE)
    for clusters in range(1, count + 1):
        split = find_blocks(similarity, clusters).clusters
        assert len(split) == clusters
        assert [layer for cluster in split for layer in cluster] == list(range(count))
        reached = total(similarity - expected, split)
        assert reached == pytest.approx(best[clusters - 1], abs=FLOAT64_RELATIVE)


def test_score_within_and_between_are_what_they_are_defined_as():
    similarity = noise(6, 4)
    found = find_blocks(similarity, 2)
    band = similarity - excess(similarity)
    pairs = [pair for cluster in found.clusters for pair in combinations(cluster, 2)]
    others = [pair for pair in combinations(range(6), 2) if pair not in pairs]
    gained = sum(similarity[p] - band[p] for p in pairs)
    assert found.score == pytest.approx(gained / sum(1 - band[p] for p in pairs))
    assert found.within == pytest.approx(np.mean([similarity[p] for p in pairs]))
    assert found.between == pytest.approx(np.mean([similarity[p] for p in others]))


@pytest.mark.parametrize("sizes", [(10, 14), (2, 5, 6), (1, 12), (4, 4, 4, 4), (3, 1, 5)])
def test_planted_blocks_are_found_with_score_1(sizes):
    found = find_blocks(planted(sizes))
    assert sizes_of(found) == list(sizes)
    assert found.score == pytest.approx(1.0)
    assert (found.within, found.between) == (1.0, 0.0)


def test_planted_blocks_are_found_under_noise_and_a_weaker_contrast_scores_less():
    jitter = (noise(LAYERS, 0) - 0.5) / 10
    strong = find_blocks(planted((10, 14), 0.95, 0.1) + jitter)
    weak = find_blocks(planted((10, 14), 0.8, 0.5) + jitter)
    assert sizes_of(strong) == sizes_of(weak) == [10, 14]
    assert LOWEST_SCORE < weak.score < strong.score < 1


@pytest.mark.parametrize(
    "similarity",
    [
        np.full((LAYERS, LAYERS), 0.5),
        np.ones((LAYERS, LAYERS)),
        np.exp(-distances() / 5),
        1 - distances() / LAYERS,
        0.5 + (noise(LAYERS, 1) - 0.5) / 50,
    ],
    ids=["constant", "ones", "band", "drift", "constant with noise"],
)
def test_what_has_no_blocks_is_one_cluster_with_score_0(similarity):
    found = find_blocks(similarity)
    assert sizes_of(found) == [LAYERS]
    assert found.score == pytest.approx(0.0, abs=FLOAT64_RELATIVE)
    assert np.isnan(found.between)


def test_a_shuffled_order_of_layers_has_no_blocks_left():
    similarity = planted((12, 12))
    order = np.random.default_rng(0).permutation(LAYERS)
    shuffled = find_blocks(similarity[np.ix_(order, order)])
    assert shuffled.score < find_blocks(similarity).score / 2


def test_undefined_layers_are_left_out_and_named():
    similarity = np.full((7, 7), np.nan)
    similarity[1:, 1:] = planted((2, 4))
    found = find_blocks(similarity)
    assert found.clusters == ((1, 2), (3, 4, 5, 6))
    assert found.undefined == (0,)
    assert found.score == pytest.approx(1.0)


def test_both_directions_of_an_asymmetric_measure_count():
    similarity = planted((3, 4))
    leaning = np.tril(similarity) + np.triu(similarity, 1) * 0.5
    assert find_blocks(leaning) == find_blocks((leaning + leaning.T) / 2)


@pytest.mark.parametrize(
    ("similarity", "clusters", "message"),
    [
        (np.ones((2, 3)), None, r"square matrix \[L, L\], found shape \(2, 3\)"),
        (np.full((3, 3), np.nan), None, "found only nan"),
        (np.array([[1, np.nan], [0.5, 1]]), None, "nan in whole rows"),
        (np.ones((3, 3)), 4, "clusters: wanted 1 to 3, found 4"),
    ],
)
def test_wrong_matrices_are_refused(similarity, clusters, message):
    with pytest.raises(ValueError, match=message):
        find_blocks(similarity, clusters)


def grid(similarity, x="FT[1]", y="FT[1]", comparison="FT-FT"):
    """Rows of a grid whose layers are numbered from 1."""
    return [
        ResultRow(
            comparison=comparison,
            measure="cka",
            kind="mean",
            estimator="biased",
            kernel="linear",
            model_x=x,
            model_y=y,
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
    rows = grid(planted((2, 3))) + grid(planted((2, 3)), y="ORIG", comparison="FT-ORIG")
    path = tmp_path / "grids.parquet"
    write_results(to_frame(rows), path)
    return path


def test_rows_number_the_clusters_of_grids_of_a_model_with_itself(results):
    ((found, rows),) = block_rows(read_results(results))
    assert found.clusters == ((1, 2), (3, 4, 5))
    frame = to_frame(rows)
    assert frame["comparison"].tolist() == [BLOCK_SCORE, *[BLOCKS] * 5]
    assert frame["value"].tolist() == pytest.approx([1.0, 1, 1, 2, 2, 2])
    assert frame["layer_x"].tolist()[1:] == [1, 2, 3, 4, 5]
    original = read_results(results).iloc[0]
    for name in set(GRID_COLUMNS) - {"bandwidth", "options"}:
        assert set(frame[name]) == {original[name]}


def test_the_command_prints_writes_and_leads_to_outlines(results, simcore, tmp_path):
    out = tmp_path / "blocks.parquet"
    code, printed, errors = simcore("blocks", results, "--out", out)
    assert (code, errors) == (0, [])
    assert "1–2 | 3–5" in printed
    assert "1.00" in printed
    frame = read_results([results, out])
    grids = frame[frame["layer_y"].notna()]
    blocks = frame[frame["comparison"].isin((BLOCKS, BLOCK_SCORE))]
    figure = plot_grids(grids.assign(comparison=grids["comparison"].astype("category")), blocks)
    drawn = {
        axis.get_title(): [(p.get_xy(), p.get_width(), p.get_height()) for p in axis.patches]
        for axis in figure.axes[:2]
    }
    assert drawn == {
        "FT–FT · blocks 1.0": [((-0.5, -0.5), 2, 2), ((1.5, 1.5), 3, 3)],
        "FT–ORIG": [],
    }


@pytest.mark.parametrize(
    ("count", "within"), [(5, "0.50"), (1, "–")], ids=["many layers", "one layer"]
)
def test_a_single_cluster_scores_zero_and_says_so(tmp_path, simcore, count, within):
    similarity = np.linspace(0, 1, count**2).reshape(count, count)
    found = find_blocks(similarity, 1)
    assert (found.score, sizes_of(found)) == (0.0, [count])  # exactly, with no rounding
    assert np.isnan(found.between)
    path, out = tmp_path / "grid.parquet", tmp_path / "blocks.parquet"
    write_results(to_frame(grid(similarity)), path)
    code, printed, errors = simcore("blocks", path, "--clusters", 1, "--out", out)
    assert (code, errors) == (0, [])
    (row,) = [line for line in printed.splitlines() if "FT[1]" in line]
    assert row.replace("│", " ").split()[-3:] == ["0.00", within, "–"]
    assert "A single cluster scores 0" in printed
    frame = read_results(out)
    assert frame.loc[frame["comparison"] == BLOCK_SCORE, "value"].tolist() == [0.0]


def test_several_clusters_have_no_word_of_a_single_one(results, simcore):
    assert "A single cluster" not in simcore("blocks", results)[1]


@pytest.mark.parametrize("comparison", ["alignment within: FT", "injection"])
def test_errors_of_aligned_layers_are_no_grid(comparison):
    errors = grid(1 - planted((2, 3)), comparison=comparison)
    ((found, _),) = block_rows(to_frame(errors + grid(planted((1, 4)))))
    assert found.clusters == ((1,), (2, 3, 4, 5))
    with pytest.raises(UserError, match=f"found {comparison}"):
        list(block_rows(to_frame(errors)))


def test_a_table_without_such_a_grid_is_refused(tmp_path, simcore):
    path = tmp_path / "grids.parquet"
    write_results(to_frame(grid(planted((2, 3)), y="ORIG", comparison="FT-ORIG")), path)
    code, _, errors = simcore("blocks", path)
    assert (code, len(errors)) == (2, 1)
    assert "wanted a grid of a model with itself (FT-FT), found FT-ORIG" in errors[0]
    with pytest.raises(UserError):
        list(block_rows(read_results(path)))


def test_a_folder_is_not_overwritten(results, simcore, tmp_path):
    out = tmp_path / "out.parquet"
    out.mkdir()
    outcome = simcore("blocks", results, "--out", out, "--overwrite")
    check_refused(outcome, f"--out {out}: wanted a results file, found a folder")
