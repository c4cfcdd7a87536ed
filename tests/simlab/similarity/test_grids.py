"""Grids of every measure agree with the float64 twins; the table names their options."""

import json

import numpy as np
import pytest

from simcore import reference
from simlab import extract, grid, load_representations, read_results
from simlab.errors import UserError
from simlab.representations.passes import ExtractOptions
from simlab.results.results import joint_table
from simlab.similarity.catalogue import MEASURES
from support.tolerance import FLOAT32_MEASURE

EPS = {"eps": float(np.finfo(np.float32).eps)}
TWINS = {
    "cca": lambda x, y: reference.cca_grid(x, y, **EPS),
    "svcca": lambda x, y: reference.svcca_grid(x, y, **EPS),
    "pwcca": lambda x, y: reference.pwcca_grid(x, y, **EPS),
    "linreg": lambda x, y: reference.linreg_grid(x, y, **EPS),
    "procrustes": reference.procrustes_grid,
    "rsa": reference.rsa_grid,
    "neuronsim": reference.neuronsim_grid,
    "mixedsim": lambda x, y: reference.mixedsim_grid(x, y, **EPS),
    "knn-mutual": lambda x, y: reference.knn_grid(x, y, **EPS),
    "knn-second-order": lambda x, y: reference.knn_grid(x, y, measure="second-order", **EPS),
    "cknna": reference.cknna_grid,
    "attention-js": lambda x, y: reference.attention_grid(x, y, measure="js"),
    "attention-pearson": lambda x, y: reference.attention_grid(x, y, measure="pearson"),
    "attention-frobenius": lambda x, y: reference.attention_grid(x, y, measure="frobenius"),
}


def table_of(path, x, y):
    """[layers of x, layers of y] of one results file."""
    frame = read_results(path)
    rows = frame[(frame["label_x"] == x) & (frame["label_y"] == y)]
    return rows.pivot(index="layer_x", columns="layer_y", values="value").to_numpy()


def pair(reps, measure):
    kind = "words" if MEASURES[measure].takes_representations else "attention"
    return [reps / f"{name}-{kind}" for name in "ab"]


@pytest.mark.parametrize("measure", TWINS)
def test_grid_agrees_with_the_float64_twin_in_every_direction_it_stores(tmp_path, reps, measure):
    folders = pair(reps, measure)
    out = tmp_path / "grid.parquet"
    grid(folders, out, measure=measure)
    x, y = (load_representations(folder).layers for folder in folders)
    wanted = TWINS[measure](x, y)
    np.testing.assert_allclose(table_of(out, "A", "B"), wanted, rtol=0, atol=FLOAT32_MEASURE)
    if MEASURES[measure].symmetric:
        assert set(read_results(out)["label_x"]) == {"A"}
    else:
        wanted = TWINS[measure](y, x)
        np.testing.assert_allclose(table_of(out, "B", "A"), wanted, rtol=0, atol=FLOAT32_MEASURE)


@pytest.mark.parametrize("measure", ["cka", *TWINS])
def test_the_registry_knows_ranges_and_symmetry(tmp_path, reps, measure):
    grid(pair(reps, measure), tmp_path / "grid.parquet", measure=measure, joint=True)
    frame = read_results(tmp_path / "grid.parquet")
    values = frame["value"]
    if measure != "cka":  # two estimators in one table
        square = joint_table(frame)[1]
        symmetric = np.max(np.abs(square - square.T)) <= FLOAT32_MEASURE
        assert symmetric == MEASURES[measure].symmetric
    assert values.between(MEASURES[measure].lowest, 1 + FLOAT32_MEASURE).all()
    assert len(values) == (2 * (4 if MEASURES[measure].takes_representations else 3)) ** 2 * (
        2 if measure == "cka" else 1
    )


def test_joint_grid_has_the_blocks_of_the_pairs(tmp_path, reps):
    folders = pair(reps, "svcca")
    grid(folders, tmp_path / "joint.parquet", measure="svcca", joint=True)
    grid(folders, tmp_path / "pair.parquet", measure="svcca")
    layers, values = joint_table(read_results(tmp_path / "joint.parquet"))
    assert [(layer.model, layer.seed, layer.number) for layer in layers] == [
        (name, seed, number) for name, seed in (("A", 3), ("B", 5)) for number in range(4)
    ]
    block = table_of(tmp_path / "pair.parquet", "A", "B")
    np.testing.assert_allclose(values[:4, 4:], block, rtol=0, atol=FLOAT32_MEASURE)


def test_options_reach_the_measure_and_the_table(tmp_path, reps):
    folders = pair(reps, "svcca")
    grid(folders, tmp_path / "svcca.parquet", measure="svcca", truncation=5)
    frame = read_results(tmp_path / "svcca.parquet")
    wanted = {"standardize": False, "top_k": None, "truncation": 5}
    assert json.loads(frame.iloc[0]["options"]) == wanted
    assert set(frame["kind"]) == {"word-mean"}
    x, y = (load_representations(folder).layers for folder in folders)
    wanted = reference.svcca_grid(x, y, truncation=5, **EPS)
    found = table_of(tmp_path / "svcca.parquet", "A", "B")
    np.testing.assert_allclose(found, wanted, rtol=0, atol=FLOAT32_MEASURE)
    grid(folders, tmp_path / "rsa.parquet", measure="rsa", correlation="spearman")
    given = {"truncation": 0.9, "standardize": True, "top_k": 3}
    grid(folders, tmp_path / "pwcca.parquet", measure="pwcca", **given)
    frame = read_results(tmp_path / "pwcca.parquet")
    assert json.loads(frame.iloc[0]["options"]) == given
    wanted = reference.pwcca_grid(x, y, **given, **EPS)
    found = table_of(tmp_path / "pwcca.parquet", "A", "B")
    np.testing.assert_allclose(found, wanted, rtol=0, atol=FLOAT32_MEASURE)
    grid(folders, tmp_path / "neuronsim.parquet", measure="neuronsim", top_k=0.25)
    wanted = reference.neuronsim_grid(x, y, top_k=0.25)
    found = table_of(tmp_path / "neuronsim.parquet", "A", "B")
    np.testing.assert_allclose(found, wanted, rtol=0, atol=FLOAT32_MEASURE)
    wanted = reference.rsa_grid(x, y, correlation="spearman")
    found = table_of(tmp_path / "rsa.parquet", "A", "B")
    np.testing.assert_allclose(found, wanted, rtol=0, atol=FLOAT32_MEASURE)


def test_distributed_attention_goes_to_measures_of_representations(tmp_path, reps):
    folders = pair(reps, "attention-js")
    grid(folders, tmp_path / "cka.parquet", measure="cka", estimator="biased")
    x, y = (load_representations(folder).layers for folder in folders)
    sides = [[reference.distributed_attention(layer) for layer in side] for side in (x, y)]
    wanted = reference.cka_grid(*sides)
    found = table_of(tmp_path / "cka.parquet", "A", "B")
    np.testing.assert_allclose(found, wanted, rtol=0, atol=FLOAT32_MEASURE)


def test_causal_attention_counts_the_lower_triangle(tmp_path, reps):
    folders = pair(reps, "attention-js")
    x, y = (load_representations(folder).layers for folder in folders)
    grid(folders, tmp_path / "js.parquet", measure="attention-js", causal=True)
    wanted = reference.attention_grid(x, y, causal=True)
    found = table_of(tmp_path / "js.parquet", "A", "B")
    np.testing.assert_allclose(found, wanted, rtol=0, atol=FLOAT32_MEASURE)


@pytest.mark.parametrize(
    ("names", "measure", "options", "message"),
    [
        (("a-words", "b-words"), "attention-js", {}, "a-words: measure attention-js wanted .*kind"),
        (("a-attention", "b-attention"), "rsa", {}, "measure rsa wanted representations"),
        (("a-words", "b-cls"), "cka", {}, "wanted the same rows, found .*different ids"),
        (("a-words",), "cka", {"causal": True}, "causal: wanted kind attention"),
        (("a-words", "b-words", "a-cls"), "cka", {}, "one or two folders, or joint; found 3"),
    ],
)
def test_input_that_does_not_fit_is_refused(tmp_path, reps, names, measure, options, message):
    folders = [reps / name for name in names]
    with pytest.raises(UserError, match=message):
        grid(folders, tmp_path / "grid.parquet", measure=measure, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("count", "measure", "message"),
    [
        (3, "cka", "wanted at least 4 rows for the unbiased estimator, got 3"),
        (2, "rsa", "wanted at least 3 rows for a dissimilarity matrix, got 2"),
        (1, "svcca", "wanted at least 2 rows for a basis, got 1"),
    ],
)
def test_too_few_rows_name_the_options_that_give_more(
    tmp_path, tiny_bert, review_task, count, measure, message
):
    few, out = tmp_path / "few", tmp_path / "grid.parquet"
    extract(tiny_bert, review_task, few, ExtractOptions(limit=count), label="A")
    with pytest.raises(UserError, match=rf"{message}; .*simcore extract.*limit, train_size"):
        grid(few, out, measure=measure)
    assert not out.exists()


def test_a_joint_grid_needs_labels_that_differ(tmp_path, reps):
    with pytest.raises(UserError, match="joint: wanted folders with different labels"):
        grid([reps / "a-cls", reps / "a-cls"], tmp_path / "grid.parquet", joint=True)


def test_an_undefined_layer_is_undefined_in_the_table(tmp_path, reps):
    grid([reps / "a-cls"], tmp_path / "grid.parquet", measure="neuronsim")
    values = table_of(tmp_path / "grid.parquet", "A", "A")
    assert np.isnan(values[0]).all()
    assert np.isnan(values[:, 0]).all()
    assert np.isfinite(values[1:, 1:]).all()
