"""The results table: one row per measure and pair of layers, in Parquet files.

Results are also read from csv files, which may lack columns that have no values.

Columns (`COLUMNS`):

* `comparison`: the name of the grid (FT-ORIG) or of the experiment (truncation-untuned, freezing,
  blocks, baseline);
* `measure`, `estimator`, `kernel`, `bandwidth`: the quantity in `value`; `options` (JSON): further
  options of the measure, which have no column. Rows of freezing have the name of the model that
  was fine-tuned there (`PARENT`); earlier versions did not store it;
* `kind`: the kind of representation;
* `model_x`, `seed_x`, `layer_x`, and `model_y`, `seed_y`, `layer_y`: the two layers compared;
* `value`, nan where the measure is undefined; the `options` of an injection then give the reason;
* `low`, `high`: bounds of the 95 % interval of `value`, for metrics over the held-out examples;
  `pvalue`: of the permutation test; `calibrated`: `value` with chance removed, 0 at chance and 1 at
  most. Each is nan where it was not computed. `resampling` (JSON): the numbers of draws and the
  seed that these four columns stem from. Files of earlier versions lack the five columns and are
  read as if nothing was computed;
* `n`: the number of rows of the representations; `task`.

An experiment has a row for every metric of the task (`measure`), the main metric first.

Measures of alignment: `alignment-mse` and `alignment-error` are the mean squared and the relative
error in the space of Y, for every method. `alignment-component-mse` and `alignment-component-error`
are those of SVCCA within the kept components, which Ren et al. report; they are not comparable with
the errors of other methods. (Earlier versions stored these under the first two names.)
`nuclear-norm` is of the centred rows at unit Frobenius norm, `nuclear-norm-raw` of the rows as they
are. In `alignment across` of attention, `head_x` and `head_y` in `options` are the numbers of the
heads.

A *joint* grid has all layers of several models on both sides, under one `comparison`.

This module defines the names that experiments give their rows, because figures select rows by these
names, and figures and experiments do not import each other.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError
from simlab.store.files import as_paths, hash_json
from simlab.store.jobs import Outcome
from simlab.store.planned import in_plan_order
from simlab.store.tables import RESULTS, contents_of, ensure_table, is_csv, read_table, write_table

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import xarray as xr

# Values of `comparison` that are not grids.
TRUNCATIONS = {mode: f"truncation-{mode}" for mode in ("untuned", "tuned", "tuned-orig")}
TRUNCATION = TRUNCATIONS["untuned"]
SKIPPING = "skipping"
INFLUENCE = "influence"
SPANS = (SKIPPING, INFLUENCE)  # whose layers are the ends of a span, and no pair of a grid
ADVICE, WHOLE = "advice", "advice-whole"  # ADVICE is followed by a hyphen and the mode
BASELINE = "baseline"
TRAINING_CKA = "cka-to-initial"
LOCALIZATION = "localization"
BLOCKS, BLOCK_SCORE = "blocks", "block-score"
FREEZING = "freezing"
# Each is followed by a colon and the name of the set of models.
ALIGNMENT, WITHIN, ACROSS = "alignment", "alignment within", "alignment across"
COMPLEXITY = "complexity"
INJECTION = "injection"

# Values of `measure` that are neither measures of similarity nor metrics of tasks.
BLOCK_INFLUENCE = "block-influence"
TRAINED, SECONDS = "trained parameters", "seconds per step"  # of the freezing study
PARENT = "model"  # in `options` of the freezing study
MSE, RELATIVE = "alignment-mse", "alignment-error"
COMPONENT_MSE, COMPONENT_RELATIVE = "alignment-component-mse", "alignment-component-error"
NUCLEAR, NUCLEAR_RAW = "nuclear-norm", "nuclear-norm-raw"

# Values of `model_x` that name baselines, not models of the user.
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
# Choices in `options` of alignment, in this order, where they are not the default: rows are
# averaged with rows of the same choices alone.
PROTOCOL = ("map", "judge", "training", "pairs", "pair_seed", "directions", "truncation")

# All rows of one grid of a model with itself have the same values in these columns.
GRID_COLUMNS = (
    *("task", "measure", "kind", "estimator", "kernel", "bandwidth", "options"),
    *("model_x", "seed_x", "n"),
)

STATISTICS = ("low", "high", "pvalue", "calibrated")  # of `value`


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """A row of the table; a column that does not apply is None."""

    comparison: str
    measure: str
    kind: str | None = None
    estimator: str | None = None
    kernel: str | None = None
    bandwidth: float | None = None  # of the RBF kernel, in median distances
    options: str | None = None
    model_x: str
    model_y: str | None = None
    seed_x: int | None = None
    seed_y: int | None = None
    layer_x: int | None = None
    layer_y: int | None = None
    value: float
    low: float = nan
    high: float = nan
    pvalue: float = nan
    calibrated: float = nan
    resampling: str | None = None
    n: int
    task: str


@dataclass(frozen=True)
class Layer:
    """A layer of a model: a row and a column of a joint grid."""

    model: str
    seed: int | None
    number: int


COLUMNS = tuple(field.name for field in fields(ResultRow))
_ADDED = (*STATISTICS, "resampling")  # files of earlier versions lack these columns
# The columns that a key contains: files of earlier versions stay done.
_KEY_COLUMNS = tuple(name for name in COLUMNS if name not in _ADDED)
_REQUIRED = tuple(field.name for field in fields(ResultRow) if field.default is dataclasses.MISSING)
_FILLED = tuple(name for name in _REQUIRED if name != "value")  # in every row
_FLOATS = ("bandwidth", "value", *STATISTICS)
_INTEGERS = ("seed_x", "seed_y", "layer_x", "layer_y", "n")
TYPES = {
    **dict.fromkeys(COLUMNS, "string"),
    **dict.fromkeys(_FLOATS, "float64"),
    **dict.fromkeys(_INTEGERS, "int64"),
}


def to_frame(rows: Iterable[ResultRow]) -> pd.DataFrame:
    """Return `rows` as a table with nullable integer columns for seeds and layers."""
    import pandas as pd

    return typed(pd.DataFrame([asdict(row) for row in rows], columns=list(COLUMNS)))


def write_results(frame: pd.DataFrame, path: Path, key: str = "", seconds: float = 0.0) -> None:
    """Write table `frame` to one Parquet file, atomically.

    The hash of the inputs (`key`) and the time of the work (`seconds`) become metadata of the file.
    """
    write_table(frame, path, TYPES, key, seconds)


def ensure_results(
    path: Path,
    inputs: Mapping[str, Any],
    make: Callable[[], Iterable[ResultRow]],
    *,
    replace: bool = False,
) -> Outcome:
    """Write the rows of ``make()`` to `path`, unless `path` was written from the same inputs.

    Raises
    ------
    UserError
        `path` exists with other content and `replace` is False, or `require_table_file` refuses
        `path`.
    BusyError
        Another process is making `path`.
    """
    key = hash_json({"columns": _KEY_COLUMNS, **inputs})  # a table of other columns is made anew
    return ensure_table(path, key, TYPES, lambda: to_frame(make()), replace=replace)


def read_results(paths: str | Path | Sequence[str | Path]) -> pd.DataFrame:
    """Read results files, or all results files of a folder, into one table.

    Parameters
    ----------
    paths
        A results file (.parquet, or .csv with the same columns), a folder of .parquet files, or
        several files and folders.

    Returns
    -------
    DataFrame
        A row for each value. `simlab.store.results` describes the columns, and its function
        `as_xarray` makes a labelled array of the table.

    Raises
    ------
    UserError
        A file does not exist, is no table or lacks a column, or a folder has no results files.

    Examples
    --------
    >>> from simlab import TaskOptions, extract, grid, read_results
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = extract("minilm", "rt", "runs/reps/orig", label="ORIG", task_options=few)
    >>> step = grid("runs/reps/orig", "runs/results/orig.parquet", estimator="biased")
    >>> frame = read_results(step.path)
    >>> frame.pivot(index="layer_x", columns="layer_y", values="value").shape
    (7, 7)
    """
    files = results_files(paths)
    return in_plan_order(files, [read_file(file) for file in files])


def results_files(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    """Return the files among `paths`, and all results files in the folders among `paths`.

    Raises
    ------
    UserError
        A file does not exist, or a folder has no results files.
    """
    return [file for path in as_paths(paths) for file in _files_of(path)]


def as_xarray(
    frame: pd.DataFrame,
    dims: Sequence[str] = ("comparison", "measure", "estimator", "layer_x", "layer_y"),
) -> xr.DataArray:
    """Return the values of a table as a labelled array over `dims`; cells without a row are nan.

    Raises
    ------
    ValueError
        Two rows belong to one cell: select rows first, or add a dimension.
    """
    repeated = frame.duplicated(list(dims))
    if repeated.any():
        cell = frame.loc[repeated.idxmax(), list(dims)].to_dict()
        raise ValueError(
            f"dims {tuple(dims)}: wanted one row for each cell, found two rows with {cell}"
        )
    # Plain types, because xarray has no labels of the nullable types of pandas.
    plain = frame[[*dims, "value"]].astype(
        {name: "int64" if name in _INTEGERS else "object" for name in dims}
    )
    return plain.set_index(list(dims))["value"].to_xarray()


def is_alignment(frame: pd.DataFrame) -> pd.Series:
    """Return which rows of a results table stem from alignment or injection, as a bool column."""
    works = {ALIGNMENT, WITHIN, ACROSS, COMPLEXITY, INJECTION}
    names = frame["comparison"].dropna().unique()
    return frame["comparison"].isin([name for name in names if name.split(":")[0] in works])


def without_old_svcca(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows of alignment without errors of SVCCA that an earlier version stored.

    They are errors per kept component under the names of errors in the space of Y. Rows of today's
    version have both. `frame` has the options of its rows in columns ``method`` and ``protocol``.
    """
    import pandas as pd

    names = frame["comparison"].dropna().unique()
    alignments = [name for name in names if name.split(":")[0] in (ALIGNMENT, WITHIN)]
    svcca = frame["method"].eq("svcca") & frame["comparison"].isin(alignments)
    some = frame[svcca]
    columns = ["comparison", "task", "kind", "model_x", "model_y", "protocol"]
    keys = pd.MultiIndex.from_frame(some[columns].fillna(""))
    today = keys[some["measure"] == COMPONENT_RELATIVE]
    old = svcca.to_numpy(copy=True)
    old[old] = ~keys.isin(today)
    return frame[~old]


def parents(rows: pd.DataFrame) -> pd.Series:
    """Return the model that was fine-tuned for each row of freezing; "" if the row has no name."""
    import pandas as pd

    found = [json.loads(text) if isinstance(text, str) else {} for text in rows["options"]]
    return pd.Series([options.get(PARENT, "") for options in found], rows.index, dtype=object)


def is_joint(rows: pd.DataFrame) -> bool:
    """Return whether `rows` (of one comparison) compare several models, each with each."""
    distinct = rows[["model_x", "model_y"]].drop_duplicates()
    models = set(distinct["model_x"])
    pairs = set(zip(distinct["model_x"], distinct["model_y"], strict=True))
    return len(models) > 1 and pairs == {(x, y) for x in models for y in models}


def joint_table(rows: pd.DataFrame) -> tuple[list[Layer], np.ndarray]:
    """Return the layers and the square grid of a joint comparison, in stored order.

    Parameters
    ----------
    rows
        Rows of one joint grid: one comparison and one measure with one set of options.

    Returns
    -------
    layers : list of Layer
    values : ndarray, ``[len(layers), len(layers)]``
    """
    import pandas as pd

    first = rows.drop_duplicates(["model_x", "layer_x"])
    columns = (first[name] for name in ("model_x", "seed_x", "layer_x"))
    layers = [
        Layer(str(model), None if pd.isna(seed) else int(seed), int(number))
        for model, seed, number in zip(*columns, strict=True)
    ]
    keys = [(layer.model, layer.number) for layer in layers]
    table = rows.pivot(index=["model_x", "layer_x"], columns=["model_y", "layer_y"], values="value")
    return layers, table.loc[keys, keys].to_numpy()


def _files_of(path: Path) -> list[Path]:
    _require_utf8(path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(f"results {path}: wanted a results file or a folder, found neither")
    # Hidden files are being written, or were left by a killed process.
    found = sorted(file for file in path.rglob("*.parquet") if not file.name.startswith("."))
    for file in found:
        _require_utf8(file)
    files = [file for file in found if contents_of(file) == RESULTS]
    if not files:
        raise UserError(f"results {path}: wanted a folder with results files, found none in it")
    return files


def _require_utf8(path: Path) -> None:
    """Check that the name of a file is text: the libraries that read tables take no other."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"results {path}: wanted a name in UTF-8, found another") from error


def read_file(path: Path) -> pd.DataFrame:
    """Return the rows of one results file, in the order in which they stand in it."""
    # A csv file that a study publishes has no columns without values.
    frame = read_table(path, COLUMNS, _REQUIRED if is_csv(path) else _KEY_COLUMNS)
    try:
        frame = typed(frame)
    except (ValueError, TypeError) as error:
        raise UserError(f"results {path}: wanted numbers where they belong: {error}") from error
    for name in _FILLED:
        missing = frame[name].isna().to_numpy()
        if missing.any():
            row = int(missing.argmax()) + 1
            raise UserError(
                f"results {path}: wanted column {name!r} in every row, found nothing in row {row:,}"
            )
    if is_csv(path):
        _require_json(frame, path)
    return frame


def _require_json(frame: pd.DataFrame, path: Path) -> None:
    """Check the columns of JSON of a file that this program need not have written."""
    for name in ("options", "resampling"):
        for text in frame[name].dropna().unique():
            try:
                good = isinstance(json.loads(text), dict)
            except ValueError:
                good = False
            if not good:
                raise UserError(
                    f"results {path}: wanted a JSON object in column {name!r}, found {text}"
                )


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the types of the columns, nullable integers for seeds and layers."""
    kinds = {name: "Int64" if name in _INTEGERS else "string" for name in COLUMNS}
    return frame.astype({**kinds, **dict.fromkeys(_FLOATS, "float64")})
