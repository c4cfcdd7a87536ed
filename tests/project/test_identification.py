"""The study of measures: its criteria on constructed similarities and layers, and its figure."""

import importlib
import sys
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
import pytest
from scipy.stats import spearmanr

import simcore

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "examples" / "studies"))  # where studies find one another
NAMES = ("identification", "identification_figure", "identification_causes", "model_sets")
identification, figure, causes, model_sets = map(importlib.import_module, NAMES)
criteria, measures = identification.criteria, identification.measures
Variant, variants = measures.Variant, measures.variants
MODELS, LAYERS, ROWS, WIDTH = 6, 5, 80, 8
# Grids that compare something else than layers, or are no similarities.
NO_MEASURES = {"hsic_grid", "disagreement_grid", "output_divergence_grid"}


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch):
    monkeypatch.setattr(criteria, "DRAWS", 400)


def by_depth():
    """Similarities that fall with the distance between depths, of all models alike."""
    depths = np.arange(LAYERS)
    fall = -np.abs(depths[:, None] - depths).astype(float)
    return np.tile(fall[None, :, None], (MODELS, 1, MODELS, 1))


def unrelated(seed):
    """Similarities that have nothing to do with depth, ``s[a, l, b, m]`` as ``s[b, m, a, l]``."""
    found = np.random.default_rng(seed).standard_normal((MODELS, LAYERS, MODELS, LAYERS))
    return found + found.transpose(2, 3, 0, 1)


def layers_of(kind, seed=0):
    """Layers of models: those of the first with little noise, the same rotated, or any."""
    rng = np.random.default_rng(seed)
    scales = np.linspace(0.1, 0.3, LAYERS)[:, None, None]
    # Every layer is a step away from the layer before it.
    steps = np.cumsum(rng.standard_normal((LAYERS, ROWS, WIDTH)), axis=0) * scales
    models = []
    for _ in range(MODELS):
        noise = rng.standard_normal(steps.shape) / 10
        rotation = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0]
        near = steps + 1e-3 * noise
        models.append(list({"near": near, "rotated": near @ rotation, "any": noise}[kind]))
    return models


def attention_of(kind, seed=0):
    """Attention of models, 3 heads and 12 texts: that of the first with little noise, or any."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, 7, 12)
    shapes = [(3, length, length) for length in lengths]
    first = [[rng.standard_normal(shape) for shape in shapes] for _ in range(LAYERS)]

    def attention(logits):
        noise = rng.standard_normal(logits.shape)
        weights = np.exp(logits + 1e-2 * noise if kind == "near" else noise)
        return weights / weights.sum(-1, keepdims=True)

    return [[[attention(text) for text in layer] for layer in first] for _ in range(MODELS)]


def inputs_of(variant, kind):
    return attention_of(kind) if variant.takes_attention else layers_of(kind)


def identified(variant, models):
    values, _ = identification.timed(variant, models)
    return criteria.identification(criteria.oriented(values, MODELS, variant.is_distance))


def test_layers_that_correspond_are_identified():
    found = criteria.identification(by_depth())
    assert (found.value, found.low, found.high) == (1, 1, 1)
    assert found.pvalue == 1 / (1 + criteria.DRAWS)
    found = criteria.order(by_depth())
    assert (found.value, found.low, found.high, found.pvalue) == (1, 1, 1, 1 / (1 + criteria.DRAWS))
    likeness = identification.likeness(by_depth())
    assert (likeness.value, likeness.pvalue) == (0, 1 / (1 + criteria.DRAWS))


@pytest.mark.parametrize("name", ["identification", "order", "likeness"])
def test_pvalues_of_unrelated_layers_are_uniform(name):
    criterion = getattr(identification if name == "likeness" else criteria, name)
    found = [criterion(unrelated(seed), seed) for seed in range(60)]
    pvalues = np.array([each.pvalue for each in found])
    assert 0.35 < pvalues.mean() < 0.65
    assert (pvalues <= 0.1).mean() < 0.25
    chance = {"identification": 1 / LAYERS, "order": 0.5, "likeness": 0}[name]
    assert np.mean([each.value for each in found]) == pytest.approx(chance, abs=0.06)


def test_ties_count_in_part_and_undefined_values_as_no():
    equal = np.ones((MODELS, LAYERS, MODELS, LAYERS))
    assert criteria.identification(equal).value == pytest.approx(1 / LAYERS)
    assert criteria.order(equal).value == pytest.approx(0.5)
    undefined = by_depth()
    undefined[:, 0] = undefined[..., 0] = np.nan
    assert criteria.identification(undefined).value == pytest.approx((LAYERS - 1) / LAYERS)
    assert identification.likeness(undefined).value == 0


def test_layers_are_sought_among_those_that_describe_them():
    """Row [a, l] has the values by which all layers of other models describe layer l of a."""
    s = by_depth()
    s[:, 0] = -s[:, 0]  # the last layer describes the first one best; no other row changes
    assert criteria.identification(s).value == pytest.approx((LAYERS - 1) / LAYERS)


def test_a_model_is_not_compared_with_its_copy():
    """In a resample with the model twice, the pair of both copies would be equal layers."""
    s = unrelated(0)
    for model in range(MODELS):
        s[model, :, model] = by_depth()[0, :, 0] * 100
    t = unrelated(0)
    assert criteria.identification(s) == criteria.identification(t)


def test_the_difference_of_two_shares_draws_models_for_both():
    best, chance = by_depth(), unrelated(0)
    apart = causes.identification_difference(best, chance)
    shares = [criteria.identification(s).value for s in (best, chance)]
    assert apart.value == pytest.approx(shares[0] - shares[1])
    assert apart.low > 0.5
    assert np.isnan(apart.pvalue)
    # Two measures that identify the same layers do not differ in any draw of models.
    same = causes.identification_difference(chance, 2 * chance)
    assert (same.value, same.low, same.high) == (0, 0, 0)


def test_agreement_finds_what_outputs_say():
    rng = np.random.default_rng(0)
    differences = rng.random((MODELS, MODELS))
    differences += differences.T
    s = unrelated(0)
    s[:, -1, :, -1] = -differences
    found = criteria.agreement(s, differences)
    assert (found.value, found.low, found.high) == pytest.approx((1, 1, 1))
    assert found.pvalue < 0.02
    pvalues = [criteria.agreement(unrelated(seed), differences).pvalue for seed in range(60)]
    assert 0.35 < np.mean(pvalues) < 0.65


def test_rank_correlation_of_weights_is_that_of_repeated_values():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 6, 20), rng.integers(0, 6, 20)
    weights = rng.integers(0, 4, (5, 20))
    found = criteria.rank_correlation(x, y, weights)
    wanted = [spearmanr(np.repeat(x, w), np.repeat(y, w)).statistic for w in weights]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize(
    "variant",
    [pytest.param(v, marks=pytest.mark.deep) if v.measure == "rtd" else v for v in variants()],
    ids=identification.slug,
)
def test_every_measure_identifies_layers_that_are_nearly_equal(variant):
    assert identified(variant, inputs_of(variant, "near")).value == 1
    chance = identified(variant, inputs_of(variant, "any"))
    assert chance.value == pytest.approx(1 / LAYERS, abs=0.15)


def test_rotated_layers_are_identified_by_measures_that_ignore_rotations():
    names = ("cka-linear-unbiased", "procrustes", "svcca", "knn-jaccard", "linreg")
    found = {identification.slug(variant): variant for variant in variants()}
    for name in names:
        assert identified(found[name], layers_of("rotated")).value == 1
    for name in ("cosine", "angular"):
        assert identified(found[name], layers_of("rotated")).value < 0.8


def test_calibrated_values_are_0_at_chance_and_1_for_equal_layers():
    variant = Variant("svcca", {})
    models = layers_of("any")
    grid = identification.measured(variant, [*models[:2], models[0]])
    sets = identification.ModelSet([*models[:2], models[0]])
    rows = {name: (found, after) for name, found, after in identification.judge(grid, sets, False)}
    assert rows["same layer"][0].value > 0.3  # of unrelated layers, but for a pair of equal models
    assert rows["same layer"][1] == pytest.approx(1 / 3, abs=0.05)


def test_grids_are_computed_once(tmp_path, monkeypatch):
    variant, models = Variant("cka", {}), identification.ModelSet(layers_of("near"))
    variant = variants()[0]
    first = identification.stored_grid(variant, models, "near", tmp_path, again=False)
    monkeypatch.setattr(identification, "measured", None)
    again = identification.stored_grid(variant, models, "near", tmp_path, again=False)
    np.testing.assert_array_equal(again.values, first.values)
    assert again.seconds == first.seconds
    timed = identification.stored_grid(variant, models, "near", tmp_path, again=True)
    assert timed.seconds != first.seconds


def test_every_public_grid_of_layers_takes_part():
    from simlab.similarity.catalogue import MEASURES

    public = {name for name in simcore.__all__ if name.endswith("_grid")}
    assert public - {measure.function for measure in MEASURES.values()} == NO_MEASURES


def test_measures_that_are_left_out_are_functions_of_another():
    options = {"cka": {"estimator": "biased"}, "cka-angular": {"estimator": "biased"}}
    values = {
        name: identification.timed(Variant(name, options.get(name, {})), layers_of("any"))[0]
        for name in ("procrustes", "cka", *measures.REPEATED)
    }
    squared = 1 - values["procrustes-distance"] ** 2 / 2
    np.testing.assert_allclose(squared, values["procrustes"], atol=1e-10)
    angles = {"procrustes-angular": "procrustes", "cka-angular": "cka"}
    for name, of in angles.items():
        np.testing.assert_allclose(np.cos(values[name]), values[of], atol=1e-10)
    assert {*angles, "procrustes-distance"} == set(measures.REPEATED)


def test_the_causes_are_judged_on_blocks_alone():
    """The stem of `near` layers identifies itself, and has no part in the shares."""
    models = model_sets.ModelSet(layers_of("near"), accuracy=np.ones(MODELS), first_block=1)
    rows = list(causes.judged(models, ROWS // 2))
    assert {row["n"] for row in rows} == {ROWS // 2}
    assert {row["chance"] for row in rows} == {1 / (LAYERS - 1)}
    shares = {row["measure"]: row["value"] for row in rows}
    assert shares["CKA"] == shares["Procrustes"] == 1
    assert [row["difference"] for row in rows] == pytest.approx([v - 1 for v in shares.values()])


def test_the_figure_shows_every_measure_of_the_rows(tmp_path):
    rows = figure.read_rows(figure.RESULTS / "identification.csv")
    pairs = rows[["measure", "options"]].drop_duplicates()
    assert sorted(figure.ranked(rows)) == sorted(rows["name"].unique())
    assert rows["name"].nunique() == len(pairs)  # no two measures share a name
    figure.draw(rows, tmp_path / "figure.svg")
    drawn = (tmp_path / "figure.svg").read_text()
    assert all(f">{escape(name)}</text>" in drawn for name in figure.ranked(rows))
