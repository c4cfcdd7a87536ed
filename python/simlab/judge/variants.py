"""The measures of `simcore grid` as the documentation shows them: each with its options."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from simlab.similarity.catalogue import MEASURES, settings

if TYPE_CHECKING:
    import numpy as np

# Functions of another measure, which put all pairs in the same order.
REPEATED = ("cka-angular", "procrustes-distance", "procrustes-angular")
# Options of a measure whose defaults would take hours.
SHORT: dict[str, dict[str, Any]] = {"rtd": {"rows": 100, "draws": 1}}


@dataclass(frozen=True)
class Variant:
    """A measure of the catalogue with options."""

    measure: str
    options: dict[str, Any]

    @property
    def label(self) -> str:
        """Return the name of the measure, with the values of its options."""
        values = ", ".join(f"{name} {value}" for name, value in self.options.items())
        return f"{self.measure} ({values})" if values else self.measure

    @property
    def slug(self) -> str:
        """Return a name for a file."""
        return re.sub(r"[^\w.]+", "-", "-".join(map(str, (self.measure, *self.options.values()))))

    @property
    def is_distance(self) -> bool:
        """Return whether small values mean alike."""
        return MEASURES[self.measure].distance

    @property
    def is_permuted(self) -> bool:
        """Return whether permuted rows give a chance level."""
        return MEASURES[self.measure].paired and not self.takes_attention

    @property
    def takes_attention(self) -> bool:
        """Return whether layers are attention weights."""
        return not MEASURES[self.measure].takes_representations

    def function(self) -> Callable[..., np.ndarray]:
        """Return the grid function of simcore with all options."""
        import simcore

        measure = MEASURES[self.measure]
        chosen = {**measure.fixed, **settings(self.measure, self.options)}
        if not self.takes_attention:
            chosen.pop("causal", None)
        return partial(getattr(simcore, measure.function), **chosen)


def variants() -> list[Variant]:
    """Return all measures of the catalogue that differ in the order of pairs."""
    names = [name for name in MEASURES if name not in REPEATED]
    return [
        Variant(name, {**shown.options, **SHORT.get(name, {})})
        for name in names
        for shown in MEASURES[name].shown
    ]
