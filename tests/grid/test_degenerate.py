"""Ordinary inputs that are no textbook's: constant, duplicated, few, enormous or tiny."""

import re

import numpy as np
import pytest
import torch

from simcore import neuron_partners
from support import tolerance
from support.cases import DTYPES, Case, exact, noted
from support.measure_table import (
    CCA,
    CCA_R2,
    LINREG,
    MEASURES,
    MIXEDSIM,
    NEURONSIM,
    PROCRUSTES,
    PWCCA,
    RSA,
    RSA_SPEARMAN,
    SVCCA_COUNT,
    SVCCA_STANDARDIZED,
)

CASE = Case(129, 10.0, widths=(7, 5, 20, 9))


def constant(layer, value):
    """Constant over the rows; columns differ."""
    return torch.full_like(layer, value) + torch.arange(layer.shape[1], dtype=layer.dtype)


def check_undefined(got, warned, want_rows, want_columns, names):
    """``nan`` in these rows and columns only, and one warning that names these layers."""
    undefined = np.zeros(got.shape, dtype=bool)
    undefined[want_rows], undefined[:, want_columns] = True, True
    np.testing.assert_array_equal(got.isnan(), undefined)
    assert len(warned) == 1
    assert re.findall(r"[XY]\[\d+\]", str(warned[0].message)) == names
    assert warned[0].filename.endswith("measure_table.py"), (
        "points into the package, not at the caller"
    )


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_a_layer_without_variance_is_nan_and_leaves_the_others_alone(measure):
    for dtype in DTYPES:
        x = measure.layers(CASE, dtype)
        others = measure([x[0], *x[2:]])
        for value in (0.0, 0.1, -1000.3):
            whole = measure.any_translation
            x[1] = constant(x[1], value) if whole else torch.full_like(x[1], value)
            with pytest.warns(UserWarning, match="no variance") as warned:
                got = measure(x)
            check_undefined(got, warned, [1], [1], ["X[1]"])
            keep = [0, 2, 3]
            with noted(dtype, value):
                tolerance.assert_measure(got[keep][:, keep], others, dtype)


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_the_warning_names_the_side(measure):
    x, y = measure.layers(CASE), measure.layers(CASE, seed=1)
    nothing = torch.full((129, 6), 0.1, dtype=torch.float64)
    for left, right, rows, columns, names in (
        (x, [y[0], nothing], [], [1], ["Y[1]"]),
        ([nothing, *x], y, [0], [], ["X[0]"]),
        (x, [nothing], [], [0], ["Y[0]"]),
        ([nothing], y, [0], [], ["X[0]"]),
        ([nothing, x[0]], [y[0], nothing], [0], [1], ["X[0]", "Y[1]"]),
        ([nothing], [nothing], [0], [0], ["X[0]", "Y[0]"]),
        ([nothing], None, [0], [0], ["X[0]"]),
    ):
        with pytest.warns(UserWarning, match="no variance") as warned:
            got = measure(left, right)
        check_undefined(got, warned, rows, columns, names)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("measure", [m for m in MEASURES if m.any_translation], ids=str)
def test_constant_neurons_change_nothing(measure, dtype):
    x = measure.layers(CASE, dtype)
    padded = [
        torch.cat([constant(layer[:, :2], -1000.3), layer], dim=1) if i in (1, 3) else layer
        for i, layer in enumerate(x)
    ]
    if measure in (NEURONSIM, MIXEDSIM):
        with pytest.warns(UserWarning, match=r"2 of X\[1\], 2 of X\[3\]") as warned:
            got = measure(padded)
        assert len(warned) == 1
        assert warned[0].filename.endswith("measure_table.py")
    else:
        got = measure(padded)
    tolerance.assert_measure(got, measure(x), dtype)
    tolerance.assert_measure(measure(x, padded), measure(x, x), dtype)


def test_partner_of_a_constant_neuron():
    x = NEURONSIM.layers(CASE)
    x[0][:, 3] = 0.1
    with pytest.warns(UserWarning, match=r"1 of X\[0\]"):
        _, best, partner = neuron_partners(x)
    assert best[0][3].isnan().all()
    assert partner[0][3].tolist() == [-1] * 4
    assert not bool((partner[1][:, 0] == 3).any())


@pytest.mark.parametrize("measure", [CCA, CCA_R2, PWCCA], ids=str)
def test_as_many_columns_as_rows_are_warned_about_once(measure):
    x = measure.layers(Case(30, 10.0, widths=(29, 40, 64)))
    with pytest.warns(UserWarning, match="n = 30 rows") as warned:
        got = measure(x)
    assert len(warned) == 1
    assert warned[0].filename.endswith("measure_table.py")
    tolerance.assert_measure(got, np.ones((3, 3)), torch.float64)
    with pytest.warns(UserWarning, match="n = 30 rows") as warned:
        measure(measure.layers(Case(30, widths=(5,))), x)
    assert len(warned) == 1


@pytest.mark.parametrize("measure", [CCA, CCA_R2, PWCCA], ids=str)
@pytest.mark.filterwarnings("error")
def test_truncated_or_narrow_layers_are_not_warned_about(measure):
    x = measure.layers(Case(30, 10.0, widths=(28, 40)))
    assert measure(x[:1]).shape == (1, 1)
    assert measure(x, truncation=12).shape == (2, 2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_duplicated_columns(measure, dtype):
    x = measure.layers(CASE, dtype)
    doubled = [torch.cat([layer, layer[:, :3], -4 * layer[:, :1]], dim=1) for layer in x]
    pairs = [(doubled, None), (x, doubled)]
    if measure.function == "pwcca_grid" and "truncation" in measure.options:
        pairs.pop()  # cut in different ways, spaces of the same layer intersect: undetermined
    for left, right in pairs:
        tolerance.assert_measure(measure(left, right), measure.twin(left, right), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_nearly_duplicated_columns(measure, dtype):
    """Above the rule of rank, by far less than the other columns."""
    x = measure.layers(Case(129, widths=(7, 9, 20)), dtype)
    noise = measure.layers(Case(129, widths=(3,)), dtype, seed=5)[0]
    x[0] = torch.cat([x[0], x[0][:, :3] + noise[:, :3] / tolerance.CONDITION], dim=1)
    for other in (None, x[1:]):
        want = measure.twin(x, other)
        got = measure(x, other)
        tolerance.assert_measure(got, want, dtype, condition=tolerance.CONDITION)


def rank_one(width, dtype, seed):
    """Of whole numbers, so that the rank is one exactly; its rows are not all parallel."""
    generator = np.random.default_rng(seed)
    a, b = generator.integers(-9, 9, (129, 1)), generator.integers(-9, 9, (1, width))
    return torch.from_numpy(a * b + generator.integers(-9, 9, (1, width))).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("measure", [m for m in MEASURES if m is not RSA_SPEARMAN], ids=str)
def test_layers_of_rank_one(measure, dtype):
    x = [rank_one(6, dtype, 0), *measure.layers(CASE, dtype)[:2], rank_one(8, dtype, 1)]
    for other in (None, x[2:]):
        tolerance.assert_measure(measure(x, other), measure.twin(x, other), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("measure", [m for m in MEASURES if m.any_translation], ids=str)
def test_layers_in_which_one_row_differs(measure, dtype):
    x = measure.layers(CASE, dtype)
    single = constant(x[2], 0.1)
    single[77] += torch.arange(1.0, 21.0, dtype=dtype)
    x[1] = single
    for left, right in ((x, None), (x, [single, x[0]])):
        tolerance.assert_measure(measure(left, right), measure.twin(left, right), dtype)


@pytest.mark.parametrize("measure", [RSA, RSA_SPEARMAN], ids=str)
def test_rows_without_variance_leave_rsa_undefined(measure):
    x = measure.layers(CASE)
    x[2][77] = 0.1
    with pytest.warns(UserWarning, match="no variance") as warned:
        got = measure(x)
    check_undefined(got, warned, [2], [2], ["X[2]"])


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        (torch.float32, 1e-30),
        (torch.float32, 1e30),
        (torch.float64, 1e200),
        (torch.float64, 1e-200),
    ],
    ids=str,
)
@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_extreme_scales(measure, dtype, scale):
    x = measure.layers(Case(129, widths=(7, 5, 130)), dtype)
    if measure is PWCCA:
        x.pop()  # wider than n: its correlations are all 1 and warned about
    if measure in (CCA, CCA_R2):
        x[2] = x[2][:, :100]
    y = measure.layers(Case(129, widths=(12, 5)), dtype, seed=1)
    want, cross = measure.twin(x), measure.twin(x, y)
    scaled = [layer * scale for layer in x]
    tolerance.assert_measure(measure(scaled), want, dtype)
    tolerance.assert_measure(measure(scaled, y), cross, dtype)
    if measure.symmetric:
        tolerance.assert_measure(measure(y, scaled), cross.T, dtype)


@pytest.mark.parametrize("measure", [CCA, LINREG, MIXEDSIM, NEURONSIM, PROCRUSTES], ids=str)
def test_a_constant_neuron_hides_no_tiny_variance(measure):
    x = measure.layers(Case(129, widths=(7, 5)))
    want = measure.twin(x)
    tiny = [torch.cat([layer * 1e-200, torch.ones(129, 1)], 1) for layer in x]
    tolerance.assert_measure(measure(tiny), want, torch.float64)


def test_standardised_columns_beyond_the_range_of_float32():
    x = [
        layer * 1e-20
        for layer in SVCCA_STANDARDIZED.layers(Case(129, widths=(7, 5)), torch.float32)
    ]
    want = SVCCA_STANDARDIZED(x)
    for factor in (1e20, 1e21):
        x[0][:, 0] *= factor
    tolerance.assert_measure(SVCCA_STANDARDIZED(x), want, torch.float32)


@pytest.mark.parametrize("measure", [LINREG, MIXEDSIM], ids=str)
def test_layers_that_explain_everything_are_warned_of(measure):
    x = measure.layers(Case(33, widths=(40, 5)))
    with pytest.warns(UserWarning, match=r"n = 33 rows.* of X\[0\]: they explain everything"):
        got = measure(x)
    assert torch.allclose(got[:, 0], torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("measure", [LINREG, MIXEDSIM, NEURONSIM, SVCCA_COUNT], ids=str)
def test_layers_of_very_different_scales_in_one_grid(measure, dtype):
    x = measure.layers(CASE, dtype)
    scaled = [layer * 10.0 ** (20 * i - 30) for i, layer in enumerate(x)]
    tolerance.assert_measure(measure(scaled), measure.twin(x), dtype)
    assert exact(scaled)[0].max() < exact(scaled)[3].max()
