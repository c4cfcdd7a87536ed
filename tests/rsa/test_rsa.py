"""RSA: layers whose dissimilarities are rounding, ranks and ties, and the operators behind both."""

import numpy as np
import pytest
import torch

from simcore import reference, rsa_grid
from support import tolerance
from support.bad_inputs import assert_refused
from support.cases import DTYPES, HALVES, Case, exact
from support.measure_table import RSA, RSA_SPEARMAN
from support.operators import opcheck

ops = torch.ops.simcore
CORRELATIONS = ("pearson", "spearman")
N = 60


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def one_direction():
    """Layers whose rows, centred, are positive multiples of one vector; float64."""
    factors, direction = np.exp(normal(N, 1, seed=1)), normal(1, 40, seed=2)
    first = normal(N, 1, seed=3)
    return {
        "two columns, one larger": np.concatenate([first + 3, first - np.abs(normal(N, 1))], 1),
        "two columns and an offset": normal(N, 2) + np.array([[1000.0, -1000.0]]),
        "factors": factors * direction,
        "three columns": factors * direction[:, :3],
        "factors and offsets": factors * direction + 10 * normal(N, 1, seed=4),
        "many columns": factors * normal(1, 700, seed=5),
        "thousands of columns": factors * normal(1, 3000, seed=5),
        "lengths of many scales": np.exp(3 * normal(N, 1)) * direction + 5,
    }


@pytest.mark.parametrize("correlation", CORRELATIONS)
@pytest.mark.parametrize("dtype", DTYPES + HALVES, ids=str)
@pytest.mark.parametrize("name", one_direction())
def test_rows_in_one_direction_are_nan(name, dtype, correlation):
    layer = torch.from_numpy(one_direction()[name]).to(dtype)
    x = [RSA.layers(Case(N, widths=(12,)), dtype)[0], layer]
    with pytest.warns(UserWarning, match="no variance .*between the dissimilarities") as warned:
        got = rsa_grid(x, correlation=correlation)
    undefined = np.array([[False, True], [True, True]])
    np.testing.assert_array_equal(got.isnan(), undefined)
    assert len(warned) == 1
    assert "nan for X[1]:" in str(warned[0].message)
    twin = reference.rsa_grid(exact(x), correlation=correlation, eps=torch.finfo(dtype).eps)
    np.testing.assert_array_equal(np.isnan(twin), undefined)


@pytest.mark.parametrize("correlation", CORRELATIONS)
def test_the_warning_names_the_side(correlation):
    x = RSA.layers(Case(N, widths=(12, 7)))
    bad = torch.from_numpy(one_direction()["two columns and an offset"])
    for left, right, rows, columns, names in (
        (x, [bad, x[0]], [], [0], ["Y[0]"]),
        ([x[0], bad], x, [1], [], ["X[1]"]),
    ):
        with pytest.warns(UserWarning, match="no variance") as warned:
            got = rsa_grid(left, right, correlation=correlation)
        undefined = np.zeros((2, 2), dtype=bool)
        undefined[rows], undefined[:, columns] = True, True
        np.testing.assert_array_equal(got.isnan(), undefined)
        assert [word in str(warned[0].message) for word in names] == [True]


# Offsets of the columns, in standard deviations of what the rows say beside them.
OFFSETS = [
    (torch.float64, 1e3),
    (torch.float64, 1e7),
    (torch.float32, 1e3),
    (torch.float32, 1e5),
    (torch.float32, 1e6),
    (torch.float16, 100.0),
    (torch.bfloat16, 10.0),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("correlation", CORRELATIONS)
@pytest.mark.parametrize("width", [3, 10, 40, 768])
@pytest.mark.parametrize(("dtype", "offset"), OFFSETS, ids=str)
def test_rows_in_nearly_one_direction_are_known(dtype, offset, width, correlation):
    """Offsets that differ between columns; the twin is given the very values, once rounded."""
    offsets = offset * normal(2, 1, width, seed=7)
    sides = offsets + normal(2, N, width)
    x, y = ([torch.from_numpy(side).to(dtype)] for side in sides)
    got = rsa_grid(x, y, correlation=correlation)
    want = reference.rsa_grid(exact(x), exact(y), correlation=correlation)
    # Products of float64 rows with such offsets lose digits that the dissimilarities keep.
    tolerance.assert_measure(got, want, torch.float32)


@pytest.mark.parametrize("width", [10, 30, 300])
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
@pytest.mark.parametrize("offset", [0.0, 20.0])
def test_the_rounding_that_is_allowed_for_is_the_one_that_happens(offset, dtype, width):
    """Dissimilarities of rounded layers beside those of the layers before.

    Allowed is the rounding of entries just above a power of two, which is the largest; half of it
    to an eighth happened in 120 draws.
    """
    x = offset * normal(1, width, seed=8) + normal(N, width)
    rounded = torch.from_numpy(x).to(dtype)
    before = reference.rsa.dissimilarities(x)
    happened = (reference.rsa.dissimilarities(*exact([rounded])) - before).var()
    allowed = reference.rsa.rounding_variance(x, torch.finfo(dtype).eps)
    assert allowed / 16 < happened < allowed


@pytest.mark.parametrize("dtype", DTYPES + HALVES, ids=str)
@pytest.mark.parametrize("case", [Case(3), Case(33, 10.0, True), Case(129, 5.0)], ids=str)
def test_standardised_rows(case, dtype):
    for layer in RSA.layers(case, dtype):
        (values,) = exact([layer])
        z, _ = reference.rsa.standardised(values)
        c = z - z.mean(0)
        for computed in DTYPES:
            rows, halves, rounding = ops.standardised_rows(layer, computed)
            tolerance.assert_same(rows, c, computed)
            tolerance.assert_same(halves, np.square(c).sum(1) / 2, torch.float64)
            want = reference.rsa.rounding_variance(values, torch.finfo(dtype).eps)
            tolerance.assert_same(rounding, want, torch.float64)


def tied(dtype, seed=0):
    """Examples that occur twice or three times."""
    x = RSA.layers(Case(40, 10.0, widths=(6, 12)), dtype, seed=seed)
    return [torch.cat([layer, layer[:15], layer[:8]]) for layer in x]


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rank_moments(dtype, cross):
    x = [*tied(dtype), *RSA.layers(Case(63, widths=(3, 300)), dtype)]
    y = tied(dtype, seed=1)[:1] if cross else []
    xy, xx, yy, spread, rounding = ops.rank_moments(x, y, 0)
    want = reference.rank_moments(exact(x), exact(y) or None)
    for got, wanted in zip((xy, xx, yy), want, strict=True):
        tolerance.assert_same(got, wanted, torch.float64)
    for i, values in enumerate(exact(x + y)):
        d = reference.rsa.dissimilarities(values)
        unit = np.square(d.mean() * 62 / 126)
        tolerance.assert_same(spread[i], d.var() / unit, torch.float64)
        want = reference.rsa.rounding_variance(values, torch.finfo(dtype).eps) / unit
        tolerance.assert_same(rounding[i], want, torch.float64)


def test_one_pair_apart_from_all_others_is_enough():
    """The rows of a simplex are as far apart as each other, but for two of them."""
    x = torch.eye(30, dtype=torch.float64)
    x[1, 0] = 0.5
    other = torch.eye(30, dtype=torch.float64)
    other[5, 3] = 0.5
    got = rsa_grid([x], [x, other], correlation="spearman")
    want = reference.rsa_grid(exact([x]), exact([x, other]))  # ranks of two values: as Pearson's
    tolerance.assert_measure(got[:, :1], want[:, :1], torch.float64)
    assert float(got[0, 1]) < 0.1


def test_as_many_values_as_ties():
    """Whole numbers: most dissimilarities occur many times, in runs of all lengths."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 2, (2, 300, 6), generator=generator).double()
    codes[:, :, 0], codes[:, :, 1] = 3, -3  # no row is constant
    x, y = codes[0], codes[1] + 1e-3 * torch.randn(300, 6, generator=generator)
    d = reference.rsa.dissimilarities(x.numpy()).round(12)
    assert len(np.unique(d)) < 100 < len(d) / 100
    a, b = (reference.rsa.ranks(v) for v in (d, reference.rsa.dissimilarities(y.numpy())))
    want = np.corrcoef(a, b)[:1, 1:]
    got = rsa_grid([x], [y], correlation="spearman")
    tolerance.assert_measure(got, want, torch.float64)


@pytest.mark.parametrize("correlation", CORRELATIONS)
def test_threads_and_repetition_are_bit_equal(correlation):
    x = RSA.layers(Case(250, 10.0, widths=(30, 7, 12)), torch.float32)
    before = torch.get_num_threads()
    try:
        grids = []
        for threads in (1, 2, 3, 2):
            torch.set_num_threads(threads)
            grids.append(rsa_grid(x, x[:2], correlation=correlation))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(grids[1], grids[3])
    for grid in grids:
        if correlation == "spearman":
            assert torch.equal(grid, grids[0])
        tolerance.assert_same(grid, grids[0], torch.float32)


def test_memory_changes_nothing():
    """The least memory sorts one layer at a time."""
    x = RSA_SPEARMAN.layers(Case(250, widths=(30, 7, 12)))
    want = RSA_SPEARMAN(x)
    with pytest.raises(ValueError, match=r"at least (\d+) bytes for ranks") as caught:
        RSA_SPEARMAN(x, max_memory=1)
    least = int(str(caught.value).split("at least ")[1].split()[0])
    for limit in (least, least + 1000, 4 * least):
        assert torch.equal(RSA_SPEARMAN(x, max_memory=limit), want)
    with pytest.raises(ValueError, match="max_memory"):
        RSA_SPEARMAN(x, max_memory=least - 1)


def test_more_rows_than_can_be_ranked():
    x = torch.randn(3, 2).repeat(22000, 1)
    assert_refused(ops.rank_moments, ([x], [], 0), {}, ValueError, "X 0 65536 rows 66000")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_opcheck(dtype):
    x = RSA.layers(Case(12, widths=(5, 7)), dtype)
    for computed in DTYPES:
        whole = dtype == computed == torch.float32
        opcheck(ops.standardised_rows.default, (x[0], computed), whole)
    for y in ([], x[1:]):
        opcheck(ops.rank_moments.default, (x, y, 0), whole=bool(y) and dtype == torch.float32)


def test_direct_calls_are_checked():
    x = RSA.layers(Case(12, widths=(5, 7)))
    bad = x[1].clone()
    bad[4, :2] = torch.inf
    few, narrow = x[0][:2], x[0][:, :1]
    moments, rows = ops.rank_moments, ops.standardised_rows
    for op, arguments, error, words in (
        (moments, ([], x, 0), ValueError, "X one layer none"),
        (moments, (x, [x[0][:5]], 0), ValueError, "Y 0 12 5"),
        (moments, ([few], [], 0), ValueError, "X 0 3 rows 2"),
        (moments, (x, [narrow], 0), ValueError, "Y 0 2 columns 1"),
        (moments, (x, [x[0], bad], 0), ValueError, "Y 1 finite 2 84"),
        (moments, (x, [], 1), ValueError, "max_memory 1"),
        (rows, (bad, torch.float32), ValueError, "finite 2 84"),
        (rows, (narrow, torch.float32), ValueError, "2 columns 1"),
        (rows, (x[0].int(), torch.float32), TypeError, "floating-point"),
        (rows, (x[0], torch.float16), TypeError, "dtype float32 Half"),
    ):
        assert_refused(op, arguments, {}, error, words)
