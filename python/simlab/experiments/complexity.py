"""How complex a layer is: along how many directions its rows vary."""

from __future__ import annotations

import numpy as np


def nuclear_norm(rows: np.ndarray) -> float:
    """Nuclear norm of the centred rows at unit Frobenius norm; ``nan`` if they do not vary.

    Between 1, for rows on a line, and the square root of the rank, where all directions vary alike
    (Ren et al. 2023, appendix B.2).
    """
    import simcore

    if not varies(rows):
        return float("nan")
    spectrum = simcore.bases([rows])[0].spectrum
    return float(spectrum.sum() / spectrum.norm())


def varies(rows: np.ndarray) -> bool:
    """Whether there are rows, and not all the same."""
    return bool(len(rows)) and bool((rows != rows[0]).any())
