"""Matched neurons in torch's own operations; CUDA devices use them.

The functions run on any device: tests compare them on CPU tensors with the twins. Gains (products
of neurons) are formed on the device for as many pairs of layers as memory allows; assignments are
solved by the host, which waits for the device once for all pairs that are formed together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from simcore._grid.inputs import check_finite
from simcore._grid.memory import memory_bound
from simcore._grid.progress import reported
from simcore._grid.scale import exponents_to_remove
from simcore._ops.composed import centred_columns, full_float32, in_full_float32
from simcore._ops.tiles import rows_that_fit, tiles

MOST_TOGETHER = 4096  # pairs


@dataclass(frozen=True)
class _Neurons:
    """A layer whose neurons are matched."""

    # [n, p], centred; of unit length (or zeros) for correlations, else in units of the layer.
    values: Tensor
    takes_part: Tensor  # bool [p], False for a neuron without variance, if correlations are wanted
    means: Tensor  # float64 [p], the means of the neurons, in the units of `values`


def _read(layer: Tensor, dtype: torch.dtype, correlates: bool) -> _Neurons:
    centred, power = centred_columns(layer)
    if not correlates:
        means = (layer.double() / power).mean(0)  # [p]
        some = torch.ones_like(means, dtype=torch.bool)
        return _Neurons(centred.to(dtype), some, means)
    # A column may be far smaller than the largest one.
    largest = centred.abs().amax(0)  # [p]
    some = largest > 0
    near_one = centred / torch.where(some, largest, 1.0)
    length = torch.linalg.vector_norm(near_one, dim=0)  # [p]
    units = near_one / torch.where(some, length, 1.0)
    return _Neurons(units.to(dtype), some, torch.zeros_like(largest))


def _gains(x: _Neurons, y: _Neurons, correlates: bool) -> Tensor:
    """Return the gains of two layers ``[p, q]``: correlations, or products that are not centred.

    A product is ``n m_i m'_j`` more than the product of the centred neurons, m the means. A term
    that depends on a neuron of the narrower layer alone changes no assignment and is left out.
    """
    products = x.values.T @ y.values  # [p, q]
    if correlates:
        return products.clamp_(-1.0, 1.0)
    n, (p, q) = len(x.values), products.shape
    of_x = x.means - x.means.mean() if p >= q else x.means
    of_y = y.means - y.means.mean() if q >= p else y.means
    return products.add_((n * of_x[:, None] * of_y).to(products.dtype))


def _best(gains: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return the mean of both directions' means of the largest gain, float64."""
    both = rows[:, None] & columns  # [p, q]
    known = gains.masked_fill(~both, -torch.inf)
    of_rows = known.amax(1).double().masked_fill(~rows, 0.0).sum() / rows.sum()  # []
    of_columns = known.amax(0).double().masked_fill(~columns, 0.0).sum() / columns.sum()
    return (of_rows + of_columns) / 2


@dataclass(frozen=True)
class _Layers:
    """Layers for distances: not centred, and float64 ones divided by powers of two."""

    layers: list[Tensor]
    exponents: list[Tensor]  # 0, or what brings a float64 layer near 1
    norms: list[Tensor]  # of the scaled layers

    @classmethod
    def of(cls, layers: Sequence[Tensor]) -> _Layers:
        exponents, norms = [], []
        for layer in layers:
            exponent = torch.zeros((), dtype=torch.int32, device=layer.device)
            if layer.dtype == torch.float64:
                exponent = exponents_to_remove(layer.abs().max())
            exponents.append(exponent)
            norms.append(torch.linalg.vector_norm(torch.ldexp(layer.double(), -exponent)))
        return cls(list(layers), exponents, norms)

    def distance(self, a: int, b: int, partner: Tensor, angular: bool, rows: int) -> Tensor:
        """Return the distance or the angle of two layers, with ``partner`` for neurons of a.

        A partner of -1 is none: such a neuron, and one of b that is no partner, is compared with
        zeros.
        """
        x, y = self.layers[a], self.layers[b]
        largest = torch.maximum(self.exponents[a], self.exponents[b])
        scales = [self.exponents[i] if angular else largest for i in (a, b)]
        norms = [self.norms[i] if angular else None for i in (a, b)]
        # Neurons of a go to the places of their partners; those without one to places of their own.
        p, q = x.shape[1], y.shape[1]
        own = torch.arange(q, q + p, device=x.device)  # [p]
        places = torch.where(partner < 0, own, partner)
        squares = []
        for tile in tiles(len(x), rows):
            parts = []
            for layer, scale, norm in zip((x, y), scales, norms, strict=True):
                part = torch.ldexp(layer[tile].double(), -scale)  # [rows, p or q]
                parts.append(part if norm is None else part / norm)
            moved = parts[0].new_zeros(len(parts[0]), q + p)  # [rows, q + p]
            moved.index_copy_(1, places, parts[0])
            moved[:, :q].sub_(parts[1])
            squares.append(moved.square_().sum())  # []
        length = torch.stack(squares).sum().sqrt()  # []
        if angular:
            return 2 * (length / 2).clamp(max=1.0).asin()
        return torch.ldexp(length, largest)


def match_neurons(
    x: Sequence[Tensor], y: Sequence[Tensor], matching: str, score: str, max_memory: int
) -> Tensor:
    """Compute ``simcore::match_neurons``: as many pairs together as `max_memory` has room for."""
    return _match(x, y, matching, score, max_memory, None)


def assigned_neurons(
    x: Sequence[Tensor], y: Sequence[Tensor], score: str, max_memory: int
) -> tuple[Tensor, list[list[Tensor]]]:
    """Return the grid of the matching ``one-to-one`` and the assignments that it is of."""
    partners: dict[tuple[int, int], Tensor] = {}
    with torch.no_grad(), full_float32():
        grid = _match(x, y, "one-to-one", score, max_memory, partners)
    columns = y or x
    none = [torch.full_like(partners[a, 0], -1) for a in range(len(x))]
    undefined = {(a, b) for a, b in grid.isnan().nonzero().tolist()}
    return grid, [
        [none[a] if (a, b) in undefined else partners[a, b] for b in range(len(columns))]
        for a in range(len(x))
    ]


def inverse(partner: Tensor, size: int) -> Tensor:
    """Return the partners of the ``size`` neurons of the other layer."""
    result = partner.new_full((size,), -1)
    some = partner >= 0
    result[partner[some]] = torch.arange(len(partner), device=partner.device)[some]
    return result


def _match(
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    matching: str,
    score: str,
    max_memory: int,
    partners: dict[tuple[int, int], Tensor] | None,
) -> Tensor:
    """Return the grid, and put the assignment of each pair of layers into ``partners`` if given."""
    check_finite(x, "X")
    check_finite(y, "Y")
    same, correlates, layers = not y, score == "correlation", [*x, *y]
    n, widest = len(layers[0]), max(layer.shape[1] for layer in layers)
    wide = any(layer.dtype == torch.float64 for layer in layers)
    dtype = torch.float64 if wide else torch.float32
    held = sum(n * layer.shape[1] for layer in layers) * dtype.itemsize + 40 * n * widest
    of_pair = dtype.itemsize * 4 * widest**2 + 64 * widest
    bound = memory_bound(max_memory, layers[0])
    together = rows_that_fit(bound, held, of_pair, MOST_TOGETHER, "the matrix of one pair")
    rows = rows_that_fit(bound, held, 64 * widest, n, "the matrix of one pair")
    neurons = [_read(layer, dtype, correlates) for layer in layers]
    first_y = 0 if same else len(x)
    columns = len(layers) - first_y
    grid = torch.full((len(x), columns), torch.nan, dtype=torch.float64, device=x[0].device)
    scaled = None if correlates else _Layers.of(layers)
    pairs = [(a, b) for a in range(len(x)) for b in range(a + 1 if same else 0, columns)]
    for start in reported(range(0, len(pairs), together)):
        part = [(a, first_y + b) for a, b in pairs[start : start + together]]
        gains = [_gains(neurons[a], neurons[b], correlates) for a, b in part]  # [p, q] each
        if matching == "best":
            values = [
                _best(g, neurons[a].takes_part, neurons[b].takes_part)
                for g, (a, b) in zip(gains, part, strict=True)
            ]
        else:
            assigned = list(_assigned(gains, neurons, part, scaled, score == "angular", rows))
            values = [value for value, _ in assigned]
            for (a, b), (_, partner) in zip(pairs[start : start + together], assigned, strict=True):
                if partners is not None:
                    partners[a, b] = partner
                    if same:
                        partners[b, a] = inverse(partner, layers[b].shape[1])
        for (a, b), value in zip(pairs[start : start + together], values, strict=True):
            grid[a, b] = value
            if same:
                grid[b, a] = value
    if same:
        grid.fill_diagonal_(1.0 if correlates else 0.0)
        if partners is not None:
            partners |= {(a, a): _itself(layer.takes_part) for a, layer in enumerate(neurons)}
    undefined = _undefined(neurons, scaled, score)  # [L]
    return grid.masked_fill(undefined[: len(x), None] | undefined[first_y:], torch.nan)


def _itself(takes_part: Tensor) -> Tensor:
    """Return every neuron that takes part as its own partner."""
    own = torch.arange(len(takes_part), device=takes_part.device)
    return own.masked_fill(~takes_part, -1)


def _undefined(neurons: Sequence[_Neurons], scaled: _Layers | None, score: str) -> Tensor:
    """Return the layers without a value: without variance, or of zeros for angles."""
    if scaled is None:
        return torch.stack([~layer.takes_part.any() for layer in neurons])  # [L]
    zero = torch.stack(scaled.norms) == 0  # [L]
    return zero if score == "angular" else torch.zeros_like(zero)


def _assigned(
    gains: Sequence[Tensor],
    neurons: Sequence[_Neurons],
    pairs: Sequence[tuple[int, int]],
    scaled: _Layers | None,
    angular: bool,
    rows: int,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield value and partners of each pair, given the gains of all; the host assigns neurons."""
    widest = max(layer.values.shape[1] for layer in neurons)
    flags = gains[0].new_zeros((len(neurons), widest), dtype=torch.bool)  # [L, widest]
    for of_layer, layer in zip(flags, neurons, strict=True):
        of_layer[: len(layer.takes_part)] = layer.takes_part
    matrices = gains[0].new_zeros((len(gains), widest, widest))  # [pairs, widest, widest]
    for matrix, gain in zip(matrices, gains, strict=True):
        matrix[: gain.shape[0], : gain.shape[1]] = gain
    of_rows, of_columns = zip(*pairs, strict=True)
    on_cpu = flags.cpu()
    assign = torch.ops.simcore.best_assignments
    flags_of_pairs = on_cpu[list(of_rows)], on_cpu[list(of_columns)]
    partners = assign(matrices.cpu(), *flags_of_pairs).to(flags.device)  # [pairs, widest]
    for gain, (a, b), all_partners in zip(gains, pairs, partners, strict=True):
        partner = all_partners[: len(gain)]  # [p]
        if scaled is not None:
            yield scaled.distance(a, b, partner, angular, rows), partner
            continue
        chosen = gain.gather(1, partner.clamp(min=0)[:, None]).flatten().double()  # [p]
        some = partner >= 0
        yield chosen.masked_fill(~some, 0.0).sum() / some.sum(), partner


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
OPERATORS: dict[str, Callable[..., object]] = {"match_neurons": in_full_float32(match_neurons)}
