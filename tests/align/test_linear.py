"""Aligners: what the linear ones solve, that trained ones learn, and that inverses undo them."""

import numpy as np
import pytest
import torch

from simcore import cca_grid
from simcore.align import (
    METHODS,
    CCAAligner,
    INNAligner,
    LinearAligner,
    MLPAligner,
    PWCCAAligner,
    SVCCAAligner,
    align_pairs,
)
from support.tolerance import (
    ALIGNED,
    FLOAT32_LINEAR_MAP,
    FLOAT64_LINEAR_MAP,
    INVERSE_ABSOLUTE,
    max_error,
)
from support.trained import trained

QUICK = {"max_epochs": 3, "hidden": 8, "batch_size": 32}


def rows(n=200, p=6, q=6, seed=0, noise=0.3):
    """X, and a noisy linear map of it with an offset, float64 numpy."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, p)) @ np.diag(np.linspace(1, 3, p)) + 5
    return x, x @ rng.standard_normal((p, q)) + noise * rng.standard_normal((n, q)) - 2


def make(method, **params):
    return METHODS[method](**trained(**{**quick(method), **params}))


def quick(method):
    """Parameters of a short training; the linear map has no hidden layer."""
    if method == "linear-gd":
        return {"max_epochs": 3, "batch_size": 32}
    return QUICK if method in ("inn", "mlp") else {}


@pytest.mark.parametrize("ridge", [0.0, 0.7, 50.0])
def test_linear_is_scikit_learns_regression(ridge):
    from sklearn.linear_model import LinearRegression, Ridge

    x, y = rows()
    theirs = (Ridge(alpha=ridge) if ridge else LinearRegression()).fit(x, y).predict(x)
    ours = LinearAligner(ridge=ridge).fit(x, y).transform(x)
    assert max_error(ours, theirs) < FLOAT64_LINEAR_MAP


def test_linear_with_dependent_columns_has_least_norm():
    x, y = rows()
    x = np.concatenate([x, x[:, :2] @ np.ones((2, 1)), np.full((200, 1), 7.0)], axis=1)
    aligner = LinearAligner().fit(x, y)
    expected, *_ = np.linalg.lstsq(x - x.mean(0), y - y.mean(0), rcond=None)
    assert max_error(aligner.coef_, expected) < FLOAT64_LINEAR_MAP
    assert max_error(aligner.transform(x), LinearAligner().fit(x[:, :6], y).transform(x[:, :6])) < (
        FLOAT64_LINEAR_MAP
    )


def test_correlations_are_those_of_the_grid():
    x, y = rows(q=4)
    found = CCAAligner().fit(x, y).correlations_
    assert len(found) == 4
    assert abs(float(found.mean()) - float(cca_grid([x], [y])[0, 0])) < FLOAT64_LINEAR_MAP


def test_cca_with_rho_is_linear_regression():
    x, y = rows()
    regression = LinearAligner().fit(x, y).transform(x)
    assert max_error(CCAAligner(scale="rho").fit(x, y).transform(x), regression) < (
        FLOAT64_LINEAR_MAP
    )
    assert max_error(CCAAligner().fit(x, y).transform(x), regression) > ALIGNED


@pytest.mark.parametrize("scale", ["one", "rho"])
@pytest.mark.parametrize("p, q", [(4, 6), (6, 4)])
def test_variates_are_taken_to_the_nearest_rows(p, q, scale):
    x, y = rows(p=p, q=q)
    aligner = CCAAligner(scale=scale).fit(x, y)
    variates_x = (x - x.mean(0)) @ aligner.x_weights_.numpy()
    variates_y = (y - y.mean(0)) @ aligner.y_weights_.numpy()
    scales = aligner.correlations_.numpy() if scale == "rho" else 1.0
    regressed = np.linalg.lstsq(variates_y, y - y.mean(0), rcond=None)[0]
    expected = (variates_x * scales) @ regressed + y.mean(0)
    assert max_error(aligner.transform(x), expected) < FLOAT64_LINEAR_MAP
    if scale == "rho":
        regression = LinearAligner().fit(x, y).transform(x)
        assert max_error(aligner.transform(x), regression) < FLOAT64_LINEAR_MAP


def test_canonical_variates_have_unit_norm_and_the_correlations():
    x, y = rows()
    aligner = CCAAligner().fit(x, y)
    variates_x = (x - x.mean(0)) @ aligner.x_weights_.numpy()
    variates_y = (y - y.mean(0)) @ aligner.y_weights_.numpy()
    products = variates_x.T @ variates_y
    assert max_error(products, np.diag(aligner.correlations_.numpy())) < FLOAT64_LINEAR_MAP
    assert max_error(variates_x.T @ variates_x, np.eye(6)) < FLOAT64_LINEAR_MAP


@pytest.mark.parametrize("method", ["linear", "cca", "svcca", "pwcca"])
def test_linear_methods_recover_a_linear_map(method):
    x, y = rows(noise=0.0)
    aligner = make(method).set_params(**({"truncation": 1.0} if method == "svcca" else {}))
    if method == "pwcca":
        aligner.set_params(weight_share=1.0)
    assert max_error(aligner.fit(x, y).transform(x), y) < FLOAT64_LINEAR_MAP
    assert max_error(aligner.inverse_transform(y), x) < FLOAT64_LINEAR_MAP


def test_svcca_compares_in_the_space_of_y_and_in_the_truncated_space():
    x, y = rows()
    aligner = SVCCAAligner(truncation=2).fit(x, y)
    yc = y - y.mean(0)
    kept = np.linalg.svd(yc, full_matrices=False)[2][:2].T
    difference = aligner.transform(x) - y
    found = aligner.errors(x, y)
    for mse, relative, error, target in (
        (found.mse, found.relative, difference, yc),
        (found.component_mse, found.component_relative, difference @ kept, yc @ kept),
    ):
        assert abs(mse - np.mean(error**2)) < FLOAT64_LINEAR_MAP
        wanted = np.linalg.norm(error) / np.linalg.norm(target)
        assert abs(relative - wanted) < FLOAT64_LINEAR_MAP
    assert found.relative > found.component_relative
    assert np.linalg.matrix_rank(aligner.transform(x) - y.mean(0)) == 2


@pytest.mark.parametrize("method", METHODS)
def test_only_svcca_has_errors_per_component(method):
    x, y = rows()
    found = make(method).fit(x, y).errors(x, y)
    assert (found.component_mse is None) == (found.component_relative is None)
    assert (found.component_mse is not None) == (method == "svcca")


def test_pwcca_keeps_the_heaviest_directions():
    x, y = rows()
    full = CCAAligner().fit(x, y)
    variates = (x - x.mean(0)) @ full.x_weights_.numpy()
    weights = np.abs(variates.T @ (x - x.mean(0))).sum(1)
    aligner = PWCCAAligner(weight_share=0.5).fit(x, y)
    heaviest = np.sort(np.argsort(-weights)[: len(aligner.correlations_)])
    assert max_error(aligner.correlations_, full.correlations_[torch.from_numpy(heaviest)]) < (
        FLOAT64_LINEAR_MAP
    )
    shares = np.sort(weights)[::-1].cumsum() / weights.sum()
    assert len(aligner.correlations_) == np.searchsorted(shares, 0.5) + 1
    whole = PWCCAAligner(weight_share=1.0).fit(x, y).transform(x)
    assert max_error(whole, full.transform(x)) < FLOAT64_LINEAR_MAP


@pytest.mark.parametrize("method", METHODS)
def test_score_is_the_weighted_r2_and_agrees_with_the_errors(method):
    from sklearn.metrics import mean_squared_error, r2_score

    x, y = rows()
    params = {"truncation": 2} if method == "svcca" else {}
    aligner = make(method, **params).fit(x, y)
    predicted = aligner.transform(x)
    expected = r2_score(y, predicted, multioutput="variance_weighted")
    assert abs(aligner.score(x, y) - expected) < FLOAT64_LINEAR_MAP
    assert abs(aligner.errors(x, y).mse - mean_squared_error(y, predicted)) < FLOAT64_LINEAR_MAP


def test_scikit_learn_predicts_what_it_holds_out():
    from sklearn.model_selection import KFold, cross_val_predict

    x, y = rows()
    predicted = cross_val_predict(LinearAligner(), x, y, cv=KFold(2))
    train, held_out = next(KFold(2).split(x))
    own = LinearAligner().fit(x[train], y[train]).predict(x[held_out])
    np.testing.assert_array_equal(predicted[held_out], own)


@pytest.mark.parametrize("method", METHODS)
def test_kind_and_dtype_of_the_input_come_back(method):
    x, y = rows()
    for dtype in (torch.float32, torch.float64):
        tensors = torch.from_numpy(x).to(dtype), torch.from_numpy(y).to(dtype)
        aligner = make(method).fit(*tensors)
        assert aligner.transform(tensors[0]).dtype == dtype
        arrays = tensors[0].numpy()
        assert isinstance(aligner.transform(arrays), np.ndarray)
        bound = FLOAT32_LINEAR_MAP if dtype == torch.float32 else FLOAT64_LINEAR_MAP
        assert max_error(aligner.transform(arrays), aligner.transform(tensors[0])) < bound
    half = torch.from_numpy(x).to(torch.bfloat16)
    assert make(method).fit(half, half).transform(half).dtype == torch.float32


@pytest.mark.parametrize("method", METHODS)
def test_inputs_are_left_alone(method):
    x, y = rows()
    copies = x.copy(), y.copy()
    make(method).fit(x, y).transform(x)
    assert np.array_equal(x, copies[0])
    assert np.array_equal(y, copies[1])


@pytest.mark.parametrize("dtype,bound", INVERSE_ABSOLUTE.items())
@pytest.mark.parametrize("columns", [6, 7])
def test_inn_undoes_itself_after_training(dtype, bound, columns):
    x, y = (torch.from_numpy(side).to(dtype) for side in rows(p=columns, q=columns))
    aligner = INNAligner(**trained(hidden=16, max_epochs=20)).fit(x, y)
    assert aligner.log_.best_epoch > 0
    back = aligner.inverse_transform(aligner.transform(x))
    assert max_error(back, x) / float(x.abs().max()) < bound


def test_permutations_between_blocks_are_undone_too():
    x, y = rows()
    mixed, plain = (
        INNAligner(**trained(**QUICK, mixing=mixing)).fit(x, y)
        for mixing in ("permutation", "none")
    )
    assert max_error(mixed.transform(x), plain.transform(x)) > ALIGNED
    back = mixed.inverse_transform(mixed.transform(x))
    assert max_error(back, x) / np.abs(x).max() < INVERSE_ABSOLUTE[torch.float64]


def test_same_seed_same_bits_another_seed_another_map():
    x, y = rows()
    first, second, other = (
        INNAligner(**trained(**QUICK, seed=seed)).fit(x, y).transform(x) for seed in (0, 0, 1)
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_training_leaves_the_random_state_alone():
    x, y = rows()
    before = torch.random.get_rng_state()
    INNAligner(**trained(**QUICK)).fit(x, y)
    assert torch.equal(before, torch.random.get_rng_state())


def test_mlp_maps_to_another_width_and_has_no_inverse():
    x, y = rows(q=3)
    aligner = MLPAligner(**trained(**QUICK)).fit(x, y)
    assert aligner.transform(x).shape == (200, 3)
    assert not hasattr(aligner, "inverse_transform")
    with pytest.raises(AttributeError, match=r"no inverse_transform.*INNAligner"):
        aligner.inverse_transform(y)


@pytest.mark.parametrize(
    "method,options",
    [
        ("inn", {}),
        ("inn", {"mixing": "permutation"}),
        ("inn", {"block": "pair", "init": "xavier", "n_blocks": 2, "group": 2}),
        ("mlp", {}),
        ("linear-gd", {}),
        ("linear-gd", {"validation_share": 0.0, "max_steps": 9}),
    ],
)
def test_pairs_trained_together_end_where_they_end_alone(method, options):
    sides = [rows(seed=seed) for seed in range(3)]
    params = trained(**{**quick(method), "max_epochs": 5, **options})
    xs, ys = zip(*sides, strict=True)
    together = align_pairs(xs, ys, method, **params)
    for i, result in enumerate(together):
        (alone,) = align_pairs(xs[i : i + 1], ys[i : i + 1], method, **params)
        assert max_error(result.aligner.transform(xs[i]), alone.aligner.transform(xs[i])) < (
            FLOAT64_LINEAR_MAP
        )
        assert result.aligner.log_.best_epoch == alone.aligner.log_.best_epoch
    parts = align_pairs(xs, ys, method, at_once=2, **params)
    assert [r.heldout.mse for r in parts] == pytest.approx([r.heldout.mse for r in together])


@pytest.mark.parametrize("method", METHODS)
def test_heldout_rows_are_not_fitted(method):
    x, y = rows()
    spoiled = y.copy()
    given = trained(**quick(method))
    (first,) = align_pairs([x], [y], method, heldout=0.25, split_seed=3, **given)
    held = torch.randperm(200, generator=torch.Generator().manual_seed(3))[:50].numpy()
    spoiled[held] += 100 * np.random.default_rng(1).standard_normal((50, 6))
    (second,) = align_pairs([x], [spoiled], method, heldout=0.25, split_seed=3, **given)
    assert np.array_equal(first.aligner.transform(x), second.aligner.transform(x))
    assert first.train == second.train
    assert second.heldout.mse > 10 * first.heldout.mse


def test_given_heldout_rows_are_judged():
    x, y = rows(n=260)
    (found,) = align_pairs([x[:200]], [y[:200]], "linear", X_heldout=[x[200:]], Y_heldout=[y[200:]])
    aligner = LinearAligner().fit(x[:200], y[:200])
    assert found.train == aligner.errors(x[:200], y[:200])
    assert found.heldout == aligner.errors(x[200:], y[200:])
