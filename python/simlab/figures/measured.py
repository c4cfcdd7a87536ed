"""A measure with its options, as rows of a table have it: its name, its words, and its colours."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.representations.kinds import CLS
from simlab.similarity.catalogue import MEASURES

if TYPE_CHECKING:
    from simcore._measures.record import Measure

MEASURED = "measured"  # the column that holds a `Measured` for every row


@dataclass(frozen=True)
class Measured:
    """The measure of some rows; rows of equal objects share a colour scale.

    The attributes are the columns of the results table with their names, None where the table has
    no value.
    """

    measure: str
    kind: str | None
    kernel: str | None
    bandwidth: float | None
    estimator: str | None
    options: str | None

    @cached_property
    def catalogued(self) -> Measure | None:
        """The measure as the catalogue has it; None of a metric or of a measure of the user's."""
        return MEASURES.get(self.measure)

    @property
    def is_distance(self) -> bool:
        """Whether equal layers have the lowest value."""
        return self.catalogued is not None and self.catalogued.distance

    @property
    def label(self) -> str:
        """The name of the measure alone."""
        return self.measure if self.catalogued is None else self.catalogued.label

    @cached_property
    def name(self) -> str:
        """The name of the measure with its kernel, estimator and unusual options."""
        kernel = {"linear": "linear ", "rbf": "RBF "}.get(self.kernel or "", "")
        notes = [self.estimator] if self.estimator is not None else []
        notes += [f"{key} {value}" for key, value in self._unusual.items()]
        return f"{kernel}{self.label}" + (f" ({', '.join(notes)})" if notes else "")

    @cached_property
    def title(self) -> str:
        """The name as it begins a title."""
        return f"{self.name[0].upper()}{self.name[1:]}"

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words of a file's name.

        They are the measure, and its kind, kernel, estimator and options where they are not usual.
        """
        unusual = [f"{name}-{value}" for name, value in self._unusual.items()]
        parts = [self.measure, self.kind, self.kernel, self.estimator, *unusual]
        return tuple(part for part in parts if part and part not in (CLS, "linear"))

    @cached_property
    def _unusual(self) -> dict[str, Any]:
        """The bandwidth and the stored options that differ from the defaults of the measure."""
        defaults = {} if self.catalogued is None else self.catalogued.options
        stored = {} if self.options is None else json.loads(self.options)
        if self.bandwidth is not None:
            stored = {"bandwidth": self.bandwidth, **stored}
        return {name: value for name, value in stored.items() if value != defaults.get(name)}

    def colours(self, values: Iterable[np.ndarray]) -> tuple[float, float]:
        """Return the values of the first and of the last colour; equal layers have the last one.

        Similarities begin at 0, or at the lowest value if it is below 0, and end at 1; one that is
        not in the catalogue ends at the greatest value, if that is above 1. Distances begin at the
        greatest possible distance, or at the greatest value if there is none, and end at 0.
        """
        values = list(values)
        known = self.catalogued
        if known is not None and known.distance:
            if math.isfinite(known.highest):
                return known.highest, 0.0
            return max(float(np.nanmax(part, initial=0.0)) for part in values) or 1.0, 0.0
        low = min(float(np.nanmin(part, initial=0.0)) for part in values)
        if known is None:
            return low, max(float(np.nanmax(part, initial=1.0)) for part in values)
        return max(known.lowest, low), 1.0


MEASURE_COLUMNS = tuple(column.name for column in fields(Measured))
