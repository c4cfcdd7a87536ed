"""The grid of a measure and its twin, from the record of the measure."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

EPS = float(np.finfo(np.float32).eps)


def grid_of(measure: str, **options: Any) -> Callable[..., Any]:
    """Return the grid function of a measure with these options."""
    import simcore
    from simcore._measures import MEASURES

    record = MEASURES[measure]
    return functools.partial(getattr(simcore, record.function), **record.fixed, **options)


def twin_of(measure: str, **options: Any) -> Callable[..., Any]:
    """Return the twin with these options, and the rule of rank of float32 where it has one."""
    from simcore import reference
    from simcore._measures import MEASURES

    record = MEASURES[measure]
    twin = getattr(reference, record.function)
    ranked = {"eps": EPS} if "eps" in inspect.signature(twin).parameters else {}
    return functools.partial(twin, **record.fixed, **options, **ranked)
