"""Scaling of float64 layers whose squares, sums or differences would leave the range of float64.

Layers are multiplied by powers of two, which is exact and changes no measure. float32 layers and
half precisions need no scaling: operators compute them in units of the layer or in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

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
    """Return the layers, scaled where the largest difference within a column is not in ``limits``.

    If ``columns``, every column has its own power of two, for measures that do not depend on the
    scale of a single neuron, and the returned exponents are meaningless. Constant columns of a copy
    become 0: a constant of 1e306 would overflow if it were multiplied by the factor that columns of
    1e-306 need. Layers with NaN or infinity are returned as they are; later checks name them.
    """
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
    """Return the exponents that bring float64 magnitudes near 1; 0 where squares are in range.

    The host does not wait for the device, unlike with `in_range`.
    """
    exponents = torch.frexp(magnitudes).exponent.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT)
    return torch.where(exponents.abs() <= ORDINARY_EXPONENT, 0, exponents)


def near_one(magnitude: float) -> int:
    """Return the exponent that brings a magnitude near 1."""
    return max(-LARGEST_EXPONENT, min(LARGEST_EXPONENT, math.frexp(magnitude)[1]))


def _sizes(layer: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest difference and the largest magnitude of every column.

    Differences are at most the largest number of float64.
    """
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
