"""Gram matrices of many layers, formed once, held in memory and used by every draw."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from simcore._grid.accuracy import FLOAT64_BANDWIDTH
from simcore._grid.inputs import Layers, centred, check_finite, on_host
from simcore._grid.memory import memory_bound
from simcore._grid.options import check_choice, refuse_unknown_options
from simcore._grid.scale import in_range, resolved
from simcore._hsic import HsicOptions
from simcore._measures import MEASURES
from simcore._ops.declared import is_composed
from simcore._ops.hsic import median_squared_distances
from simcore._ops.hsic_batched import SLAB_BYTES
from simcore.cka import Form, cka_grid

BLOCK_ROWS = 128  # rows of a Gram matrix that are worked on at a time
# The values of an entry for all layers lie side by side, padded to a multiple of the register size.
LAYER_MULTIPLE = 8
LARGEST_REGISTER = 16  # float32 entries with AVX-512
# A row is far out if its squared distance from the centre is so many times the median.
FAR = 16.0
RESULT_COPIES = 8  # arrays of the size of the result [draws, Lx, Ly] that its normalisation takes


def near_centre(x: Tensor) -> Tensor:
    """Return the mean ``[p]`` of the rows of a centred layer ``[n, p]`` that are not far out.

    One row far out moves the mean away from all others. Products of rows about that mean hold the
    square of the shift, which float32 rounds, and the estimators subtract it again.
    """
    lengths = x.square().sum(1)  # [n]
    distances, centre = lengths, torch.zeros_like(x[0])
    for _ in range(2):  # the first mean is moved by rows that are farther still
        near = (distances <= FAR * distances.median()).to(x.dtype)  # [n]
        centre = near @ x / near.sum()  # [p]
        distances = lengths - 2 * (x @ centre) + centre @ centre
    return centre


class GramsTooLargeError(ValueError):
    """The Gram matrices of a few layers do not fit into `max_memory`."""


class CkaMeasure:
    """The options of CKA, and the layers of which Gram matrices are formed.

    The layers ``x`` and ``y`` are ``[n, p_i]``, and y is empty where Y is None. Gram matrices are
    float64 if one layer is float64, or the RBF kernel is nearly constant, else float32.
    """

    known = MEASURES["cka"]

    def __init__(
        self,
        X: Layers,
        Y: Layers | None,
        options: dict[str, Any],
        max_memory: int | None,
        # Hands on keywords of its call as options, for the message about another.
        caller: Callable[..., Any] | None = None,
    ) -> None:
        known = ("kernel", "estimator", "bandwidth", "form")
        refuse_unknown_options("cka", known, options, caller)
        given = dict(options)
        form = check_choice(given.pop("form", "similarity"), "form", Form)
        if form == "angular":  # draws of angles go through the grid
            raise ValueError("form: wanted 'similarity' for method 'moments', got 'angular'")
        self._given = functools.partial(cka_grid, X, Y, max_memory=max_memory, **options)
        checked = HsicOptions(function="cka_grid", **given, max_memory=max_memory)
        self.kernel, self.estimator = checked.kernel, checked.estimator
        self.bandwidth, self.terms = checked.bandwidth, checked.terms
        sides = checked.read(X, Y)
        self.n, self.from_numpy, self.selves = sides.n, sides.from_numpy, sides.selves()
        layers, left = [t.detach() for t in sides.layers], sides.max_memory
        if self.kernel == "rbf":
            resolution = resolved(layers, self.bandwidth)
            layers, left = resolution.layers, resolution.workspace(left)
        scaled = in_range(layers)  # CKA does not depend on the scale of a layer
        layers, left = scaled.layers, scaled.workspace(left)
        self.x, self.y = layers[: len(sides.x)], layers[len(sides.x) :]
        self.max_memory = left
        wide = self.kernel == "rbf" and self.bandwidth >= FLOAT64_BANDWIDTH
        double = wide or any(t.dtype == torch.float64 for t in layers)
        self.dtype = torch.float64 if double else torch.float32
        if self.kernel == "rbf":
            if wide:  # a copy at a time
                found = [median_squared_distances([layer.double()], []) for layer in layers]
            else:
                found = [median_squared_distances(self.x, self.y)]
            (self.medians,) = on_host([torch.cat(found)])

    @property
    def device(self) -> torch.device:
        """The device of the layers."""
        return self.x[0].device

    @property
    def columns(self) -> list[Tensor]:
        """The layers of the grid's columns."""
        return self.y or self.x

    @property
    def first_column(self) -> int:
        """The number of the first layer of the columns, counted over x, then y."""
        return len(self.x) if self.y else 0

    def observed(self) -> Tensor:
        """Return the value of `cka_grid` for the layers as they came."""
        with torch.no_grad():
            return torch.as_tensor(self._given())

    def features(
        self, layer: Tensor, scale: Tensor | None = None, *, near: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return centred columns ``[n, p]`` divided by ``scale``, in the dtype of Gram matrices.

        A float64 layer stays float64. The second value is ``scale``. Its default is the largest
        centred entry, which keeps squares of Gram entries in range; CKA does not depend on it.
        With ``near`` the centre is `near_centre`.
        """
        x = centred(layer)
        if near:
            x -= near_centre(x)
        if scale is None:
            largest = x.abs().max()  # []
            scale = torch.where(largest > 0, largest, 1.0)
        x /= scale
        return x.to(torch.promote_types(self.dtype, layer.dtype)), scale

    def gram(self, layer: Tensor, index: int) -> Tensor:
        """Return the uncentred Gram matrix ``[n, n]`` of centred features; nan if it has no width.

        ``index`` is the number of the layer, counted over x, then y. The value of the RBF kernel at
        the median distance is subtracted from the kernel: no estimator depends on this constant,
        and float32 then keeps the digits of differences.
        """
        if self.kernel == "linear":
            x, _ = self.features(layer, near=True)
            return x @ x.T
        median = self.medians[index]  # []
        if not median > 0:
            return layer.new_full((self.n, self.n), torch.nan, dtype=self.dtype)
        # Distances in units of the median are in range for any scale of the features.
        x, _ = self.features(layer, median.sqrt())
        lengths = x.double().square().sum(1).to(self.dtype)  # [n]
        k = x @ x.T  # [n, n]
        k.mul_(-2).add_(lengths[:, None]).add_(lengths).clamp_(min=0).fill_diagonal_(0)
        shift = torch.tensor(-0.5 / self.bandwidth**2, dtype=torch.float64).exp()
        return k.mul_(-0.5 / self.bandwidth**2).exp_().sub_(shift.to(self.dtype))

    def centred_gram(self, layer: Tensor, index: int) -> Tensor:
        """Return ``H K H`` (biased) or the U-centred K (unbiased), ``[n, n]``.

        HSIC is the inner product of two such matrices, up to a factor, and stays so if the rows and
        columns of one are reordered (U-centring: Szekely and Rizzo 2014, *Partial distance
        correlation*, definition 2).
        """
        if (self.kernel, self.estimator) == ("linear", "biased"):
            x, _ = self.features(layer)
            return x @ x.T  # centred, because its features are
        k = self.gram(layer, index)
        n = self.n
        if self.estimator == "biased":
            rows = k.mean(1, dtype=torch.float64)  # [n]
            offset = rows - rows.mean() / 2
        else:
            k.fill_diagonal_(0)
            rows = k.sum(1, dtype=torch.float64) / (n - 2)  # [n]
            offset = rows - rows.sum() / (2 * (n - 1))
        k -= offset.to(self.dtype)[:, None]
        k -= offset.to(self.dtype)
        return k.fill_diagonal_(0) if self.estimator == "unbiased" else k


class GramStore:
    """Gram matrices of some layers as one tensor ``[n, n, layers]``.

    Those of ``grams`` beyond ``count`` are zero. For the unbiased estimator their diagonals are
    zero: the fourth power of a row far out would hide all other entries in a sum. ``diagonals``
    ``[n, count]`` are of the Gram matrices, and ``norms`` ``[count]`` are ``sum_ij K_ij^2`` of
    ``grams``.
    """

    def __init__(self, measure: CkaMeasure, size: int, *, centred: bool) -> None:
        self.measure = measure
        self.form = measure.centred_gram if centred else measure.gram
        shape = (measure.n, measure.n, padded(size))
        self.grams = torch.empty(shape, dtype=measure.dtype, device=measure.device)
        self.norms = torch.empty(0, dtype=torch.float64, device=measure.device)
        self.diagonals = torch.empty(measure.n, 0, dtype=torch.float64, device=measure.device)

    @property
    def count(self) -> int:
        """The number of layers held."""
        return len(self.norms)

    def load(self, layers: list[Tensor], first: int) -> None:
        """Replace the layers held; ``first`` is the number of the first one over x, then y."""
        norms = torch.zeros(len(layers), dtype=torch.float64, device=self.grams.device)  # [layers]
        self.diagonals = norms.new_empty(self.measure.n, len(layers))  # [n, layers]
        self.grams[:, :, len(layers) :] = 0
        for place, layer in enumerate(layers):
            k = self.form(layer, first + place)  # [n, n]
            self.diagonals[:, place] = k.diagonal()
            if self.measure.estimator == "unbiased":
                k.fill_diagonal_(0)
            self.grams[:, :, place] = k
            for row in range(0, len(k), BLOCK_ROWS):
                norms[place] += k[row : row + BLOCK_ROWS].square().sum(dtype=torch.float64)
        self.norms = norms


def padded(count: int) -> int:
    """Return ``count`` rounded up to a multiple of `LAYER_MULTIPLE`."""
    return -(-count // LAYER_MULTIPLE) * LAYER_MULTIPLE


def blocks_of_stores(
    measure: CkaMeasure, *, centred: bool, extra: Callable[[int], int], advice: str
) -> Iterator[tuple[slice, slice, GramStore, GramStore]]:
    """Yield the blocks of the grid whose Gram matrices fit into memory at the same time.

    There is one block if all Gram matrices fit. Otherwise the columns' are formed once, and the
    rows' anew for every block of columns. A block is its rows, its columns, and the Gram matrices
    of both, which are valid until the next block; the caller takes ``extra(size)`` bytes beside
    them for blocks of ``size`` layers.
    """
    count_x, count_y = len(measure.x), len(measure.columns)
    size = _block_size(measure, extra, advice)
    check_finite(measure.x, "X")
    check_finite(measure.y, "Y")
    y = GramStore(measure, min(size, count_y), centred=centred)
    if not measure.y and size >= count_x:
        y.load(measure.x, 0)
        yield slice(0, count_x), slice(0, count_x), y, y
        return
    x = GramStore(measure, min(size, count_x), centred=centred)
    for j in range(0, count_y, size):
        columns = slice(j, min(j + size, count_y))
        y.load(measure.columns[columns], measure.first_column + j)
        for i in range(0, count_x, size):
            rows = slice(i, min(i + size, count_x))
            x.load(measure.x[rows], i)
            yield rows, columns, x, y


def _block_size(measure: CkaMeasure, extra: Callable[[int], int], advice: str) -> int:
    n, item = measure.n, measure.dtype.itemsize
    widest = max(layer.shape[1] for layer in measure.x + measure.y)
    # Bytes beside the stores: a layer in float64, twice, and in the dtype of Gram matrices; one
    # Gram matrix; a block of its rows.
    fixed = n * widest * (16 + item) + n * n * item + BLOCK_ROWS * n * (item + 8)
    limit = memory_bound(measure.max_memory, measure.x[0])
    count_x, count_y = len(measure.x), len(measure.columns)

    def needed(size: int) -> int:
        size_x, size_y = padded(min(size, count_x)), padded(min(size, count_y))
        shared = not measure.y and size >= count_x
        grams = (size_y if shared else size_x + size_y) * n * n * item
        # Bytes of permuted_gram_products: sums of 64 slabs for a batch of draws of 12 registers.
        columns = max(size_y + LARGEST_REGISTER, 12 * LARGEST_REGISTER)
        products = 64 * (size_x + LARGEST_REGISTER) * columns * 8
        if is_composed(measure.device):  # reordered entries, weighted, and their products
            row = (n + size_x) * size_y * item
            products = 3 * max(row, min(SLAB_BYTES, n * row))
        return fixed + grams + products + extra(size)

    size = padded(max(count_x, count_y))
    while size > LAYER_MULTIPLE and needed(size) > limit:
        size -= LAYER_MULTIPLE
    if needed(size) > limit:
        raise GramsTooLargeError(
            f"max_memory: wanted at least {needed(size)} bytes to hold Gram matrices of n = {n} "
            f"rows, got {limit}; {advice}"
        )
    return size
