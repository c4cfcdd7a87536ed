"""The batched training loop: schedule, early stopping, NaN losses, the synthetic check.

Also scikit-learn's own checks of what calls itself an estimator.
"""

import math

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks as checks

from simcore.align import METHODS, INNAligner, MLPAligner, _training, align_pairs
from simcore.nn import CouplingINN
from support.tolerance import (
    FLOAT32_LINEAR_MAP,
    SYNTHETIC_LINEAR_RELATIVE,
    SYNTHETIC_RATIO,
    max_error,
)
from support.trained import trained

QUICK = {"max_epochs": 6, "hidden": 8, "batch_size": 32}
LINEAR_METHODS = ("linear", "cca", "svcca", "pwcca")


def short(method):
    """Parameters of a short training; the linear map has no hidden layer."""
    if method == "linear-gd":
        return trained(max_epochs=6, batch_size=32)
    return trained(**QUICK) if method in ("inn", "mlp") else {}


def curved(n=200, p=6, seed=0):
    """X and an elementwise nonlinear bijection of it, float32."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, p, generator=generator)
    return x, (x + torch.roll(x, 1, 1).square()).sinh() / 3


def test_rate_rises_linearly_and_falls_as_half_a_cosine():
    rates = [_training.rate(step, 100, 0.2) for step in range(100)]
    assert np.allclose(np.diff(rates[:20]), 1 / 21)
    assert rates[20] == 1
    assert np.argmax(rates) == 20
    assert rates[60] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(0.5 * (1 + math.cos(math.pi * 79 / 80)))
    assert _training.rate(0, 10, 0.0) == 1


def test_training_stops_early_and_keeps_the_best_epoch():
    x, y = curved(n=60)
    aligner = INNAligner(**trained(hidden=64, max_epochs=300, patience=5, learning_rate=3e-2)).fit(
        x, y
    )
    log = aligner.log_
    assert log.stopped == "patience"
    assert len(log.heldout) == log.best_epoch + 5 + 1 < 300
    assert min(log.heldout) == log.heldout[log.best_epoch]
    assert len(log.train) == len(log.heldout) - 1
    # The kept state is that epoch's: its loss on the held-out rows is the logged one.
    held = torch.randperm(60, generator=torch.Generator().manual_seed(0))[:6]
    found = aligner.errors(x[held], y[held]).mse / float(y.std(0).square().mean())
    assert abs(found - log.heldout[log.best_epoch]) < FLOAT32_LINEAR_MAP


def test_the_rows_that_decide_when_to_stop_are_not_learnt_from():
    x, y = curved()
    held = torch.randperm(200, generator=torch.Generator().manual_seed(0))[:20]
    spoiled = y.clone()
    spoiled[held] += 5
    params = trained(**QUICK, normalize=False, patience=100)
    logs = [INNAligner(**trained(**params)).fit(x, side).log_ for side in (y, spoiled)]
    assert logs[0].train == logs[1].train
    assert min(logs[1].heldout) > max(logs[0].heldout)


def test_without_patience_all_epochs_run():
    log = INNAligner(**trained(**QUICK, patience=100)).fit(*curved()).log_
    assert (log.stopped, len(log.heldout)) == ("epochs", 7)


@pytest.mark.parametrize("method", ["inn", "mlp"])
def test_a_nan_loss_stops_one_pair_and_restores_its_best_state(method):
    x, y = curved()
    huge = y.clone()
    huge[:, 0] *= 1e25  # its squared errors overflow float32
    params = trained(**QUICK, normalize=False, optimizer="adam")
    with pytest.warns(UserWarning, match=r"loss of pair 1 became NaN.*best state, of epoch 0"):
        good, bad = align_pairs([x, x], [y, huge], method, **params)
    assert bad.aligner.log_.stopped == "nan"
    assert bool(torch.isfinite(bad.aligner.transform(x)).all())
    (alone,) = align_pairs([x], [y], method, **params)
    assert max_error(good.aligner.transform(x), alone.aligner.transform(x)) < FLOAT32_LINEAR_MAP


@pytest.mark.parametrize("kind", [INNAligner, MLPAligner])
def test_a_diverging_rate_keeps_what_was_learnt_before(kind, monkeypatch):
    x, _ = curved()
    y = x.roll(1, 1)
    # Four epochs of 5 steps as usual, then steps that throw the weights out of float32's range.
    monkeypatch.setattr(_training, "rate", lambda step, *_: 1.0 if step < 20 else 1e38)
    with pytest.warns(UserWarning, match="NaN or infinite in epoch 5; kept the best state"):
        aligner = kind(**trained(**QUICK, learning_rate=1e-2)).fit(x, y)
    log = aligner.log_
    assert log.stopped == "nan"
    assert log.best_epoch == np.argmin(log.heldout[:5]) > 0
    monkeypatch.setattr(_training, "rate", lambda *_: 1.0)
    short = kind(**trained(**{**QUICK, "max_epochs": 4}, learning_rate=1e-2)).fit(x, y)
    assert torch.equal(aligner.transform(x), short.transform(x))


def test_inn_recovers_a_random_inn_where_linear_methods_cannot():
    generator = torch.Generator().manual_seed(0)
    rotation, _ = torch.linalg.qr(torch.randn(16, 16, generator=generator))
    x = torch.randn(2500, 16, generator=generator) * torch.logspace(0, -1, 16) @ rotation
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        f = CouplingINN(16, 4, 32, depth=1, output_gain=1.1)
        y = f((x - x.mean(0)) / x.std(0))
    linear = [align_pairs([x], [y], method)[0].heldout for method in LINEAR_METHODS]
    linear += [align_pairs([x], [y], "linear", ridge=ridge)[0].heldout for ridge in (1.0, 100.0)]
    best = min(linear, key=lambda error: error.relative)
    assert best.relative > SYNTHETIC_LINEAR_RELATIVE
    inn = align_pairs([x], [y], "inn", **trained(hidden=64, max_epochs=25, learning_rate=5e-3))[
        0
    ].heldout
    assert best.mse > SYNTHETIC_RATIO * inn.mse


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "check",
    [
        checks.check_estimator_cloneable,
        checks.check_get_params_invariance,
        checks.check_set_params,
        checks.check_parameters_default_constructible,
        checks.check_no_attributes_set_in_init,
        checks.check_do_not_raise_errors_in_init_or_set_params,
        checks.check_valid_tag_types,
        checks.check_estimator_repr,
    ],
    ids=lambda check: check.__name__,
)
def test_scikit_learns_checks_of_parameters(check, method):
    check(METHODS[method].__name__, METHODS[method]())


@pytest.mark.parametrize("method", METHODS)
def test_in_a_pipeline(method):
    x, y = (side.double().numpy() for side in curved())
    params = short(method)
    alone = METHODS[method](**params).fit(StandardScaler().fit_transform(x), y)
    pipeline = make_pipeline(StandardScaler(), clone(METHODS[method](**params)))
    predicted = pipeline.fit(x, y).transform(x)
    assert np.array_equal(predicted, alone.transform(StandardScaler().fit_transform(x)))
    assert pipeline.score(x, y) == alone.score(StandardScaler().fit_transform(x), y)
    assert np.array_equal(pipeline.fit_transform(x, y), predicted)
    if method != "mlp":
        assert pipeline.inverse_transform(predicted).shape == x.shape


# Not "inn": the checks' targets have one column, and a bijection keeps the number.
@pytest.mark.parametrize("method", [*LINEAR_METHODS, "linear-gd", "mlp"])
def test_scikit_learns_pipeline_and_fit_checks(method):
    estimator = METHODS[method](**short(method))
    name = type(estimator).__name__
    checks.check_pipeline_consistency(name, estimator)
    checks.check_estimators_fit_returns_self(name, estimator)
    checks.check_estimators_overwrite_params(name, estimator)
    checks.check_dict_unchanged(name, estimator)
    checks.check_estimators_pickle(name, estimator)
