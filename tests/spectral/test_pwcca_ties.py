"""Layers whose equal correlations leave PWCCA's weights to rounding, and what is said of them."""

import re
import warnings

import pytest
import torch

from numerics.distributions import DISTRIBUTIONS
from simcore import bases, pwcca_grid
from simcore._grid.accuracy import watch
from simcore._ops.spectral_batched import OPERATORS
from support import tolerance
from support.cases import DTYPES, Case, layers

N = 30
TIED = re.compile(
    r"pwcca_grid: (\d+) of (\d+) pairs .* k_x \+ k_y > n = 30 components.* at least (\d+) rows"
)


def drawn(*widths, dtype=torch.float64, seed=0):
    return layers(Case(N, 10.0, widths=widths), dtype, seed=seed)


def messages_of(*arguments, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pwcca_grid(*arguments, **options)
    return [str(warning.message) for warning in caught]


def ties_of(*arguments, **options):
    """(pairs, of how many, rows that are enough) of the one warning there is; None: no warning."""
    messages = messages_of(*arguments, **options)
    if not messages:
        return None
    (message,) = messages
    return tuple(map(int, TIED.match(message).groups()))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pairs_are_counted_once_and_the_rows_that_are_enough_named(dtype):
    # Sums of two widths: 30, 31, 43, 31, 43, 44; a layer with itself does not count.
    x = drawn(15, 15, 16, 28, dtype=dtype)
    assert ties_of(x) == (5, 6, 45)
    assert ties_of(x[:2]) is None


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_two_sides_count_every_pair(dtype):
    x, y = drawn(15, 15, 16, dtype=dtype), drawn(3, 15, 20, dtype=dtype, seed=1)
    assert ties_of(x, y) == (4, 9, 37)
    assert ties_of(y, x) == (4, 9, 37)
    assert ties_of(bases(x), y) == (4, 9, 37)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layers_in_one_another_do_not_count(dtype):
    x = drawn(20, dtype=dtype)
    x.append(x[0][:, :17] @ torch.diag(torch.linspace(1, 2, 17, dtype=dtype)))
    assert ties_of(x) is None
    assert ties_of(x, x) is None


def test_a_layer_that_fills_the_space_has_a_warning_of_its_own():
    (message,) = messages_of(drawn(29, 40, 16, 14))
    assert "n - 1 independent columns" in message
    saturated, tied = messages_of(drawn(29, 16, 15))
    assert "n - 1 independent columns" in saturated
    assert TIED.match(tied).groups() == ("1", "3", "32")


def test_what_a_truncation_leaves_counts():
    x = drawn(20, 20, 20)
    assert ties_of(x) == (3, 3, 41)
    assert ties_of(x, truncation=15) is None
    assert ties_of(x, truncation=[15, 15, 16]) == (2, 3, 32)


def test_the_rows_that_are_enough_are_enough_for_a_share_of_the_variance():
    x = torch.randn(1000, 160, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    first, second = x[:, :80], x[:, 80:]
    _, _, rows = ties_of([first[:N]], [second[:N]], truncation=0.9)
    assert rows == 161
    assert ties_of([first[:rows]], [second[:rows]], truncation=0.9) is None


def test_a_layer_without_variance_ties_with_none():
    (message,) = messages_of([*drawn(20), torch.ones(N, 20, dtype=torch.float64)])
    assert "no variance" in message


def test_the_warning_points_at_the_caller():
    with pytest.warns(UserWarning, match="correlations of 1 tie") as warned:
        pwcca_grid(drawn(20, 20))
    assert [warning.filename for warning in warned] == [__file__]


def turned(layer, seed):
    """The same columns' space and, but for rounding, the same measure."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(layer.shape[1], layer.shape[1], generator=generator, dtype=layer.dtype)
    return layer @ torch.linalg.qr(matrix)[0]


def values_of_tied_directions(x, y):
    """Return how many correlations are 1, and the values of PWCCA for turned directions of two.

    Any rotation of directions with equal correlations is a solution too. Which of them a computer
    finds is decided by its rounding, so that the values are those of angles instead.
    """
    x, y = (layer - layer.mean(0) for layer in (x, y))
    basis_x, basis_y = (torch.linalg.qr(layer)[0] for layer in (x, y))
    left, rho, _ = torch.linalg.svd(basis_x.T @ basis_y, full_matrices=False)
    values = []
    for angle in torch.linspace(0, torch.pi / 2, 9, dtype=x.dtype):
        sine, cosine = angle.sin(), angle.cos()
        turned_left = left.clone()
        turned_left[:, :2] = left[:, :2] @ torch.stack([cosine, -sine, sine, cosine]).view(2, 2)
        weights = (turned_left.T @ basis_x.T @ x).abs().sum(1)
        values.append(float((weights * rho).sum() / weights.sum()))
    return int((rho > 1 - tolerance.FLOAT64_RELATIVE).sum()), values


@pytest.mark.filterwarnings("ignore:pwcca_grid")
@pytest.mark.parametrize("widths", [(15, 14), (15, 15)])
def test_one_shared_dimension_leaves_values_determined(widths):
    """One correlation of 1 ties with none."""
    x, y = drawn(*widths)
    grids = [pwcca_grid([x], [turned(y, seed)]) for seed in range(5)]
    for grid in grids:
        tolerance.assert_measure(grid, grids[0], torch.float64)
    assert values_of_tied_directions(x, y)[0] == sum(widths) - (N - 1)
    assert ties_of([x], [y]) is None


def test_two_shared_dimensions_do_not():
    x, y = drawn(16, 15)
    ones, values = values_of_tied_directions(x, y)
    assert ones == 2
    assert max(values) - min(values) > tolerance.CHANGE / 10
    with pytest.warns(UserWarning, match="correlations of 1 tie"):
        value = float(pwcca_grid([x], [y]))
    # Between the angles that were tried the value may lie a little beyond both of them.
    assert min(values) - tolerance.CHANGE < value < max(values) + tolerance.CHANGE


EQUAL = r"^pwcca_grid: 1 of 1 pairs .* equal up to .* about \de-0[2-5] for X\[0\] and Y\[0\]$"


def both(name, dtype=torch.float32):
    return [torch.from_numpy(layer).to(dtype) for layer in DISTRIBUTIONS[name].layers()]


def some_columns_in_common(dtype):
    x = torch.randn(300, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    turn = torch.linalg.qr(x[:40, :40])[0]
    return [x[:, :40].to(dtype), (x[:, 20:] @ turn).to(dtype)]


@pytest.mark.parametrize("options", [{}, {"top_k": 0.8}], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_columns_in_common_and_rows_that_repeat_are_warned_of(dtype, options):
    for x, y in (some_columns_in_common(torch.float64), both("zipf", dtype)):
        (message,) = messages_of([x.to(dtype)], [y], **options)
        assert re.match(EQUAL, message), message
        assert "k_x + k_y" not in message


@pytest.mark.parametrize("options", [{}, {"top_k": 0.8}, {"truncation": [32, 32]}], ids=str)
def test_correlations_that_float32_does_not_tell_apart_are_computed_in_float64(options):
    x, y = both("collapsed_near")
    want = pwcca_grid([x.double()], [y.double()], **options)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    with watch() as again:
        assert messages_of([x], [y], **options) == []
        for rows in (slice(None), order):
            tolerance.assert_measure(pwcca_grid([x[rows]], [y[rows]], **options), want, x.dtype)
        grid = pwcca_grid([x, y], **options)
    pairs = ["X[0], Y[0]"] * 3 + ["X[0], X[1]", "X[1], X[0]"]
    assert again == [f"pwcca_grid: {pair}" for pair in pairs]
    tolerance.assert_measure(grid[0, 1], want[0, 0], x.dtype)


def test_bases_are_warned_of_because_they_cannot_be_computed_again():
    (message,) = messages_of(*(bases([layer]) for layer in both("collapsed_near")))
    assert re.match(EQUAL, message)


@pytest.mark.parametrize("n, p", [(300, 32), (1000, 64), (1600, 384)])
def test_layers_without_ties_are_neither_warned_of_nor_computed_again(n, p):
    x, y = torch.randn(2, n, p, generator=torch.Generator().manual_seed(0))
    with watch() as again:
        assert messages_of([x, y, x + 0.7 * y]) == []
    assert again == []


@pytest.mark.parametrize("name", ["integers", "massive_5000_alike", "sink_100000", "student_1"])
def test_both_forms_of_the_operator_estimate_one_error(name):
    made = [bases([layer])[0] for layer in both(name)]
    u = [basis.vectors for basis in made]
    weighted = [b.singular_values.float()[:, None] * b.components for b in made]
    for y in ([], u):
        want, got = (
            op(u, weighted, y, 0)[1] for op in (torch.ops.simcore.pwcca, OPERATORS["pwcca"])
        )
        assert want[0, 1] > tolerance.FLOAT32_MEASURE_ABSOLUTE / 20
        for i, j in ((0, 1), (1, 0)):
            torch.testing.assert_close(got[i, j], want[i, j], rtol=0.2, atol=0)
