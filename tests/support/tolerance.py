"""The one tolerance of the suite: how far a result may be from the float64 twin.

float64 is held to a relative 1e-10. The bound of a lower precision is twice the error of a
naive implementation in that dtype, run on the same values.
All differences are taken in the maximum norm over a grid, so that an entry near zero (an unbiased
HSIC of independent layers) is measured against the scale of the grid it came from.
"""

from __future__ import annotations

import numpy as np
import torch

FLOAT64_RELATIVE = 1e-10
NAIVE_FACTOR = 2
EPS_FACTOR = 16
# Independent of any naive implementation: the promise to users for CKA in float32, and for all
# other measures, whose values lie in [-1, 1] too.
FLOAT32_CKA_ABSOLUTE = 1e-5
# The promise for similarities of attention, which lie in [-1, 1] or near it.
FLOAT32_ATTENTION_ABSOLUTE = 1e-6
FLOAT32_MEASURE_ABSOLUTE = 1e-5
# PWCCA where correlations are small and close: float32 bases mix the directions, and the weights.
FLOAT32_CLOSE_CORRELATIONS = 1e-4
# Inputs whose smallest direction is CONDITION times smaller than the largest cost that many digits.
CONDITION = 1e5
# The condition of layers drawn with an outlier dimension, squared as in Grams and products.
DRAWN_CONDITION = 1e3
# The least change where a measure must not be invariant.
CHANGE = 1e-3
# The differences that tests/oracle/README.md states: double precision, an epsilon in one
# implementation of CCA, another median in the RBF kernel, means in float32, an epsilon in CKNNA.
ORACLE = 1e-8
ORACLE_GOOGLE = 1e-6
ORACLE_MEDIAN = 1e-5
ORACLE_FLOAT32_MEAN = 1e-7
ORACLE_CKNNA = 1e-6  # its denominator adds 1e-6 to numbers above 1
# At n > 4096 the median of the RBF kernel may come from a sample of 10^6 pairs or more. The pairs
# share 10^3 rows, so its relative standard error is near 1 / sqrt(10^3).
SAMPLED_MEDIAN = 0.05
# Statistics: random checks with fixed seeds accept what happens with this probability; estimates
# may be so many standard errors off (there are some hundred of them).
TEST_LEVEL = 0.999
STANDARD_ERRORS = 5
# A Pearson type III tail beside the permutation distribution it approximates, where p > 0.01.
PEARSON3_TAIL = 0.03
GAMMA_TAIL = 1e-8  # two libraries' incomplete gamma functions
FLOAT32_MOMENTS = 1e-3  # relative, of standard deviation and skewness
# Nuclear norms of float32 matrices by products alone.
POLAR_RELATIVE = 2e-6
# The promise for the other measures of float32 layers of ordinary scale.
FLOAT32_MEASURE = 1e-4
# A float32 layer compared with itself, where the measure says 1.
FLOAT32_SELF = 1e-5
# Rows of word-level attention, float32 sums of a softmax over sub-words, still sum to 1.
ATTENTION_ROW_SUM = 1e-5
# Two float32 forward passes of one model, in units of the largest magnitude of what is compared.
# Another batch size, padding, number of threads or instruction set sums every product in another
# order, in every layer anew, and no two kinds of processor agree on it. The worst seen by the suite
# is 2.5e-6; the bound leaves room for processors that it has not met. A wrong token, mask or layer
# moves the largest entries by 1e-2 and more.
FORWARD_RELATIVE = 2e-5
# Weights of a head after dozens of float32 steps, beside those of a head that was trained alone.
HEAD_TRAINING = 1e-3
# Aligners: maps of ordinary scale, solved in float64 or applied in float32.
FLOAT64_LINEAR_MAP = 1e-8
FLOAT32_LINEAR_MAP = 1e-4
# The least difference between two maps that count as different.
ALIGNED = 1e-3
# The synthetic check of the invertible network (Ren et al. 2023, section 4.3).
SYNTHETIC_LINEAR_RELATIVE = 0.3
SYNTHETIC_RATIO = 10

# Invertible networks: the promise for inverse(forward(x)), in units of x.
INVERSE_ABSOLUTE = {torch.float32: 1e-5, torch.float64: 1e-10}
# Maps trained side by side and one by one in float64: other matrix products, some steps of Adam,
# which divides by gradients that may be small.
TRAINED_TOGETHER = 1e-8
# Gradients from recomputed activations, relative: rounding errors grow over a few layers back.
RECOMPUTED = {torch.float32: 1e-4, torch.float64: 1e-12}
# The norm of the difference, relative, where perceptrons run in bfloat16: some of their inputs
# round to the other side. All of them in float32 instead would differ by 2e-3.
RECOMPUTED_BFLOAT16 = 5e-4


def as_float64(values) -> np.ndarray:
    """Return a tensor or array of any floating dtype as a float64 numpy array."""
    if isinstance(values, torch.Tensor):
        values = values.detach().to(device="cpu", dtype=torch.float64).numpy()
    return np.asarray(values, dtype=np.float64)


def max_error(result, reference) -> float:
    """Return the largest absolute difference; ``nan`` must stand in the same places in both."""
    result, reference = as_float64(result), as_float64(reference)
    if result.shape != reference.shape:
        raise AssertionError(f"shape: wanted {reference.shape}, got {result.shape}")
    missing = np.isnan(reference)
    if not np.array_equal(np.isnan(result), missing):
        raise AssertionError(f"nan in other places:\nwanted\n{reference}\ngot\n{result}")
    return float(np.max(np.abs(result - reference), where=~missing, initial=0.0))


def allowed(reference, dtype: torch.dtype, naive=None) -> float:
    """Return the largest `max_error` that a result in ``dtype`` may have.

    Parameters
    ----------
    reference : array
        Result of the float64 twin for the same input values.
    dtype : torch.dtype
        The dtype of the inputs.
    naive : array, optional
        Result of a naive implementation in ``dtype``; needed below float64.
    """
    scale = float(
        np.max(np.abs(as_float64(reference)), where=~np.isnan(as_float64(reference)), initial=0.0)
    )
    if dtype == torch.float64:
        return FLOAT64_RELATIVE * scale
    if naive is None:
        raise TypeError(f"a result in {dtype} is judged beside a naive one in {dtype}: none given")
    return NAIVE_FACTOR * max_error(naive, reference) + EPS_FACTOR * torch.finfo(dtype).eps * scale


def assert_close(result, reference, dtype: torch.dtype, naive=None) -> None:
    """Fail when ``result`` is further from ``reference`` than `allowed`."""
    error, bound = max_error(result, reference), allowed(reference, dtype, naive)
    assert error <= bound, f"max error {error:.3g} > allowed {bound:.3g} ({dtype})"


def assert_float32_cka(result, reference) -> None:
    """Fail when a CKA of float32 inputs breaks the absolute promise."""
    error = max_error(result, reference)
    assert error <= FLOAT32_CKA_ABSOLUTE, f"max error {error:.3g} > {FLOAT32_CKA_ABSOLUTE}"


def assert_attention(result, reference, dtype: torch.dtype) -> None:
    """Fail when similarities of attention break float64's tolerance or float32's promise."""
    if dtype == torch.float64:
        return assert_close(result, reference, dtype)
    error = max_error(result, reference)
    assert error <= FLOAT32_ATTENTION_ABSOLUTE, f"{error:.3g} > {FLOAT32_ATTENTION_ABSOLUTE}"
    return None


def assert_measure(result, reference, dtype: torch.dtype, *, condition: float = 1.0) -> None:
    """Fail when a similarity in [-1, 1] is further from the twin's than promised for ``dtype``.

    float64 is allowed its relative bound ``condition`` times.
    """
    if dtype == torch.float64:
        error, bound = max_error(result, reference), condition * allowed(reference, dtype)
    else:
        error, bound = max_error(result, reference), FLOAT32_MEASURE_ABSOLUTE
    assert error <= bound, f"max error {error:.3g} > {bound:.3g} ({dtype})"


def assert_same(result, other, dtype: torch.dtype) -> None:
    """Fail when two results of the same inputs differ by more than rounding in ``dtype``.

    For runs that differ in chunk size, threads, strides or path only: no naive run is asked for.
    """
    relative = max(FLOAT64_RELATIVE, EPS_FACTOR * torch.finfo(dtype).eps)
    other = as_float64(other)
    scale = float(np.max(np.abs(other), where=~np.isnan(other), initial=0.0))
    error = max_error(result, other)
    assert error <= relative * scale, f"max difference {error:.3g} > {relative * scale:.3g}"


def assert_inverse(result, x, dtype: torch.dtype) -> None:
    """Fail when undoing a map gives something else than promised for ``dtype``."""
    error = max_error(result, x)
    assert error <= INVERSE_ABSOLUTE[dtype], f"{error:.3g} > {INVERSE_ABSOLUTE[dtype]}"


def assert_same_forward(result, other) -> None:
    """Fail when two float32 forward passes differ by more than the order of their sums."""
    _assert_relative(result, other, FORWARD_RELATIVE)


def _assert_relative(result, other, bound: float) -> None:
    error, scale = max_error(result, other), float(np.abs(as_float64(other)).max())
    assert error <= bound * scale, f"max difference {error:.3g} > {bound * scale:.3g}"


def assert_trained_together(result, other) -> None:
    """Fail when a map of a batch differs from the same map trained alone."""
    _assert_relative(result, other, TRAINED_TOGETHER)


def assert_recomputed(result, other, dtype: torch.dtype) -> None:
    """Fail when gradients that recompute activations differ from those that keep them."""
    _assert_relative(result, other, RECOMPUTED[dtype])


# Heat traces that 100 probes estimate at n = 200: five standard deviations over seeds.
HEAT_ESTIMATE = 5 * 2.5e-5

# Distances are compared in units of what they are differences of (`Other.units`).
OTHER_UNITS = {torch.float32: 1e-6, torch.float64: 1e-12}
SMALL_ANGLE = 1e-8  # the arccosine of a float64 near 1


def assert_other(measure, result, reference, x, y, dtype: torch.dtype, condition=1.0) -> None:
    """Fail when a row of `distance_table.DISTANCE_ROWS` is further from its twin than promised.

    ``x`` and ``y`` are the exact values of the layers; ``condition`` is as in `assert_measure`.
    """
    result, reference = as_float64(result), as_float64(reference)
    units = measure.units(x, x if y is None else y)
    error = max_error(measure.compared(result) / units, measure.compared(reference) / units)
    bound = condition * OTHER_UNITS[dtype]
    assert error <= bound, f"{measure}: {error:.3g} > {bound:.3g} ({dtype})"
