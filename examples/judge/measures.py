"""The measures that are judged: simcore's, each with its options, and functions in files."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import isfunction
from pathlib import Path
from typing import Any

import numpy as np

import simcore
from simlab.similarity.catalogue import MEASURES, settings, spelled

# Functions of another measure, which put all pairs in the same order.
REPEATED = ("cka-angular", "procrustes-distance", "procrustes-angular")
# Options of a measure whose defaults would take hours.
SHORT: dict[str, dict[str, Any]] = {"rtd": {"rows": 100, "draws": 1}}


@dataclass(frozen=True)
class Variant:
    """A measure of simcore with options."""

    measure: str
    options: dict[str, Any]

    @property
    def label(self) -> str:
        """Return the name of the measure, with the values of its options."""
        values = ", ".join(f"{name} {value}" for name, value in self.options.items())
        return f"{self.measure} ({values})" if values else self.measure

    @property
    def is_distance(self) -> bool:
        """Return whether small values mean alike."""
        return MEASURES[self.measure].distance

    @property
    def takes_attention(self) -> bool:
        """Return whether layers are attention weights."""
        return not MEASURES[self.measure].takes_representations

    def grid(self, *sides: Sequence[Any]) -> np.ndarray:
        """Return the values for all layers of two sides, or of one side with each other."""
        return np.asarray(self.function()(*sides))

    def function(self) -> Callable[..., np.ndarray]:
        """Return the grid function of simcore with all options."""
        measure = MEASURES[self.measure]
        chosen = {**measure.fixed, **settings(self.measure, self.options)}
        if not self.takes_attention:
            chosen.pop("causal", None)
        return partial(getattr(simcore, measure.function), **chosen)


def variants() -> list[Variant]:
    """Return all measures of simcore that differ in the order of pairs."""
    return [
        Variant(name, {**shown.options, **SHORT.get(name, {})})
        for name in MEASURES
        if name not in REPEATED
        for shown in MEASURES[name].shown
    ]


def find(name: str, distance: bool) -> list[Variant | OfFile]:
    """Return the measure in the file `name`, or the variants of a measure of simcore."""
    if name.endswith(".py"):
        return [OfFile(Path(name), distance)]
    measure, known = spelled(name), [n for n in MEASURES if MEASURES[n].takes_representations]
    if measure not in known:
        raise SystemExit(f"{name}: wanted a Python file, or one of {', '.join(known)}")
    return [v for v in variants() if v.measure == measure] or [Variant(measure, {})]


class OfFile:
    """The function of two layers in a Python file: ``measure``, or the only public one."""

    def __init__(self, path: Path, distance: bool) -> None:
        self.label, self.is_distance = path.name, distance
        if not path.is_file():
            raise SystemExit(f"{path}: wanted a Python file, found none")
        sys.path.append(str(path.resolve().parent))  # the file may import its neighbours
        names = runpy.run_path(str(path), run_name="measure")
        own = {n: f for n, f in names.items() if isfunction(f) and f.__module__ == "measure"}
        public = [name for name in own if not name.startswith("_")]
        function = names.get("measure")
        if not callable(function) and len(public) != 1:
            wanted = "a function measure(x, y), or one function alone"
            raise SystemExit(f"{path}: wanted {wanted}, found {', '.join(public) or 'none'}")
        self.function = function if callable(function) else own[public[0]]

    def value(self, x: np.ndarray, y: np.ndarray) -> float:
        """Return the value of copies: a function may centre its arguments in place."""
        return float(self.function(x.astype(np.float64), y.astype(np.float64)))

    def grid(self, X: Sequence[np.ndarray], Y: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """Return the values for all layers of X and of Y, or of X with each other.

        Each pair of X is computed once if both orders of the first pairs have one value.
        """
        if Y is not None:
            return np.array([[self.value(x, y) for y in Y] for x in X])
        values = np.full((len(X), len(X)), np.nan)
        pairs = [(i, j) for i in range(len(X)) for j in range(i, len(X))]
        across = [pair for pair in pairs if pair[0] != pair[1]][:: max(1, len(pairs) // 3)]
        for i, j in across:
            values[i, j], values[j, i] = self.value(X[i], X[j]), self.value(X[j], X[i])
        symmetric = np.allclose(values, values.T, 1e-6, 0, equal_nan=True)
        for i, j in (pair for pair in pairs if pair not in across):
            values[i, j] = self.value(X[i], X[j])
            values[j, i] = values[i, j] if symmetric or i == j else self.value(X[j], X[i])
        return values
