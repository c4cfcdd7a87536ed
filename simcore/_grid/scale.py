"""float64 layers whose squares, sums or differences would leave float64's range, brought near 1.

Measures do not feel a power of two, and multiplying by one is exact. float32 and half precisions
are computed in units of the layer or in float64, and need nothing of this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simcore._grid.memory import memory_bound

# Of the differences within a column: sums of squares of products of two such layers are in range.
SQUARED_TWICE = (1e-60, 1e60)
# The same: singular values are normal numbers, the least that count included.
SINGULAR_VALUES = (2.0**-900, 2.0**960)
# Of an entry (a constant column's), over the largest difference: it may still be multiplied by what
# brings that near 1.
LARGEST_RATIO = 1e250
LARGEST_EXPONENT = 1000  # 2^-1000 and 2^1000 are normal numbers; what remains is 2^74 at most


@dataclass(frozen=True)
class InRange:
    """Layers in range: ``given = layers[i] * 2**exponents[i]`` up to constants of the columns."""

    layers: list[Tensor]
    exponents: list[int]
    nbytes: int  # of the copies; 0: the layers are those that were given

    def workspace(self, max_memory: int) -> int:
        """What of `max_memory` (0: the default) the copies leave."""
        if self.nbytes == 0:
            return max_memory
        return max(memory_bound(max_memory, self.layers[0]) - self.nbytes, 1)


def in_range(
    layers: Sequence[Tensor],
    limits: tuple[float, float] = SQUARED_TWICE,
    *,
    columns: bool = False,
) -> InRange:
    """The layers, those copied and scaled whose largest difference in a column is not in `limits`.

    Parameters
    ----------
    layers : sequence of Tensor ``[n, p_i]``
    limits : pair of float
        `SQUARED_TWICE` or `SINGULAR_VALUES`.
    columns : bool
        Every column has its own power of two, for measures that do not feel the scale of a single
        neuron; the exponents that are returned mean nothing then.

    Notes
    -----
    Constant columns of a copy are 0: one of 1e306 beside others of 1e-306 could not be multiplied
    by what these need. Layers with NaN or infinity are left to the checks that name them.
    """
    found = [_sizes(layer) if layer.dtype == torch.float64 else None for layer in layers]
    facts = [_facts(*sizes) for sizes in found if sizes is not None]
    # One synchronisation with a device, not one a layer.
    known = iter(torch.stack(facts).tolist() if facts else [])
    result, exponents, nbytes = list(layers), [0] * len(layers), 0
    for i, (layer, sizes) in enumerate(zip(layers, found, strict=True)):
        if sizes is None:
            continue
        least, largest, entry = next(known)
        if largest == 0 or not math.isfinite(entry):
            continue
        varies_in_range = limits[0] < (least if columns else largest) and largest < limits[1]
        if varies_in_range and entry / largest < LARGEST_RATIO:
            continue
        exponents[i] = 0 if varies_in_range else _clamped(math.frexp(largest)[1])
        result[i] = _scaled(layer, sizes[0], None if columns else exponents[i])
        nbytes += result[i].nbytes
    return InRange(result, exponents, nbytes)


def _sizes(layer: Tensor) -> tuple[Tensor, Tensor]:
    """Of every column the largest difference, at most float64's largest number, and entry."""
    low, high = torch.aminmax(layer.detach(), dim=0)
    largest = torch.finfo(layer.dtype).max
    return (high - low).clamp(max=largest), torch.maximum(low.abs(), high.abs())


def _facts(differences: Tensor, entries: Tensor) -> Tensor:
    """The least difference but 0, the largest one, and the largest entry."""
    least = torch.where(differences > 0, differences, float("inf")).min()
    return torch.stack([least, differences.max(), entries.max()])


def _clamped(exponent: int) -> int:
    return max(-LARGEST_EXPONENT, min(LARGEST_EXPONENT, exponent))


def _scaled(layer: Tensor, differences: Tensor, exponent: int | None) -> Tensor:
    """``layer * 2**-exponent``, or each column so that its differences are near 1 (None)."""
    if exponent is None:
        own = torch.frexp(differences).exponent.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT)
        # The power of two itself, from float64's exponent bits: pow may round.
        scaled = layer * ((1023 - own.long()) << 52).view(torch.float64)
    else:
        scaled = layer * 2.0**-exponent
    return scaled.masked_fill_(differences == 0, 0.0)
