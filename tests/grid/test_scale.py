"""Layers at the ends of float64's range: no measure feels a power of two, wherever it leads."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import simcore
from simcore import Basis, MinibatchCKA, bases, cka_grid, hsic_grid, stats
from simcore._grid.scale import SINGULAR_VALUES, in_range
from simcore.align import CCAAligner
from support import tolerance
from support.cases import Case
from support.measure_table import (
    CKAS,
    HSIC_RBF,
    MEASURES,
    MIXEDSIM,
    NEURONSIM,
    ON_BASES,
    SVCCA_STANDARDIZED,
)

FLOAT64 = torch.float64
CASE = Case(80, widths=(7, 5))
OTHER = Case(80, widths=(6,))
LARGEST = torch.finfo(FLOAT64).max


SCALE_FREE = (*MEASURES, *CKAS, HSIC_RBF)


def times_power(layer, exponent):
    """``layer * 2**exponent``: exact unless the result is subnormal."""
    half = exponent // 2
    return layer * 2.0**half * 2.0 ** (exponent - half)


def drawn(measure):
    return measure.layers(CASE), measure.layers(OTHER, seed=1)


def check(measure, x, y, want_x, want_y):
    """What `measure` gives of the layers is what the twin gives of others that it holds equal."""
    tolerance.assert_measure(measure(x), measure.twin(want_x), FLOAT64)
    cross = measure.twin(want_x, want_y)
    tolerance.assert_measure(measure(x, y), cross, FLOAT64)
    tolerance.assert_measure(measure(x, want_y), cross, FLOAT64)


@pytest.mark.parametrize("exponent", [-1000, 1017])
@pytest.mark.parametrize("measure", SCALE_FREE, ids=str)
def test_powers_of_two(measure, exponent):
    x, y = drawn(measure)
    scaled = [[times_power(layer, exponent) for layer in side] for side in (x, y)]
    check(measure, *scaled, x, y)


@pytest.mark.parametrize("measure", SCALE_FREE, ids=str)
@settings(max_examples=8)
@given(exponents=st.lists(st.integers(-1000, 1000), min_size=3, max_size=3))
def test_a_power_of_two_for_every_layer(measure, exponents):
    x, y = drawn(measure)
    first, second, third = map(times_power, [*x, *y], exponents)
    tolerance.assert_measure(measure([first, second], [third]), measure(x, y), FLOAT64)


@pytest.mark.parametrize("measure", SCALE_FREE, ids=str)
def test_entries_as_large_as_there_are(measure):
    """Differences of two entries, and sums of as many as there are rows, overflow."""
    x, y = ([layer / layer.abs().max() * LARGEST for layer in side] for side in drawn(measure))
    check(measure, x, y, *([times_power(layer, -1000) for layer in side] for side in (x, y)))


@pytest.mark.parametrize("measure", SCALE_FREE, ids=str)
def test_subnormal_entries(measure):
    x, y = ([times_power(layer, -1060) for layer in side] for side in drawn(measure))
    check(measure, x, y, *([times_power(layer, 1060) for layer in side] for side in (x, y)))


@pytest.mark.parametrize("measure", SCALE_FREE, ids=str)
def test_a_large_offset_and_a_small_spread(measure):
    x, y = ([layer * 1e301 + 1e306 for layer in side] for side in drawn(measure))
    check(measure, x, y, *([times_power(layer, -1000) for layer in side] for side in (x, y)))


@pytest.mark.parametrize(
    ("large", "exponent"), [(1e306, -1000), (1e306, 0), (1e190, -890)], ids=str
)
@pytest.mark.filterwarnings("ignore:.*neurons without variance")
@pytest.mark.parametrize("measure", [m for m in SCALE_FREE if m.any_translation], ids=str)
def test_a_large_constant_beside_small_entries(measure, large, exponent):
    """What would bring the others near 1 takes the constant beyond float64."""
    constant = torch.full((CASE.n, 1), large, dtype=FLOAT64)
    x, y = drawn(measure)
    beside = [
        [torch.cat([times_power(layer, exponent), constant], 1) for layer in side]
        for side in (x, y)
    ]
    check(measure, *beside, x, y)


@pytest.mark.parametrize("ends", [(-1000, 1000), (-1000, 0), (0, 1000)], ids=str)
@pytest.mark.parametrize("measure", [NEURONSIM, MIXEDSIM, SVCCA_STANDARDIZED], ids=str)
def test_neurons_of_very_different_scales(measure, ends):
    x, y = drawn(measure)
    spread = torch.exp2(torch.linspace(*ends, 7).round().double())
    tolerance.assert_measure(measure([x[0] * spread], y), measure.twin(x[:1], y), FLOAT64)
    if measure is not MIXEDSIM:  # whose second argument keeps its scales
        tolerance.assert_measure(measure(y, [x[0] * spread]), measure.twin(y, x[:1]), FLOAT64)


@pytest.mark.parametrize("exponent", [-1060, -1000, 950, 1000, 1017])
def test_a_spectrum_stands_over_a_power_of_two(exponent):
    (x,) = MEASURES[0].layers(Case(80, widths=(6,)))
    (want,), (basis,) = bases([times_power(times_power(x, -1060), 1060)]), bases([x])
    layer = times_power(x, exponent)
    (found,) = bases([layer])
    inside = SINGULAR_VALUES[0] < float(2.0**exponent) < SINGULAR_VALUES[1]
    assert (found.exponent == 0) == inside
    assert found.rank == 6
    assert bool(torch.isfinite(found.spectrum).all())
    true = want if exponent == -1060 else basis
    restored = times_power(found.spectrum, found.exponent - exponent)
    tolerance.assert_close(restored, true.spectrum, FLOAT64)
    made = found.vectors @ found.singular_values.diag() @ found.components
    centred = times_power(layer, -exponent) - times_power(layer, -exponent).mean(0)
    tolerance.assert_close(times_power(made, found.exponent - exponent), centred, FLOAT64)


@pytest.mark.parametrize("exponent", [-1000, 1017])
def test_standardised_columns_have_no_scale(exponent):
    (x,) = SVCCA_STANDARDIZED.layers(OTHER)
    (want,) = bases([x], standardize=True)
    (found,) = bases([times_power(x, exponent)], standardize=True)
    assert found.exponent == 0
    tolerance.assert_close(found.spectrum, want.spectrum, FLOAT64)


def test_a_basis_keeps_its_exponent():
    (basis,) = bases([times_power(MEASURES[0].layers(OTHER)[0], 1000)])
    assert basis.exponent > 900
    order = torch.arange(80).flip(0)
    for other in (
        basis.truncate(3),
        basis.permute(order),
        Basis.from_state_dict(basis.state_dict()),
        Basis.from_state_dict(basis.truncate(3).state_dict()),
    ):
        assert other.exponent == basis.exponent
    wrong = {**basis.state_dict(), "exponent": torch.tensor([1, 2])}
    with pytest.raises(
        ValueError, match=r"^state\['exponent'\]: wanted one number, got shape \(2,\)"
    ):
        Basis.from_state_dict(wrong)
    (plain,) = bases(MEASURES[0].layers(OTHER))
    assert set(plain.state_dict()) == {"vectors", "components", "spectrum"}
    assert Basis.from_state_dict(plain.state_dict()).exponent == 0


@pytest.mark.parametrize("exponent", [-1060, 1017])
@pytest.mark.parametrize(
    "measure", [m for m in ON_BASES if not m.options.get("standardize")], ids=str
)
def test_grids_of_bases(measure, exponent):
    x, y = ([times_power(layer, exponent) for layer in side] for side in drawn(measure))
    want = measure(x, y)
    tolerance.assert_measure(measure(bases(x), bases(y)), want, FLOAT64)
    tolerance.assert_measure(measure(bases(x), y), want, FLOAT64)


@pytest.mark.parametrize("exponent", [-1000, 1017])
def test_gradients_of_cka(exponent):
    """``d/d(c x) f(c x) = d/dx f(x) / c``, where CKA is the same."""
    x = [layer.requires_grad_() for layer in CKAS[0].layers(CASE)]
    cka_grid(x)[0, 1].backward()
    scaled = [times_power(layer.detach(), exponent).requires_grad_() for layer in x]
    cka_grid(scaled)[0, 1].backward()
    for layer, other in zip(x, scaled, strict=True):
        tolerance.assert_close(times_power(other.grad, exponent), layer.grad, FLOAT64)


@pytest.mark.parametrize("options", [{}, {"kernel": "rbf"}, {"method": "moments"}], ids=str)
@pytest.mark.parametrize("exponent", [-1060, 1017])
def test_permutation_tests_and_intervals(exponent, options):
    x = CKAS[0].layers(Case(30, widths=(5, 4)))
    x = [times_power(times_power(layer, -1060), 1060) for layer in x]
    scaled = [times_power(layer, exponent) for layer in x]
    count = {} if "method" in options else {"permutations": 20}
    got, want = (stats.permutation_test(side, **options, **count) for side in (scaled, x))
    for name in ("observed", "pvalue", "null_mean", "null_std"):
        tolerance.assert_same(getattr(got, name), getattr(want, name), FLOAT64)
    if "method" not in options:
        got, want = (stats.bootstrap_ci(side, resamples=20, **options) for side in (scaled, x))
        tolerance.assert_same(got.low, want.low, FLOAT64)


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_hsic_beyond_float64_is_refused(estimator):
    x, y = drawn(HSIC_RBF)
    for exponent in (600, 1017):
        large = [y[0], times_power(x[0], exponent)]
        with pytest.raises(
            ValueError, match=r"^X\[1\]: wanted features whose HSIC float64 can hold"
        ):
            hsic_grid(large, y, estimator=estimator)
        with pytest.raises(
            ValueError, match=r"^Y\[1\]: wanted features whose HSIC float64 can hold"
        ):
            hsic_grid(y, large, estimator=estimator)
    # What belongs to the result is in range, and the layer's HSIC with itself does not.
    got = hsic_grid([times_power(x[0], 600)], [times_power(y[0], -600)], estimator=estimator)
    tolerance.assert_close(got, hsic_grid(x[:1], y, estimator=estimator), FLOAT64)


def test_batches_beyond_float64_are_refused_and_leave_no_trace():
    x, y = drawn(HSIC_RBF)
    metric = MinibatchCKA()
    metric.update(x, y)
    before = metric.compute()
    with pytest.raises(ValueError, match=r"^X_batch\[1\]: wanted features whose HSIC"):
        metric.update([x[0], times_power(x[1], 1000)], y)
    with pytest.raises(ValueError, match=r"^Y_batch\[0\]: wanted features whose HSIC"):
        metric.update(x, [times_power(y[0], 300)])
    assert torch.equal(metric.compute(), before)


def test_maps_of_what_float64_cannot_square_are_refused():
    x, y = drawn(NEURONSIM)
    for exponent, found in ((1000, "more"), (-1000, "less")):
        words = rf"^Y: wanted columns that vary by 2\^-900 to 2\^960, got {found}"
        with pytest.raises(ValueError, match=words):
            CCAAligner().fit(x[0], times_power(y[0], exponent))


@pytest.mark.parametrize("measure", ["js", "pearson", "frobenius"])
def test_attention_that_cannot_be_summed_is_refused(measure):
    weights = torch.rand(2, 3, 4, 5, 5, dtype=FLOAT64)
    large = weights.clone()
    large[1, 2, 3, 0, 4] = 1e306  # above the diagonal
    words = r"\[1\]: wanted weights up to 1e\+140, got 1e\+306"
    with pytest.raises(ValueError, match="^A" + words):
        simcore.attention_grid(large, measure=measure)
    with pytest.raises(ValueError, match="^B" + words):
        simcore.attention_grid(weights, large, measure=measure)
    got = simcore.attention_grid(large, measure=measure, causal=True)
    assert torch.equal(got, simcore.attention_grid(weights, measure=measure, causal=True))


def test_attention_as_a_representation_at_the_ends_of_the_range():
    layers = [torch.rand(3, 4, 6, 6, dtype=FLOAT64, generator=_seeded(s)) for s in (0, 1)]
    want = cka_grid([simcore.distributed_attention(layer) for layer in layers])
    for exponent in (-1000, 1023):
        scaled = [simcore.distributed_attention(times_power(t, exponent)) for t in layers]
        tolerance.assert_measure(cka_grid(scaled), want, FLOAT64)
    with pytest.raises(ValueError, match=r"^layer: wanted weights up to 1e\+140"):
        simcore.distributed_attention(layers[0] * 1e306, causal=True)


def _seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("columns", [False, True])
def test_layers_in_range_are_not_copied(columns):
    x = [*MEASURES[0].layers(CASE), torch.full((80, 2), 1e306, dtype=FLOAT64)]
    x += [x[0] * 1e59, x[0] * 1e-59, x[0].float() * 1e30, torch.cat([x[0], x[2] * 0], 1)]
    x += [torch.full((80, 2), float("nan"), dtype=FLOAT64)]
    found = in_range(x, columns=columns)
    assert [new is old for new, old in zip(found.layers, x, strict=True)] == [True] * 8
    assert (found.exponents, found.nbytes, found.workspace(77)) == ([0] * 8, 0, 77)


@pytest.mark.parametrize("columns", [False, True])
def test_scaling_is_by_powers_of_two(columns):
    x = MEASURES[0].layers(OTHER)[0] * 1e250
    x[:, 2] *= 1e-20
    x[:, 4] = 3e300
    found = in_range([x], columns=columns)
    (scaled,) = found.layers
    assert found.nbytes == x.nbytes
    assert found.workspace(x.nbytes + 5) == 5
    assert found.workspace(10) == 1
    assert bool((scaled[:, 4] == 0).all())
    mantissa, exponent = torch.frexp(torch.cat([x[:, :4], x[:, 5:]], 1))
    other, moved = torch.frexp(torch.cat([scaled[:, :4], scaled[:, 5:]], 1))
    assert torch.equal(mantissa, other)
    (shift,) = (exponent - moved).unique(dim=0)
    if columns:
        assert len(shift.unique()) > 1
        differences = scaled.amax(0) - scaled.amin(0)
        assert bool(((differences >= 0.5) | (differences == 0)).all() & (differences < 1).all())
    else:
        assert shift.unique().tolist() == found.exponents


@pytest.mark.parametrize("measure", SCALE_FREE, ids=str)
def test_what_is_not_finite_is_counted_as_ever(measure):
    x = [times_power(layer, 1017) for layer in measure.layers(CASE)]
    x[1][3, 2], x[1][5, 1], x[1][7, 4] = float("nan"), float("inf"), -float("inf")
    with pytest.raises(ValueError, match=r"^X\[1\]: wanted finite values, got 3 NaN or infinite"):
        measure(x)


def test_values_are_those_of_exact_arithmetic():
    """The scaling above is checked against itself; here against integers of any size."""
    whole = np.array([[3, -1], [5, 2], [-4, 6], [1, 1]], dtype=object)
    centred = 4 * whole - whole.sum(0)
    square = int((centred.T @ centred)[0, 1]) ** 2
    norms = [int((centred[:, k] ** 2).sum()) ** 2 for k in (0, 1)]
    want = square / np.sqrt(float(norms[0]) * float(norms[1]))
    x = torch.tensor(whole.astype(np.float64))
    for exponent in (-1074, 1020):
        grid = cka_grid([times_power(x[:, :1], exponent)], [times_power(x[:, 1:], exponent)])
        tolerance.assert_close(grid, [[want]], FLOAT64)
