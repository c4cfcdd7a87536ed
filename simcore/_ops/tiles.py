"""Tiles of rows that composed operators work on, so that `max_memory` bounds their workspace."""

from __future__ import annotations

from collections.abc import Iterator

MOST_BYTES = 2**28  # of a tile: larger ones gain nothing, and fresh memory costs time


def rows_that_fit(bound: int, held: int, of_row: int, n: int, purpose: str) -> int:
    """Return how many of n rows a tile takes: ``held + rows * of_row`` bytes are within ``bound``.

    Raises
    ------
    ValueError
        There is no room for one row.
    """
    if held + of_row > bound:
        raise ValueError(
            f"max_memory: wanted at least {held + of_row} bytes for {purpose}, got {bound}"
        )
    return max(1, min(n, min(bound - held, MOST_BYTES) // max(1, of_row)))


def tiles(n: int, rows: int) -> Iterator[slice]:
    """Yield slices of ``rows`` of n numbers each; the last may be shorter."""
    return (slice(start, min(start + rows, n)) for start in range(0, n, rows))
