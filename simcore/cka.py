"""Centred kernel alignment (CKA) and HSIC of all layer pairs."""

from typing import Literal

import torch

import simcore._C as _C
from simcore._extension import PURE
from simcore._grid.finish import as_given
from simcore._grid.inputs import Array, Layers, check_on_cpu
from simcore._grid.matrices import Gram
from simcore._grid.one_operator import is_traced
from simcore._grid.options import check_choice, checked_keywords
from simcore._grid.progress import progress_bar
from simcore._hsic import (
    Estimator,
    HsicOptions,
    Kernel,
    Method,
    Neurons,
    Precision,
    cka,
    hsic_terms,
)
from simcore._ops.hsic_plan import plan_hsic
from simcore._ops.sampled_neurons import check_widths

Form = Literal["similarity", "angular"]


@checked_keywords
def hsic_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    kernel: Kernel = "linear",
    estimator: Estimator = "biased",
    bandwidth: float = 1.0,
    method: Method = "auto",
    precision: Precision = "highest",
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the Hilbert-Schmidt independence criterion (HSIC) of all layer pairs.

    Parameters, errors and costs are as for `cka_grid`; the values are not normalised.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        ``tr(K H L H) / (n-1)^2`` (biased) or the estimator of Song et al. (unbiased). A layer
        without variance has HSIC 0 for the linear kernel. For the RBF kernel it has ``nan``: its
        median distance, the unit of the bandwidth, is 0.

    Raises
    ------
    ValueError
        Also for an HSIC beyond the range of float64 (linear kernel: features of about 1e77).

    References
    ----------
    Phang et al. 2021, appendix A; Song et al. 2012, *Feature selection via dependence
    maximization*, equation 5.
    """
    options = HsicOptions(
        function="hsic_grid",
        kernel=kernel,
        estimator=estimator,
        bandwidth=bandwidth,
        method=method,
        precision=precision,
        max_memory=max_memory,
    )
    sides = options.read(X, Y, Gram)
    with progress_bar("hsic_grid", progress):
        grid = hsic_terms(sides, options, scaled=False).checked()
    return as_given(grid.to(sides.device), sides.from_numpy)


@checked_keywords
def cka_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    kernel: Kernel = "linear",
    estimator: Estimator = "biased",
    bandwidth: float = 1.0,
    neurons: Neurons = "all",
    form: Form = "similarity",
    method: Method = "auto",
    precision: Precision = "highest",
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the centred kernel alignment (CKA) of all layer pairs.

    ``CKA(x, y) = HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L))`` with the Gram matrices K of x and L of
    y. Features are centred before any product, the work that depends on one layer alone is done
    once per layer, and no n x n matrix is ever held.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        Representations of the same n examples in the same order; widths may differ. torch tensors
        or numpy arrays of float16, bfloat16, float32 or float64: if one layer is float64, all are
        computed in float64, else in float32. Arrays may have any strides, be read-only or
        memory-mapped, and are never modified. ``Y=None`` compares X with itself at half the cost.
        A layer may be a `Gram`, a kernel matrix of the same examples: all are then compared in
        float64, and the Gram matrices of all layers are held.
    kernel : {"linear", "rbf"}
        ``rbf``: ``exp(-d^2 / (2 s^2))`` with ``s = bandwidth * median``, ``median^2`` being the
        median of the squared distances over all ordered pairs of rows, the diagonal included. If n
        > 4096, the median is taken over every m-th row, m = ceil(n / 4096). Distances are computed
        from row lengths and dot products: everything is computed in float64 where rows are so much
        longer than the median distance that float32 would lose it (an outlier moved the mean away
        from all others), and with a bandwidth of 8 or more, where the kernel is nearly constant.
    estimator : {"biased", "unbiased"}
        ``biased`` needs n >= 2, ``unbiased`` n >= 4. Unbiased CKA can be negative.
    bandwidth : float
        RBF bandwidth, a multiple of each layer's median distance. A width in the units of the
        features is that of a kernel matrix, which a `Gram` takes.
    neurons : {"all", "sampled", "paired"}
        ``all``: the layers are all there is. The others estimate CKA of the populations of which
        the neurons are a sample, with the linear kernel and ``estimator="unbiased"``; layers have
        at least two columns. ``sampled``: the neurons of every layer were drawn apart. ``paired``:
        column a of all layers is the same neuron, as before and after a training, so that all have
        one width. An estimate may lie above 1; a layer and itself are 1. The gradient holds float64
        copies of all layers.
    form : {"similarity", "angular"}
        ``similarity`` is CKA. ``angular`` is ``arccos CKA`` in radians, a distance: 0 for a layer
        with itself, with a gradient of 0 there. It has no estimates for ``neurons``.
    method : {"auto", "gram", "feature"}
        ``gram`` contracts tiles of Gram matrices, ``feature`` (linear kernel only) products of
        features; ``auto`` chooses the method with fewer floating-point operations. See `plan_cka`.
        On a CUDA device ``auto`` takes ``gram`` below 1e11 flops of Gram matrices.
    precision : {"highest", "high", "medium"}
        As in `torch.set_float32_matmul_precision`. On a CUDA device, a float32 operand of a product
        is a pair of float16 numbers (up to 22 bits, fewer for entries that are small beside the
        root mean square of their layer) at ``highest`` and ``high``, and one (up to 11 bits) at
        ``medium``; an RBF kernel whose distances need more bits is computed in float32 without
        them. The CPU and ``method="feature"`` always compute at ``highest``; float64 layers
        are always computed in float64.
    max_memory : int, optional
        Bytes that may be allocated beyond the inputs; default a quarter of the free memory
        (`free_memory`). The backward pass obeys the same bound, apart from the gradients, which are
        its result, and for the RBF kernel four float64 copies of a layer; if not even its smallest
        blocks fit, it uses these. Second derivatives,
        forward-mode differentiation and the transforms of `torch.func` are not bounded: they hold
        centred copies of all layers.
    progress : bool
        Show a progress bar on stderr.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        numpy if all inputs are numpy, else a torch tensor on the inputs' device. ``nan`` in the
        row and column of a layer whose self-HSIC is not positive (no variance), with one warning.
        Values do not pass 1 by rounding, except estimates for ``neurons``. float32 layers are
        computed in float64 where float32 would lose the value (unbiased CKA with a few rows far
        from the others), the angle, or the gradient (layers with a CKA near 1); not in a program of
        `torch.compile`, whose decisions cannot rest on values.
        Differentiable in X and Y: for the linear kernel twice, in reverse and in forward mode; for
        the RBF kernel once, in reverse mode, computed in float64, and through the median too, which
        is the distance of one pair of rows or of two.
        float64 features may have any size; in a program of `torch.compile`, features above 1e70 or
        below 1e-70 give ``nan``.

    Raises
    ------
    TypeError
        A layer is no array, or its dtype is not floating point.
    ValueError
        Different n, too few rows, no layers or columns, mixed devices, NaN or infinite entries (the
        message gives layer and count), an unknown option, or a `max_memory` below what the smallest
        tiles take.

    See Also
    --------
    plan_cka : the method, tiles and cost of a call.
    MinibatchCKA : CKA from batches, without holding all rows.

    References
    ----------
    Kornblith et al. 2019; Phang et al. 2021, appendix A; unbiased: Song et al. 2012, equation 5,
    Nguyen et al. 2021; sampled neurons: Chun et al. 2025.

    Examples
    --------
    >>> import torch
    >>> from simcore import cka_grid
    >>> layers = torch.randn(13, 200, 64)
    >>> grid = cka_grid(layers)
    >>> grid.shape, bool(grid.diagonal().eq(1).all())
    (torch.Size([13, 13]), True)
    """
    options = HsicOptions(
        function="cka_grid",
        kernel=kernel,
        estimator=estimator,
        bandwidth=bandwidth,
        neurons=neurons,
        method=method,
        precision=precision,
        max_memory=max_memory,
    )
    angular = check_choice(form, "form", Form) == "angular"
    if angular and neurons != "all":
        raise ValueError(f"form: wanted 'similarity' for neurons={neurons!r}, got 'angular'")
    sides = options.read(X, Y, Gram)
    if neurons != "all":
        check_widths(sides, neurons)
    with progress_bar("cka_grid", progress):
        grid = cka(sides, options, angular)
    sides.warn_of_two_rows()
    if (angular or neurons != "all") and (sides.same or not is_traced(grid)):
        grid = sides.with_selves(grid, 0.0 if angular else 1.0)
    return as_given(grid.to(sides.device), sides.from_numpy)


def plan_cka(
    X: Layers,
    Y: Layers | None = None,
    *,
    kernel: Kernel = "linear",
    estimator: Estimator = "biased",
    bandwidth: float = 1.0,
    method: Method = "auto",
    precision: Precision = "highest",
    max_memory: int | None = None,
    progress: bool = False,
) -> "_C.Plan":
    """Plan a call of `cka_grid` with the same arguments, without running it.

    The memory of ``neurons``, which is no argument here, comes on top of the plan's.

    Returns
    -------
    Plan
        ``method`` ("gram" or "feature"), ``tile`` (rows, columns), ``flops`` of that method,
        ``flops_gram`` and ``flops_feature`` of the two methods, ``workspace_bytes`` (the most that
        is allocated beyond the inputs) and ``max_memory``, with the default resolved.

    Raises
    ------
    TypeError, ValueError
        As `cka_grid`, except that the entries of the layers are not checked.

    Examples
    --------
    >>> import numpy as np
    >>> from simcore import plan_cka
    >>> plan_cka(np.zeros((2, 5000, 8), dtype=np.float32)).method
    'feature'
    """
    options = HsicOptions(
        function="plan_cka",
        kernel=kernel,
        estimator=estimator,
        bandwidth=bandwidth,
        method=method,
        precision=precision,
        max_memory=max_memory,
    )
    sides = options.read(X, Y)
    check_on_cpu(sides.x.layers[0], "X[0]", "a plan")
    plan = plan_hsic if PURE else _C.plan_hsic
    return plan(
        n=sides.n,
        widths_x=[t.shape[1] for t in sides.x.layers],
        widths_y=[t.shape[1] for t in sides.y.layers],
        kernel=options.kernel,
        bandwidth=options.bandwidth,
        method=options.method,
        float64=any(t.dtype == torch.float64 for t in sides.layers),
        max_memory=sides.max_memory,
    )
