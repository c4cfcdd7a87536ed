"""Contiguous spans of layers: span [i, j) stands for layers i + 1 to j."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Span = tuple[int, int]
EMPTY: Span = (0, 0)


def spans(layers: int) -> list[Span]:
    """Return the empty span and all spans [i, j) with 0 <= i < j <= `layers`."""
    return [EMPTY, *((i, j) for i in range(layers) for j in range(i + 1, layers + 1))]


def in_parts(items: Sequence[Any], size: int) -> list[Any]:
    """Return `items` in parts of `size`, the last of which may be smaller."""
    return [items[start : start + size] for start in range(0, len(items), size)]
