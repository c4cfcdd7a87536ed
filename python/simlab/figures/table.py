"""The results table as figures need it: every value once, and the rows of each kind of figure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from simlab.errors import UserError
from simlab.representations.kinds import CLS
from simlab.results.labels import run_names
from simlab.results.results import GRID, JOINT, SIDE
from simlab.similarity.catalogue import MEASURES

if TYPE_CHECKING:  # simcore loads torch
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
        measure = self.catalogued
        if measure is not None and measure.distance:
            if math.isfinite(measure.highest):
                return measure.highest, 0.0
            return max(float(np.nanmax(part, initial=0.0)) for part in values) or 1.0, 0.0
        low = min(float(np.nanmin(part, initial=0.0)) for part in values)
        if measure is None:
            return low, max(float(np.nanmax(part, initial=1.0)) for part in values)
        return max(measure.lowest, low), 1.0


MEASURE_COLUMNS = tuple(column.name for column in fields(Measured))


_MODELS = tuple(f"{name}_{side}" for side in "xy" for name in SIDE)
_CELL = ("task", "experiment", "comparison", MEASURED, "n", *_MODELS, "layer_x", "layer_y")


def complete(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with column `MEASURED`, and `file`, which is empty for a given table."""
    frame = frame if "file" in frame else frame.assign(file="")
    if MEASURED in frame:
        return frame
    names = list(MEASURE_COLUMNS)
    number = frame.groupby(names, dropna=False, sort=False).ngroup()  # by first appearance
    kinds = frame[names].drop_duplicates().astype(object)
    kinds = kinds.where(kinds.notna(), None)
    measures = [Measured(*kind) for kind in kinds.itertuples(index=False, name=None)]
    return frame.assign(**{MEASURED: pd.Categorical.from_codes(number, categories=measures)})


def without_copies(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the completed table with every value once; files may be copies of each other.

    Two values of one cell are refused: two models under one label would be drawn as one.
    """
    frame = complete(frame).reset_index(drop=True)
    cells = frame.assign(**{MEASURED: frame[MEASURED].cat.codes})
    frame = frame[~cells.duplicated([*_CELL, "value"])].reset_index(drop=True)
    cells = frame.assign(**{MEASURED: frame[MEASURED].cat.codes})
    again = cells.duplicated(list(_CELL), keep=False)
    if again.any():
        number = cells[again].groupby(list(_CELL), dropna=False, sort=False).ngroup()
        first, second = (row for _, row in frame.loc[number.index[number == 0]].iloc[:2].iterrows())
        files = " and ".join(dict.fromkeys(filter(None, (first["file"], second["file"]))))
        models = " and ".join(dict.fromkeys(first[["label_x", "label_y"]].dropna()))
        where = first["experiment"] if pd.isna(first["comparison"]) else first["comparison"]
        raise UserError(
            f"results{files and ' ' + files}: wanted one value of {first['measure']} for each "
            f"layer of {models} ({where}, task {first['task']}), found {first['value']:.6g} and "
            f"{second['value']:.6g}; leave a file out, or give models labels that differ"
        )
    return frame


def between_steps(frame: pd.DataFrame) -> pd.Series:
    """Return which rows are of grids of two steps of one training."""
    runs = [run_names(frame[f"label_{side}"]) for side in "xy"]
    same = (runs[0] == runs[1]) & (runs[0] != frame["label_x"])
    same &= frame["seed_x"].fillna(-1) == frame["seed_y"].fillna(-1)
    two = frame["step_x"].notna() & (frame["label_x"] != frame["label_y"])
    return (same & two & (frame["experiment"] == GRID)).fillna(False).astype(bool)


def is_of_steps(frame: pd.DataFrame) -> pd.Series:
    """Return which rows are of joint grids of one layer at several steps of one training."""
    runs = run_names(frame["label_x"])
    inside = (frame["experiment"] == JOINT) & (frame["layer_x"] == frame["layer_y"])
    inside &= (runs == run_names(frame["label_y"])) & (runs != frame["label_x"])
    inside = inside.fillna(False).astype(bool)
    grids = frame.assign(inside=inside, run=runs).groupby(["task", "comparison"], dropna=False)
    of_one = (grids["run"].transform("nunique") == 1) & (grids["layer_x"].transform("nunique") == 1)
    return grids["inside"].transform("all").astype(bool) & of_one
