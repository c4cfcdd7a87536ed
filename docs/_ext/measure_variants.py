"""The measures that the pages of docs/measures show: each with its options, page and rows.

A `Variant` is one measure with its options. `VARIANTS` lists them in the order of the table of all
measures. They are read from the records of the measures (`simcore/_measures`); only minibatch CKA,
which is a class, has none.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import simcore
from simcore._measures import MEASURES
from simcore._measures.record import Measure
from simcore._measures.record import Variant as Shown

BATCHES = 4
MINIBATCH = replace(MEASURES["cka"], name="minibatch CKA", function="MinibatchCKA", variants=())


@dataclass(frozen=True, eq=False)
class Variant:
    """A measure with its options.

    Attributes
    ----------
    known
        The record of the measure.
    label
        Name of the variant, as the table of its page has it.
    options
        Options as the rows of the identification study have them.
    job
        Job of `bench` that times it.
    least
        Changes of the value that are smaller are rounding, in units of the largest change.
    """

    known: Measure
    label: str
    options: Mapping[str, Any] = field(default_factory=dict)
    job: str = ""
    least: float = 1e-8

    @property
    def measure(self) -> str:
        """Name of the measure."""
        return self.known.name

    @property
    def page(self) -> str:
        """Name of its page below docs/measures."""
        return self.known.page

    @property
    def kind(self) -> str:
        """What is compared: ``layers``, ``attention`` or ``predictions``."""
        return self.known.takes[0]

    def __call__(self, x: Sequence[Any], y: Sequence[Any] | None = None) -> np.ndarray:
        """Return the grid of layers ``x`` with ``y``, or with each other."""
        if self.known is MINIBATCH:
            return minibatch_cka(x, x if y is None else y)
        sides = (x,) if y is None else (x, y)
        options = {**self.known.fixed, **self.options}
        return np.asarray(getattr(simcore, self.known.function)(*sides, **options))


def minibatch_cka(x: Sequence[np.ndarray], y: Sequence[np.ndarray]) -> np.ndarray:
    """Return CKA from batches of consecutive rows."""
    metric = simcore.MinibatchCKA()
    for rows in np.array_split(np.arange(len(x[0])), BATCHES):
        metric.update([layer[rows] for layer in x], [layer[rows] for layer in y])
    return np.asarray(metric.compute())


def _variants() -> tuple[Variant, ...]:
    found = []
    for measure in MEASURES.values():
        shown: tuple[Shown, ...] = measure.shown
        found += [Variant(measure, one.label, one.options, one.job) for one in shown]
        if measure.name == "cka":
            found.append(Variant(MINIBATCH, MINIBATCH.name))
    return tuple(found)


VARIANTS = _variants()
BY_LABEL = {variant.label: variant for variant in VARIANTS}


@functools.cache
def of_page(page: str) -> tuple[Variant, ...]:
    """Return the variants that a page shows, in its order."""
    return tuple(variant for variant in VARIANTS if variant.page == page)
