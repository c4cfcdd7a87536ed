"""Draws of a value over its examples, as text in column `draws` of a results table.

Draw k of two values is of the same examples where the number of examples, the number of draws and
their seed are equal: the examples are drawn by their numbers, whatever the model. So a reader can
put draw k of all values into an estimate, and knows how far the errors of models go together.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np

KEPT = 100  # draws of a value; the spread of as many is known to 7 %
_TYPE = np.dtype("<f4")


def pack(values: Sequence[float] | np.ndarray, examples: int) -> str | None:
    """Return the first `KEPT` draws of a value as text; None if fewer than two are defined.

    `values` has the value of each draw, nan where it is undefined, and `examples` is the number of
    examples that the draws are taken from.
    """
    kept = np.asarray(values, float)[:KEPT]
    if np.isfinite(kept).sum() < 2:
        return None
    deviations = (kept - np.nanmean(kept)).astype(_TYPE)
    return f"{examples}:{base64.b64encode(deviations.tobytes()).decode()}"


def unpack(text: str) -> tuple[int, np.ndarray]:
    """Return the number of examples, and the deviations of the draws from their mean, float64."""
    examples, _, encoded = text.partition(":")
    return int(examples), np.frombuffer(base64.b64decode(encoded), _TYPE).astype(float)
