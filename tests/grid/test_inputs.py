"""The contract of all measures of layers: containers, strides, repetition, threads, blocks."""

import re
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from simcore import neuron_partners, neuronsim_grid
from simcore._grid.inputs import check_finite
from support import tolerance
from support.cases import DTYPES, HALVES, Case, exact, noted, spread_out
from support.distance_table import DISTANCE_ROWS
from support.measure_table import CKAS, FUNCTIONS, HSIC_RBF, MEASURES, NEURONSIM
from support.neighbour_table import NEIGHBOUR_ROWS

ROWS = (*MEASURES, *CKAS, HSIC_RBF, *DISTANCE_ROWS, *NEIGHBOUR_ROWS)
EVERY = pytest.mark.parametrize("measure", ROWS, ids=str)


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def dtypes_of(measure):
    """Both where a row stands for a function of the first table, else the lower precision."""
    return DTYPES if measure in FUNCTIONS or measure in CKAS else DTYPES[:1]


@EVERY
def test_numpy_in_numpy_out_torch_in_torch_out(measure, tmp_path):
    x, y = measure.sides()
    from_torch, arrays = measure(x, y), (exact(x), exact(y))
    assert isinstance(from_torch, torch.Tensor)
    assert from_torch.dtype == torch.float64
    assert isinstance(measure(exact(x), y), torch.Tensor)
    mapped = []
    for index, array in enumerate(arrays[0]):
        np.save(tmp_path / f"{index}.npy", array)
        mapped.append(np.load(tmp_path / f"{index}.npy", mmap_mode="r"))
        array.flags.writeable = False
    for given in (arrays[0], mapped):
        found = measure(given, arrays[1])
        assert isinstance(found, np.ndarray)
        assert (found.dtype, found.shape) == (np.float64, (3, 2))
        np.testing.assert_array_equal(from_torch.numpy(), found)
    reversed_rows = [np.ascontiguousarray(array[::-1])[::-1] for array in arrays[0]]
    measure.assert_like(measure(reversed_rows, arrays[1]), from_torch, x, y, torch.float64)


@EVERY
def test_result_is_float64_and_inputs_are_never_modified(measure):
    for dtype in DTYPES + HALVES:
        x, y = measure.sides(dtype=dtype)
        before = [layer.clone() for layer in x + y]
        for other in (None, y):
            assert measure(x, other).dtype == torch.float64
        assert all(map(torch.equal, x + y, before))


@EVERY
def test_stacked_array_is_a_sequence_of_layers(measure):
    x = measure.layers(Case(150, widths=(9, 9, 9)))
    want = measure(x)
    np.testing.assert_array_equal(measure(torch.stack(x)), want)
    np.testing.assert_array_equal(measure(np.stack(exact(x))), want)
    np.testing.assert_array_equal(measure(tuple(x)), want)
    other = [x[0].clone()]
    np.testing.assert_array_equal(measure(other, torch.stack(x)), measure(other, x))


@EVERY
def test_an_entry_depends_on_its_pair_only(measure):
    for dtype in dtypes_of(measure):
        x, y = measure.sides(dtype=dtype)
        grid, once = measure(x, y), measure(x)

        def same(got, want, left, right, dtype=dtype):
            measure.assert_like(got, want, left, right, dtype)

        same(measure(x[1:], y[:1]), grid[1:, :1], x[1:], y[:1])
        order = [2, 0, 1]
        moved = [x[i] for i in order]
        same(measure(moved, y), grid[order], moved, y)
        same(measure(x[:2], x[1:]), once[:2, 1:], x[:2], x[1:])
        clones = [t.clone() for t in x]
        same(measure(x, clones), once, x, clones)
        if measure.symmetric:
            same(once.T, once, x, x)
            same(measure(y, x).T, grid, x, y)


@EVERY
def test_strides_do_not_matter(measure):
    for dtype in dtypes_of(measure):
        x, y = measure.sides(dtype=dtype)
        want = measure(x, y)
        for way in spread_out(x[0]):
            got = measure(*([spread_out(layer)[way] for layer in side] for side in (x, y)))
            with noted(way):
                measure.assert_like(got, want, x, y, dtype)


@EVERY
def test_repetition_is_bit_equal_and_threads_do_not_matter(measure):
    for dtype in dtypes_of(measure):
        x, y = measure.sides(dtype=dtype)
        for other in (None, y):
            torch.set_num_threads(2)
            first = measure(x, other)
            assert torch.equal(measure(x, other), first)
            for threads in (1, 3):
                torch.set_num_threads(threads)
                measure.assert_like(measure(x, other), first, x, x if other is None else y, dtype)


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
    """The least ``max_memory`` that is accepted, within a factor of two, and the refusal."""
    limit = 2**24
    while True:
        try:
            measure(x, y, max_memory=limit // 2)
        except ValueError as error:
            return limit, str(error)
        limit //= 2


@EVERY
def test_memory_limit_does_not_matter(measure):
    for dtype in dtypes_of(measure):
        x, y = measure.sides(dtype=dtype)
        want = measure(x, y)
        least, refusal = least_memory(measure, x, y)
        assert 2**8 < least < 2**24
        assert re.match("max_memory: wanted .*, got", refusal)
        for limit in (least, 2 * least, 5 * least):
            measure.assert_like(measure(x, y, max_memory=limit), want, x, y, dtype)


@EVERY
def test_progress_and_gradients_change_no_value(measure, capfd):
    x, y = measure.sides()
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
    x, y = NEURONSIM.sides()
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
