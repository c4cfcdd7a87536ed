"""Nearest rows in torch's own operations, for CUDA devices.

The function runs on any device: tests compare it on CPU tensors with the twin. The order is that
of csrc/cpu/neighbours: distances in float64, of those that are equal up to rounding the lower index
first.

Products of centred float64 rows give keys, by which the rows that may be among the k nearest are
chosen. These rows are compared by their exact distances: sums of squared differences. A row with
more candidates than `SPARE` beyond k, which are within the rounding of keys (copies of one row,
mostly), is compared with all others. The host reads once how many such rows each layer has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simcore._grid.inputs import check_finite, row_blocks
from simcore._grid.memory import memory_bound
from simcore._grid.progress import reported
from simcore._grid.scale import exponents_to_remove
from simcore._ops.tiles import rows_that_fit, tiles

EPS = torch.finfo(torch.float64).eps
LEAST_TURN = 4  # directions differ by more than this many times eps: kLeastTurn in csrc/cpu
ROUNDING = 16  # eps, by which equal distances may differ, and sqrt(p) more: kRounding in csrc/cpu
SPARE = 32  # candidates of a row beyond k
SAFETY = 8  # times the rounding of a key, within which candidates are kept
KEY_BYTES, ORDER_BYTES = 40, 112  # of an entry while keys are selected, while distances are sorted


@dataclass(frozen=True)
class Rows:
    """The rows of a layer as neighbours are defined by them, in float64."""

    values: Tensor  # [n, p], of unit length for `cosine` (or zeros), else times `2**-exponent`
    squares: Tensor  # [n], the squared lengths: 1 or 0 for `cosine`
    exponent: Tensor  # [], 0 or the power of two that brings a float64 layer near 1
    # bool [], whether rows differ; for `cosine`, whether directions do beyond rounding.
    defined: Tensor
    metric: str

    @property
    def units(self) -> float:
        """The relative rounding error of a sum over the columns."""
        return float(EPS * (ROUNDING + self.values.shape[1] ** 0.5))

    def distances(self, places: slice | Tensor) -> Tensor:
        """Return the distances by which all rows are ordered for these rows, ``[rows, n]``."""
        chosen = self.values[places]  # [rows, p]
        if self.metric == "inner":
            return -(chosen @ self.values.T)
        mode = "donot_use_mm_for_euclid_dist"
        squares = torch.cdist(chosen, self.values, compute_mode=mode).square()  # [rows, n]
        return self._finished(squares, self.squares[places][:, None], self.squares)

    def distances_to(self, places: slice | Tensor, others: Tensor) -> Tensor:
        """Return the distances of these rows to ``others`` ``[rows, m]``, exact."""
        own, rows = self.values[places][:, None], self.values[others]  # [rows, 1, p], [rows, m, p]
        if self.metric == "inner":
            return -torch.bmm(rows, own.mT).squeeze(2)
        squares = rows.sub_(own).square_().sum(2)  # [rows, m]
        return self._finished(squares, self.squares[places][:, None], self.squares[others])

    def _finished(self, squares: Tensor, own: Tensor, others: Tensor) -> Tensor:
        if self.metric == "euclidean":
            return squares
        half = squares / 2
        half = torch.where(half > self.units**2, half, 0.0)
        return torch.where((own == 0) | (others == 0), 1.0, half)

    def rounding(self, distance: Tensor, own: Tensor, others: Tensor) -> Tensor:
        """Return the difference up to which a distance counts as equal to another."""
        if self.metric == "inner":
            return self.units * (own * others).sqrt()
        return self.units * (distance + distance.sqrt() if self.metric == "cosine" else distance)

    def values_of(self, distance: Tensor) -> Tensor:
        """Return a distance in units of the layer."""
        if self.metric == "inner":
            return -self._scaled(self._scaled(distance))
        return self._scaled(distance.sqrt()) if self.metric == "euclidean" else distance

    def squared_lengths(self) -> Tensor:
        """Return the squared lengths in units of the layer."""
        return self._scaled(self._scaled(self.squares))

    def _scaled(self, values: Tensor) -> Tensor:
        return torch.ldexp(values, self.exponent)


def read_rows(layer: Tensor, metric: str) -> Rows:
    """Return the rows of a layer; entries are not checked."""
    u = layer.clone() if layer.dtype == torch.float64 else layer.double()
    exponent = torch.zeros((), dtype=torch.int32, device=layer.device)
    least = u.new_zeros(())
    if metric == "cosine":
        if layer.dtype == torch.float64:
            u = torch.ldexp(u, -exponents_to_remove(u.abs().amax(1, keepdim=True)))
        square = _squares(u)[:, None]  # [n, 1]
        u *= torch.where(square > 0, square.rsqrt(), 0.0)
        squares = (square > 0).double().flatten()  # [n]
        least = LEAST_TURN * torch.finfo(layer.dtype).eps * u[0].abs().max()
    else:
        if layer.dtype == torch.float64:
            exponent = exponents_to_remove(u.abs().max())
            u = torch.ldexp(u, -exponent)
        squares = _squares(u)  # [n]
    farthest = torch.maximum(u.amax(0) - u[0], u[0] - u.amin(0)).max()  # []
    return Rows(u, squares, exponent, farthest > least, metric)


def _squares(rows: Tensor) -> Tensor:
    """Return the squared lengths of rows ``[n]``."""
    return torch.cat([block.square().sum(1) for block in row_blocks(rows)])


class _Keys:
    """Keys that order the rows by their distances, up to rounding; the smallest is the nearest."""

    # With c the centred rows, the key of row j to row i is ``bias_j - c_i'c_j``: half a squared
    # distance (euclidean, cosine) less ``|c_i|^2 / 2``, or minus an inner product and a number that
    # depends on i alone.

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.factors: dict[torch.dtype, tuple[Tensor, Tensor]] = {}
        mean = rows.values.mean(0)  # [p]
        self.centred = rows.values - mean
        squares = _squares(self.centred)  # [n]
        self.lengths = squares.sqrt()
        if rows.metric == "inner":
            self.bias = -(self.centred @ mean)
        else:
            self.bias = squares / 2
            if rows.metric == "cosine":  # zeros are at distance 1 from all others
                self.bias = self.bias + torch.where(rows.squares == 0, 0.5, 0.0)

    def of(self, places: slice | Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """Return the keys of all rows to the rows ``places``, infinite for a row itself."""
        if dtype not in self.factors:
            self.factors[dtype] = self.bias.to(dtype), self.centred.to(dtype)
        bias, centred = self.factors[dtype]
        keys = torch.addmm(bias, centred[places], centred.T, alpha=-1)  # [rows, n]
        if isinstance(places, slice):
            keys.diagonal(places.start).fill_(torch.inf)
            return keys
        return keys.scatter_(1, places[:, None], torch.inf)

    def slack(self, tile: slice | Tensor, kth: Tensor) -> Tensor:
        """Return how far beyond the k-th smallest key a row may have one of the k nearest."""
        eps = torch.finfo(kth.dtype).eps
        safety = SAFETY if kth.dtype == torch.float64 else 1  # `size` is ample: 4 sqrt(p)
        kth = kth.double()
        rows, own = self.rows, self.lengths[tile]
        products = 4 * rows.values.shape[1] ** 0.5 + 8
        if rows.metric == "inner":
            size = products * own * self.lengths.max() + 2 * self.bias.abs().max()
            equal = rows.rounding(kth, rows.squares[tile], rows.squares.max())
        else:
            # Rows as near as the k-th are at most this long.
            half = (kth + own.square() / 2).clamp(min=0)
            length = own + (2 * half).sqrt()
            size = products * own * length + length.square()
            distance = 2 * half if rows.metric == "euclidean" else half
            equal = rows.rounding(distance, own, own)
        return safety * eps * size + SAFETY * equal


def _nearest(d: Tensor, index: Tensor, equal: Tensor, n: int, k: int) -> tuple[Tensor, Tensor]:
    """Return numbers and distances of the k nearest of ``index`` ``[rows, m]``, nearest first."""
    # Sorted distances that differ by at most ``equal`` from the one before them form a group, in
    # which the lower number comes first.
    ordered, places = d.sort(1)  # [rows, m] each
    numbers = index.gather(1, places)
    steps = ordered.diff() > equal.gather(1, places)[:, 1:]  # [rows, m - 1]
    groups = torch.zeros_like(numbers)
    groups[:, 1:] = steps.cumsum(1)
    keys, order = (groups * n + numbers).topk(k, 1, largest=False, sorted=True)
    return keys % n, ordered.gather(1, order)


def _by_keys(
    rows: Rows, k: int, tile_rows: int, count: int | None = None, with_distances: bool = True
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """Yield tiles, their k nearest rows and distances, and which rows need all distances."""
    # The tiles are of the first ``count`` rows; default all. On the CPU, keys that differ by more
    # than their rounding are the order, so that few rows have other candidates than their k
    # nearest; float32 keys tell most rows of one length apart, float64 keys most of the rest.
    # Distances that nobody wants are 0 there.
    n = len(rows.values)
    keys = _Keys(rows)
    for tile in tiles(n if count is None else count, tile_rows):
        if rows.values.device.type != "cpu":
            yield tile, *_among_candidates(keys, tile, k)
            continue
        # Squares of float32 entries may be beyond float32, but not those of unit rows.
        first = torch.float32 if rows.metric == "cosine" else torch.float64
        numbers, unsure = _by_order_of_keys(keys, tile, k, first)
        if first == torch.float32 and len(unsure) > 0:
            again, left = _by_order_of_keys(keys, unsure + tile.start, k, torch.float64)
            numbers[unsure], unsure = again, unsure[left]
        if with_distances:
            distances = rows.distances_to(tile, numbers)
        else:
            distances = torch.zeros(numbers.shape, dtype=torch.float64)
        crowded = torch.zeros(len(numbers), dtype=torch.bool)
        if len(unsure) > 0:
            exact = _among_candidates(keys, unsure + tile.start, k)
            for whole, part in zip((numbers, distances, crowded), exact, strict=True):
                whole[unsure] = part
        yield tile, numbers, distances, crowded


def _by_order_of_keys(
    keys: _Keys, places: slice | Tensor, k: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return the rows of the k smallest keys, and for which places rounding may change them."""
    of_places = keys.of(places, dtype)
    most = min(of_places.shape[1] - 1, k + 1)
    nearest, numbers = of_places.topk(most, 1, largest=False, sorted=True)  # [rows, most] each
    slack = keys.slack(places, nearest[:, k - 1])  # [rows]
    unsure = (nearest.diff(dim=1) <= slack[:, None]).any(1)  # [rows]
    return numbers[:, :k], unsure.nonzero().flatten()


def _among_candidates(keys: _Keys, places: slice | Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the k nearest rows and distances, and where there are too many candidates."""
    rows, of_places = keys.rows, keys.of(places)
    n = of_places.shape[1]
    most = min(n - 1, k + SPARE)
    nearest, index = of_places.topk(most, 1, largest=False, sorted=True)  # [rows, most] each
    limit = nearest[:, k - 1] + keys.slack(places, nearest[:, k - 1])  # [rows]
    crowded = (of_places <= limit[:, None]).sum(1) > most  # [rows]
    d = rows.distances_to(places, index)  # [rows, most]
    equal = rows.rounding(d, rows.squares[places][:, None], rows.squares[index])
    return *_nearest(d, index, equal, n, k), crowded


def _by_distances(rows: Rows, places: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k nearest rows of the rows ``places``, from all distances in float64."""
    n = len(rows.values)
    d = rows.distances(places)  # [rows, n]
    equal = rows.rounding(d, rows.squares[places][:, None], rows.squares.expand_as(d))
    d.scatter_(1, places[:, None], torch.inf)
    index = torch.arange(n, device=d.device).expand_as(d)
    return _nearest(d, index, equal, n, k)


def nearest_of_first(
    layer: Tensor, count: int, k: int, metric: str, bound: int
) -> tuple[Tensor, Tensor]:
    """Return the k nearest of all other rows for the first ``count`` rows, ``[count, k]`` int64."""
    # -1 everywhere if no row differs from another. The second value is the share of these rows
    # whose k-th neighbour and the next one are equally far. Entries are not checked. The layer
    # counts as allocated memory.
    n, width = layer.shape
    held = layer.nbytes + 40 * n * width + 64 * n
    purpose = f"the neighbours of {count} of {n} rows"
    sought = min(k + 1, n - 1)
    of_row = KEY_BYTES * n + (ORDER_BYTES + 8 * width) * min(n - 1, sought + SPARE)
    tile_rows = rows_that_fit(bound, held, of_row, count, purpose)
    whole = rows_that_fit(bound, held, ORDER_BYTES * n, count, purpose)
    rows = read_rows(layer, metric)
    index = torch.empty((count, sought), dtype=torch.int64, device=layer.device)
    last = torch.empty((count, sought - k + 1), dtype=torch.float64, device=layer.device)
    crowded = torch.empty(count, dtype=torch.bool, device=layer.device)
    for tile, numbers, distances, rest in _by_keys(rows, sought, tile_rows, count):
        index[tile], last[tile] = numbers, distances[:, k - 1 :]
        crowded[tile] = rest & rows.defined
    for part in crowded.nonzero().flatten().split(whole):
        index[part], distances = _by_distances(rows, part, sought)
        last[part] = distances[:, k - 1 :]
    equal = rows.rounding(last[:, -1], rows.squares[:count], rows.squares[index[:, -1]])
    tied = (last.diff(dim=1).abs() <= equal[:, None]).any(1) & rows.defined  # [count]
    return index[:, :k].masked_fill(~rows.defined, -1), tied.double().mean()


def nearest_rows(
    x: Sequence[Tensor],
    k: int,
    metric: str,
    max_memory: int,
    name: str = "X",
    with_values: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``simcore::nearest_rows``, some rows of one layer at a time."""
    check_finite(x, name)
    n, count, device = len(x[0]), len(x), x[0].device
    widest, most = max(layer.shape[1] for layer in x), min(n - 1, k + SPARE)
    bound, held = memory_bound(max_memory, x[0]), 40 * n * widest + 64 * n
    of_row = KEY_BYTES * n + (ORDER_BYTES + 8 * widest) * most
    tile_rows = rows_that_fit(bound, held, of_row, n, "the neighbours of one layer")
    whole = rows_that_fit(bound, held, ORDER_BYTES * n, n, "the neighbours of one layer")
    index = torch.empty((count, n, k), dtype=torch.int32, device=device)
    values = torch.empty((count if with_values else 0, n, k), dtype=torch.float64, device=device)
    own = torch.empty((len(values), n), dtype=torch.float64, device=device)
    crowded = torch.empty((count, n), dtype=torch.bool, device=device)
    defined = []
    for place, layer in reported(enumerate(x)):
        rows = read_rows(layer, metric)
        defined.append(rows.defined)
        for tile, numbers, distances, rest in _by_keys(rows, k, tile_rows, None, with_values):
            index[place, tile] = numbers.int()
            crowded[place, tile] = rest & rows.defined
            if with_values:
                values[place, tile] = rows.values_of(distances)
        if with_values:
            own[place] = rows.squared_lengths()
    # One synchronisation with the device for all layers.
    for place, left in enumerate(crowded.sum(1).tolist()):
        if left == 0:
            continue
        rows = read_rows(x[place], metric)
        wanted = crowded[place].int().sort(descending=True, stable=True).indices[:left]
        for part in wanted.split(whole):
            numbers, distances = _by_distances(rows, part, k)
            index[place].index_copy_(0, part, numbers.int())
            if with_values:
                values[place].index_copy_(0, part, rows.values_of(distances))
    known = torch.stack(defined)  # [L]
    index.masked_fill_(~known[:, None, None], -1)
    if with_values:
        values.masked_fill_(~known[:, None, None], torch.nan)
        own.masked_fill_(~known[:, None], torch.nan)
    return index, values, own
