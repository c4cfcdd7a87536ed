"""Blocks: the best split is the best of all splits, scores mean what they say, and tables."""

import dataclasses
import json
from itertools import combinations, pairwise

import numpy as np
import pytest

import simcore
from simcore import stats
from simlab import TaskOptions, blocks, extract, load_representations, load_task, read_results
from simlab.errors import UserError
from simlab.representations.passes import ExtractOptions
from simlab.results.results import (
    BLOCK_SCORE,
    BLOCKS,
    GRID,
    GRID_COLUMNS,
    ResultRow,
    to_frame,
    write_results,
)
from simlab.similarity.blocks import (
    block_rows,
    every_permutation,
    find_blocks,
    largest_scores,
    permute_bands,
    pvalue_of_split,
)
from support.lab.commandline import check_refused
from support.lab.drawing import grids_figure
from support.tolerance import FLOAT64_RELATIVE

LAYERS = 24
ROUNDING = 1e-9


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


def band_of(similarity):
    count = len(similarity)
    means = np.array([similarity[distances(count) == d].mean() for d in range(count)])
    return means[distances(count)]


def splits(count, clusters):
    """Return all splits of `count` layers into contiguous clusters."""
    for inner in combinations(range(1, count), clusters - 1):
        edges = (0, *inner, count)
        yield [range(a, b) for a, b in pairwise(edges)]


def total(values, split):
    return sum(values[i, j] for cluster in split for i, j in combinations(cluster, 2))


def score_of(similarity, split):
    band = band_of(similarity)
    room = total(1 - band, split)
    return total(similarity - band, split) / room if room else 0.0


@pytest.mark.parametrize("count", [2, 3, 5, 8])
@pytest.mark.parametrize("seed", range(3))
def test_no_contiguous_split_has_a_larger_score(count, seed):
    similarity = noise(count, seed)
    for clusters in range(2, count + 1):
        found = find_blocks(similarity, clusters, permutations=3)
        assert len(found.clusters) == clusters
        assert [layer for cluster in found.clusters for layer in cluster] == list(range(count))
        reached = score_of(similarity, found.clusters)
        best = max(score_of(similarity, split) for split in splits(count, clusters))
        assert found.score == pytest.approx(reached, abs=FLOAT64_RELATIVE)
        assert reached == pytest.approx(best, abs=FLOAT64_RELATIVE)


def test_within_and_between_are_the_means_of_their_pairs():
    similarity = noise(6, 4)
    found = find_blocks(similarity, 2, permutations=3)
    pairs = [pair for cluster in found.clusters for pair in combinations(cluster, 2)]
    others = [pair for pair in combinations(range(6), 2) if pair not in pairs]
    assert found.within == pytest.approx(np.mean([similarity[p] for p in pairs]))
    assert found.between == pytest.approx(np.mean([similarity[p] for p in others]))


def test_permuted_grids_keep_every_band_and_are_symmetric():
    similarity = noise(7, 0)
    grids = permute_bands(similarity, 40, np.random.default_rng(1))
    for grid in grids:
        np.testing.assert_array_equal(grid, grid.T)
        for distance in range(7):
            wanted = np.sort(np.diagonal(similarity, distance))
            np.testing.assert_array_equal(np.sort(np.diagonal(grid, distance)), wanted)
    places = grids[:, 0, 1]
    assert len(np.unique(places)) == 6  # every value of the band comes to every place


def test_chance_and_pvalues_are_those_of_permuted_grids():
    similarity = planted((3, 4), 0.6, 0.3) + (noise(7, 3) - 0.5) / 4
    drawn = permute_bands(similarity, 60, np.random.default_rng(5))
    scores = largest_scores(drawn, 2)[0]
    found = find_blocks(similarity, 2, permutations=60, seed=5)
    assert found.chance == pytest.approx(scores.mean())
    assert found.pvalue == (1 + (scores >= found.score - ROUNDING).sum()) / 61
    assert found.calibrated == pytest.approx((found.score - found.chance) / (1 - found.chance))


def test_every_permutation_of_few_layers_is_counted_once():
    similarity = 0.5 + noise(5, 0) / 5
    grids = every_permutation(similarity)
    assert len(grids) == len(np.unique(grids, axis=0)) == 24 * 6 * 2  # of bands of 4, 3, 2 and 1
    np.testing.assert_array_equal(grids[0], similarity)
    for distance in range(1, 5):
        bands = np.sort(np.diagonal(grids, distance, axis1=1, axis2=2), axis=1)
        assert (bands == bands[0]).all()
    scores, _ = largest_scores(grids, 2)
    pvalue = pvalue_of_split(similarity, 2)
    assert pvalue == np.mean(scores >= scores[0] - 1e-9) >= 1 / len(grids)
    drawn = find_blocks(similarity, 2, permutations=5000).pvalue
    assert pvalue == pytest.approx(drawn, abs=0.04)


def test_permutations_of_more_layers_are_drawn():
    similarity = 0.5 + noise(9, 3) / 5
    wanted = find_blocks(similarity, 2, permutations=500, seed=7).pvalue
    assert pvalue_of_split(similarity, 2, draws=500, seed=7) == wanted


@pytest.mark.parametrize("sizes", [(10, 14), (2, 5, 6), (1, 12), (4, 4, 4, 4), (3, 1, 5)])
def test_planted_blocks_are_found_with_score_1(sizes):
    found = find_blocks(planted(sizes), len(sizes))
    assert sizes_of(found) == list(sizes)
    assert found.score == pytest.approx(1.0)
    assert found.calibrated == pytest.approx(1.0)
    assert (found.within, found.between) == (1.0, 0.0)


def test_planted_blocks_are_found_under_noise_and_a_weaker_contrast_scores_less():
    jitter = (noise(LAYERS, 0) - 0.5) / 10
    strong = find_blocks(planted((10, 14), 0.95, 0.1) + jitter, 2)
    weak = find_blocks(planted((10, 14), 0.8, 0.5) + jitter, 2)
    assert sizes_of(strong) == sizes_of(weak) == [10, 14]
    assert weak.score < strong.score < 1
    assert strong.pvalue == weak.pvalue == 1 / 201


@pytest.mark.parametrize("scale", [1e-3, 7.0])
def test_the_scale_of_dissimilarity_does_not_matter(scale):
    dissimilarity = 1 - planted((5, 4, 8), 0.9, 0.3) + noise(17, 0) / 5
    found, scaled = (find_blocks(1 - s * dissimilarity, 3) for s in (1.0, scale))
    assert found.clusters == scaled.clusters
    assert scaled.score == pytest.approx(found.score)
    assert scaled.pvalue == found.pvalue


@pytest.mark.parametrize(
    "similarity",
    [
        np.full((LAYERS, LAYERS), 0.5),
        np.ones((LAYERS, LAYERS)),
        1 - 1e-9 * noise(LAYERS, 2),  # all layers are equal, up to rounding
        np.exp(-distances() / 5),
        1 - distances() / LAYERS,
    ],
    ids=["constant", "ones", "rounding", "band", "drift"],
)
def test_what_depends_on_distance_alone_scores_0_at_chance(similarity):
    found = find_blocks(similarity, 2)
    assert found.score == pytest.approx(0.0, abs=1e-3)
    assert found.calibrated == pytest.approx(0.0, abs=1e-3)
    if np.abs(similarity - band_of(similarity)).max() < FLOAT64_RELATIVE:
        assert found.pvalue == 1


def test_noise_without_blocks_is_at_chance():
    fixed = [find_blocks(0.5 + noise(9, s) / 5, 2, permutations=99) for s in range(40)]
    assert 0.4 < np.mean([blocks.pvalue for blocks in fixed]) < 0.6
    assert abs(np.mean([blocks.calibrated for blocks in fixed])) < 0.01


def test_undefined_layers_are_left_out_and_named():
    similarity = np.full((7, 7), np.nan)
    similarity[1:, 1:] = planted((2, 4))
    found = find_blocks(similarity, 2)
    assert found.clusters == ((1, 2), (3, 4, 5, 6))
    assert found.undefined == (0,)
    assert found.score == pytest.approx(1.0)


def test_both_directions_of_an_asymmetric_measure_count():
    similarity = planted((3, 4))
    leaning = np.tril(similarity) + np.triu(similarity, 1) * 0.5
    found, mean = (
        (b.clusters, b.score, b.pvalue)
        for b in (find_blocks(grid, 2) for grid in (leaning, (leaning + leaning.T) / 2))
    )
    assert found == mean


@pytest.mark.parametrize(
    ("similarity", "clusters", "message"),
    [
        (np.ones((2, 3)), 2, r"square matrix \[L, L\], found shape \(2, 3\)"),
        (np.full((3, 3), np.nan), 2, "2 rows with values or more, found 0"),
        (np.ones((1, 1)), 2, "2 rows with values or more, found 1"),
        (np.array([[1, np.nan], [0.5, 1]]), 2, "nan in whole rows"),
        (np.ones((3, 3)), 4, "clusters: wanted 2 to 3 defined layers, found 4"),
        (np.ones((3, 3)), 1, "clusters: wanted 2 to 3 defined layers, found 1"),
    ],
)
def test_wrong_matrices_are_refused(similarity, clusters, message):
    with pytest.raises(ValueError, match=message):
        find_blocks(similarity, clusters)


# CKA of layers 1 to 6 of MiniLM fine-tuned on rt with three seeds, CLS: the pairs above the
# diagonal, in thousandths.
SEEDS = """
538 465 233 72 55 713 327 107 82 483 237 186 739 650 909
540 487 305 75 59 722 426 107 85 554 236 193 561 484 794
544 441 312 74 54 729 454 112 84 588 215 202 499 481 848
"""


def test_three_seeds_of_one_model_score_alike():
    grids = np.tile(np.eye(6), (3, 1, 1))
    thousandths = [line.split() for line in SEEDS.strip().splitlines()]
    grids[:, *np.triu_indices(6, 1)] = np.array(thousandths, float) / 1000
    grids = np.maximum(grids, grids.swapaxes(1, 2))
    two = [find_blocks(grid, 2).score for grid in grids]
    assert np.round(two, 2).tolist() == [0.19, 0.09, 0.10]
    assert max(find_blocks(grid, 2).calibrated for grid in grids) < 0.2


@pytest.mark.deep
def test_near_identical_grids_of_a_real_model_have_near_identical_scores(tmp_path, minilm):
    """CKA of the layers of MiniLM, CLS, on halves of 100 texts: 20 grids."""
    task = load_task("rt", TaskOptions(heldout_size=100))
    extract(minilm, task, tmp_path / "cls", ExtractOptions())
    layers = load_representations(tmp_path / "cls").layers[1:]
    drawn = stats.bootstrap_ci(layers, resamples=20, method="half", return_draws=True)
    grids = np.concatenate([simcore.cka_grid(layers)[None], drawn.draws])
    assert np.ptp([find_blocks(grid, 2).score for grid in grids]) < 0.08


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
    check_refused(
        simcore("blocks", path), "wanted a grid of a model with itself (FT-FT), found FT-ORIG"
    )
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
