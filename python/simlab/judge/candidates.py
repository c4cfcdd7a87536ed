"""The measures that are judged: simcore's, and functions in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simlab.errors import UserError, did_you_mean, one_of
from simlab.judge.functions import as_grid, read_function
from simlab.judge.variants import Variant, variants
from simlab.similarity.catalogue import MEASURES, spelled

Grid = Callable[[Sequence[np.ndarray], Sequence[np.ndarray] | None], np.ndarray]


@dataclass(frozen=True)
class Candidate:
    """A measure that is judged."""

    label: str  # name in tables and figures; for a file, the name of the file
    is_distance: bool  # whether small values mean alike
    grid: Grid  # values for all layers of X and of Y, or of X with each other, [len(X), len(Y)]
    # Everything that the values depend on beside the layers; None if that is unknown, as it is of a
    # file, whose values are never kept.
    inputs: Mapping[str, Any] | None


def of_simcore() -> list[Candidate]:
    """Return every measure of simcore that compares layers, as the documentation shows it."""
    return [_of_variant(one) for one in variants() if not one.takes_attention]


def find(name: str, distance: bool) -> list[Candidate]:
    """Return the measure in the file `name`, or the variants of the measure of simcore.

    `distance` says whether the measure of a file is a distance.
    """
    path = Path(name)
    if path.suffix == ".py" or path.is_file():
        # The name of a file need not be text, which tables and pages are made of.
        label = path.name.encode(errors="replace").decode()
        return [Candidate(label, distance, as_grid(read_function(path), path), None)]
    known = [one for one in MEASURES if MEASURES[one].takes_representations]
    if spelled(name) not in known:
        meant = did_you_mean(name, known)
        wanted = f"a Python file, or {one_of(known, meant)}"
        raise UserError(f"{name}{meant}: wanted {wanted}")
    return [_of_variant(one) for one in variants() if one.measure == spelled(name)] or [
        _of_variant(Variant(spelled(name), {}))
    ]


def _of_variant(variant: Variant) -> Candidate:
    function = variant.function()

    def grid(X: Sequence[np.ndarray], Y: Sequence[np.ndarray] | None = None) -> np.ndarray:
        return np.asarray(function(list(X), None if Y is None else list(Y)))

    inputs = {"measure": variant.measure, "options": variant.options}
    return Candidate(variant.label, variant.is_distance, grid, inputs)
