"""Matched neurons in torch's own operations.

Gains (products of neurons) are formed on the device for as many pairs of layers as memory allows;
the host assigns the neurons of these pairs together, and waits for the device once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from simcore._grid.memory import memory_bound
from simcore._grid.options import check_choice
from simcore._grid.progress import reported
from simcore._grid.scale import exponents_to_remove
from simcore._ops.columns import Columns, block_columns, check_layers, dtype_of, mean_row, product
from simcore._ops.composed import in_full_float32
from simcore._ops.partners_composed import Known, both_ways, bytes_of_bests
from simcore._ops.tiles import tiles

MOST_TOGETHER = 4096  # pairs
MOST_BYTES = 2**26  # of their gains: memory that is written again costs less than fresh memory
Pairs = Sequence[tuple[int, int]]  # of numbers of layers, x and y together


class _Distances:
    """Layers as they are given, not centred; float64 ones are divided by powers of two."""

    def __init__(self, layers: Sequence[Tensor], room: int) -> None:
        # Neurons are gathered sooner where the entries of one lie side by side.
        nbytes = sum(layer.nbytes for layer in layers)
        self.left = room - nbytes if nbytes <= room else room
        self._neurons = [layer.T.contiguous() if nbytes <= room else layer.T for layer in layers]
        self._step = max(map(block_columns, layers))
        self._wide = dtype_of(layers) == torch.float64
        none = torch.zeros((), dtype=torch.int32, device=layers[0].device)
        self._exponents = [
            exponents_to_remove(layer.abs().max()) if layer.dtype == torch.float64 else none
            for layer in layers
        ]
        self._squares: dict[int, Tensor] = {}

    def squares(self, i: int) -> Tensor:
        """Return the squared lengths of the neurons of the scaled layer, float64 ``[p]``."""
        if i not in self._squares:
            neurons, scale = self._neurons[i], _power(-self._exponents[i])
            blocks = tiles(len(neurons), self._step)
            parts = [(neurons[block].double() * scale).square_().sum(1) for block in blocks]
            self._squares[i] = torch.cat(parts)
        return self._squares[i]

    def is_zero(self, i: int) -> Tensor:
        return ~self.squares(i).any()

    def of(self, a: int, b: int, partner: Tensor, angular: bool) -> Tensor:
        """Return the distance or the angle of two layers, with ``partner`` for neurons of a.

        A neuron of the wider layer that is no partner is compared with zeros.
        """
        if len(partner) > len(self._neurons[b]):
            a, b, partner = b, a, inverse(partner, len(self._neurons[b]))
        largest = torch.maximum(self._exponents[a], self._exponents[b])
        units = [  # of the scaled layers
            1 / self.squares(i).sum().sqrt() if angular else _power(self._exponents[i] - largest)
            for i in (a, b)
        ]
        scales = [_power(-self._exponents[i]) * u for i, u in zip((a, b), units, strict=True)]
        squares = []
        for part in tiles(len(partner), self._step):
            of_a, of_b = self._neurons[a][part].double(), self._neurons[b][partner[part]]
            if angular or self._wide:  # else all exponents are 0
                of_a, of_b = of_a * scales[0], of_b.double() * scales[1]
            squares.append((of_a - of_b).square_().sum())
        if len(partner) < len(self._neurons[b]):
            alone = self.squares(b).index_fill(0, partner, 0.0).sum()
            squares.append(alone * units[1] * units[1])
        length = torch.stack(squares).sum().sqrt()  # []
        if angular:
            return 2 * (length / 2).clamp(max=1.0).asin()
        return torch.ldexp(length, largest)


def _power(exponent: Tensor) -> Tensor:
    return torch.ldexp(torch.ones((), dtype=torch.float64, device=exponent.device), exponent)


class _Gains:
    """Gains of pairs of layers: correlations, or products that are not centred.

    A product is ``n m_i m'_j`` more than the product of the centred neurons, m the means. A term
    that depends on a neuron of the narrower layer alone changes no assignment and is left out.
    """

    def __init__(self, layers: Sequence[Tensor], correlates: bool, bound: int) -> None:
        self.widest = max(layer.shape[1] for layer in layers)
        # A matrix, and the costs that the host makes of it.
        self.of_pair = 2 * dtype_of(layers).itemsize * self.widest**2 + 64 * self.widest
        self._means: list[Tensor] = []
        if correlates:
            self._columns = Columns(layers, bound, self.of_pair)
            return
        entries = [torch.maximum(layer.amax(), -layer.amin()).double() for layer in layers]
        scales = [_power(-torch.frexp(entry).exponent) for entry in entries]
        self._columns = Columns(layers, bound, self.of_pair, scales)
        self._means = [sum(mean_row(layer)) * s for layer, s in zip(layers, scales, strict=True)]

    @property
    def left(self) -> int:
        return self._columns.left

    def empty(self, count: int) -> Tensor:
        like, dtype = self._columns.layers[0], self._columns.dtype
        return like.new_empty((count, self.widest, self.widest), dtype=dtype)

    def fill(self, pairs: Pairs, gains: Tensor) -> None:
        """Write the gains of each pair ``[p, q]`` to the corner of its matrix."""
        for a, group in itertools.groupby(enumerate(pairs), lambda one: one[1][0]):
            places = {b: place for place, (_, b) in group}
            for left, b, right, of_a, of_b in self._columns.pairs(a, list(places)):
                product(of_a, of_b, gains[places[b], left, right])
        for matrix, (a, b) in zip(gains, pairs if self._means else (), strict=False):
            of_a, of_b = self._means[a], self._means[b]
            p, q, n = len(of_a), len(of_b), len(self._columns.layers[a])
            of_a = of_a - of_a.mean() if p >= q else of_a
            of_b = of_b - of_b.mean() if q >= p else of_b
            matrix[:p, :q].addr_(of_a.to(gains.dtype), of_b.to(gains.dtype), alpha=n)


@in_full_float32
def match_neurons(
    x: Sequence[Tensor], y: Sequence[Tensor], matching: str, score: str, max_memory: int
) -> Tensor:
    """Compute ``simcore::match_neurons``: as many pairs together as `max_memory` has room for."""
    check_choice(matching, "matching", ("best", "one-to-one"))
    check_choice(score, "score", ("correlation", "distance", "angular"))
    if matching == "best" and score != "correlation":
        raise ValueError(f"score: wanted 'correlation' for matching 'best', got {score!r}")
    check_layers(x, y)
    if matching == "best":
        return _best(x, y, max_memory)
    return _assign(x, y, score, max_memory, None)


@in_full_float32
def assigned_neurons(
    x: Sequence[Tensor], y: Sequence[Tensor], score: str, max_memory: int
) -> tuple[Tensor, list[list[Tensor]]]:
    """Return the grid of the matching ``one-to-one`` and the assignments that it is of."""
    check_layers(x, y)
    partners: dict[tuple[int, int], Tensor] = {}
    grid = _assign(x, y, score, max_memory, partners)
    columns = y or x
    none = [torch.full_like(partners[a, 0], -1) for a in range(len(x))]
    undefined = {(a, b) for a, b in grid.isnan().nonzero().tolist()}
    return grid, [
        [none[a] if (a, b) in undefined else partners[a, b] for b in range(len(columns))]
        for a in range(len(x))
    ]


def inverse(partner: Tensor, size: int) -> Tensor:
    """Return the partners of the ``size`` neurons of the other layer."""
    result = partner.new_full((size + 1,), -1)  # the last place is for those without a partner
    places = torch.where(partner < 0, size, partner)
    result.index_copy_(0, places, torch.arange(len(partner), device=partner.device))
    return result[:size]


def _best(x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int) -> Tensor:
    """Return means of both directions' means of the largest correlation."""
    layers, first_y = [*x, *y], len(x) if y else 0
    columns = Columns(layers, memory_bound(max_memory, x[0]), bytes_of_bests(layers))
    known = Known.of(layers)
    grid = x[0].new_full((len(x), len(y) or len(x)), torch.nan, dtype=torch.float64)
    for a in reported(range(len(x))):
        others = range(first_y or a + 1, len(layers))
        if not y:
            grid[a, a] = torch.where(known.any[a], 1.0, torch.nan)
        if not others:
            continue
        later = slice(others.start, others.stop)
        at = slice(others.start - first_y, others.stop - first_y)
        ahead, back = both_ways(columns, a, others, known, signed=True)
        of_a = ahead.finish(known.some[a, : columns.widths[a]], known.any[later, None])
        of_others = back.finish(known.some[later], known.any[a])
        grid[a, at] = (of_a.nanmean(1) + of_others.nanmean(1)) / 2
        if not y:
            grid[at, a] = grid[a, at]
    return grid


def _assign(
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    score: str,
    max_memory: int,
    partners: dict[tuple[int, int], Tensor] | None,
) -> Tensor:
    """Return the grid, and put the assignment of each pair of layers into ``partners`` if given."""
    same, correlates, layers = not y, score == "correlation", [*x, *y]
    gains = _Gains(layers, correlates, memory_bound(max_memory, x[0]))
    distances = None if correlates else _Distances(layers, gains.left)
    left = gains.left if distances is None else distances.left
    known = Known.of(layers, correlates)
    first_y = 0 if same else len(x)
    columns = len(layers) - first_y
    grid = torch.full((len(x), columns), torch.nan, dtype=torch.float64, device=x[0].device)
    pairs = [(a, first_y + b) for a in range(len(x)) for b in range(a + 1 if same else 0, columns)]
    together = min(1 + min(left, MOST_BYTES) // gains.of_pair, MOST_TOGETHER, len(pairs))
    matrices = gains.empty(together)
    for start in reported(range(0, len(pairs), max(1, together))):
        part = pairs[start : start + together]
        gains.fill(part, matrices)
        for (a, b), (value, partner) in zip(
            part,
            _assigned(matrices[: len(part)], known, layers, part, distances, score == "angular"),
            strict=True,
        ):
            grid[a, b - first_y] = value
            if same:
                grid[b, a] = value
            if partners is not None:
                partners[a, b - first_y] = partner
                if same:
                    partners[b, a] = inverse(partner, layers[b].shape[1])
    if same:
        grid.fill_diagonal_(1.0 if correlates else 0.0)
        if partners is not None:
            for a, layer in enumerate(layers):
                own = torch.arange(layer.shape[1], device=grid.device)
                partners[a, a] = own.masked_fill(~known.some[a, : len(own)], -1)
    if score == "distance":
        return grid
    undefined = ~known.any  # [L]
    if distances is not None:
        undefined = torch.stack([distances.is_zero(i) for i in range(len(layers))])
    return grid.masked_fill(undefined[: len(x), None] | undefined[first_y:], torch.nan)


def _assigned(
    gains: Tensor,
    known: Known,
    layers: Sequence[Tensor],
    pairs: Pairs,
    distances: _Distances | None,
    angular: bool,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield value and partners of each pair, given the gains of all; the host assigns neurons."""
    of_rows, of_columns = zip(*pairs, strict=True)
    flags = known.some.cpu()
    assign = torch.ops.simcore.best_assignments
    found = assign(gains.cpu(), flags[list(of_rows)], flags[list(of_columns)])
    for gain, (a, b), of_pair in zip(gains, pairs, found.to(gains.device), strict=True):
        partner = of_pair[: layers[a].shape[1]]
        if distances is not None:
            yield distances.of(a, b, partner, angular), partner
            continue
        some = partner >= 0
        places = partner.clamp(min=0)[:, None]
        chosen = gain[: len(partner)].gather(1, places).flatten().double()  # [p]
        yield chosen.clamp_(-1, 1).masked_fill_(~some, 0.0).sum() / some.sum(), partner


def best_assignments(gains: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Compute ``simcore::best_assignments`` by SciPy, or by the twin where SciPy is missing."""
    partners = gains.new_full(gains.shape[:2], -1, dtype=torch.int64)
    for partner, gain, row, column in zip(partners, gains, rows, columns, strict=True):
        left, right = (flags.nonzero().flatten() for flags in (row, column))
        if len(left) > 0 and len(right) > 0:
            of_rows, of_columns = _assignment(-gain[left][:, right].double().numpy())
            partner[left[of_rows]] = right[of_columns]
    return partners


def _assignment(costs: Any) -> tuple[Any, Any]:
    """Return rows and columns of the assignment of least cost; the smaller number is whole."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ModuleNotFoundError:
        from simcore.reference.matching import assignment

        if len(costs) > costs.shape[1]:
            columns, rows = _assignment(costs.T)
            return rows, columns
        return range(len(costs)), assignment(costs)
    return linear_sum_assignment(costs)


# Registered in simcore/_ops/neurons.py.
OPERATORS: dict[str, Callable[..., object]] = {"match_neurons": match_neurons}
