"""Multi-scale intrinsic distance (IMD): the shapes of layers, whichever rows belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simcore._grid.accuracy import warn_tied_neighbours
from simcore._grid.finish import as_given, masked, warn_caller
from simcore._grid.inputs import Array, Layers
from simcore._grid.memory import require_memory
from simcore._grid.one_operator import Estimate, as_estimate, empty_estimate, one_operator
from simcore._grid.options import check_count
from simcore._grid.progress import progress_bar
from simcore._grid.side import Side, Sides, read_sides
from simcore._neighbour_lists import check_neighbours
from simcore._ops.eigh import eigh
from simcore._ops.neighbours import nearest_with_ties

NEIGHBOURS = 5
TEMPERATURES = np.logspace(-1, 1, 256)
EXACT_ROWS = 2000  # up to here all eigenvalues of a graph take less than a second
PROBES, STEPS = 100, 10
EXHAUSTED = 1e-10  # a shorter remainder of a Krylov vector is rounding


@one_operator()
def imd_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    probes: int | None = None,
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
        Representations as in `cka_grid`, of at least 6 rows. With fewer than 12, where a row is
        joined to half of all others or more, graphs differ little, and a warning says so.
    probes : int, optional
        Number of random vectors that estimate the traces, at least 2. By default traces are exact,
        from all eigenvalues, up to 2,000 rows; above, 100 probes estimate them.
    seed : int
        Seed of the probes, which are the same for all layers; exact traces ignore it. Global random
        states are neither read nor changed.
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`. All eigenvalues of a layer take 32
        n^2 bytes, its Krylov vectors about 15 kB for each row.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        A distance: 0 for a layer with itself, at most ``exp(-4)``. numpy if all inputs are numpy,
        else a torch tensor. Not differentiable. ``nan``, with one warning, for a layer whose rows
        are all equal, and for all layers of 6 rows, whose graphs join every row to every other.

    Raises
    ------
    TypeError, ValueError
        As `cka_grid`; fewer than 6 rows; a seed that is no integer from 0; fewer than 2 probes.

    Notes
    -----
    Estimates are made by stochastic Lanczos quadrature of 10 steps, with the exact trace of L as a
    control variate; there are 256 temperatures, spaced evenly in the logarithm from .1 to 10. The
    maximum over temperatures of a noisy difference is larger in the mean than the exact value: a
    value below a few standard errors (`imd_estimate`) says nothing. The published code draws new
    probes in each call; its later version multiplies the result by 1e6.

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
    return _imd("imd_grid", X, Y, probes, seed, max_memory, progress)[0]


@one_operator(empty_estimate, as_estimate)
def imd_estimate(
    X: Layers,
    Y: Layers | None = None,
    *,
    probes: int | None = None,
    seed: int = 0,
    max_memory: int | None = None,
    progress: bool = False,
) -> Estimate:
    """Compute `imd_grid` and the standard errors of its values.

    Parameters and errors are as for `imd_grid`.

    Returns
    -------
    values, errors : arrays ``[len(X), len(Y)]``, float64
        A named tuple: the grid, and the standard error over probes of the difference of the
        traces, at the temperature of the maximum; 0 where traces are exact.

    Examples
    --------
    >>> import torch
    >>> from simcore import imd_estimate
    >>> x = torch.randn(2, 100, 8)
    >>> bool(imd_estimate(x, probes=100).errors[0, 1] > 0)
    True
    """
    values, errors = _imd("imd_estimate", X, Y, probes, seed, max_memory, progress)
    return Estimate(values, errors())


def _imd(
    function: str,
    X: Layers,
    Y: Layers | None,
    probes: int | None,
    seed: int,
    max_memory: int | None,
    progress: bool,
) -> tuple[Array, Callable[[], Array]]:
    """Return the values, and a function that computes their errors."""
    check_count(seed, "seed", 0)
    if probes is not None:
        check_count(probes, "probes", 2)
    sides = read_sides(X, Y, "neighbours", max_memory=max_memory)
    check_neighbours(sides.x.layers[0], "X[0]", NEIGHBOURS)
    if probes is None and sides.n > EXACT_ROWS:
        probes = PROBES
    with progress_bar(function, progress) as report:
        lists = [_lists(side, sides, probes) for side in (sides.x, sides.y) if side.layers]
        every = [index for of_side, _ in lists for index in of_side]
        laplacians = [_Laplacian(index) for index in every]
        if probes is None:
            spectra = _exact(laplacians, sides.bound, report)
        else:
            spectra = _estimates(laplacians, probes, seed, report)
    ties = [share for _, of_side in lists for share in of_side]
    warn_tied_neighbours(function, [*zip(sides.labels, ties, strict=True)])
    undefined, why = _undefined(function, every)
    of_x, of_y = undefined[: len(sides.x)], undefined[sides.columns]
    t = torch.from_numpy(TEMPERATURES).to(sides.device)
    weights = torch.exp(-2 * (t + 1 / t))
    traces = torch.stack([spectrum.heat_trace(t) for spectrum in spectra])
    traces = traces.masked_fill(undefined[:, None], torch.nan)  # [layers, temperatures]
    x, y = traces[: len(sides.x)], traces[sides.columns]
    largest = [((row - y).abs() * weights).max(1) for row in x]
    values, places = map(torch.stack, zip(*largest, strict=True))  # [Lx, Ly]
    grid = sides.finish(values, function, of_x, of_y, why)

    def errors() -> Array:
        every = [
            [_error(a, b, t[at]) for b, at in zip(spectra[sides.columns], row, strict=True)]
            for a, row in zip(spectra[: len(sides.x)], places, strict=True)
        ]
        grid = weights[places] * torch.stack([torch.stack(row) for row in every])
        return as_given(masked(grid, of_x, of_y), sides.from_numpy)

    return grid, errors


def _undefined(function: str, every: list[Tensor]) -> tuple[Tensor, str]:
    """Return which layers have no value, and why; warn of so few rows that all graphs are alike."""
    n, undefined = len(every[0]), torch.stack([index[0, 0] < 0 for index in every])
    if n == NEIGHBOURS + 1:
        return undefined | True, f"of {n} rows, each is a neighbour of all"
    if n <= 2 * NEIGHBOURS + 1:
        warn_caller(
            f"{function}: {NEIGHBOURS} neighbours of {n} rows are half of all other rows or "
            "more, so that the graphs differ little, whatever the layers are; it needs more rows"
        )
    return undefined, "no variance"


def _lists(side: Side, sides: Sides, probes: int | None) -> tuple[Tensor, Tensor]:
    """Return the neighbours of the layers of a side, ``[L, n, 5]``, and the shares with ties."""
    n, layers = sides.n, len(sides.x) + len(sides.y)
    if probes is None:
        work, purpose = 32 * n**2, "the eigenvalues"
    else:
        # Each probe has 10 nodes with weights, which stay, and so do their intermediate copies.
        work = 8 * n * (STEPS + 8) * min(probes, PROBES) + 32 * probes * STEPS * (layers + 2)
        purpose = "the Krylov vectors"
    taken = work + 200 * n * NEIGHBOURS + layers * n * (52 * NEIGHBOURS + 28)
    require_memory(taken + 1, sides.bound, f"{purpose} of a layer")
    bound = sides.bound - taken
    # Which of the copies of a row are neighbours does not change the shape of the graph.
    index, _, _, ties = nearest_with_ties(
        side.layers, NEIGHBOURS, "euclidean", bound, side.name, False, of_copies=False
    )
    return index, ties


@dataclass(frozen=True)
class _Spectrum:
    """Eigenvalues, or Gauss nodes of probes, with weights that sum to 1 for each probe."""

    values: Tensor  # [probes, steps]; for exact traces one row of all eigenvalues
    weights: Tensor  # [probes, steps]; for exact traces all 1 / n

    def heat_of_probes(self, t: Tensor) -> Tensor:
        """Estimate ``tr exp(-t L) / n`` by each probe, ``[temperatures, probes]``."""
        # Near 1, where most eigenvalues are, exp(-t x) is exp(-t) (1 + t - t x), whose trace is
        # known: the trace of L is n.
        slopes = (self.values * self.weights).sum(-1)
        exponential = (torch.exp(-t[:, None, None] * self.values) * self.weights).sum(-1)
        return exponential + (torch.exp(-t) * t)[:, None] * (slopes - 1)

    def heat_trace(self, t: Tensor) -> Tensor:
        """Return ``tr exp(-t L) / n``, ``[temperatures]``."""
        blocks = zip(self.values.split(PROBES), self.weights.split(PROBES), strict=True)
        sums = [_Spectrum(*block).heat_of_probes(t).sum(-1) for block in blocks]
        return torch.stack(sums).sum(0) / len(self.values)


def _error(x: _Spectrum, y: _Spectrum, t: Tensor) -> Tensor:
    """Return the standard error of the difference of two traces at one temperature."""
    probes = len(x.values)
    if probes == 1:  # all eigenvalues
        return torch.zeros_like(t)
    differences = x.heat_of_probes(t[None]) - y.heat_of_probes(t[None])
    return differences.std() / probes**0.5


def _exact(
    laplacians: list[_Laplacian], bound: int, report: Callable[[float], None]
) -> list[_Spectrum]:
    """Return all eigenvalues of Laplacians."""
    n = len(laplacians[0].index)
    # A device is asked once for a stack of layers whether decompositions have converged.
    stacked = 1 if laplacians[0].index.device.type == "cpu" else max(1, bound // (64 * n**2))
    spectra = []
    for first in range(0, len(laplacians), stacked):
        dense = torch.stack([one.dense() for one in laplacians[first : first + stacked]])
        values = torch.linalg.eigvalsh(dense)
        spectra += [_Spectrum(v[None], torch.full_like(v[None], 1 / n)) for v in values]
        report(len(spectra) / len(laplacians))
    return spectra


def _estimates(
    laplacians: list[_Laplacian], probes: int, seed: int, report: Callable[[float], None]
) -> list[_Spectrum]:
    """Return the nodes of the same seeded probes in Laplacians."""
    index, nodes = laplacians[0].index, []
    for block in _probes(len(index), probes, seed):
        vectors = block.to(index.device)
        nodes.append(_quadrature(torch.stack([_tridiagonal(one, vectors) for one in laplacians])))
        report(min(1.0, len(nodes) * PROBES / probes))
    values, weights = (torch.cat(kind, 1) for kind in zip(*nodes, strict=True))
    return [_Spectrum(*pair) for pair in zip(values, weights, strict=True)]


def _probes(n: int, probes: int, seed: int) -> Iterator[Tensor]:
    """Yield blocks of random vectors ``[n, at most 100]``."""
    generator = np.random.default_rng(seed)
    for first in range(0, probes, PROBES):
        yield torch.from_numpy(generator.standard_normal((n, min(PROBES, probes - first))))


class _Laplacian:
    """The normalised Laplacian of a symmetrised graph, as a function of vectors ``[n, count]``."""

    # The graph joins two rows if one of them is a neighbour of the other: with A the directed
    # graph, it is ``A + A'`` less the edges that are in both. Nothing waits for the device, and no
    # sum depends on the order of its threads.

    def __init__(self, index: Tensor) -> None:
        self.index = index.long().clamp(min=0)  # -1: no neighbours
        rows = torch.arange(len(index), device=index.device)
        mutual = (self.index[self.index] == rows[:, None, None]).any(2)
        self.alone = (~mutual).double()  # 1 for neighbours of which the row is no neighbour
        ones = torch.ones((len(index), 1), dtype=torch.float64, device=index.device)
        self.scale = self._adjacent(ones).rsqrt()

    def __call__(self, vectors: Tensor) -> Tensor:
        return vectors - self.scale * self._adjacent(self.scale * vectors)

    def dense(self) -> Tensor:
        """Return the matrix ``[n, n]``."""
        n = len(self.index)
        matrix = self.scale.new_zeros(n, n)
        rows = torch.arange(n, device=matrix.device)[:, None].expand_as(self.index)
        one = matrix.new_ones(())
        matrix.index_put_((rows, self.index), one)
        matrix.index_put_((self.index, rows), one)
        matrix.mul_(-self.scale).mul_(self.scale.T).diagonal().add_(1)
        return matrix

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
    """Return the matrix in Krylov bases of the probes by Lanczos, ``[probes, steps, steps]``."""
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
    values, vectors = eigh(tridiagonal)
    return values, vectors[..., 0, :].square()
