"""The contract of all measures beside CKA: containers, strides, repetition, threads, blocks."""

import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from simcore import neuron_partners, neuronsim_grid
from simcore._grid.inputs import check_finite
from support import tolerance
from support.cases import DTYPES, HALVES, Case, exact, noted, spread_out
from support.measure_table import FUNCTIONS, MEASURES, NEURONSIM

CASE = Case(150, 10.0, widths=(20, 7, 33))
SQUARE = Case(150, widths=(9, 9, 9))


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def sides(measure, dtype=torch.float64):
    return measure.layers(CASE, dtype), measure.layers(Case(150, widths=(12, 5)), dtype, seed=1)


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_numpy_in_numpy_out_torch_in_torch_out(measure):
    x, y = sides(measure)
    from_torch, from_numpy = measure(x, y), measure(exact(x), exact(y))
    assert isinstance(from_torch, torch.Tensor)
    assert isinstance(from_numpy, np.ndarray)
    assert from_numpy.dtype == np.float64
    assert from_numpy.shape == (3, 2)
    np.testing.assert_array_equal(from_torch.numpy(), from_numpy)
    assert isinstance(measure(exact(x), y), torch.Tensor)


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_result_is_float64_and_inputs_are_never_modified(measure):
    for dtype in DTYPES + HALVES:
        x, y = sides(measure, dtype)
        before = [layer.clone() for layer in x + y]
        for other in (None, y):
            assert measure(x, other).dtype == torch.float64
        assert all(map(torch.equal, x + y, before))


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_stacked_array_is_a_sequence_of_layers(measure):
    x = measure.layers(SQUARE)
    want = measure(x)
    np.testing.assert_array_equal(measure(torch.stack(x)), want)
    np.testing.assert_array_equal(measure(np.stack(exact(x))), want)
    np.testing.assert_array_equal(measure(tuple(x)), want)
    np.testing.assert_array_equal(measure(x[:1], torch.stack(x)), measure(x[:1], x))


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_an_entry_depends_on_its_pair_only(measure):
    for dtype in DTYPES:
        x, y = sides(measure, dtype)
        grid, once = measure(x, y), measure(x)
        tolerance.assert_measure(measure(x[1:], y[:1]), grid[1:, :1], dtype)
        order = [2, 0, 1]
        tolerance.assert_measure(measure([x[i] for i in order], y), grid[order], dtype)
        tolerance.assert_measure(measure(x[:2], x[1:]), once[:2, 1:], dtype)
        tolerance.assert_measure(measure(x, [t.clone() for t in x]), once, dtype)
        if measure.symmetric:
            tolerance.assert_measure(once.T, once, dtype)


@pytest.mark.parametrize("measure", FUNCTIONS, ids=str)
def test_strides_do_not_matter(measure):
    for dtype in DTYPES:
        x, y = sides(measure, dtype)
        want = measure(x, y)
        for way in spread_out(x[0]):
            got = measure(*([spread_out(layer)[way] for layer in side] for side in (x, y)))
            with noted(way):
                tolerance.assert_measure(got, want, dtype)


@pytest.mark.parametrize("measure", FUNCTIONS, ids=str)
def test_read_only_memory_mapped_and_reversed_arrays(measure, tmp_path):
    x = exact(measure.layers(CASE))
    want = measure(x)
    mapped = []
    for index, array in enumerate(x):
        np.save(tmp_path / f"{index}.npy", array)
        mapped.append(np.load(tmp_path / f"{index}.npy", mmap_mode="r"))
        array.flags.writeable = False
    np.testing.assert_array_equal(measure(x), want)
    np.testing.assert_array_equal(measure(mapped), want)
    reversed_rows = [np.ascontiguousarray(array[::-1])[::-1] for array in x]
    tolerance.assert_measure(measure(reversed_rows), want, torch.float64)


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_repetition_is_bit_equal_and_threads_do_not_matter(measure):
    for dtype in DTYPES:
        x, y = sides(measure, dtype)
        for other in (None, y):
            torch.set_num_threads(2)
            first = measure(x, other)
            assert torch.equal(measure(x, other), first)
            for threads in (1, 3):
                torch.set_num_threads(threads)
                tolerance.assert_measure(measure(x, other), first, dtype)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_partners_do_not_depend_on_threads(threads):
    """Whole columns of equal correlations: the first partner has to win every time."""
    x = NEURONSIM.layers(Case(60, widths=(40,)), torch.float32)[0]
    tied = x.repeat(1, 8)
    torch.set_num_threads(threads)
    _, best, partner = neuron_partners([x, x[:, :3]], [tied])
    np.testing.assert_array_equal(partner[0].flatten(), np.arange(40))
    np.testing.assert_array_equal(partner[1].flatten(), np.arange(3))
    tolerance.assert_measure(best[0], np.ones((40, 1)), torch.float32)


def least_memory(measure, x, y):
    """The least ``max_memory`` that is accepted, within a factor of two."""
    limit = 2**30
    while True:
        try:
            measure(x, y, max_memory=limit // 2)
        except ValueError:
            return limit
        limit //= 2


@pytest.mark.parametrize("measure", FUNCTIONS, ids=str)
def test_memory_limit_does_not_matter(measure):
    for dtype in DTYPES:
        x, y = sides(measure, dtype)
        want = measure(x, y)
        least = least_memory(measure, x, y)
        assert 2**10 < least < 2**24
        for limit in (least, 2 * least, 5 * least):
            tolerance.assert_measure(measure(x, y, max_memory=limit), want, dtype)


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_progress_and_gradients_change_no_value(measure, capfd):
    x, y = sides(measure)
    want = measure(x, y)
    assert capfd.readouterr() == ("", "")
    np.testing.assert_array_equal(measure(x, y, progress=True), want)
    shown = capfd.readouterr()
    assert measure.function in shown.err
    assert "100%" in shown.err
    assert not shown.out
    followed = [layer.clone().requires_grad_() for layer in x]
    with nullcontext() if measure.differentiable else pytest.warns(match="requires a gradient"):
        got = measure(followed, y)
    assert got.requires_grad == measure.differentiable
    np.testing.assert_array_equal(got.detach(), want)


def test_numpy_partners():
    x, y = sides(NEURONSIM)
    grid, best, partner = neuron_partners(exact(x), exact(y))
    assert {type(value) for value in (grid, *best, *partner)} == {np.ndarray}
    assert [values.shape for values in best] == [(20, 2), (7, 2), (33, 2)]
    assert [values.shape for values in partner] == [(20, 2), (7, 2), (33, 2)]
    np.testing.assert_array_equal(grid, neuronsim_grid(x, y))


@pytest.mark.parametrize("dtype", DTYPES + HALVES, ids=str)
def test_the_largest_entries_are_finite_and_their_sum_is_not(dtype):
    x = torch.full((9, 5), torch.finfo(dtype).max, dtype=dtype)
    check_finite([x, -x], "X")
    x[3, 2] = -torch.inf
    with pytest.raises(ValueError, match=r"^X\[1\]: wanted finite values, got 1 NaN .* of 45$"):
        check_finite([-x.nan_to_num(), x], "X")
