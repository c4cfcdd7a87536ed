"""Measure the complexity of a layer: the number of directions along which its rows vary."""

from __future__ import annotations

import numpy as np


def nuclear_norm(rows: np.ndarray) -> float:
    """Return the nuclear norm of the centred rows at unit Frobenius norm; nan if they do not vary.

    The norm is between 1, for rows on a line, and the square root of the rank, if the rows vary
    equally along all directions (Ren et al. 2023, appendix B.2).
    """
    import simcore

    if not varies(rows):
        return float("nan")
    spectrum = simcore.bases([rows])[0].spectrum
    return float(spectrum.sum() / spectrum.norm())


def varies(rows: np.ndarray) -> bool:
    """Return whether there are rows, and they are not all the same."""
    return bool(len(rows)) and bool((rows != rows[0]).any())
