"""Truncations that rounding decides, because singular values are equal: one warning says which."""

import warnings

import numpy as np
import pytest
import torch

from simcore import align, bases, cca_grid, pwcca_grid, svcca_grid
from support.cases import Case, exact, layers

ROWS = np.random.default_rng(0).standard_normal((300, 12))
CLASSES = np.eye(10)[np.arange(300) % 10]  # the spectrum is 9 times the root of 30
TWINS = np.kron(np.eye(3), np.ones((100, 2)))  # columns twice: the spectrum is 2 equal values
# Variances 16, 4 and 1 of orthogonal columns.
CORNERS = np.array([[4 * a, 2 * b, c] for a in (1, -1) for b in (1, -1) for c in (1, -1)])
SHARE = 20 / 21
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def warnings_of(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = call()
    return [str(one.message) for one in caught], value


@DTYPES
@pytest.mark.parametrize(
    ("grid", "truncation"),
    [(svcca_grid, 3), (svcca_grid, 0.5), (cca_grid, [3, 2]), (pwcca_grid, [3, 2])],
)
def test_a_cut_through_equal_values_is_named(grid, truncation, dtype):
    x, y = CLASSES.astype(dtype), ROWS.astype(dtype)
    (said,), value = warnings_of(lambda: grid([x], [y], truncation=truncation))
    kept = 5 if truncation == 0.5 else 3
    assert said.startswith(
        f"{grid.__name__}: the truncation is not clear: X[0] keeps components 1 to {kept}, and the "
        "singular values 1 to 9 are equal (5.477"
    )
    order = np.random.default_rng(1).permutation(300)
    _, other = warnings_of(lambda: grid([x[order]], [y[order]], truncation=truncation))
    assert abs(value - other) > 1e-3  # what the warning says


@DTYPES
def test_one_warning_names_every_layer(dtype):
    x, y, twins = (a.astype(dtype) for a in (CLASSES, ROWS, TWINS))
    (said,), _ = warnings_of(lambda: svcca_grid([y, x], [twins], truncation=1))
    assert "X[0]" not in said
    assert "X[1] keeps components 1 to 1, and the singular values 1 to 9" in said
    assert "Y[0] keeps components 1 to 1, and the singular values 1 to 2" in said


@DTYPES
def test_a_share_that_is_reached_exactly_is_named(dtype):
    x, y = CORNERS.astype(dtype), ROWS[:8, :2].astype(dtype)
    (said,), _ = warnings_of(lambda: svcca_grid([x], [y], truncation=SHARE))
    assert "and the variance of 1 to 2 is the share 0.952381 up to rounding" in said
    for clear in (SHARE - 1e-4, SHARE + 1e-4, 2, 1.0):
        assert not warnings_of(lambda cut=clear: bases([x], truncation=cut))[0]


@DTYPES
def test_bases_and_aligners_say_it_where_they_cut(dtype):
    x, y = torch.from_numpy(CLASSES.astype(dtype)), torch.from_numpy(ROWS.astype(dtype))
    (said,), cut = warnings_of(lambda: bases([y, x], truncation=2))
    assert said.startswith("bases: the truncation is not clear: X[1] keeps components 1 to 2")
    assert not warnings_of(lambda: svcca_grid(cut, truncation=2))[0]  # said before
    whole = bases([x])
    (said,), _ = warnings_of(lambda: whole[0].truncate(2))
    assert said.startswith("Basis.truncate: the truncation is not clear: the layer keeps")
    (said,), _ = warnings_of(lambda: svcca_grid(whole, [y], truncation=2))
    assert said.startswith("svcca_grid: the truncation is not clear: X[0] keeps")
    aligner = align.SVCCAAligner(truncation=3)
    (said,), _ = warnings_of(lambda: aligner.fit(x, y))
    assert said.startswith("SVCCAAligner: the truncation is not clear: X keeps")


@DTYPES
@pytest.mark.parametrize("truncation", [0.5, 0.9, 0.99, 0.999, 1, 5, 9, 12])
def test_clear_cuts_are_silent(truncation, dtype):
    plain = exact(layers(Case(300, 3.0, widths=(20, 33)), torch.float64))
    turned = plain[0] - plain[0].mean(1, keepdims=True)
    normed = turned / turned.std(1, keepdims=True)  # as LayerNorm leaves rows
    sparse = np.maximum(plain[1], 0)
    given = [a.astype(dtype) for a in (*plain, normed, sparse)]
    if truncation not in (0.5, 1, 5):  # the others keep all 9 values
        given.append(CLASSES.astype(dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        svcca_grid(given, truncation=truncation)


@pytest.mark.parametrize("height", [1e3, 1e4, 1e6])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_the_rounding_of_a_sink_takes_no_dimension_from_the_other_rows(dtype, height):
    """In all columns the sink's rounding is as large as what the other rows hold."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((256, 32))
    y = x + rng.standard_normal((256, 32)) / 2
    x[0] = y[0] = height * rng.standard_normal(32)
    x, y = (torch.from_numpy(layer).to(dtype) for layer in (x, y))
    said, value = warnings_of(lambda: cca_grid([x], [y]))
    assert said == []
    q = [np.linalg.qr(layer - layer.mean(0))[0] for layer in exact([x, y])]
    np.testing.assert_allclose(value, np.linalg.svd(q[0].T @ q[1])[1].mean(), atol=1e-5)
