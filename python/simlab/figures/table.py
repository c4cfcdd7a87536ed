"""The results table as figures need it: every input once, and inputs told apart by their files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.store.planned import in_plan_order
from simlab.store.results import (
    STATISTICS,
    TRAINING_CKA,
    is_alignment,
    read_file,
    results_files,
)

if TYPE_CHECKING:
    import pandas as pd

# What is drawn in one colour scale.
MEASURE_COLUMNS = ("measure", "kind", "kernel", "bandwidth", "estimator", "options", "quantity")
CALIBRATED = "calibrated"  # the value of column `quantity` of values without chance
_MODELS = ("model_x", "seed_x", "model_y", "seed_y")
_LAYERS = ("layer_x", "layer_y")
_MOST_NUMBERS = 2**40  # that products of numbers of values may reach
_SAYING = ("file", "source", "joint")


def read_table(results: pd.DataFrame | str | Path | Sequence[str | Path]) -> pd.DataFrame:
    """Read results files into a table that `complete` made, which says from which file a row is.

    A file that is named twice is read once.
    """
    import pandas as pd

    if isinstance(results, pd.DataFrame):
        return complete(results)
    files: dict[Path, Path] = {}
    for file in results_files(results):
        files.setdefault(file.resolve(), file)
    parts = [read_file(file).assign(file=str(file)) for file in files.values()]
    return complete(in_plan_order(list(files.values()), parts))


def complete(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the columns that figures go by, where they are missing.

    * `STATISTICS`: nan;
    * `quantity`: what `value` is; empty for the measure itself, or `CALIBRATED`;
    * `file`: the file of a row; empty if the table was given;
    * `source`: what tells this input from other inputs that have the same labels (`distinguish`);
    * `joint`: whether the row belongs to a joint grid.
    """
    missing: dict[str, Any] = {name: float("nan") for name in STATISTICS if name not in frame}
    missing |= {name: "" for name in ("quantity", "file", "source") if name not in frame}
    return frame.assign(**missing, **({} if "joint" in frame else {"joint": False}))


def distinguish(frame: pd.DataFrame) -> pd.DataFrame:
    """Return every input once, with `source` and `joint` filled in.

    An input is a grid of two models, a joint grid, or the curve of a model, in one file. An input
    that repeats another one, value for value, is dropped. Inputs that have the same labels but not
    the same values contradict each other: their `source` is the name of their file, or the number
    of the input if one file holds both.
    """
    frame = frame.reset_index(drop=True)
    kinds, frame["_kind"] = _kinds(frame)
    kinds["joint"] = _joint(kinds, ["file"])
    kinds["_input"] = _inputs(kinds)
    frame["joint"] = kinds["joint"].to_numpy()[frame["_kind"]]
    frame["_input"] = kinds["_input"].to_numpy()[frame["_kind"]]
    frame["_part"] = _parts(frame, kinds)
    frame = _without_copies(frame, kinds)
    frame["source"] = _sources(frame, kinds)
    told = frame["source"] != ""
    if told.any():
        kinds, frame["_kind"] = _kinds(frame)
    # The pairs of a joint grid may be in several files. Seeds with one label are not told apart.
    joint = _joint(kinds, ["source", "joint"], _repeated(frame, kinds))
    frame["joint"] = joint.to_numpy()[frame["_kind"]]
    frame = frame.drop(columns=["_kind", "_input", "_part"])
    # The figures of alignment know models by their labels alone.
    renamed = told & is_alignment(frame) if told.any() else told
    if renamed.any():
        for side in ("model_x", "model_y"):
            frame.loc[renamed, side] += " (" + frame.loc[renamed, "source"] + ")"
    return frame


def with_calibrated(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with further rows, whose `value` is column `calibrated`, where it is known.

    An undefined value of a calibrated grid has no calibrated value, and stays undefined.
    """
    import pandas as pd

    grid = ["task", "comparison", "source", *_MODELS, *MEASURE_COLUMNS]
    known = frame["calibrated"].notna().groupby([frame[name] for name in grid], dropna=False)
    rows = frame[known.transform("any")]
    without = dict.fromkeys(("low", "high", "pvalue"), float("nan"))
    rows = rows.assign(value=rows["calibrated"], quantity=CALIBRATED, **without)
    return pd.concat([frame, rows], ignore_index=True) if len(rows) else frame


def numbered(frame: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """Return a number for every row: rows with equal values in `columns` have the same number.

    The numbers rise in the order in which rows bring new values.
    """
    import pandas as pd

    found, count = np.zeros(len(frame), dtype=np.int64), 1
    for name in columns:
        codes, values = pd.factorize(frame[name], use_na_sentinel=False)
        if len(values) < 2:
            continue
        if count * len(values) > _MOST_NUMBERS:
            found, known = pd.factorize(found)
            count = len(known)
        found = found * len(values) + codes
        count *= len(values)
    return pd.factorize(found)[0]


def firsts(numbers: np.ndarray) -> np.ndarray:
    """Return the place at which each of the numbers that `numbered` gave stands first."""
    return np.flatnonzero(np.diff(np.maximum.accumulate(numbers), prepend=-1))


def _kinds(frame: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the rows of `frame` that differ in more than layers and values, and who is like whom.

    A large table has few such rows, which is why what goes by labels alone is decided on them.
    Column `_grid` says whether a row has two layers.
    """
    names = ["task", "comparison", "n", *MEASURE_COLUMNS, *_MODELS, *_SAYING]
    marked = frame[names].assign(_grid=frame["layer_y"].notna())
    number = numbered(marked, list(marked))
    return marked.iloc[firsts(number)].reset_index(drop=True), number


def _joint(kinds: pd.DataFrame, more: list[str], repeated: pd.Series | None = None) -> pd.Series:
    """Return which kinds belong to a grid of several models, each with each.

    A grid of which a kind is `repeated` is none: it has two values for a pair of layers.
    """
    grids = kinds[kinds["_grid"] & kinds["model_y"].notna()]
    grid = numbered(grids, ["task", "comparison", "n", *MEASURE_COLUMNS, *more])
    found = kinds["_grid"] & False
    joint = _with_all_pairs(grid, grids["model_x"], grids["model_y"])
    if repeated is not None:
        joint = joint & ~np.isin(grid, grid[repeated[grids.index].to_numpy()])
    found[grids.index] = joint
    return found


def _with_all_pairs(grid: np.ndarray, x: pd.Series, y: pd.Series) -> np.ndarray:
    """Return which rows belong to a grid of several models, each with each, as `is_joint` says."""
    import pandas as pd

    models = pd.factorize(pd.concat([x, y]))[0]
    rows = pd.DataFrame({"grid": grid, "x": models[: len(x)], "y": models[len(x) :]})
    rows = rows.drop_duplicates()
    both = pd.concat([rows[["grid", "x"]], rows[["grid", "y"]].rename(columns={"y": "x"})])
    pairs = rows.groupby("grid").size()
    down, all_models = rows.groupby("grid")["x"].nunique(), both.groupby("grid")["x"].nunique()
    joint = (down > 1) & (all_models == down) & (pairs == down**2)
    return joint.reindex(grid).to_numpy(dtype=bool)


def _repeated(frame: pd.DataFrame, kinds: pd.DataFrame) -> pd.Series:
    """Return the kinds that have a second value for a pair of layers of two models."""
    models = ["source", "joint", "model_x", "model_y", "_grid"]
    cell = _cells(frame, kinds, ["task", "comparison", "n", *MEASURE_COLUMNS, *models])
    again = _again(cell) & frame["layer_y"].notna().to_numpy()
    found = kinds["_grid"] & False
    found[np.unique(frame["_kind"].to_numpy()[again])] = True
    return found


def _cells(frame: pd.DataFrame, kinds: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """Return a number for every row: equal for the same layers and the same `columns` of kinds."""
    found = numbered(kinds, columns)[frame["_kind"]]
    for name in _LAYERS:
        layer = frame[name].fillna(-1).to_numpy(dtype=np.int64) + 1
        found = found * (layer.max(initial=0) + 1) + layer
    return found


def _again(numbers: np.ndarray) -> np.ndarray:
    """Return which numbers stand before in the array, too."""
    import pandas as pd

    return pd.Series(numbers).duplicated().to_numpy()


def _inputs(kinds: pd.DataFrame) -> pd.Series:
    """Return the number of the input of every kind by its labels, whichever file it is from."""
    key = kinds[["task", "comparison", "n", *MEASURE_COLUMNS, *_MODELS, "joint"]].copy()
    key.loc[kinds["joint"], list(_MODELS)] = None
    key.loc[kinds["comparison"] == TRAINING_CKA, "options"] = None  # the step
    return key.groupby(list(key), dropna=False, sort=False).ngroup()


def _parts(frame: pd.DataFrame, kinds: pd.DataFrame) -> np.ndarray:
    """Return, for every row, how many rows of the same file have the same labels and come before.

    The runs of one record of training are one part, because their steps tell them apart.
    """
    cell = _cells(frame, kinds, ["_input", "file", "model_x", "model_y"])
    if not _again(cell).any():
        return np.zeros(len(cell), dtype=np.int64)
    number = frame.groupby(cell, sort=False).cumcount()
    return number.where(frame["comparison"] != TRAINING_CKA, 0).to_numpy()


def _without_copies(frame: pd.DataFrame, kinds: pd.DataFrame) -> pd.DataFrame:
    """Return the table without inputs that repeat an input before them, value for value."""
    if not frame["_part"].any() and (kinds.groupby("_input")["file"].nunique() <= 1).all():
        return frame
    parts = frame.drop_duplicates(["_input", "file", "_part"])
    several = parts.loc[parts.duplicated("_input"), "_input"]
    content = [name for name in frame if name not in ("file", "_part", "_kind")]
    seen, dropped = set(), []
    rows_of = frame[frame["_input"].isin(several)].groupby(["_input", "file", "_part"], sort=False)
    for _, rows in rows_of:
        text = rows[content].sort_values([*_MODELS, *_LAYERS, "options"]).to_csv(index=False)
        if text in seen:
            dropped += list(rows.index)
        seen.add(text)
    return frame.drop(index=dropped).reset_index(drop=True)


def _sources(frame: pd.DataFrame, kinds: pd.DataFrame) -> pd.Series:
    """Return what tells the inputs with the same labels apart; empty where an input is alone."""
    import pandas as pd

    source = pd.Series("", index=frame.index, dtype=object)
    again = _again(_cells(frame, kinds, ["_input", "model_x", "model_y"]))
    record = (frame["comparison"] == TRAINING_CKA).to_numpy()
    inputs = set(frame["_input"].to_numpy()[again & ~record])
    # Records of training and joint grids are in one file each; others may be in several.
    left = kinds.loc[frame["_kind"].unique()]
    whole = left[left["joint"] | (left["comparison"] == TRAINING_CKA)]
    files = whole.groupby("_input")["file"].nunique()
    inputs |= set(files[files > 1].index)
    for _, rows in frame[frame["_input"].isin(inputs)].groupby("_input"):
        found = rows["file"].unique()
        words = rows["file"].map(dict(zip(found, short_names(found), strict=True))).astype(object)
        if rows["_part"].any():
            words += " input " + (rows["_part"] + 1).astype(str)
        source[rows.index] = words.str.strip()
    return source


def short_names(files: Sequence[str]) -> list[str]:
    """Return the shortest names that tell files apart: their stems, or the folders that differ.

    A single file needs no name.
    """
    if len(files) == 1:
        return [""]
    paths = [Path(file).with_suffix("") for file in files]
    stems = [path.name for path in paths]
    if len(set(stems)) == len(stems):
        return stems
    parts = [list(path.parts) for path in paths]
    while len({part[0] for part in parts}) == 1:
        parts = [part[1:] for part in parts]
    while all(len(part) > 1 for part in parts) and len({part[-1] for part in parts}) == 1:
        parts = [part[:-1] for part in parts]
    return ["/".join(part) for part in parts]
