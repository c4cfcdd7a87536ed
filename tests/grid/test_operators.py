"""The operators behind the measures as torch sees them: schema, fake kernels, errors."""

import numpy as np
import pytest
import torch

from support.bad_inputs import assert_refused
from support.cases import DTYPES, Case, layers
from support.operators import opcheck

ops = torch.ops.simcore
X_CASE, Y_CASE = Case(12, 1.0, widths=(3, 1, 20)), Case(12, widths=(2, 4))


def x_layers(dtype=torch.float64):
    return layers(X_CASE, dtype)


def y_layers(dtype=torch.float64):
    return layers(Y_CASE, dtype, seed=1)


def pwcca_arguments(dtype, cross):
    u_x, s_x, vt_x = ops.principal_components(layers(Case(30, widths=(3, 5)), dtype), False)
    u_y, _, _ = ops.principal_components(layers(Case(30, widths=(2, 4)), dtype, seed=1), False)
    weighted = [s.to(dtype)[:, None] * vt for s, vt in zip(s_x, vt_x, strict=True)]
    return u_x, weighted, u_y if cross else [], 0


def arguments(name, dtype, cross):
    """Of every operator: its own layers, and those of the other side where it takes one."""
    if name == "pwcca":
        return pwcca_arguments(dtype, cross)
    if name == "principal_components":
        return x_layers(dtype), cross  # the second argument is standardize
    if name == "multiple_correlations":
        return x_layers(dtype), y_layers(dtype), 0
    other = y_layers(dtype) if cross else []
    if name == "best_partners":
        return x_layers(dtype), other, True, 0
    return x_layers(dtype), other, 0


# Dtypes and shapes of one layer are checked in C++; composed operators leave them to the grids.
COMPILED = ("principal_components", "nuclear_norms")
NAMES = (*COMPILED, "best_partners", "multiple_correlations", "pwcca")


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_opcheck(name, dtype, cross):
    whole = cross and dtype == torch.float32
    opcheck(getattr(ops, name).default, arguments(name, dtype, cross), whole)


def flat(result):
    """Outputs of an operator, lists of tensors included, as one list."""
    if isinstance(result, torch.Tensor):
        return [result]
    return [tensor for part in result for tensor in flat(part)]


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_fake_kernels_know_shapes_dtypes_and_order(name, dtype, cross):
    if name == "pwcca" and dtype == torch.bfloat16:
        dtype = torch.float32
    real = arguments(name, dtype, cross)
    mode = torch._subclasses.FakeTensorMode()

    def fake(value):
        if isinstance(value, torch.Tensor):
            return mode.from_tensor(value)
        return [fake(one) for one in value] if isinstance(value, list) else value

    got = flat(getattr(ops, name)(*real))
    with mode:
        expected = flat(getattr(ops, name)(*map(fake, real)))
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        assert one.is_contiguous()
        assert other.is_contiguous()


def test_operators_leave_out_what_has_no_variance():
    x = [layers(Case(12, widths=(3,)))[0], torch.full((12, 2), 0.1, dtype=torch.float64)]
    xy, norm_x, _ = ops.nuclear_norms(x, [], 0)
    np.testing.assert_array_equal(xy.isnan(), [[False, True], [True, True]])
    assert norm_x[1] == 0
    grid, best, partner = ops.best_partners(x, [], True, 0)
    np.testing.assert_array_equal(grid.isnan(), [[False, True], [True, True]])
    assert best.isnan()[:, 0].tolist() == [False] * 3 + [True] * 2
    assert partner[3:].eq(-1).all()
    assert ops.multiple_correlations(x, x, 0).isnan().tolist() == [[False, True], [True, True]]
    u, s, vt = ops.principal_components(x, True)
    assert not s[1].any()
    assert not vt[1].any()
    assert all(tensor.isfinite().all() for tensor in (*u, *s, *vt))


def norms_of(x, y):
    xy, norm_x, norm_y = ops.nuclear_norms(x, y, 0)
    return xy / norm_x[:, None] / norm_y[None, :]


def partners_of(x, y):
    grid, best, partner = ops.best_partners(x, y, True, 0)
    return grid + 1, best * 2, partner + 1


@pytest.mark.parametrize("function", [norms_of, partners_of])
def test_compiles_whole(function):
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for n in (12, 15):  # the second size compiles once more, with symbols
        x = layers(Case(n, widths=(3, 1, 5)), torch.float32)
        y = layers(Case(n, widths=(2, 4)), torch.float32, seed=1)
        for got, want in zip(flat(compiled(x, y)), flat(function(x, y)), strict=True):
            np.testing.assert_array_equal(got, want)


def test_decomposition_compiles_whole():
    def spectra(x):
        _, s, _ = ops.principal_components(x, False)
        return [values / values[0] for values in s]

    torch.compiler.reset()
    x = x_layers()
    compiled = torch.compile(spectra, fullgraph=True, backend="aot_eager")
    for got, want in zip(compiled(x), spectra(x), strict=True):
        np.testing.assert_array_equal(got, want)


GOOD = x_layers()
BAD = {
    "rows": ([GOOD[0], GOOD[1][:5]],),
    "axes": ([GOOD[0], GOOD[1][:, 0]],),
    "columns": ([GOOD[0], GOOD[1][:, :0]],),
    "integers": ([GOOD[0], torch.ones(12, 2, dtype=torch.int64)],),
}
WORDS = {
    "rows": (ValueError, "X 1 12 5"),
    "axes": (ValueError, "X 1 shape"),
    "columns": (ValueError, "X 1 column 0"),
    "integers": (TypeError, "X 1 floating-point"),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", COMPILED)
def test_direct_calls_are_checked(name, bad):
    rest = (False,) if name == "principal_components" else ([], 0)
    error, words = WORDS[bad]
    assert_refused(getattr(ops, name), (*BAD[bad], *rest), {}, error, words)


@pytest.mark.parametrize("name", ["nuclear_norms", "best_partners", "multiple_correlations"])
def test_the_other_side_and_the_memory_are_checked(name):
    op = getattr(ops, name)
    keep = (False,) if name == "best_partners" else ()
    assert_refused(op, (GOOD, [GOOD[0][:5]], *keep, 0), {}, ValueError, "Y 0 12 5")
    assert_refused(op, (GOOD, [GOOD[0]], *keep, 1), {}, ValueError, "max_memory 1")


def test_multiple_correlations_need_layers_on_both_sides():
    assert_refused(ops.multiple_correlations, ([], GOOD, 0), {}, ValueError, "X one layer none")
    assert_refused(ops.multiple_correlations, (GOOD, [], 0), {}, ValueError, "Y one layer none")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "pwcca"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_direct_calls_refuse_what_is_not_finite(dtype, name):
    bad = x_layers(dtype)
    bad[1][4] = torch.inf
    rest = {
        "principal_components": (False,),
        "multiple_correlations": (bad, 0),
        "best_partners": ([], True, 0),
    }.get(name, ([], 0))
    assert_refused(getattr(ops, name), (bad, *rest), {}, ValueError, "X 1 finite")


def test_direct_calls_of_pwcca_are_checked():
    u, weighted, y, _ = pwcca_arguments(torch.float64, True)
    for bad, words in (
        (([], [], y, 0), "at least one layer"),
        ((u, weighted[:1], y, 0), "weighted_x 2 1"),
        ((u, weighted[::-1], y, 0), "weighted_x 0 3"),
        ((u, weighted, [y[0][:7]], 0), "u_y 0 30 7"),
        ((u, weighted, y, 1), "max_memory 1"),
    ):
        assert_refused(ops.pwcca, bad, {}, ValueError, words)
