"""Distances and measures of uncentred layers: twins, invariances, and values that are known.

Invariances are those of measures of neighbours, too.
"""

import numpy as np
import pytest
import torch

import simcore
from simcore import (
    bases,
    descriptors,
    gulp_grid,
    procrustes_grid,
    reference,
    rsm_difference_grid,
    stats,
)
from support import tolerance
from support.cases import DTYPES, HALVES, Case, exact
from support.changes import changed
from support.correlated import orthonormal
from support.distance_table import DISTANCE_ROWS, SCALE, TRANSLATION
from support.measure_table import LINEAR
from support.neighbour_table import NEIGHBOUR_ROWS, ROW_LENGTHS

pytestmark = pytest.mark.filterwarnings("ignore:.*independent columns")
EVERY = pytest.mark.parametrize("measure", DISTANCE_ROWS, ids=str)
WITH_NEIGHBOURS = pytest.mark.parametrize("measure", (*DISTANCE_ROWS, *NEIGHBOUR_ROWS), ids=str)
ON_BASES = [measure for measure in DISTANCE_ROWS if measure.takes_bases]
FLOAT64 = torch.float64

WIDTHS = (7, 1, 40, 24)
CASES = (
    *(Case(n, widths=WIDTHS) for n in (2, 3, 5, 33)),
    *(Case(129, o, b, WIDTHS) for o, b in ((0.0, False), (10.0, True), (1000.0, False))),
    Case(33, 1000.0, True, WIDTHS),
    Case(150, 10.0, True, (130, 3)),
)


def check(measure, x, y, dtype, *, eps=None):
    got, want = measure(x, y), measure.twin(x, y, eps=eps)
    assert got.dtype == FLOAT64
    tolerance.assert_other(measure, got, want, exact(x), exact(y), dtype)
    return got


@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.deep)], ids=str
)
@EVERY
def test_twin(measure, dtype):
    for case in (case for case in CASES if case.n >= measure.min_rows):
        x = measure.layers(case, dtype)
        y = measure.layers(Case(case.n, 10.0, widths=(12, 5)), dtype, seed=1)
        grid = check(measure, x, None, dtype)
        check(measure, x, y, dtype)
        itself = grid.diagonal()[~grid.diagonal().isnan()]
        if measure.itself == 0:
            assert not itself.any()
        elif case.n > max(case.widths):  # else a layer may have dependent columns
            np.testing.assert_allclose(itself, 1, atol=tolerance.OTHER_UNITS[dtype])


@EVERY
def test_half_precisions_and_mixtures(measure):
    for dtype in HALVES:
        x = measure.layers(Case(60, 1.0, widths=(20, 7)), dtype)
        eps = torch.finfo(torch.float32).eps
        if measure.name == "concentricity":
            eps = torch.finfo(dtype).eps
        check(measure, x, None, torch.float32, eps=eps)
    x = measure.layers(Case(60, 1.0, widths=(20, 7)))
    x[1] = x[1].float()
    y = measure.layers(Case(60, widths=(12,)), torch.float32, seed=1)
    check(measure, x, y, torch.float32, eps=torch.finfo(torch.float32).eps)


@WITH_NEIGHBOURS
def test_invariances(measure):
    x, y = measure.sides(offset=1.0)
    want, back = measure(x, y), measure(y, x)

    def same(got, wanted, *sides):
        measure.assert_like(got, wanted, *sides, FLOAT64, tolerance.DRAWN_CONDITION)

    for kind in measure.invariant:
        moved = [changed(kind, layer) for layer in x]
        same(measure(moved, y), want, moved, y)
        same(measure(y, moved), back, y, moved)
    for kind in measure.jointly:
        moved = [[changed(kind, layer) for layer in side] for side in (x, y)]
        same(measure(*moved), want, *moved)
    if measure.symmetric:
        same(back.T, want, x, y)
    else:
        assert float((back.T - want).abs().max()) > tolerance.CHANGE


@WITH_NEIGHBOURS
def test_what_a_measure_is_not_invariant_to(measure):
    x, y = measure.sides(offset=1.0)
    want, kinds = measure(x, y), LINEAR | SCALE | TRANSLATION
    if measure in NEIGHBOUR_ROWS:
        kinds |= ROW_LENGTHS
    for kind in kinds - measure.invariant:
        change = (measure([changed(kind, layer) for layer in x], y) - want).abs().max()
        assert float(change) > tolerance.CHANGE, kind


@EVERY
def test_a_common_factor(measure):
    """Distances of some units; other measures of one factor are invariant to two, or to neither."""
    x, y = measure.sides()
    for factor in (3.0, 2.0**-40):
        scaled = [[factor * layer for layer in side] for side in (x, y)]
        if measure.degree or "scale" in measure.invariant:
            got = measure(*scaled) / factor**measure.degree
            tolerance.assert_other(measure, got, measure(x, y), exact(x), exact(y), FLOAT64)


@WITH_NEIGHBOURS
def test_order_of_the_examples(measure):
    x, y = measure.sides()
    order = torch.randperm(len(x[0]), generator=torch.Generator().manual_seed(0))
    want, moved = measure(x, y), [layer[order] for layer in y]
    got = measure([layer[order] for layer in x], moved)
    condition = tolerance.DRAWN_CONDITION if measure in NEIGHBOUR_ROWS else 1.0
    measure.assert_like(got, want, x, y, FLOAT64, condition)
    alone = measure(x, moved)
    if measure.function == "descriptor_grid":
        measure.assert_like(alone, want, x, y, FLOAT64)
    else:
        assert float((alone - want).abs().max()) > tolerance.CHANGE


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@EVERY
def test_equal_layers_in_different_places(measure, dtype):
    """Digits cancel between them: the promise of each measure, in its units."""
    x = measure.layers(Case(129, 10.0, True, (40, 24)), dtype)
    clones = [layer.clone() for layer in x]
    for grid in (measure([*x, *clones])[:2, 2:], measure(x, clones)):
        want = np.where(np.eye(2) > 0, measure.itself, grid)
        if measure.name == "angular":
            assert tolerance.max_error(grid, want) <= tolerance.SMALL_ANGLE
        else:
            tolerance.assert_other(measure, grid, want, exact(x), None, dtype)
    if measure.name in ("rsm-difference", "disagreement"):
        assert not grid.diagonal().any()


@pytest.mark.parametrize("measure", [row for row in DISTANCE_ROWS if row.itself == 0], ids=str)
def test_a_layer_of_both_sides_is_0_apart(measure):
    """The same memory, as a tensor, a view of it, or a numpy array, and in every resample."""
    x, y = measure.sides(dtype=torch.float32)
    for grid in (
        measure(x, [y[1], x[0]]),
        measure(x, [y[1], x[0][:, :]]),
        measure([t.numpy() for t in x], [y[1].numpy(), x[0].numpy()]),
    ):
        assert grid[0, 1] == 0
        assert (grid[1:] > 0).all()
    assert measure([x[0]], [x[0].flip(0)]) > 0 or measure.function == "descriptor_grid"
    interval = stats.bootstrap_ci(
        x, measure=measure.grid, resamples=3, return_draws=True, **measure.options
    )
    assert not interval.observed.diagonal().any()
    assert not interval.draws.diagonal(dim1=1, dim2=2).any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_procrustes_of_a_rotated_copy(dtype):
    x = [layer.double() for layer in DISTANCE_ROWS[0].layers(Case(80, 10.0, True, (9, 200)))]
    turned = [(changed("rotation", layer) + 2).to(dtype) for layer in x]
    x = [layer.to(dtype) for layer in x]
    for form, of in (("distance", np.square), ("angular", np.cos)):
        got = of(as_array(procrustes_grid(x, turned, form=form)).diagonal())
        np.testing.assert_allclose(got, of(0.0), atol=2 * tolerance.FLOAT32_MEASURE_ABSOLUTE)
    lengths = [float((layer - layer.mean(0)).norm()) for layer in x]
    got = procrustes_grid(x, [3 * layer for layer in turned], form="size-and-shape").diagonal()
    np.testing.assert_allclose(got, [2 * length for length in lengths], rtol=1e-5)


def as_array(grid):
    return np.asarray(grid)


def test_size_and_shape_of_any_scale_and_of_constant_layers():
    x, y = (torch.from_numpy(orthonormal(50, 4)) * scale for scale in (1e300, 1e300))
    far = procrustes_grid([x], [2 * y], form="size-and-shape")
    np.testing.assert_allclose(far, 1e300 * np.sqrt(4), rtol=1e-10)
    constant = torch.full((50, 3), 7.0, dtype=FLOAT64)
    grid = procrustes_grid([constant, y / 1e300], form="size-and-shape")
    np.testing.assert_allclose(grid, [[0, 2], [2, 0]], atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_known_spaces(dtype):
    """Orthonormal columns: x and y share two of four and three dimensions."""
    q = torch.from_numpy(orthonormal(60, 6)).to(dtype)
    x, y = [q[:, :4] * torch.arange(1, 5)], [q[:, 2:5]]
    grids = {
        "gulp-without-ridge": (4 + 3 - 2 * 2, lambda a, b: gulp_grid(a, b)),
        "overlap": (2 / 4, lambda a, b: simcore.eigenspace_overlap_grid(a, b)),
    }
    for want, grid in grids.values():
        np.testing.assert_allclose(grid(x, y), [[want]], atol=1e-5)
        np.testing.assert_allclose(grid(y, x), [[want]], atol=1e-5)
    # With columns of unit length S is the identity over 3, and P_y = 1 / (1 / 3 + ridge).
    ridge, kept = 0.5, (1 / 3) / (1 / 3 + 0.5)
    got = gulp_grid(y, [q[:, 2:5] @ torch.ones(3, 1, dtype=dtype)], ridge=ridge)
    one = 1 / (1 + ridge)
    np.testing.assert_allclose(got, [[3 * kept**2 + one**2 - 2 * kept * one]], atol=1e-5)


@pytest.mark.parametrize("ridge", [0.0, 1e-30, 1e-16, 1e-9])
def test_gulp_of_dependent_columns_and_vanishing_ridges(ridge):
    """A covariance without Cholesky factor; directions far above the ridge count whole."""
    x = DISTANCE_ROWS[0].layers(Case(60, widths=(6, 4)))
    doubled = [torch.cat([layer, layer], 1) for layer in x]
    want = gulp_grid(x)
    np.testing.assert_allclose(gulp_grid(doubled, ridge=ridge), want, atol=1e-5)
    np.testing.assert_allclose(gulp_grid(x, doubled, ridge=ridge), want, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("measure", ON_BASES, ids=str)
def test_bases_stand_for_layers(measure, dtype):
    x, y = measure.sides(dtype=dtype, offset=2.0)
    want = measure(x, y)
    for other in (measure(bases(x), bases(y)), measure(bases(x), y)):
        tolerance.assert_other(measure, other, want, exact(x), exact(y), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_spaces_with_and_without_a_column_of_ones(dtype):
    """A constant column adds a dimension, unless the others make it already."""
    x = DISTANCE_ROWS[0].layers(Case(60, 3.0, widths=(6,)), dtype)[0]
    ones = torch.full((60, 1), 5.0, dtype=dtype)
    row = next(m for m in DISTANCE_ROWS if m.name == "eigenspace-overlap")
    for layers in (
        [x, torch.cat([x, ones], 1)],
        [x - x[:, :1] + 1, ones, torch.cat([x, x + 1], 1)],
    ):
        check(row, layers, None, dtype)
        check(row, layers, [x], dtype)


def test_angles_and_cosines_of_known_rows():
    x = np.array([[1.0, 0], [0, 2], [3, 3]])
    y = np.array([[0.0, 5], [0, 1], [-1, -1]])
    np.testing.assert_allclose(simcore.cosine_grid([x], [y]), [[(0 + 1 - 1) / 3]], atol=1e-15)
    got = simcore.cosine_grid([x], [y], form="angular")
    np.testing.assert_allclose(got, [[(0.5 + 0 + 1) / 3]], atol=1e-8)


def test_predictions():
    """The first of several largest entries counts; probabilities and logits disagree alike."""
    x = np.array([[2.0, 2, 1], [0, 1, 0], [3, 0, 1]])
    y = np.array([[1.0, 2, 0], [0, 3, 0], [1, 1, 0]])
    np.testing.assert_array_equal(simcore.disagreement_grid([x], [y]), [[1 / 3]])
    grid = simcore.output_divergence_grid([1e4 * x], [1e4 * y])
    # In two of three rows one side is sure of a class, and the other gives it half.
    each = (0.5 * np.log2(2) + 0.5 * np.log2(2 / 3)) / 2 + np.log2(4 / 3) / 2
    np.testing.assert_allclose(grid, [[2 * each / 3]], atol=1e-12)


def test_descriptors_are_those_of_the_grid_and_take_any_n():
    x = [torch.randn(n, 5, dtype=FLOAT64) * 0.3 + 1 for n in (30, 41)]
    found = descriptors(x)
    want = reference.descriptors(exact(x))
    assert list(found) == ["magnitude", "concentricity", "uniformity"]
    for name, values in found.items():
        np.testing.assert_allclose(values, want[name], rtol=1e-12)
        one = simcore.descriptor_grid(x[:1], descriptor=name)
        assert one.item() == 0
    assert isinstance(descriptors(exact(x))["magnitude"], np.ndarray)


@pytest.mark.parametrize(
    ("dtype", "scale"), [(torch.float32, 1e30), (FLOAT64, 1e-200), (FLOAT64, 1e200)]
)
@EVERY
def test_extreme_scales(measure, dtype, scale):
    if not (measure.degree or "scale" in measure.invariant):
        return
    x = [layer.to(dtype) for layer in measure.sides()[0]]
    y = [layer.to(dtype) for layer in measure.sides()[1]]
    want = measure(x, y)
    big = [[layer * scale for layer in side] for side in (x, y)]
    got = measure(*big) / scale**measure.degree
    tolerance.assert_other(measure, got, want, exact(x), exact(y), dtype)
    if "scale" in measure.invariant:
        one = measure(big[0], y)
        tolerance.assert_other(measure, one, want, exact(x), exact(y), dtype)


def test_differences_of_layers_of_very_different_scales():
    x, y = torch.randn(2, 40, 5, dtype=FLOAT64).unbind()
    for norm in ("frobenius", "spectral"):
        of_x = float(rsm_difference_grid([x], [x * 0], norm=norm))
        for small in (1e-200 * y, y):  # y itself is in range
            got = rsm_difference_grid([1e200 * x], [small], norm=norm)
            np.testing.assert_allclose(got / 1e200, [[of_x]], rtol=1e-10)
