"""The tolerance has to let rounding pass and nothing else."""

import numpy as np
import pytest
import torch

from support import tolerance

REFERENCE = np.array([[1.0, 0.5], [0.5, 1.0]])


def shifted(by):
    return REFERENCE + np.array([[0.0, by], [0.0, 0.0]])


@pytest.mark.parametrize(("by", "passes"), [(0.0, True), (0.9e-10, True), (1.1e-10, False)])
def test_float64_is_held_to_a_relative_bound(by, passes):
    if passes:
        tolerance.assert_close(shifted(by), REFERENCE, torch.float64)
    else:
        with pytest.raises(AssertionError, match="max error"):
            tolerance.assert_close(shifted(by), REFERENCE, torch.float64)


def test_float64_bound_follows_the_scale():
    tolerance.assert_close(1e6 * shifted(0.9e-10), 1e6 * REFERENCE, torch.float64)
    with pytest.raises(AssertionError):
        tolerance.assert_close(1e-6 * REFERENCE + 1e-12, 1e-6 * REFERENCE, torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_lower_precision_may_be_twice_as_bad_as_naive(dtype):
    naive = shifted(0.01)
    tolerance.assert_close(shifted(0.02), REFERENCE, dtype, naive)
    with pytest.raises(AssertionError):
        tolerance.assert_close(
            shifted(0.021 + 16 * torch.finfo(dtype).eps), REFERENCE, dtype, naive
        )


def test_a_perfect_naive_leaves_sixteen_eps():
    eps = torch.finfo(torch.float32).eps
    tolerance.assert_close(shifted(15 * eps), REFERENCE, torch.float32, REFERENCE)
    with pytest.raises(AssertionError):
        tolerance.assert_close(shifted(17 * eps), REFERENCE, torch.float32, REFERENCE)


def test_lower_precision_without_naive_is_a_mistake_in_the_test():
    with pytest.raises(TypeError, match="none given"):
        tolerance.assert_close(REFERENCE, REFERENCE, torch.float32)


def test_nan_has_to_stand_in_the_same_places():
    holes = REFERENCE.copy()
    holes[0, 1] = np.nan
    assert tolerance.max_error(holes, holes) == 0.0
    for result, reference in [(holes, REFERENCE), (REFERENCE, holes)]:
        with pytest.raises(AssertionError, match="nan in other places"):
            tolerance.max_error(result, reference)


def test_nan_in_the_naive_result_does_not_widen_the_bound():
    with pytest.raises(AssertionError, match="nan in other places"):
        tolerance.allowed(REFERENCE, torch.float32, REFERENCE * np.nan)


def test_infinity_never_passes():
    with pytest.raises(AssertionError):
        tolerance.assert_close(shifted(np.inf), REFERENCE, torch.float64)


def test_shapes_have_to_agree():
    with pytest.raises(AssertionError, match="shape"):
        tolerance.max_error(REFERENCE[:1], REFERENCE)


def test_tensors_of_any_dtype_are_read():
    grid = torch.tensor(REFERENCE, dtype=torch.bfloat16, requires_grad=True)
    assert tolerance.max_error(grid, REFERENCE) == 0.0


def test_float32_promise_is_absolute():
    tolerance.assert_float32_cka(shifted(0.9e-5), REFERENCE)
    with pytest.raises(AssertionError):
        tolerance.assert_float32_cka(shifted(1.1e-5), REFERENCE)


@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float16, 1e-5), (torch.float32, 1e-5), (torch.float64, 1e-10)]
)
def test_promise_for_the_other_measures(dtype, bound):
    tolerance.assert_measure(shifted(0.9 * bound), REFERENCE, dtype)
    with pytest.raises(AssertionError, match="max error"):
        tolerance.assert_measure(shifted(1.1 * bound), REFERENCE, dtype)


def test_a_condition_widens_the_float64_promise_only():
    tolerance.assert_measure(shifted(0.9e-7), REFERENCE, torch.float64, condition=1e3)
    for dtype, by in ((torch.float64, 1.1e-7), (torch.float32, 1.1e-5)):
        with pytest.raises(AssertionError):
            tolerance.assert_measure(shifted(by), REFERENCE, dtype, condition=1e3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_same_allows_rounding_only(dtype):
    unit = max(torch.finfo(dtype).eps * 16, 1e-10)
    tolerance.assert_same(shifted(0.9 * unit), REFERENCE, dtype)
    with pytest.raises(AssertionError):
        tolerance.assert_same(shifted(1.1 * unit), REFERENCE, dtype)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_forward_passes_are_compared_at_the_scale_of_their_values(scale):
    states = scale * np.array([[5.0, -0.001], [0.3, 0.0]])
    tolerance.assert_same_forward(states + 0.9e-4 * scale, states)
    with pytest.raises(AssertionError, match="max difference"):
        tolerance.assert_same_forward(states + 1.1e-4 * scale, states)
