"""The results table: one row per measure and pair of layers, in Parquet files.

Results are also read from csv files, which may lack columns that have no values.

Columns (`COLUMNS`):

* `experiment`: the name of the work that made the row, one of the names below (`GRID`, `FREEZING`);
* `comparison`: the name of a grid (FT-ORIG), of an alignment study, or of what a training is
  compared with (start, previous, ...); null in other experiments;
* `grid`: the key of the job that made the row, which no two grids, curves or runs share with each
  other if they have the same models, task, measure and options. The tiles of a joint grid share
  one key;
* `measure`, `estimator`, `kernel`, `bandwidth`: the quantity in `value`; `options` (JSON): further
  options of the measure, which have no column;
* `kind`: the kind of representation;
* for each side, x and y (`Side`): `label`, the name of the model in tables and figures; `base`, the
  name of the model before fine-tuning; `stage`, one of `STAGES`; `seed`, of the fine-tuning or of
  the restart; `step`, of training. A fact that the writer does not have is null. Models of one base
  and stage whose labels differ by the seed alone are seeds of one model;
* `layer_x`, `layer_y`: the two layers compared;
* `value`, nan where the measure is undefined; the `options` of an injection then give the reason;
* `low`, `high`: bounds of the 95 % interval of `value`, for metrics over the held-out examples;
  `pvalue`: of the permutation test; `calibrated`: `value` with chance removed, 0 at chance and 1 at
  most. Each is nan where it was not computed. `resampling` (JSON): the numbers of draws and the
  seed that these four columns stem from. `draws`: the draws over the examples that `low` and
  `high` stem from, as `pack_draws` stores them: draw k of two values is of the same examples where
  the number of examples, the number of draws and their seed are equal, whatever the model, so that
  readers know how far the errors of models go together. A file may lack this column, csv files do;
* `device`: where a grid was computed, ``cpu`` or the name of a GPU; null in other experiments;
* `n`: the number of rows of the representations; `task`.

An experiment has a row for every metric of the task (`measure`), the main metric first.

Measures of alignment: `alignment-mse` and `alignment-error` are the mean squared and the relative
error in the space of Y, for every method. `alignment-component-mse` and `alignment-component-error`
are of SVCCA within the kept components, as Ren et al. report; they are not comparable with
the errors of other methods.
`nuclear-norm` is of the centred rows at unit Frobenius norm, `nuclear-norm-raw` of the rows as they
are. In `alignment across` of attention, `head_x` and `head_y` in `options` are the numbers of the
heads.

A *joint* grid has all layers of several models on both sides. Rows of freezing are labelled by the
way of freezing; `base` is the model that was fine-tuned.

This module defines the names that experiments give their rows, because figures select rows by these
names, and figures and experiments do not import each other.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.results.tables import ensure_table, write_table
from simlab.store.files import hash_json
from simlab.store.jobs import MADE, Outcome

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# Part of the key of every results file, and of every job of a sweep. Raised when the columns
# change: all results are then made anew.
VERSION = 5

# Values of `experiment`.
GRID, JOINT = GRIDS = ("grid", "joint grid")  # whose rows are the cells of grids of measures
TRUNCATIONS = {mode: f"truncation-{mode}" for mode in ("untuned", "tuned", "tuned-orig")}
TRUNCATION = TRUNCATIONS["untuned"]
SKIPPING = "skipping"
INFLUENCE = "influence"
SPANS = (SKIPPING, INFLUENCE)  # whose layers are the ends of a span, and no pair of a grid
BASELINE = "baseline"
LOCALIZATION = "localization"
BLOCKS, BLOCK_SCORE = "blocks", "block-score"
FREEZING = "freezing"
ALIGNMENT, WITHIN, ACROSS = "alignment", "alignment within", "alignment across"
COMPLEXITY = "complexity"
TRAINING = "training"  # rows by step of training
INJECTION = "injection"
ALIGNMENTS = (ALIGNMENT, WITHIN, ACROSS, COMPLEXITY, INJECTION)
KNOWN_MAP = "known map"  # maps back from f(X) to X, with an untrained network f as model x

# Values of `stage`: as pretrained, fine-tuned, and with random weights.
STAGES = ORIG, FT, RANDOM = ("orig", "ft", "random")

# Values of `measure` that are neither measures of similarity nor metrics of tasks.
BLOCK_INFLUENCE = "block-influence"
TRAINED, SECONDS = "trained parameters", "seconds per step"  # of the freezing study
MSE, RELATIVE = "alignment-mse", "alignment-error"
COMPONENT_MSE, COMPONENT_RELATIVE = "alignment-component-mse", "alignment-component-error"
NUCLEAR, NUCLEAR_RAW = "nuclear-norm", "nuclear-norm-raw"

# Values of `label_x` that name baselines, not models of the user.
MAJORITY = "majority class"
TFIDF, TFIDF_REGRESSION = "TF-IDF + logistic regression", "TF-IDF + ridge regression"

# Values of "method" in `options`, in the order of tables and figures: alignment has the `FITTED`
# ones, of which the `LEARNT` ones learn by gradient descent; injection has all. Values of "rows":
# the rows that a map was fitted on, or judged on.
ITSELF, IDENTITY = "itself", "identity"
FITTED = ("linear", "linear-gd", "cca", "svcca", "pwcca", "mlp", "inn")
LEARNT = ("linear-gd", "mlp", "inn")
RANDOM_CLASSIFIER = "random-classifier"
RANDOM_EMBEDDINGS, RANDOM_LABELS = "random-embeddings", "random-labels"
METHODS = (ITSELF, IDENTITY, *FITTED, RANDOM_CLASSIFIER, RANDOM_EMBEDDINGS, RANDOM_LABELS)
TRAIN, HELDOUT = "train", "heldout"
TUNE_FROM = "tune_from"  # a choice of one method that a search begins with, in words
# Choices in `options` of alignment, in this order, where they are not the default: rows are
# averaged with rows of the same choices alone.
PROTOCOL = (
    *("map", "judge", "training", "pairs", "pair_seed", "directions", "truncation"),
    *("weight_share", "mlp_hidden", "tune", TUNE_FROM, "attention_rows"),
)
OF_ONE_METHOD = ("weight_share", "mlp_hidden", TUNE_FROM)  # of these, choices of one method
CHOSEN = "chosen"  # the setting that a search chose, in `options` of alignment

# All rows of one grid of a model with itself have the same values in these columns.
GRID_COLUMNS = (
    *("task", "measure", "kind", "estimator", "kernel", "bandwidth", "options"),
    *("label_x", "seed_x", "step_x", "n"),
)

STATISTICS = ("low", "high", "pvalue", "calibrated")  # of `value`
DRAWS = "draws"  # a column of long texts, which only estimates over several rows need
_FLOATS = ("bandwidth", "value", *STATISTICS)
_INTEGERS = (*(f"{name}_{side}" for name in ("seed", "step", "layer") for side in "xy"), "n")
KEPT = 100  # draws of a value; the spread of as many is known to 7 %
_TYPE = "<f4"  # of packed draws
_AT = " @ "  # between the label of a model and the step of its training
_SEPARATORS = "-_ ./"  # of the words of a label


@dataclass(frozen=True)
class Side:
    """A model as a row names it; a fact without a value is None."""

    label: str
    seed: int | None = None  # of the fine-tuning, or number of the restart
    base: str | None = None  # name of the model before fine-tuning
    stage: str | None = None  # one of `STAGES`
    step: int | None = None  # step of training

    def columns(self, side: str = "x") -> dict[str, Any]:
        """Return the columns of this model as side ``x`` or ``y`` of a row."""
        return {f"{name}_{side}": value for name, value in vars(self).items()}


SIDE = tuple(field.name for field in fields(Side))


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """A row of the table; a column that does not apply is None."""

    experiment: str
    comparison: str | None = None
    grid: str | None = None
    measure: str
    kind: str | None = None
    estimator: str | None = None
    kernel: str | None = None
    bandwidth: float | None = None  # of the RBF kernel, in median distances
    options: str | None = None
    label_x: str
    label_y: str | None = None
    base_x: str | None = None
    base_y: str | None = None
    stage_x: str | None = None
    stage_y: str | None = None
    seed_x: int | None = None
    seed_y: int | None = None
    step_x: int | None = None
    step_y: int | None = None
    layer_x: int | None = None
    layer_y: int | None = None
    value: float
    low: float = nan
    high: float = nan
    pvalue: float = nan
    calibrated: float = nan
    resampling: str | None = None
    draws: str | None = None
    device: str | None = None
    n: int
    task: str


COLUMNS = tuple(field.name for field in fields(ResultRow))
REQUIRED = tuple(field.name for field in fields(ResultRow) if field.default is dataclasses.MISSING)
TYPES = {
    **dict.fromkeys(COLUMNS, "string"),
    **dict.fromkeys(_FLOATS, "float64"),
    **dict.fromkeys(_INTEGERS, "int64"),
}
# Types of pandas: integers may be missing.
PANDAS_TYPES = {name: "Int64" if kind == "int64" else kind for name, kind in TYPES.items()}


def to_frame(rows: Iterable[ResultRow], key: str | None = None) -> pd.DataFrame:
    """Return `rows` as a table with nullable integer columns for seeds, steps and layers."""
    import pandas as pd

    frame = pd.DataFrame([vars(row) for row in rows], columns=list(COLUMNS))
    frame = frame.astype(PANDAS_TYPES)
    return frame if key is None else frame.assign(grid=frame["grid"].fillna(key))


def write_results(frame: pd.DataFrame, path: Path, key: str = "", seconds: float = 0.0) -> None:
    """Write table `frame` to one Parquet file, atomically."""
    write_table(frame, path, TYPES, key, seconds)


def ensure_results(
    path: Path,
    inputs: Mapping[str, Any],
    make: Callable[[], Iterable[ResultRow]],
    *,
    replace: bool = False,
) -> Outcome:
    """Write the rows of ``make()`` to `path`, unless `path` was written from the same inputs."""
    key = hash_json({"version": [VERSION, MADE], **inputs})
    return ensure_table(path, key, TYPES, lambda: to_frame(make(), key), replace=replace)


def hash_rows(frame: pd.DataFrame) -> str:
    """Return a hash of the rows of a results table, for the key of a job that reads them.

    The bytes of results files would not do: they hold the time of the work.
    """
    from pandas.util import hash_pandas_object

    rows = hash_pandas_object(frame, index=False).to_numpy()
    return hashlib.sha256(rows.tobytes()).hexdigest()


def side_in(row: pd.Series, side: str = "x") -> Side:
    """Return how a row of a results table names its model of side ``x`` or ``y``."""
    import pandas as pd

    facts: dict[str, Any] = {name: row[f"{name}_{side}"] for name in SIDE}
    plain: dict[str, Any] = {n: None if pd.isna(value) else value for n, value in facts.items()}
    return Side(**plain)


@dataclass(frozen=True)
class Layer:
    """A layer of a model: a row and a column of a joint grid."""

    model: str
    seed: int | None
    number: int


def joint_table(rows: pd.DataFrame) -> tuple[list[Layer], np.ndarray]:
    """Return the layers and the grid [layers, layers] of a joint comparison, in stored order."""
    import pandas as pd

    first = rows.drop_duplicates(["label_x", "layer_x"])
    columns = (first[name] for name in ("label_x", "seed_x", "layer_x"))
    layers = [
        Layer(str(model), None if pd.isna(seed) else int(seed), int(number))
        for model, seed, number in zip(*columns, strict=True)
    ]
    keys = [(layer.model, layer.number) for layer in layers]
    table = rows.pivot(index=["label_x", "layer_x"], columns=["label_y", "layer_y"], values="value")
    return layers, table.loc[keys, keys].to_numpy()


def pack_draws(values: Sequence[float] | np.ndarray, examples: int) -> str | None:
    """Return the first `KEPT` draws of a value as text; None if fewer than two are defined."""
    import numpy as np

    kept = np.asarray(values, float)[:KEPT]
    if np.isfinite(kept).sum() < 2:
        return None
    deviations = (kept - np.nanmean(kept)).astype(_TYPE)
    return f"{examples}:{base64.b64encode(deviations.tobytes()).decode()}"


def unpack_draws(text: str) -> tuple[int, np.ndarray]:
    """Return the number of examples, and the deviations of the draws from their mean, float64."""
    import numpy as np

    examples, _, encoded = text.partition(":")
    return int(examples), np.frombuffer(base64.b64decode(encoded), _TYPE).astype(float)


def without_task(label: str, task: str) -> str:
    """Return `label` without the name of the task: ``roberta-rte-FT`` becomes ``roberta-FT``."""
    bare = re.sub(rf"(?<![A-Za-z0-9]){re.escape(task)}(?![A-Za-z0-9])", "", label, flags=re.I)
    if bare == label:
        return label
    return re.sub(rf"[{_SEPARATORS}]*([{_SEPARATORS}])", r"\1", bare).strip(_SEPARATORS) or label


def natural_key(name: str) -> list[Any]:
    """Return a key that sorts names with numbers as numbers: M2 before M10."""
    parts = re.split("([0-9]+)", name)  # text and numbers alternate
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def run_names(labels: pd.Series) -> pd.Series:
    """Return labels without the step at their end."""
    return labels.str.replace(rf"{_AT}\d+$", "", regex=True)


def split_step(label: str) -> tuple[str, int | None]:
    """Return the label of a model without its step, and the step, if `at_step` added one.

    >>> split_step("mini-ORIG[0] @ 500"), split_step("mini-ORIG[0]")
    (('mini-ORIG[0]', 500), ('mini-ORIG[0]', None))
    """
    run, _, step = label.rpartition(_AT)
    return (run, int(step)) if step.isdecimal() and run else (label, None)


def at_step(label: str, step: int | None) -> str:
    """Return the label of a model at a step of its training, which stands at the end.

    >>> at_step("mini-ORIG[0]", 500), at_step("mini-ORIG[0]", None)
    ('mini-ORIG[0] @ 500', 'mini-ORIG[0]')
    """
    return label if step is None else f"{label}{_AT}{step}"
