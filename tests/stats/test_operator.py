"""Reordered and weighted products of Gram matrices, and medians of distances."""

import numpy as np
import pytest
import torch

from simcore import reference
from simcore._ops.hsic import median_squared_distances, permuted_gram_products
from simcore.reference.stats import permuted_products
from support import tolerance
from support.cases import DTYPES, Case, exact, layers
from support.draws import drawn


def grams(n, count, dtype, seed):
    g = torch.randn(n, n, count, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return g + g.transpose(0, 1)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("n", "count_x", "count_y", "draws"),
    [(1, 1, 1, 1), (2, 3, 1, 5), (31, 8, 16, 13), (33, 13, 7, 2), (129, 2, 25, 3), (300, 17, 9, 4)],
)
def test_op_matches_the_plain_loop(n, count_x, count_y, draws, dtype, weighted):
    x, y = grams(n, count_x, dtype, 0), grams(n, count_y, dtype, 1)
    rows = drawn(2, n, draws)
    weights = np.random.default_rng(3).integers(0, 4, size=rows.shape) if weighted else None
    got = permuted_gram_products(
        x, y, torch.from_numpy(rows), None if weights is None else torch.from_numpy(weights)
    )
    want = permuted_products(x, y, rows, weights)
    roughly = torch.stack(
        [
            torch.einsum("ija,ijb->ab", x * (w[:, None] * w)[..., None], y[r][:, r])
            for r, w in zip(
                torch.from_numpy(rows).long(),
                torch.ones(rows.shape, dtype=dtype)
                if weights is None
                else torch.from_numpy(weights).to(dtype),
                strict=True,
            )
        ]
    )
    tolerance.assert_close(got, want, dtype, roughly)


def test_op_does_not_depend_on_threads():
    x, rows = grams(130, 5, torch.float32, 0), torch.from_numpy(drawn(0, 130, 20))
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(permuted_gram_products(x, x, rows))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("shape", [(9, 7, 2), (7, 9, 2), (9, 9), (9, 9, 0)])
def test_grams_that_are_not_square_are_refused(shape):
    x, rows = grams(9, 2, torch.float32, 0), torch.from_numpy(drawn(0, 9, 2))
    with pytest.raises(ValueError, match=r"y: wanted shape \[n, n, L\], got"):
        permuted_gram_products(x, torch.zeros(shape), rows)


def test_opcheck():
    x, rows = grams(9, 3, torch.float32, 0), torch.from_numpy(drawn(0, 9, 2))
    torch.library.opcheck(torch.ops.simcore.permuted_gram_products.default, (x, x, rows))
    torch.library.opcheck(
        torch.ops.simcore.permuted_gram_products.default, (x, x, rows, torch.ones(3, 9))
    )
    torch.library.opcheck(
        torch.ops.simcore.gram_power_sums.default, (layers(Case(9)), [], "biased", 0)
    )
    torch.library.opcheck(
        torch.ops.simcore.median_squared_distances.default, (layers(Case(9)), layers(Case(9)))
    )
    torch.library.opcheck(torch.ops.simcore.uniformity.default, (layers(Case(9)), 0))
    for with_cosines in (False, True):
        torch.library.opcheck(
            torch.ops.simcore.mean_rows.default, (layers(Case(9)), with_cosines, 0)
        )


OP_ERRORS = {
    "shape": (lambda x, r: (x[0], x, r), ValueError, r"x: .*\[n, n, L\]"),
    "dtype": (lambda x, r: (x, x.double(), r), TypeError, "y: .*float64"),
    "strides": (lambda x, r: (x.transpose(0, 1), x, r), ValueError, "x: .*contiguous"),
    "row dtype": (lambda x, r: (x, x, r.long()), TypeError, "rows: .*int32"),
    "row shape": (lambda x, r: (x, x, r[:, 1:]), ValueError, "rows: "),
    "row range": (lambda x, r: (x, x, r + 1), ValueError, r"rows: .*\[0, 5\), got 5"),
    "weights": (lambda x, r: (x, x, r, r[:1].float()), ValueError, "weights: "),
}


@pytest.mark.parametrize("name", OP_ERRORS)
def test_op_refuses(name):
    arguments, error, message = OP_ERRORS[name]
    x, rows = grams(5, 2, torch.float32, 0), torch.from_numpy(drawn(0, 5, 2))
    with pytest.raises(error, match=message):
        permuted_gram_products(*arguments(x, rows))


@pytest.mark.parametrize("n", [2, 3, 32, 33])
def test_medians_follow_the_rule(n):
    x = layers(Case(n, offset=10.0))
    want = [np.median(reference.squared_distances(layer)) for layer in exact(x)]
    tolerance.assert_close(median_squared_distances(x[:2], x[2:]), want, torch.float64)
