"""The rows of a task as claims read them: which model is which, values as arrays, their errors.

The values of rows become arrays [..., 1 + draws]: the value, then the value with an error over the
examples in each draw, so that a claim computes its estimate once for all draws. All models read the
same texts: where rows have draws (`results.results`), draw k of each row is of the same texts.
Rows with an interval alone do not say how far their errors go together. Normal errors are drawn for
them in three cases: an error for each row; for each layer of a side of a comparison, the same in
all models; and for each side. Rows without an interval have no draws.

If a measure was computed in several ways (estimator, kernel, options, kind of rows), the first way
in the results counts. The embedding output (layer 0) is left out wherever depth matters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import product
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from simlab.errors import UserError
from simlab.evidence.claim import Values
from simlab.representations.kinds import ATTENTION
from simlab.results import results
from simlab.results.results import KEPT, run_names, unpack_draws
from simlab.similarity.catalogue import MEASURES
from simlab.tasks.task import METRICS

TUNED, PRETRAINED = "fine-tuned", "pretrained"
CASES, SEED = 3, 0  # of errors that go together; of the draws
# Rows that differ in one of these columns were computed in different ways.
VARIANT = ["estimator", "kernel", "bandwidth", "options", "kind", "n"]
# Rows that differ by no more than their models and layers are one side of a comparison.
_SIDE = ["experiment", "kind", "options", "role_x", "role_y", "one_base", "way"]
_LEVEL = NormalDist().inv_cdf(0.975)
_FACTS = ["label", "seed", "base", "stage", "step"]  # what rows say of a model


@dataclass(frozen=True)
class ClaimOptions:
    """How rows are read: the options of `simlab.claims`."""

    metric: str | None = None
    tolerance: float = 0.01
    families: Mapping[str, str] = field(default_factory=dict)

    def family(self, *names: str | None) -> str | None:
        """Return the first family whose pattern the label of a model or its base matches."""
        likes = product(filter(None, names), self.families.items())
        return next((family for name, (family, like) in likes if fnmatchcase(name, like)), None)


def tasks_of(frame: pd.DataFrame, options: ClaimOptions) -> list[Task]:
    """Return the rows of each task, with columns for what `_models` says of both models."""
    # Two jobs may have made the same rows, as of a baseline.
    frame = frame[~frame.drop(columns=["grid", results.DRAWS]).duplicated()].reset_index(drop=True)
    sides = [frame[[f"{fact}_{side}" for fact in _FACTS]].set_axis(_FACTS, axis=1) for side in "xy"]
    both = pd.concat(sides, keys=[*"xy"]).astype(object)
    both = both.where(both.notna(), None)
    models = _models(both.dropna(subset="label").drop_duplicates(), options)
    columns: dict[str, Any] = {}
    for side in "xy":
        known = both.loc[side].merge(models, how="left", on=_FACTS)  # nulls are equal
        columns |= {side: known["name"].where(known["name"].notna(), None)}
        columns |= {f"role_{side}": known["role"].fillna("")}
        columns |= {f"base_{side}": known["family"].fillna("")}
        columns |= {f"read_{side}": known["name"].notna() | known["label"].isna()}
    columns["xy"] = list(zip(columns["x"], columns["y"], strict=True))
    frame = frame.assign(**columns, **_choices(frame["options"]))
    frame = frame[frame["read_x"] & frame["read_y"]]
    who = models.drop_duplicates("name").set_index("name")
    return [Task(str(name), rows, who, options) for name, rows in frame.groupby("task", sort=False)]


def _models(models: pd.DataFrame, options: ClaimOptions) -> pd.DataFrame:
    """Return the models that claims read, of rows with `_FACTS`, and what these say of each.

    Models with random weights are left out, and all steps of a training but the last. Columns:

    * ``name``: the label, with its base and seed where the label has several;
    * ``role``: `TUNED`, `PRETRAINED` or "";
    * ``family``: the base, or the family that the user named;
    * ``origin``: the pretrained model, with the seed of its pretraining if there are several;
    * ``root``: the pretrained model, whatever the seed of its pretraining and its family;
    * ``tuned_on``: the task of the fine-tuning, where the label says it;
    * ``architecture``: the family, or else the origin; pretraining seeds are its restarts.

    A base of which several seeds are there before fine-tuning was pretrained several times; the
    seed of its fine-tuned models is then the seed of the pretraining, unless their label names
    both, as ``bert[2]-FT[1]`` does. Fine-tuned models without a known base count as models of one
    base: the pretrained model without a base, if there is one alone.
    """
    roles = models["stage"].map({results.FT: TUNED, results.ORIG: PRETRAINED}).fillna("")
    models = models.assign(role=roles, run=run_names(models["label"].astype("string")))
    step = models["step"].astype(float)
    last = step.groupby([models[name] for name in ("run", "seed", "base")], dropna=False)
    kept = (models["stage"] != results.RANDOM) & (step.isna() | (step == last.transform("max")))
    of_label = models.groupby("label")
    models["bases"], models["seeds"] = (of_label[n].transform("nunique") for n in ("base", "seed"))
    original = models[models["stage"] == results.ORIG]
    restarts = original.groupby("base")["seed"].nunique()
    called = original["label"].str.replace(r"-ORIG(\[\d+\])?$", "", regex=True)
    called = called.groupby(original["base"]).agg(list)  # as bases are called in a sweep file
    nameless = models.loc[models["base"].isna() & (roles == PRETRAINED), "label"].unique()
    facts = []
    for row in models[kept].itertuples():
        base, seed, match = row.base, row.seed, None
        if row.role == TUNED:
            # Labels of a sweep begin with the name of the base, or its label in the sweep file.
            names = {base, base.rpartition("/")[2], *called.get(base, ())} if base else {""}
            begin = rf"(?:{'|'.join(map(re.escape, names))})(\[\d+\])?(?:-(.+))?-FT\b"
            match = re.match(begin, row.label)
        restart, tuned_on = match.groups() if match else (None, None)
        if seed is not None and base and restarts.get(base, 0) > 1:
            restart = restart or f"[{seed}]"
        unsaid = nameless[0] if len(nameless) == 1 else ""
        root = base or (unsaid if row.role == TUNED else row.label)
        of_base = f" of {base}" if base and row.bases > 1 else ""
        of_seed = f" (seed {seed})" if seed is not None and row.seeds > 1 else ""
        family, origin = options.family(row.label, base) or base or "", root + (restart or "")
        name = row.label + of_base + of_seed
        facts.append((name, family, origin, root, tuned_on or "", family or origin))
    columns = ["name", "family", "origin", "root", "tuned_on", "architecture"]
    said = pd.DataFrame(facts, models.index[kept], columns, dtype=object)
    return models.loc[kept, [*_FACTS, "role"]].join(said)


def _choices(options: pd.Series) -> dict[str, np.ndarray]:
    """Return the columns that the `options` of maps give; few rows differ in them."""
    codes, texts = pd.factorize(options)
    rows = []
    for text in [*texts, "{}"]:  # -1, the code of no options, is the last
        left: dict[str, Any] = json.loads(text)
        for name in (results.CHOSEN, "head_x", "head_y"):
            left.pop(name, None)
        keeps = f", keeps {left.pop('truncation')}" if "truncation" in left else ""
        listed = [name for name in ("training", *results.OF_ONE_METHOD) if name in left]
        rows.append(
            {
                "method": left.pop("method", "") + keeps,
                "rows": left.pop("rows", ""),
                "training": ", ".join(f"{name} {left.pop(name)}" for name in listed),
                "ways": str(left.pop("attention_rows", "")),  # of attention alone
                "protocol": ", ".join(f"{name} {choice}" for name, choice in left.items()),
            }
        )
    return {name: np.array([row[name] for row in rows], object)[codes] for name in rows[0]}


class Task:
    """The rows of one task."""

    def __init__(
        self, name: str, frame: pd.DataFrame, who: pd.DataFrame, options: ClaimOptions
    ) -> None:
        self.name, self.who, self.options = name, who, options
        frame = frame.reset_index(drop=True)
        self._place, self._errors = _errors(frame)
        # Columns that no claim selects rows by would be copied again and again.
        self.frame = frame.drop(
            columns=["draws", "resampling", "grid", "device", "label_y", "task"]
        )

    @cached_property
    def of_bases(self) -> list[tuple[str, Task]]:
        """Each base model, and the rows of models of this base alone."""
        base_x, base_y, parts = self.frame["base_x"], self.frame["base_y"], []
        for base in base_x.unique():
            part = copy(self)
            part.frame = self.frame[(base_x == base) & ((base_y == base) | self.frame["y"].isna())]
            parts += [(str(base), part)] if len(part.frame) else []
        return parts

    def rows(self, *experiments: str, metric: bool = False) -> pd.DataFrame:
        """Return the rows of experiments; of `metric`, those whose value is the task's metric."""
        rows = self.frame[self.frame["experiment"].isin(experiments)]
        return rows[rows["measure"].isin(list(METRICS))] if metric else rows

    def values(self, rows: pd.DataFrame) -> np.ndarray:
        """Return the values of rows, [rows, 1 + draws]."""
        exact, place = rows["value"].to_numpy(float)[:, None], self._place[rows.index]
        if (place < 0).all():
            return exact
        errors = np.zeros((len(rows), CASES * KEPT))
        errors[place >= 0] = self._errors[place[place >= 0]]
        return np.concatenate([exact, exact + errors], axis=1)

    def by(
        self, rows: pd.DataFrame, key: str, *axes: str, once: bool = False
    ) -> dict[Any, tuple[Any, ...]]:
        """Return, for each `key`, the rising numbers of each axis, and values [..., 1 + draws].

        A cell has the mean of its rows, and nan without a row; several rows of a cell raise a
        UserError if there must be one.
        """
        for name in (key, *axes):
            if rows[name].isna().any():
                self._refuse(rows[rows[name].isna()], f"column {name!r}", "nothing")
        columns = [rows[axis].to_numpy(int) for axis in axes]
        values, tables = self.values(rows), {}
        codes, labels = pd.factorize(rows[key])
        for code, label in enumerate(labels):
            selected = np.flatnonzero(codes == code)
            numbers = [np.unique(column[selected], return_inverse=True) for column in columns]
            shape = [len(axis) for axis, _ in numbers]
            cells = np.ravel_multi_index([c for _, c in numbers], shape) if axes else 0 * selected
            if once and len(set(cells)) < len(selected):
                self._refuse(rows.iloc[selected], "one value of a model at a layer", "several")
            finite = np.isfinite(values[selected])
            total, count = np.zeros((2, int(np.prod(shape)), values.shape[1]))
            np.add.at(total, cells, np.where(finite, values[selected], 0.0))
            np.add.at(count, cells, finite)
            means = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
            tables[label] = (*(axis for axis, _ in numbers), means.reshape(*shape, -1))
        return tables

    def _refuse(self, rows: pd.DataFrame, wanted: str, present: str) -> None:
        first = rows.iloc[0]
        raise UserError(
            f"results, task {self.name}: wanted {wanted} in rows of {first['experiment']}, found "
            f"{present} for {first['x']}, {first['measure']}; choose other results"
        )

    def means(self, rows: pd.DataFrame, key: str) -> Values:
        """Return the mean value of each `key`."""
        return {label: value for label, (value,) in self.by(rows, key).items()}

    def pairs(self, values: Values) -> Values:
        """Return the mean over both directions of each two models."""
        both: dict[tuple[str, ...], list[np.ndarray]] = {}
        for (x, y), value in values.items():
            if x != y:
                both.setdefault(tuple(sorted((x, y))), []).append(value)
        return {pair: np.sum(some, axis=0) / len(some) for pair, some in both.items()}

    def grids(self, rows: pd.DataFrame) -> dict[tuple[str, str], tuple[Any, ...]]:
        """Return layers of x, layers of y and values of each grid, without the embedding output."""
        some = rows[(rows["layer_x"] > 0) & (rows["layer_y"] > 0)]
        return self.by(some, "xy", "layer_x", "layer_y")

    def tuning(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return rows of a fine-tuned model x and the pretrained model y that it was."""
        origins = self.who["origin"]
        rows = rows[rows["x"].map(origins) == rows["y"].map(origins)]
        first, second = rows["role_x"], rows["role_y"]
        swapped = {"x": "y", "y": "x", "layer_x": "layer_y", "layer_y": "layer_x"}
        backward = rows[(first == PRETRAINED) & (second == TUNED)].rename(columns=swapped)
        return pd.concat([rows[(first == TUNED) & (second == PRETRAINED)], backward])

    def untuned(self, rows: pd.DataFrame, fact: str) -> pd.DataFrame:
        """Return the rows of two models before fine-tuning that differ in a column of `who`."""
        rows = rows[(rows["role_x"] != TUNED) & (rows["role_y"] != TUNED)]
        return rows[rows["x"].map(self.who[fact]) != rows["y"].map(self.who[fact])]

    def maps(self, methods: Collection[str] = (), *, alike: bool = False) -> pd.DataFrame:
        """Return held-out errors of maps between models, of one study for each kind and roles.

        `methods` are to be compared. If `alike`, only protocols count in which attention and hidden
        states were both studied.
        """
        rows = self.rows(results.ALIGNMENT).dropna(subset="value")
        rows = rows[(rows["layer_x"] > 0) & (rows["rows"] == results.HELDOUT)]
        ends = zip(rows["role_x"].tolist(), rows["role_y"].tolist(), strict=True)
        rows = rows.assign(roles=[",".join(sorted(pair)) for pair in ends])
        if alike:
            names = ("roles", "protocol", "method", "training")
            columns = [rows[name].tolist() for name in names]
            ways = pd.Series(list(zip(*columns, strict=True)), rows.index, dtype=object)
            attention = rows["kind"] == ATTENTION
            rows = rows[ways.isin(set(ways[attention])) & ways.isin(set(ways[~attention]))]
        return one_study(rows, ["kind", "roles"], ["comparison", "protocol", "ways", "n"], methods)


def one_study(
    rows: pd.DataFrame, groups: list[str], study: list[str], methods: Collection[str]
) -> pd.DataFrame:
    """Return the rows of one study in each group, with ``left_out``: which studies are not read.

    The study is the first by these keys: (1) it lacks the fewest of `methods`; (2) not all of its
    maps have another training than the default; (3) the fewest choices in its protocol; (4) the
    most methods; (5) the most pairs of models; (6) its place in the results. Each method is read
    with its default training, or else with its first.
    """

    def rank(some: pd.DataFrame) -> tuple[int, ...]:
        used = set(some["method"])
        trained, choices = (some["training"] != "").all(), some["protocol"].iloc[0].count(" ")
        return len(set(methods) - used), trained, choices, -len(used), -some["xy"].nunique()

    def words(some: pd.DataFrame) -> str:
        facts = [(name, fact) for name, fact in some[study].iloc[0].dropna().items() if fact != ""]
        return ", ".join(f"{name} {fact}" if name in "n layer_x" else fact for name, fact in facts)

    parts = [rows.iloc[:0].assign(left_out="")]
    for _, group in rows.groupby(groups, dropna=False, sort=False):
        studies = [some for _, some in group.groupby(study, dropna=False, sort=False)]
        read = min(studies, key=rank)
        trainings = read.groupby("method", sort=False)["training"]
        first = trainings.transform(lambda t: "" if (t == "").any() else t.iloc[0])
        unread = read[(read["training"] != first) & read["method"].isin(methods or read["method"])]
        others = [words(some) for some in studies if some is not read]
        others += [f"{row.method} with {row.training}" for row in unread.itertuples()]
        names = f"read {words(read)}, left out {'; '.join(dict.fromkeys(others))}" if others else ""
        parts.append(read[read["training"] == first].assign(left_out=names))
    return pd.concat(parts)


def first_variant(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that were computed in the same way as the first."""
    return rows[rows.groupby(VARIANT, dropna=False, sort=False).ngroup() == 0]


def by_measure(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the name of each similarity in rows of grids, and the rows of its first variant.

    Distances are left out: their values are small where a similarity is large.
    """
    for measure, some in rows.groupby("measure", sort=False):
        if str(measure) not in MEASURES or not MEASURES[str(measure)].distance:
            yield str(measure), first_variant(some)


def _errors(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return the place of each row among the errors, or -1, and errors [places, cases * draws].

    An end of an interval that lies beyond the range of the measure is stored as the end of the
    range, so that the end further from the value tells the deviation.
    """
    value, low, high = (frame[name].to_numpy(float) for name in ("value", "low", "high"))
    deviation = np.nan_to_num(np.maximum(high - value, value - low)) / _LEVEL
    place = np.where(deviation > 0, np.cumsum(deviation > 0) - 1, -1)
    rows, deviation = frame[deviation > 0], deviation[deviation > 0]
    ways = rows["label_x"].where(rows["experiment"] == results.FREEZING, "")
    rows = rows.assign(one_base=rows["base_x"] == rows["base_y"], way=ways, row=rows.index)
    draw, errors = np.random.default_rng(SEED), np.zeros((len(rows), CASES, KEPT))
    for case, columns in enumerate((["row"], [*_SIDE, "layer_x", "layer_y"], _SIDE)):
        groups = rows.groupby(columns, dropna=False, sort=False).ngroup().to_numpy()
        normal = draw.normal(size=(KEPT, groups.max(initial=-1) + 1))
        if normal.shape[1] < KEPT:  # uncorrelated draws of unit variance give exact sums
            normal = np.linalg.qr(normal - normal.mean(axis=0))[0] * np.sqrt(KEPT - 1)
        errors[:, case] = deviation[:, None] * normal.T[groups]
    orders: dict[tuple[int, str], np.ndarray] = {}
    for index, (text, resampling) in enumerate(zip(rows["draws"], rows["resampling"], strict=True)):
        examples, draws = unpack_draws(text) if isinstance(text, str) else (0, np.zeros(0))
        if len(draws) == KEPT:
            source = examples, str(resampling)
            if source not in orders:  # draws of other examples are independent
                orders[source] = draw.permutation(KEPT)
            errors[index] = draws[orders[source]]
    return place, errors.reshape(len(rows), CASES * KEPT)
