"""Multi-scale intrinsic distance (IMD): the shapes of layers, whichever rows belong together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from simcore._grid.inputs import Array, Layers
from simcore._grid.neighbours import check_neighbours
from simcore._grid.one_operator import one_operator
from simcore._grid.options import check_count
from simcore._grid.progress import progress_bar
from simcore._grid.side import Side, Sides, read_sides
from simcore._ops.neighbours import nearest_rows

NEIGHBOURS = 5
TEMPERATURES = np.logspace(-1, 1, 256)
PROBES, STEPS = 100, 10
EXHAUSTED = 1e-10  # a shorter remainder of a Krylov vector is rounding


@one_operator()
def imd_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    seed: int = 0,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the multi-scale intrinsic distance (IMD) of all layer pairs.

    ``max_t exp(-2 (t + 1/t)) |h_X(t) - h_Y(t)|``, where ``h(t) = tr exp(-t L) / n`` is the trace of
    the heat kernel, and L the normalised Laplacian of the layer's symmetrised 5-nearest-neighbour
    graph by Euclidean distance. The value compares the shapes of two clouds of points: it does not
    depend on which rows of two layers belong together.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        Representations as in `cka_grid`, of at least 6 rows.
    seed : int
        Seed of the probes, which are the same for all layers. Global random states are neither read
        nor changed.
    max_memory : int, optional
        Bytes that may be allocated beyond the inputs; default a quarter of the free memory. The
        Krylov vectors of one layer take about 15 kB for each row.
    progress : bool
        Show a progress bar on stderr.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        A distance: 0 for a layer with itself, at most ``exp(-4)``. numpy if all inputs are numpy,
        else a torch tensor. ``nan``, with one warning, for a layer whose rows are all equal. Not
        differentiable.

    Raises
    ------
    TypeError, ValueError
        As `cka_grid`; fewer than 6 rows; a seed that is no integer from 0.

    Notes
    -----
    Traces are estimates by stochastic Lanczos quadrature: 100 probes, 10 steps, with the exact
    trace of L as a control variate; 256 temperatures spaced evenly in the logarithm from .1 to 10.
    Each layer is estimated once. Over ten seeds, a value of n = 1,000 had a standard deviation of
    3e-6. The published code draws new probes in each call; its later version multiplies the result
    by 1e6.

    References
    ----------
    Tsitsulin et al. 2020, *The shape of data*, sections 3 and 4.

    Examples
    --------
    >>> import torch
    >>> from simcore import imd_grid
    >>> x = torch.randn(2, 100, 8)
    >>> imd_grid(x).diagonal()
    tensor([0., 0.], dtype=torch.float64)
    """
    generator = np.random.default_rng(check_count(seed, "seed", 0))
    sides = read_sides(X, Y, "neighbours", max_memory=max_memory)
    check_neighbours(sides.x.layers[0], "X[0]", NEIGHBOURS)
    with progress_bar("imd_grid", progress) as report:
        lists = [_lists(side, sides) for side in (sides.x, sides.y) if side.layers]
        probes = torch.from_numpy(generator.standard_normal((sides.n, PROBES))).to(sides.device)
        every = [index for side in lists for index in side]
        systems = []
        for done, index in enumerate(every, 1):
            systems.append(_tridiagonal(_Laplacian(index), probes))
            report(done / len(every))
    t = torch.from_numpy(TEMPERATURES).to(sides.device)
    traces = _heat_traces(torch.stack(systems), t)
    undefined = torch.stack([index[0, 0] < 0 for index in every])
    traces = traces.masked_fill(undefined[:, None], torch.nan)
    count = len(sides.x)
    x = traces[:count]
    y = x if sides.same else traces[count:]
    weights = torch.exp(-2 * (t + 1 / t))
    grid = torch.stack([((row - y).abs() * weights).amax(1) for row in x])
    of_y = undefined if sides.same else undefined[count:]
    return sides.finish(grid, "imd_grid", undefined[:count], of_y)


def _lists(side: Side, sides: Sides) -> Tensor:
    """Return the neighbours of the layers of a side, ``[L, n, 5]``."""
    n, layers = sides.n, len(sides.x) + len(sides.y)
    krylov = 8 * n * (STEPS + 8) * PROBES + 200 * n * NEIGHBOURS
    taken = krylov + layers * n * (12 * NEIGHBOURS + 8)
    if taken >= sides.bound:
        raise ValueError(
            f"max_memory: wanted at least {taken + 1} bytes for the Krylov vectors of a layer, got "
            f"{sides.bound}"
        )
    bound = sides.bound - taken
    return nearest_rows(side.layers, NEIGHBOURS, "euclidean", bound, side.name, False)[0]


def _heat_traces(tridiagonal: Tensor, t: Tensor) -> Tensor:
    """Return ``tr exp(-t L) / n`` of layers, ``[L, temperatures]``, from `_tridiagonal` of each."""
    values, weights = _quadrature(tridiagonal)
    # Near 1, where most eigenvalues are, exp(-t x) is exp(-t) (1 + t - t x), whose trace is known.
    linear = (values * weights).sum(-1).mean(-1)
    traces = []
    for of_layer, of_weights, slope in zip(values, weights, linear, strict=True):
        exponential = (torch.exp(-t[:, None, None] * of_layer) * of_weights).sum(-1).mean(-1)
        traces.append(exponential + torch.exp(-t) * t * (slope - 1))
    return torch.stack(traces)


class _Laplacian:
    """The normalised Laplacian of a symmetrised graph, as a function of vectors ``[n, count]``.

    The graph joins two rows if one of them is a neighbour of the other: with A the directed graph,
    it is ``A + A'`` less the edges that are in both. Nothing waits for the device, and no sum
    depends on the order of its threads.
    """

    def __init__(self, index: Tensor) -> None:
        self.index = index.long().clamp(min=0)  # -1: no neighbours
        rows = torch.arange(len(index), device=index.device)
        mutual = (self.index[self.index] == rows[:, None, None]).any(2)
        self.alone = (~mutual).double()  # 1 for neighbours of which the row is no neighbour
        ones = torch.ones((len(index), 1), dtype=torch.float64, device=index.device)
        self.scale = self._adjacent(ones).rsqrt()

    def __call__(self, vectors: Tensor) -> Tensor:
        return vectors - self.scale * self._adjacent(self.scale * vectors)

    def _adjacent(self, vectors: Tensor) -> Tensor:
        image = torch.zeros_like(vectors)
        for numbers, alone in zip(self.index.T, self.alone.T, strict=True):
            if vectors.device.type == "cpu":
                image.index_add_(0, numbers, vectors)
            else:  # on a CUDA device index_add_ adds in any order
                image.index_put_((numbers,), vectors, accumulate=True)
            image.addcmul_(vectors[numbers], alone[:, None])
        return image


def _tridiagonal(matrix: Callable[[Tensor], Tensor], probes: Tensor) -> Tensor:
    """Return the matrix in Krylov bases of the probes by Lanczos, ``[probes, steps, steps]``.

    All vectors of a probe are orthogonalised against each other.
    """
    n, count = probes.shape
    steps = min(STEPS, n)
    basis = probes.new_zeros(steps, n, count)
    tridiagonal = probes.new_zeros(count, steps, steps)
    vector = probes / torch.linalg.vector_norm(probes, dim=0)
    for i in range(steps):
        basis[i] = vector
        image = matrix(vector)
        tridiagonal[:, i, i] = (image * vector).sum(0)
        if i + 1 == steps:
            break
        for _ in range(2):  # the second time takes off what rounding left
            image = image - torch.einsum(
                "inc,ic->nc", basis[: i + 1], torch.einsum("inc,nc->ic", basis[: i + 1], image)
            )
        length = torch.linalg.vector_norm(image, dim=0)
        length = torch.where(length > EXHAUSTED, length, 0.0)
        tridiagonal[:, i, i + 1] = tridiagonal[:, i + 1, i] = length
        vector = torch.where(length > 0, image / length, 0.0)
    return tridiagonal


def _quadrature(tridiagonal: Tensor) -> tuple[Tensor, Tensor]:
    """Return Gauss nodes and weights ``[..., steps]``; the weights of a probe sum to 1."""
    values, vectors = torch.linalg.eigh(tridiagonal)
    return values, vectors[..., 0, :].square()
