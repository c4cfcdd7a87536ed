"""The mistakes found in other packages, each shown to be one and shown not to be ours.

Every test first makes the mistake, on input where it matters, so that the test is known to see it.
"""

import numpy as np
import pytest
import torch

from simcore import MinibatchCKA, cka_grid, hsic_grid, reference
from support import naive, tolerance
from support.cases import Case, exact, layers

MATTERS = 1e-3  # a mistake that a reader of the grid would notice


def related(n=256, width=48, noise=0.5, count=3, seed=0):
    """A chain of layers, each the one before plus noise, as through the depth of a model."""
    generator = np.random.default_rng(seed)
    chain = [generator.standard_normal((n, width))]
    for _ in range(count - 1):
        chain.append(chain[-1] + noise * generator.standard_normal((n, width)))
    return [torch.from_numpy(x).to(torch.float32) for x in chain]


def is_mistaken(result, want):
    """Whether some entry is off by what matters, or is no number at all."""
    error = np.abs(tolerance.as_float64(result) - want)
    return not bool((error <= MATTERS).all())


@pytest.mark.parametrize("offset", [3.0, 10.0, 30.0])
def test_gram_of_uncentred_float32_features(offset):
    x = [layer + offset for layer in related(n=600, width=300)]
    want = reference.cka_grid(exact(x), estimator="unbiased")
    assert is_mistaken(naive.cka_grid(x, estimator="unbiased", uncentered=True), want)
    tolerance.assert_float32_cka(cka_grid(x, estimator="unbiased"), want)


def test_outlier_dimension_decides_everything_when_uncentred():
    x = related()
    for layer in x:
        layer[:, 0] = 30 * layer[:, 0] + 300
    want = reference.cka_grid(exact(x))
    grams = [layer @ layer.T for layer in x]  # HSIC without H: the mean of the outlier is all
    mistaken = [[(k * m).sum() / (k.norm() * m.norm()) for m in grams] for k in grams]
    assert is_mistaken(torch.tensor(mistaken), want)
    tolerance.assert_float32_cka(cka_grid(x), want)


@pytest.mark.parametrize("batch", [16, 64])
def test_average_of_biased_cka_over_batches(batch):
    x = related(n=1024, noise=1.0)
    want = reference.cka_grid(exact(x), estimator="unbiased")
    parts = list(zip(*(layer.split(batch) for layer in x), strict=True))
    averaged = torch.stack([naive.cka_grid(part) for part in parts]).mean(dim=0)
    metric = MinibatchCKA()
    for part in parts:
        metric.update(part)
    got = metric.compute()
    assert tolerance.max_error(averaged, want) > 0.1
    assert tolerance.max_error(got, want) < 0.2 * tolerance.max_error(averaged, want)
    tolerance.assert_float32_cka(got, reference.minibatch_cka([exact(part) for part in parts]))


def test_average_of_per_batch_ratios():
    parts = list(zip(*(layer.split(8) for layer in related(n=256, noise=1.0)), strict=True))
    ratios = np.mean([reference.cka_grid(exact(p), estimator="unbiased") for p in parts], axis=0)
    metric = MinibatchCKA()
    for part in parts:
        metric.update(part)
    want = reference.minibatch_cka([exact(part) for part in parts])
    assert is_mistaken(ratios, want)
    tolerance.assert_float32_cka(metric.compute(), want)


def test_unbiased_numerator_over_biased_diagonal():
    x = related(n=32)
    want = reference.cka_grid(exact(x), estimator="unbiased")
    scale = np.sqrt(np.diag(reference.hsic_grid(exact(x))))
    mixed = reference.hsic_grid(exact(x), estimator="unbiased") / np.outer(scale, scale)
    assert is_mistaken(mixed, want)
    tolerance.assert_float32_cka(cka_grid(x, estimator="unbiased"), want)


def independent(n=12, width=8, count=6):
    generator = np.random.default_rng(1)
    return [generator.standard_normal((n, width)) for _ in range(count)]


def test_negative_values_are_kept():
    x = independent()
    got = cka_grid(x, estimator="unbiased")
    assert got.min() < -MATTERS
    tolerance.assert_close(got, reference.cka_grid(x, estimator="unbiased"), torch.float64)
    metric = MinibatchCKA()
    metric.update(x)
    assert metric.compute().min() < -MATTERS


@pytest.mark.parametrize("n", [4, 5, 12])
def test_no_value_lies_above_one(n):
    """Unbiased HSIC is an inner product too (of U-centred Grams): nothing has to be clamped."""
    x = independent(n, 8, 30)
    metric = MinibatchCKA()
    metric.update(x)
    for grid in (cka_grid(x), cka_grid(x, estimator="unbiased"), metric.compute()):
        assert np.max(np.abs(tolerance.as_float64(grid))) <= 1 + tolerance.FLOAT64_RELATIVE


def test_every_batch_of_an_epoch_counts():
    x = related(n=96)
    parts = list(zip(*(layer.split(32) for layer in x), strict=True))
    want = reference.minibatch_cka([exact(part) for part in parts])
    last = reference.minibatch_cka([exact(parts[-1])])
    assert is_mistaken(last, want)
    metric = MinibatchCKA()
    for part in parts:
        metric.update(part)
    tolerance.assert_float32_cka(metric.compute(), want)


def test_a_last_smaller_batch_is_welcome():
    metric = MinibatchCKA()
    parts = list(zip(*(layer.split(30) for layer in related(n=64)), strict=True))
    assert len(parts[-1][0]) == 4
    for part in parts:
        metric.update(part)
    want = reference.minibatch_cka([exact(part) for part in parts])
    tolerance.assert_float32_cka(metric.compute(), want)


def test_cross_model_grids_are_not_symmetrised():
    x, y = related(seed=0), related(seed=0, noise=1.5)
    got = cka_grid(x, y)
    assert is_mistaken(got.T, tolerance.as_float64(got))
    tolerance.assert_float32_cka(got, reference.cka_grid(exact(x), exact(y)))


@pytest.mark.parametrize("method", ["gram", "feature"])
def test_sums_of_many_float32_values(method):
    """A float32 sum over more than a million squares loses the fifth digit."""
    n = 1_200_000 if method == "feature" else 12_000
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((n, 1)) + 2).to(torch.float32)
    (values,) = exact([x])
    centered = values - values.mean()
    want = np.array([[(np.square(centered).sum() / (n - 1)) ** 2]])
    got = hsic_grid([x], method=method)
    tolerance.assert_close(got, want, torch.float32, want)


def test_widths_may_differ_within_and_between_models():
    x, y = layers(Case(33, widths=(64, 40))), layers(Case(33, widths=(40, 64, 1)), seed=1)
    tolerance.assert_close(cka_grid(x, y), reference.cka_grid(exact(x), exact(y)), torch.float64)


def test_no_nan_where_the_squares_are_tiny_or_large():
    """Isotropic scale: products of two self-HSICs go with its eighth power."""
    x = layers(Case(33, widths=(5, 6)))
    want = cka_grid(x)
    for scale in (1e-45, 1e-30, 1e30, 1e40):
        tolerance.assert_same(cka_grid([scale * layer for layer in x]), want, torch.float64)


def test_duplicated_and_reordered_rows_are_told_apart():
    """Rows are matched by position: a reordered copy is another representation."""
    (x,) = layers(Case(64, widths=(16,)))
    assert cka_grid([x], [x.flip(0)]).item() < 1 - 0.1
