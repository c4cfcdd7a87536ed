"""Tiles of rows that composed operators work on, so that `max_memory` bounds their workspace."""

from __future__ import annotations

import math
from collections.abc import Iterator

from simcore._grid.memory import require_memory

MOST_BYTES = 2**28  # of a tile: larger ones gain nothing, and fresh memory costs time
LEAST_SIDE = 16  # of a square tile, all of whose operations are launched one by one


def rows_that_fit(bound: int, held: int, of_row: int, n: int, purpose: str) -> int:
    """Return how many of n rows a tile takes: ``held + rows * of_row`` bytes fit ``bound``."""
    require_memory(held + of_row, bound, purpose)
    return max(1, min(n, min(bound - held, MOST_BYTES) // max(1, of_row)))


def side_that_fits(
    bound: int,
    held: int,
    of_row: int,
    of_entry: int,
    n: int,
    purpose: str,
    most_bytes: int = MOST_BYTES,
) -> int:
    """Return the side of square tiles of n rows and columns."""
    # ``held + side * of_row + side**2 * of_entry`` bytes are within ``bound``.
    side = min(n, LEAST_SIDE)
    least = side * of_row + side**2 * of_entry
    require_memory(held + least, bound, purpose)
    room = min(bound - held, max(most_bytes, least))
    root = math.isqrt(of_row**2 + 4 * of_entry * room)
    return max(side, min(n, (root - of_row) // (2 * of_entry)))


def tiles(n: int, rows: int) -> Iterator[slice]:
    return (slice(start, min(start + rows, n)) for start in range(0, n, rows))
