"""Measure the complexity of a layer: the number of directions along which its rows vary."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from simlab.store.results import NUCLEAR, NUCLEAR_RAW

_BLOCK = 8  # rows of a decomposition, in columns of the layer: what is copied stays small


def nuclear_norm(rows: np.ndarray) -> float:
    """Return the nuclear norm of the centred rows at unit Frobenius norm; nan if they do not vary.

    The norm is between 1, for rows on a line, and the square root of the rank, if the rows vary
    equally along all directions. The norms of layers of different scale or offset can be compared.
    """
    import simcore

    if not varies(rows):
        return float("nan")
    spectrum = simcore.bases([rows])[0].spectrum
    return float(spectrum.sum() / spectrum.norm())


def raw_nuclear_norm(rows: np.ndarray) -> float:
    """Return the nuclear norm of the rows as they are (Ren et al. 2023, appendix B.2).

    The norm grows with the scale of the layer, the number of its rows and their common offset. It
    is computed in float64: beside the large singular value of the offset, float32 would lose the
    small ones.
    """
    if not len(rows):
        return float("nan")
    width = rows.shape[1]
    triangle = np.empty((0, width))
    for start in range(0, len(rows), _BLOCK * width):
        block = rows[start : start + _BLOCK * width].astype(np.float64)
        triangle = np.linalg.qr(np.concatenate([triangle, block]), mode="r")
    return float(np.linalg.svd(triangle, compute_uv=False).sum())


COMPLEXITIES: Mapping[str, Callable[[np.ndarray], float]] = {
    NUCLEAR: nuclear_norm,
    NUCLEAR_RAW: raw_nuclear_norm,
}


def varies(rows: np.ndarray) -> bool:
    """Return whether there are rows, and they are not all the same."""
    return bool(len(rows)) and bool((rows != rows[0]).any())
