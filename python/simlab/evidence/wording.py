"""Numbers and sentences that claims share."""

from __future__ import annotations

import math

from simlab.evidence.intervals import ALPHA, LEAST_MODELS, Interval

TOO_FEW = f"or with fewer than {LEAST_MODELS} models"
DECIDED_ABOVE = (
    f"Holds if the {1 - ALPHA:.0%} interval lies above 0, fails if it lies below 0; undecided "
    f"otherwise {TOO_FEW}."
)
DECIDED_BELOW = (
    f"Holds if the {1 - ALPHA:.0%} interval lies below 0, fails if it lies above 0; undecided "
    f"otherwise {TOO_FEW}."
)


def number(value: float) -> str:
    """Return a number with two decimals, or two digits if it is small, and no leading zero."""
    if math.isnan(value):
        return "–"
    if value == round(value):
        return f"{value:.0f}"
    text = f"{value:.2f}" if abs(value) >= 0.0995 else f"{value:.2g}"
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def bounds(found: Interval) -> str:
    """Return the bounds of an interval, or nothing if there is none."""
    return "" if math.isnan(found.low) else f"[{number(found.low)}, {number(found.high)}]"


def span(found: Interval) -> str:
    """Return an estimate with its interval."""
    return f"{number(found.estimate)} {bounds(found)}".strip()
