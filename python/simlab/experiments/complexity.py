"""The complexity of a layer: its nuclear norm, which grows with the directions of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from simlab.results.results import NUCLEAR, NUCLEAR_RAW

_BLOCK = 8  # rows of a decomposition, in columns of the layer: what is copied stays small


def nuclear_norm(rows: np.ndarray) -> float:
    """Return the nuclear norm of the centred rows at unit Frobenius norm; nan if they do not vary.

    The norm is between 1, for rows on a line, and the square root of the rank, if the rows vary
    equally along all directions. The norms of layers of different scale or offset can be compared.
    """
    if not varies(rows):
        return float("nan")
    spectrum = _spectrum(rows, rows.mean(0, dtype=np.float64))
    return float(spectrum.sum() / np.linalg.norm(spectrum))


def raw_nuclear_norm(rows: np.ndarray) -> float:
    """Return the nuclear norm of the rows as they are (Ren et al. 2023, appendix B.2).

    The norm grows with the scale of the layer, the number of its rows and their common offset.
    """
    return float(_spectrum(rows).sum()) if len(rows) else float("nan")


COMPLEXITIES: Mapping[str, Callable[[np.ndarray], float]] = {
    NUCLEAR: nuclear_norm,
    NUCLEAR_RAW: raw_nuclear_norm,
}


def _spectrum(rows: np.ndarray, origin: np.ndarray | float = 0.0) -> np.ndarray:
    """Return the singular values of the rows less ``origin``.

    They are computed in float64: beside large values, float32 would lose the small ones.
    """
    width = rows.shape[1]
    triangle = np.empty((0, width))
    for start in range(0, len(rows), _BLOCK * width):
        block = rows[start : start + _BLOCK * width] - origin
        triangle = np.linalg.qr(np.concatenate([triangle, block.astype(np.float64)]), mode="r")
    return np.linalg.svd(triangle, compute_uv=False)


def varies(rows: np.ndarray) -> bool:
    """Return whether there are rows, and they are not all the same."""
    return bool(len(rows)) and bool((rows != rows[0]).any())
