"""Representation topology divergence (RTD) of all layer pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import product
from types import ModuleType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simcore._grid.finish import as_given, masked
from simcore._grid.inputs import Array, Layers
from simcore._grid.memory import require_memory
from simcore._grid.one_operator import Estimate, as_estimate, empty_estimate, one_operator
from simcore._grid.options import check_count
from simcore._grid.progress import progress_bar
from simcore._grid.scale import in_range
from simcore._grid.side import Sides, read_sides
from simcore._optional import import_optional

QUANTILE = 0.9  # of the distances of a layer: their unit
ROUNDING = 1e-6  # of the mean distance: a smaller one is 0
# Matrices [2 rows, 2 rows] of float64 that one pair takes: the graph, and what the reduction holds.
COPIES = 6
WHY_UNDEFINED = "nine tenths of the distances between rows are 0"


@one_operator()
def rtd_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    rows: int = 500,
    draws: int = 10,
    seed: int = 0,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the representation topology divergence (RTD) of all layer pairs.

    Both layers' distances between rows are divided by their .9 quantile. The graph of a pair holds
    every row twice: the first copies at distance 0 from each other, first and second copies at the
    distances ``D_x``, the second copies at ``min(D_x, D_y)``. A cycle of its Vietoris-Rips
    filtration is a difference in the topology of the two clouds at some scale; the divergence is
    the summed length of the bars of dimension 1, averaged over both orders of x and y.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        Representations as in `cka_grid`, of at least 3 rows.
    rows : int
        Rows of one draw, at least 3. The value grows with them.
    draws : int
        Draws of rows without replacement, of which the value is the mean. Layers of at most
        ``rows`` rows are taken whole, once.
    seed : int
        Seed of the draws, which are the same for all pairs. Global random states are neither read
        nor changed.
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`. A pair of layers takes 200 bytes
        times the square of `rows`; as many pairs as memory allows are computed side by side.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        A distance from 0, the value of a layer with itself. numpy if all inputs are numpy, else a
        torch tensor. ``nan``, with one warning, for a layer of which nine tenths of the distances
        of a draw are 0. Not differentiable.

    Raises
    ------
    TypeError, ValueError
        As `cka_grid`; fewer than 3 rows; a count below its least value.
    ModuleNotFoundError
        The package gudhi or scikit-learn is missing.

    Notes
    -----
    Persistent homology is computed on the CPU by gudhi's form of Ripser, with coefficients 0 and 1,
    by as many threads as torch uses. It takes seconds for a pair of 500 rows and grows with about
    the third power of the rows.

    References
    ----------
    Barannikov et al. 2022, *Representation topology divergence*, section 2; defaults of their code.

    Examples
    --------
    >>> import torch
    >>> from simcore import rtd_grid
    >>> x = torch.randn(2, 40, 8)
    >>> rtd_grid(x).diagonal()
    tensor([0., 0.], dtype=torch.float64)
    """
    return _rtd("rtd_grid", X, Y, rows, draws, seed, max_memory, progress).values


@one_operator(empty_estimate, as_estimate)
def rtd_estimate(
    X: Layers,
    Y: Layers | None = None,
    *,
    rows: int = 500,
    draws: int = 10,
    seed: int = 0,
    max_memory: int | None = None,
    progress: bool = False,
) -> Estimate:
    """Compute `rtd_grid` and the standard errors of its values.

    Parameters and errors are as for `rtd_grid`, with at least 2 draws.

    Returns
    -------
    values, errors : arrays ``[len(X), len(Y)]``, float64
        A named tuple: the grid, and the standard deviation over draws over the root of their
        number; 0 where layers are taken whole.

    Examples
    --------
    >>> import torch
    >>> from simcore import rtd_estimate
    >>> x = torch.randn(2, 40, 8)
    >>> bool(rtd_estimate(x, rows=20, draws=3).errors[0, 1] > 0)
    True
    """
    check_count(draws, "draws", 2)
    return _rtd("rtd_estimate", X, Y, rows, draws, seed, max_memory, progress)


def _rtd(
    function: str,
    X: Layers,
    Y: Layers | None,
    rows: int,
    draws: int,
    seed: int,
    max_memory: int | None,
    progress: bool,
) -> Estimate:
    for count, name, least in ((rows, "rows", 3), (draws, "draws", 1), (seed, "seed", 0)):
        check_count(count, name, least)
    sides = read_sides(X, Y, "topology", least_rows=3, max_memory=max_memory, finite=True)
    bars = _bars(function)
    rows = min(rows, sides.n)
    workers = _workers(sides, rows)
    layers = in_range(sides.layers).layers
    values, known = [], []
    with progress_bar(function, progress) as report:
        drawn = list(_draws(sides.n, rows, draws, seed))
        for number, index in enumerate(drawn):
            distances = _distances(layers, index)
            known.append([bool(matrix.any()) for matrix in distances])

            def counted(share: float, before: int = number) -> None:
                report((before + share) / len(drawn))

            values.append(_pairs(distances, sides, bars, workers, counted))
    # Mean and standard error over the draws; a layer needs a value in each.
    every = torch.from_numpy(np.stack(values)).to(sides.device)
    defined = torch.from_numpy(np.all(known, axis=0)).to(sides.device)
    undefined_x, undefined_y = ~defined[: len(sides.x)], ~defined[sides.columns]
    mean = sides.with_selves(every.mean(0), 0.0)
    grid = sides.finish(mean, function, undefined_x, undefined_y, WHY_UNDEFINED)
    spread = every.std(0) if len(every) > 1 else torch.zeros_like(mean)
    errors = masked(spread / len(every) ** 0.5, undefined_x, undefined_y)
    return Estimate(grid, as_given(errors, sides.from_numpy))


def _bars(function: str) -> ModuleType:
    for package in ("gudhi", "sklearn"):  # gudhi's estimators are made of scikit-learn's
        import_optional(package, function)
    return import_module("gudhi.sklearn.rips_persistence")


def _workers(sides: Sides, rows: int) -> int:
    """Return how many pairs fit into memory beside the distances of all layers."""
    layers = len(sides.x) + len(sides.y)
    held, pair = 8 * rows**2 * (layers + 2), 8 * COPIES * (2 * rows) ** 2
    purpose = f"the distances of {rows} rows of {layers} layers"
    require_memory(held + pair, sides.bound, purpose)
    return min(torch.get_num_threads(), (sides.bound - held) // pair)


def _draws(n: int, rows: int, draws: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers of the rows of each draw."""
    if rows == n:
        yield np.arange(n)
        return
    generator = np.random.default_rng(seed)
    for _ in range(draws):
        yield generator.choice(n, rows, replace=False)


def _distances(layers: list[Tensor], index: NDArray[np.int64]) -> list[NDArray[np.float64]]:
    """Return the distances between rows of each layer, in units of their quantile."""
    device = layers[0].device
    rows = torch.from_numpy(index).to(device)
    found = torch.empty(len(layers), len(index), len(index), dtype=torch.float64, device=device)
    for layer, matrix in zip(layers, found, strict=True):
        drawn = layer.detach()[rows].double()
        # From differences of rows: no offset costs digits.
        matrix.copy_(torch.cdist(drawn, drawn, compute_mode="donot_use_mm_for_euclid_dist"))
    return [_in_units(matrix) for matrix in found.cpu().numpy()]


def _in_units(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distances in units of their quantile; all 0 if that is 0."""
    unit = np.quantile(matrix, QUANTILE)
    if unit == 0:
        return np.zeros_like(matrix)
    matrix /= unit
    matrix[matrix < ROUNDING * matrix.mean()] = 0
    return matrix


def _pairs(
    distances: list[NDArray[np.float64]],
    sides: Sides,
    bars: ModuleType,
    workers: int,
    report: Callable[[float], None],
) -> NDArray[np.float64]:
    """Return the divergences of all pairs of one draw; the value of a layer with itself is 0."""
    count = len(sides.x)
    columns = distances if sides.same else distances[count:]
    places = [
        (i, j) for i, j in product(range(count), range(len(columns))) if not sides.same or j > i
    ]
    grid = np.zeros((count, len(columns)))

    def divergence(place: tuple[int, int]) -> float:
        x, y = distances[place[0]], columns[place[1]]
        if not (x.any() and y.any()):
            return 0.0
        return (_first_persistence(x, y, bars) + _first_persistence(y, x, bars)) / 2

    with ThreadPoolExecutor(workers) as pool:
        for done, (place, value) in enumerate(
            zip(places, pool.map(divergence, places), strict=True), 1
        ):
            grid[place] = value
            report(done / len(places))
    return grid + grid.T if sides.same else grid


def _first_persistence(x: NDArray[np.float64], y: NDArray[np.float64], bars: ModuleType) -> float:
    """Return the summed lengths of the bars of dimension 1 of the graph that compares x with y."""
    graph = np.block([[np.zeros_like(x), x], [x, np.minimum(x, y)]])
    estimator = bars.RipsPersistence(
        homology_dimensions=1, input_type="full distance matrix", homology_coeff_field=2
    )
    (found,) = estimator.fit_transform([graph])
    return float((found[:, 1] - found[:, 0]).sum())
