"""Numbers and sentences that claims share."""

from __future__ import annotations

import math

from simlab.evidence.intervals import Interval

# Least effects of interest.
TREND = 0.3  # of a rank correlation with depth
SLIGHT = 0.1  # of the way from chance to perfect agreement, and of perfect blocks
ALIKE = 0.05  # of a similarity, which is 1 at most
SHARE = 0.05  # of a number that is compared with another: an error, a norm
KEPT = 0.1  # of an error, up to which it counts as kept


def number(value: float) -> str:
    """Return a number with two decimals, or two digits if it is small, and no leading zero."""
    if math.isnan(value):
        return "–"
    if value == round(value):
        return f"{value:.0f}"
    text = f"{value:.2f}" if abs(value) >= 0.0995 else f"{value:.2g}"
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def bounds(interval: Interval) -> str:
    """Return the bounds of an interval, or nothing if there is none."""
    return "" if math.isnan(interval.low) else f"[{number(interval.low)}, {number(interval.high)}]"


def span(interval: Interval) -> str:
    """Return an estimate with its interval."""
    return f"{number(interval.estimate)} {bounds(interval)}".strip()
