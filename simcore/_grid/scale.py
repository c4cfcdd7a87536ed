"""Layers that would leave the range of float64, or lose the distances between rows in float32.

float64 layers are multiplied by powers of two, which is exact and changes no measure. float32
layers and half precisions need no scaling: operators compute them in units of the layer or in
float64. Layers whose distances float32 would lose are copied to float64.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simcore._grid.accuracy import distances_are_lost
from simcore._grid.inputs import BLOCK_ENTRIES, DEVICE_BLOCK_ENTRIES, on_host
from simcore._grid.memory import memory_bound

# Limits of the differences within a column. For these, float64 holds the sums of squares of
# products of two layers.
SQUARED_TWICE = (1e-60, 1e60)
# For these, all singular values that count are normal numbers of float64.
SINGULAR_VALUES = (2.0**-900, 2.0**960)
# Largest ratio of an entry (of a constant column) and the largest difference: the factor that
# brings the difference near 1 does not make the entry overflow.
LARGEST_RATIO = 1e250
ORDINARY_EXPONENT = 300  # squares of 2^300 and sums of them are normal
LARGEST_EXPONENT = 1000  # 2^-1000 and 2^1000 are normal; scaled sizes lie in 2^-74 to 2^24
SAMPLED_ROWS = 64
# A quantile of the sampled distances that is below the median of all: the share of pairs that are
# near each other in the sample is off by up to 8 % of all pairs, one standard deviation.
LOW = 0.2
SAMPLED_ENTRIES = 2**22  # of the layers that are looked at together
SMALL = 2**16  # entries of a layer whose lengths are taken together with others of its shape
# Mean squared lengths of rows that float32 squares without overflow or underflow.
SQUARED_IN_FLOAT32 = (1e-28, 1e34)


@dataclass(frozen=True)
class InRange:
    """Scaled layers: the given ones are ``layers[i] * 2**exponents[i]`` plus constant columns."""

    layers: list[Tensor]
    exponents: list[int]
    nbytes: int  # bytes of the copies; 0 if no layer was copied

    def workspace(self, max_memory: int) -> int:
        """Return the bytes of ``max_memory`` (0: the default) that the copies leave."""
        if self.nbytes == 0:
            return max_memory
        return max(memory_bound(max_memory, self.layers[0]) - self.nbytes, 1)


def in_range(
    layers: Sequence[Tensor],
    limits: tuple[float, float] = SQUARED_TWICE,  # or `SINGULAR_VALUES`
    *,
    columns: bool = False,
) -> InRange:
    """Return layers, scaled where the largest difference within a column is not in ``limits``."""
    # If ``columns``, every column has its own power of two, for measures that do not depend on the
    # scale of a single neuron, and the returned exponents are meaningless. Constant columns of a
    # copy become 0: a constant of 1e306 would overflow if it were multiplied by the factor that
    # columns of 1e-306 need. Layers with NaN or infinity are returned as they are; later checks
    # name them.
    measured = [_sizes(layer) if layer.dtype == torch.float64 else None for layer in layers]
    facts = [_facts(*sizes) for sizes in measured if sizes is not None]
    # One synchronisation with the device for all layers.
    known = iter(torch.stack(facts).tolist() if facts else [])
    result, exponents, nbytes = list(layers), [0] * len(layers), 0
    for i, (layer, sizes) in enumerate(zip(layers, measured, strict=True)):
        if sizes is None:
            continue
        least, largest, entry = next(known)
        if largest == 0 or not math.isfinite(entry):
            continue
        varies_in_range = limits[0] < (least if columns else largest) and largest < limits[1]
        if varies_in_range and entry / largest < LARGEST_RATIO:
            continue
        exponents[i] = 0 if varies_in_range else near_one(largest)
        result[i] = _scaled(layer, sizes[0], None if columns else exponents[i])
        nbytes += result[i].nbytes
    return InRange(result, exponents, nbytes)


def exponents_to_remove(magnitudes: Tensor) -> Tensor:
    """Return the exponents that bring float64 magnitudes near 1; 0 where squares are in range."""
    # The host does not wait for the device, unlike with `in_range`.
    exponents = torch.frexp(magnitudes).exponent.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT)
    return torch.where(exponents.abs() <= ORDINARY_EXPONENT, 0, exponents)


def near_one(magnitude: float) -> int:
    """Return the exponent that brings a magnitude near 1."""
    return max(-LARGEST_EXPONENT, min(LARGEST_EXPONENT, math.frexp(magnitude)[1]))


def _sizes(layer: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest difference and the largest magnitude of every column."""
    low, high = torch.aminmax(layer.detach(), dim=0)
    largest = torch.finfo(layer.dtype).max
    return (high - low).clamp(max=largest), torch.maximum(low.abs(), high.abs())


def _facts(differences: Tensor, entries: Tensor) -> Tensor:
    """Return the least difference above 0, the largest difference and the largest entry."""
    least = torch.where(differences > 0, differences, float("inf")).min()
    return torch.stack([least, differences.max(), entries.max()])


def _scaled(layer: Tensor, differences: Tensor, exponent: int | None) -> Tensor:
    """Return ``layer * 2**-exponent``; None brings the differences of every column near 1."""
    if exponent is None:
        own = torch.frexp(differences).exponent.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT)
        # The exponent bits of float64 give the exact power of two; pow may round.
        scaled = layer * ((1023 - own.long()) << 52).view(torch.float64)
    else:
        scaled = layer * 2.0**-exponent
    return scaled.masked_fill_(differences == 0, 0.0)


def resolved(layers: list[Tensor], bandwidth: float = 1.0) -> InRange:
    """Return the layers, in float64 where float32 would lose the distances between rows."""
    # ``bandwidth`` is the width of an RBF kernel in median distances. Nothing is scaled: all
    # exponents are 0.
    narrow = [i for i, layer in enumerate(layers) if layer.dtype != torch.float64]
    result, nbytes = list(layers), 0
    if not narrow:
        return InRange(result, [0] * len(layers), nbytes)
    groups = list(_alike(layers, narrow))
    (sampled,) = on_host(
        [torch.cat([_sampled_distances([layers[i].detach() for i in one]) for one in groups])]
    )
    order = [i for group in groups for i in group]
    longest = row_lengths([layers[i].detach() for i in order])[:, 2]
    for i, row, (low, median) in zip(order, longest.tolist(), sampled.tolist(), strict=True):
        lost = distances_are_lost(row, median, bandwidth, len(layers[0]))
        if not lost and distances_are_lost(row, low, bandwidth, len(layers[0])):
            median = float(torch.ops.simcore.median_squared_distances([layers[i].detach()], []))
            lost = distances_are_lost(row, median, bandwidth, len(layers[0]))
        if lost:
            result[i] = layers[i].double()
            nbytes += result[i].nbytes
    return InRange(result, [0] * len(layers), nbytes)


def _alike(layers: Sequence[Tensor], members: Sequence[int]) -> Iterator[list[int]]:
    """Yield members of one shape and dtype whose samples have `SAMPLED_ENTRIES` together."""
    by_kind: dict[tuple[torch.Size, torch.dtype], list[int]] = {}
    for i in members:
        by_kind.setdefault((layers[i].shape, layers[i].dtype), []).append(i)
    for (shape, _), alike in by_kind.items():
        most = max(1, SAMPLED_ENTRIES // (SAMPLED_ROWS * shape[1]))
        yield from (alike[start : start + most] for start in range(0, len(alike), most))


def _sampled_distances(layers: list[Tensor]) -> Tensor:
    """Return two quantiles ``[L, 2]`` of the squared distances between some rows, float64."""
    # They are one below all medians that the rest of the rows may have, and the median. The rows
    # are the same ones on every call, in an order without a period: every T-th row may be a sink.
    order = torch.randperm(len(layers[0]), generator=torch.Generator().manual_seed(0))
    rows = order[:SAMPLED_ROWS].to(layers[0].device)
    sample = torch.stack([layer[rows] for layer in layers]).double()
    i, j = torch.triu_indices(sample.shape[1], sample.shape[1], 1, device=sample.device)
    exact = "donot_use_mm_for_euclid_dist"
    distances = torch.cdist(sample, sample, compute_mode=exact)[:, i, j].sort(1).values
    last = distances.shape[1] - 1
    return distances[:, [int(LOW * last), last // 2]].square()


def row_lengths(layers: Sequence[Tensor]) -> Tensor:
    """Return facts about the squared lengths of centred rows, ``[L, 3]`` float64 on the host."""
    # They are the sum, the sum of squares and the maximum. A few digits are enough: float32
    # squares, and float64 where these leave the range of float32.
    sums: dict[int, Tensor] = {}
    for group in _small_and_alike(layers):
        stack = torch.stack([layers[i] for i in group]) if group[1:] else layers[group[0]][None]
        dtype = torch.promote_types(stack.dtype, torch.float32)
        sums.update(zip(group, _sums_of_lengths(stack, dtype).unbind(), strict=True))
    (result,) = on_host([torch.stack([sums[i] for i in range(len(layers))])])
    means = result[:, 0] / len(layers[0])
    least, largest = SQUARED_IN_FLOAT32
    for i in (~((means > least) & (means < largest))).nonzero().flatten().tolist():
        result[i] = _sums_of_lengths(layers[i][None], torch.float64)[0]
    return result


def _small_and_alike(layers: Sequence[Tensor]) -> Iterable[list[int]]:
    """Return the numbers of small layers of one shape together, and of every other layer alone."""
    groups: dict[Hashable, list[int]] = {}
    for i, layer in enumerate(layers):
        key = (layer.shape, layer.dtype) if layer.numel() <= SMALL else i
        groups.setdefault(key, []).append(i)
    return groups.values()


def _sums_of_lengths(stack: Tensor, dtype: torch.dtype) -> Tensor:
    mean = stack.mean(1, keepdim=True, dtype=dtype)
    entries = BLOCK_ENTRIES if stack.device.type == "cpu" else DEVICE_BLOCK_ENTRIES
    blocks = stack.split(max(1, entries // (stack.shape[0] * stack.shape[2])), dim=1)
    lengths = torch.cat([torch.linalg.vector_norm(rows - mean, dim=2) for rows in blocks], 1)
    squares = lengths.double().square()
    return torch.stack([squares.sum(1), squares.square().sum(1), squares.amax(1)], 1)
