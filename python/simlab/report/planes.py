"""Numbers of grids as text in a page: in 16 bits with a stated step, or exactly.

The planes of a setting (value, low, high, pvalue, calibrated) are laid end to end over all its
grids. A grid whose planes are all symmetric stores the entries on and above the diagonal. In 16
bits a value is a number of steps above the lowest value; `MISSING` is nan. Low and high are stored
as differences from the value, because small numbers compress better. All high bytes come before all
low bytes, for the same reason.

The page unpacks the text with ``atob`` and ``DecompressionStream("deflate")``.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

VALUE, LOW, HIGH, PVALUE, CALIBRATED = "value", "low", "high", "pvalue", "calibrated"
PLANES = (VALUE, LOW, HIGH, PVALUE, CALIBRATED)
STEPS = 65534  # the largest number of steps
MISSING = 65535
_LEVEL = 5  # of zlib: 9 takes many times as long for 1 % less


@dataclass(frozen=True)
class Packed:
    """The planes of one setting."""

    # By plane that has a number: its format and start (`lowest`, `step`), as JSON values.
    planes: dict[str, dict[str, Any]]
    text: dict[str, str]  # by plane: its compressed numbers


def entries(plane: np.ndarray, symmetric: bool) -> np.ndarray:
    """Return the numbers of a grid that are stored: all, or those on and above the diagonal."""
    return plane[np.triu_indices(len(plane))] if symmetric else plane.ravel()


def is_symmetric(planes: Sequence[np.ndarray]) -> bool:
    """Return whether every plane equals its transpose."""
    return all(
        plane.shape[0] == plane.shape[1] and np.array_equal(plane, plane.T, equal_nan=True)
        for plane in planes
    )


def pack(numbers: dict[str, np.ndarray], exact: bool = False) -> Packed:
    """Return the planes of a setting as text.

    `numbers` has for every plane the stored entries of all grids, end to end; planes without a
    number are left out. If `exact`, numbers are stored as float32, as they are anyway where an
    interval is narrower than a step and where a number is infinite.
    """
    planes = {name: numbers[name] for name in PLANES if np.isfinite(numbers[name]).any()}
    if VALUE not in planes:
        planes[VALUE] = numbers[VALUE]
    bounds = [planes[name] for name in (VALUE, LOW, HIGH) if name in planes]
    lowest, step = _scale(bounds)
    if exact or _narrow(planes, step) or any(np.isinf(plane).any() for plane in planes.values()):
        texts = {name: _text(plane.astype("<f4")) for name, plane in planes.items()}
        return Packed({name: {"format": "f4"} for name in planes}, texts)
    steps = {
        name: _steps(planes[name], lowest, step) for name in (VALUE, LOW, HIGH) if name in planes
    }
    described = {name: {"format": "u2", "lowest": lowest, "step": step} for name in steps}
    texts = {name: _text(_difference(steps[VALUE], values)) for name, values in steps.items()}
    texts[VALUE] = _text(steps[VALUE])
    for name in (PVALUE, CALIBRATED):
        if name in planes:
            own, own_step = _scale([planes[name]])
            described[name] = {"format": "u2", "lowest": own, "step": own_step}
            texts[name] = _text(_steps(planes[name], own, own_step))
    return Packed(described, texts)


def compress(data: bytes) -> str:
    """Return bytes as the text that the page unpacks."""
    return base64.b64encode(zlib.compress(data, _LEVEL)).decode()


def _scale(planes: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the lowest number of the planes and the step that reaches the highest."""
    finite = [plane[np.isfinite(plane)] for plane in planes]
    filled = [plane for plane in finite if len(plane)]
    if not filled:
        return 0.0, 1.0
    lowest = min(float(plane.min()) for plane in filled)
    highest = max(float(plane.max()) for plane in filled)
    return lowest, (highest - lowest) / STEPS or 1.0


def _narrow(planes: dict[str, np.ndarray], step: float) -> bool:
    """Return whether an interval that float32 numbers can hold is narrower than a step."""
    if LOW not in planes or HIGH not in planes:
        return False
    with np.errstate(invalid="ignore"):  # an infinite interval
        width = planes[HIGH] - planes[LOW]
    # The interval of a layer with itself is rounding.
    held = width > np.spacing(np.abs(planes[HIGH]).astype(np.float32))
    return bool((width[held] < step).any())


def _steps(plane: np.ndarray, lowest: float, step: float) -> np.ndarray:
    """Return the number of steps of each value."""
    steps = np.full(len(plane), MISSING, dtype="<u2")
    finite = np.isfinite(plane)
    steps[finite] = np.rint((plane[finite] - lowest) / step).clip(0, STEPS)
    return steps


def _difference(value: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """Return value - bound modulo `MISSING`, so that a missing value counts as 0.

    `MISSING` itself stands for a missing bound.
    """
    difference = (value.astype(np.int64) - bound) % MISSING
    return np.where(bound == MISSING, MISSING, difference).astype("<u2")


def _text(plane: np.ndarray) -> str:
    """Return the numbers with their bytes split, the high bytes first."""
    width = plane.dtype.itemsize
    split = plane.view(np.uint8).reshape(-1, width)[:, ::-1].T
    return compress(split.tobytes())
