"""Every measure by its name: a mapping, whose values compare two arrays.

>>> import numpy as np
>>> import simcore
>>> from simcore.measures import cka
>>> x, y = np.random.default_rng(0).standard_normal((2, 100, 8))
>>> cka(x, y) == simcore.measures["cka"](x, y)
True
>>> simcore.measures["procrustes-distance"].is_distance
True

``print(simcore.measures)`` shows the names, the ranges and what the measures say. In names, ``_``
may stand for ``-``.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from simcore import _measures as records
from simcore._grid.inputs import Array
from simcore._grid.options import did_you_mean
from simcore._measures.record import Measure as Record
from simcore._measures.record import closure
from simcore.stats.resampled_grid import function_of

__all__ = ["Measure"]


class Measure:
    """A measure of similarity or of distance, called on two arrays.

    Attributes
    ----------
    name, label, summary : str
        The name, the name in tables and figures, and what the measure says.
    is_distance : bool
        Whether a layer and itself are 0, and large values mean unlike layers.
    is_symmetric : bool
        Whether x against y is y against x.
    lowest, highest : float
        The least and the greatest possible value.
    takes : tuple of str
        What is compared: ``"layers"`` ``[n, p]``, ``"predictions"`` ``[n, classes]``, or
        ``"attention"`` as in `simcore.attention_grid`.
    options : dict
        The options that are most used, and their defaults; all options are those of `grid`.
    invariances : frozenset of str
        Changes of a layer that leave the value as it is, in the words of the pages of the measures.
    """

    def __init__(self, record: Record) -> None:
        self.name, self.label, self.summary = record.name, record.label, record.summary
        self.is_distance, self.is_symmetric = record.distance, record.symmetric
        self.lowest, self.highest = record.lowest, record.highest
        self.takes, self.options = record.takes, dict(record.options)
        self.invariances = closure(record.invariant)
        self._record = record

    @functools.cached_property
    def _function(self) -> Any:
        return functools.partial(function_of(self._record), **self._record.fixed)

    def grid(self, X: Any, Y: Any = None, **options: Any) -> Array:
        """Compare all layers of X with all layers of Y, or with each other.

        Parameters, return value and errors are those of the grid function, such as
        `simcore.cka_grid`, with the options that make it this measure.
        """
        return self._function(X, Y, **options)

    def __call__(self, x: Any, y: Any, **options: Any) -> float:
        """Compare two layers.

        Parameters
        ----------
        x, y : array ``[n, p]``, ``[n, q]``
            torch tensors, numpy arrays, or what numpy makes an array of; for measures that take
            them also a `simcore.Basis`, `simcore.Rdm` or `simcore.Gram`.
        **options
            Of the measure.

        Returns
        -------
        float

        Raises
        ------
        TypeError, ValueError
            As `grid`.
        """
        try:
            return float(self.grid([x], [y], **options)[0, 0])
        except (TypeError, ValueError) as error:
            text = re.sub(r"\b([XYAB])\[0\]", lambda side: side[1].lower(), str(error))
            if text == str(error):
                raise
            raise type(error)(text) from error

    def __repr__(self) -> str:
        kind = "distance" if self.is_distance else "similarity"
        return f"<{self.name}: {self.summary} ({kind}, {self.lowest:.3g} to {self.highest:.3g})>"


class _Measures(ModuleType, Mapping[str, Measure]):
    """This module as a mapping of its measures, of which it has each as an attribute too."""

    # A module is itself alone, and a key of dictionaries; a mapping is neither.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getitem__(self, name: str) -> Measure:
        known = records.spelled(name, _ALL) if isinstance(name, str) else name
        if known not in _ALL:
            raise KeyError(
                f"measure{did_you_mean(name, _ALL)}: wanted {', '.join(_ALL)}, got {name!r}"
            )
        return _ALL[known]

    def __iter__(self) -> Iterator[str]:
        return iter(_ALL)

    def __len__(self) -> int:
        return len(_ALL)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and records.spelled(name, _ALL) in _ALL

    def __getattr__(self, name: str) -> Measure:
        if name.startswith("_") or name not in self:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return self[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name.replace("-", "_") for name in _ALL)})

    def __repr__(self) -> str:
        rows = [
            (m.name, "distance" if m.is_distance else "similarity", _range(m), m.summary)
            for m in _ALL.values()
        ]
        rows.insert(0, ("name", "kind", "range", "what it says"))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = (
            "  ".join(f"{cell:{w}}" for cell, w in zip(row, [*widths, 0], strict=True))
            for row in rows
        )
        return "\n".join(lines)


def _range(measure: Measure) -> str:
    return f"{measure.lowest:.3g} to {measure.highest:.3g}"


_ALL = {name: Measure(record) for name, record in records.MEASURES.items()}

if TYPE_CHECKING:
    measures: Mapping[str, Measure]  # what `simcore.measures` is

    def __getattr__(name: str) -> Measure: ...

else:
    sys.modules[__name__].__class__ = _Measures
