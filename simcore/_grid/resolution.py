"""How long rows are, and layers whose distances between rows need float64."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from simcore._grid.accuracy import distances_are_lost
from simcore._grid.inputs import BLOCK_ENTRIES, DEVICE_BLOCK_ENTRIES, on_host
from simcore._grid.scale import InRange

SAMPLED_ROWS = 64
# A quantile of the sampled distances that is below the median of all: the share of pairs that are
# near each other in the sample is off by up to 8 % of all pairs, one standard deviation.
LOW = 0.2
SAMPLED_ENTRIES = 2**22  # of the layers that are looked at together
SMALL = 2**16  # entries of a layer whose lengths are taken together with others of its shape
# Mean squared lengths of rows that float32 squares without overflow or underflow.
SQUARED_IN_FLOAT32 = (1e-28, 1e34)


def resolved(layers: list[Tensor], bandwidth: float = 1.0) -> InRange:
    """Return the layers, in float64 where float32 would lose the distances between rows.

    ``bandwidth`` is the width of an RBF kernel in median distances. Nothing is scaled: all
    exponents are 0.
    """
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
    """Return two quantiles ``[L, 2]`` of the squared distances between some rows, float64.

    They are one below all medians that the rest of the rows may have, and the median. The rows are
    the same ones on every call, in an order without a period: every T-th row may be a sink.
    """
    order = torch.randperm(len(layers[0]), generator=torch.Generator().manual_seed(0))
    rows = order[:SAMPLED_ROWS].to(layers[0].device)
    sample = torch.stack([layer[rows] for layer in layers]).double()
    i, j = torch.triu_indices(sample.shape[1], sample.shape[1], 1, device=sample.device)
    exact = "donot_use_mm_for_euclid_dist"
    distances = torch.cdist(sample, sample, compute_mode=exact)[:, i, j].sort(1).values
    last = distances.shape[1] - 1
    return distances[:, [int(LOW * last), last // 2]].square()


def row_lengths(layers: Sequence[Tensor]) -> Tensor:
    """Return facts about the squared lengths of centred rows, ``[L, 3]`` float64 on the host.

    They are the sum, the sum of squares and the maximum. A few digits are enough: float32 squares,
    and float64 where these leave the range of float32.
    """
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
