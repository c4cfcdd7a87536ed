"""The results table as figures need it: every value once, the rows of each kind of figure, names.

Seeds of one model have one name, and different models with equal names are told apart.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from simlab.errors import UserError
from simlab.representations.kinds import CLS
from simlab.results.results import (
    GRID,
    SIDE,
    at_step,
    natural_key,
    run_names,
    split_step,
    without_task,
)
from simlab.similarity.catalogue import MEASURES

if TYPE_CHECKING:  # simcore loads torch
    from simcore._measures.record import Measure

ALL_TASKS = "all-tasks"  # the first word of a file that shows several tasks
_SEED = "*"  # stands for the seed in a name that several seeds share
# Columns that tell models apart, and those that tell rows of one model and seed apart.
MODEL = ("label_x", "seed_x", "base_x", "stage_x")
DETAILS = ("kind", "options", "n", "step_x")
MEASURED = "measured"  # the column that holds a `Measured` for every row


@dataclass(frozen=True)
class Measured:
    """The measure of some rows; rows of equal objects share a colour scale."""

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
        """The words of a file's name."""
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
    """Return the completed table with every value once; files may be copies of each other."""
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


def task_name(tasks: Iterable[str]) -> str:
    """Return the first word of the file of a figure: its task, or `ALL_TASKS`."""
    distinct = set(tasks)
    return str(distinct.pop()) if len(distinct) == 1 else ALL_TASKS


def in_order(names: Iterable[str]) -> list[str]:
    """Return the distinct names as they were given, but M2 before M10.

    A shell expands ``M*`` to M1, M10, M2. Names that differ in numbers alone and stand in that
    order are sorted by their numbers; any other order is the user's, and is kept.
    """
    ordered = list(dict.fromkeys(names))
    series = defaultdict(list)
    for place, name in enumerate(ordered):
        series[re.sub("[0-9]+", "0", name)].append(place)
    for places in series.values():
        members = [ordered[place] for place in places]
        if members == sorted(members, key=lambda name: re.findall("[0-9]+", name)):
            for place, name in zip(places, sorted(members, key=natural_key), strict=True):
                ordered[place] = name
    return ordered


def without_seed(label: str, seed: int | None, base: str | None) -> str:
    """Return `label` with an asterisk for the number of its seed: ``FT[1]`` becomes ``FT[*]``."""
    if seed is None or base is None:
        return label
    label, step = split_step(label)
    before, number, after = label.rpartition(str(seed))
    if not number or before[-1:].isdigit() or after[:1].isdigit():  # a part of another number
        return at_step(label, step)
    return at_step(f"{before}{_SEED}{after}", step)


def with_seeds(name: str, seeds: Iterable[int]) -> str:
    """Return the name that `without_seed` gave, with the numbers of all seeds: ``FT[1–3]``."""
    runs: list[list[int]] = []
    for number in sorted(set(seeds)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    ranges = (f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return name.replace(_SEED, ", ".join(ranges))


def with_models(
    rows: pd.DataFrame, cell: Sequence[str] = (), together: bool = True
) -> pd.DataFrame:
    """Return the rows with column `model`, the name of their model with all its seeds.

    Rows belong to seeds of one model if they have the same values in `DETAILS`, and the same label
    with different seeds, or one base and stage and labels that differ only in the number of the
    seed (`without_seed`). Unless `together`, each seed is a model. Models of one `cell`, rows with
    the same values in these columns, have different names. With several tasks, names leave out the
    task.
    """
    columns = list(dict.fromkeys([*MODEL, *DETAILS, "task", *cell]))
    distinct = rows[columns].drop_duplicates()
    of_row = rows.groupby(columns, dropna=False, sort=False).ngroup()  # by first appearance
    facts = distinct.astype(object).where(distinct.notna(), None).to_dict("records")
    several = len({row["task"] for row in facts}) > 1
    labels, families, models = [], [], []
    seeds: dict[tuple[Any, ...], set[int]] = defaultdict(set)
    for row in facts:
        label, seed, *origin = (row[name] for name in MODEL)
        stem = without_seed(label, seed, origin[0]) if together else label
        alone = None if together and seed is not None else (label, seed)
        labels.append(stem)
        models.append((stem, alone, *origin, *(row[name] for name in DETAILS)))
        families.append((without_task(stem, row["task"]) if several else stem, *origin))
        seeds[families[-1]] |= set() if seed is None else {seed}
    names = [with_seeds(family[0], seeds[family]) for family in families]
    places: dict[Any, dict[Any, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, row in enumerate(facts):
        places[tuple(row[name] for name in cell)][models[place]].append(place)
    for in_cell in places.values():
        first = [group[0] for group in in_cell.values()]
        details = []
        for group in in_cell.values():
            numbers = [facts[place]["seed_x"] for place in group]
            ordered = sorted(number for number in numbers if number is not None)
            words = f"seed {with_seeds(_SEED, ordered)}" if ordered else "no seed"
            row = facts[group[0]]
            shown = {"label": labels[group[0]].replace(_SEED, with_seeds(_SEED, ordered))}
            shown |= {"base": row["base_x"], "stage": row["stage_x"], "seeds": words}
            details.append(describe({**shown, **{name: row[name] for name in DETAILS}}))
        named = tell_apart([names[place] for place in first], details)
        for group, name in zip(in_cell.values(), named, strict=True):
            for place in group:
                names[place] = name
    return rows.assign(model=[names[place] for place in of_row])


def describe(details: Mapping[str, Any]) -> dict[str, str]:
    """Return the words in which `tell_apart` says what differs, from columns of the table."""
    words: dict[str, str] = {}
    for name, value in details.items():
        if pd.isna(value) or value == "":
            continue
        if name == "options":
            words |= {key: f"{key} {entry}" for key, entry in json.loads(value).items()}
        else:
            said = {"n": f"n = {value}", "seed_x": f"seed {value}", "step_x": f"step {value}"}
            words[name] = said.get(name, str(value))
    return words


def tell_apart(names: Sequence[str], details: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the names, with what differs in brackets behind equal names."""
    result = list(names)
    for name in set(names):
        places = [place for place, other in enumerate(names) if other == name]
        keys = dict.fromkeys(key for place in places for key in details[place])
        differing = [key for key in keys if len({details[p].get(key) for p in places}) > 1]
        for place in places:
            words = [details[place][key] for key in differing if key in details[place]]
            result[place] = f"{name} ({', '.join(words)})" if words else name
    return result


def steps_in_words(steps: Sequence[int]) -> str:
    """Return steps of training in words; "" if there are none.

    >>> steps_in_words([0, 1000]), steps_in_words([8, 8])
    ('steps 0 and 1,000', 'step 8')
    """
    word = "step" if len(set(steps)) == 1 else "steps"
    return f"{word} {' and '.join(f'{step:,}' for step in dict.fromkeys(steps))}" if steps else ""
