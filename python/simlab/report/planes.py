"""Numbers of grids as text in a page.

The planes of a setting (value, low, high, pvalue, calibrated) are laid end to end over all its
grids, as float32 numbers. A grid whose planes are all symmetric stores the entries on and above the
diagonal. The bytes of all numbers of one significance come together, the highest first, because
similar bytes compress better.

The page unpacks the text with ``atob`` and ``DecompressionStream("deflate")``.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence

import numpy as np

VALUE = "value"
PLANES = (VALUE, "low", "high", "pvalue", "calibrated")
_LEVEL = 5  # of zlib: 9 takes many times as long for 1 % less


def entries(plane: np.ndarray, symmetric: bool) -> np.ndarray:
    """Return the numbers of a grid that are stored: all, or those on and above the diagonal."""
    return plane[np.triu_indices(len(plane))] if symmetric else plane.ravel()


def is_symmetric(planes: Sequence[np.ndarray]) -> bool:
    """Return whether every plane equals its transpose."""
    return all(
        plane.shape[0] == plane.shape[1] and np.array_equal(plane, plane.T, equal_nan=True)
        for plane in planes
    )


def pack(plane: np.ndarray) -> str:
    """Return the stored entries of all grids of a setting as text."""
    with np.errstate(over="ignore"):  # a number beyond float32 is infinite
        numbers = plane.astype("<f4")
    split = numbers.view(np.uint8).reshape(-1, 4)[:, ::-1].T
    return compress(split.tobytes())


def compress(data: bytes) -> str:
    """Return bytes as the text that the page unpacks."""
    return base64.b64encode(zlib.compress(data, _LEVEL)).decode()
