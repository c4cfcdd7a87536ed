"""The results table as figures need it: every input once, and inputs told apart by their files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.store.results import (
    STATISTICS,
    TRAINING_CKA,
    is_alignment,
    is_joint,
    read_results,
    results_files,
)

if TYPE_CHECKING:
    import pandas as pd

# What is drawn in one colour scale.
MEASURE_COLUMNS = ("measure", "kind", "kernel", "bandwidth", "estimator", "options", "quantity")
CALIBRATED = "calibrated"  # the value of column `quantity` of values without chance
_MODELS = ("model_x", "seed_x", "model_y", "seed_y")
_LAYERS = ("layer_x", "layer_y")


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
    parts = [read_results(file).assign(file=str(file)) for file in files.values()]
    return complete(pd.concat(parts, ignore_index=True))


def complete(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the columns that figures go by, where they are missing.

    * `STATISTICS`: nan;
    * `quantity`: what `value` is; empty for the measure itself, or `CALIBRATED`;
    * `file`: the file of a row; empty if the table was given;
    * `source`: what tells this input from other inputs that have the same labels (`distinguish`);
    * `joint`: whether the row belongs to a joint grid.
    """
    missing = {name: float("nan") for name in STATISTICS if name not in frame}
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
    frame["joint"] = _joint(frame, ["file"])
    frame["_input"] = _inputs(frame)
    frame["_part"] = _parts(frame)
    frame = _without_copies(frame).reset_index(drop=True)
    frame["source"] = _sources(frame)
    # The pairs of a joint grid may be in several files. Seeds with one label are not told apart.
    frame["joint"] = _joint(frame, ["source", "joint"], once=True)
    frame = frame.drop(columns=["_input", "_part"])
    # The figures of alignment know models by their labels alone.
    renamed = is_alignment(frame) & (frame["source"] != "")
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


def _joint(frame: pd.DataFrame, more: list[str], once: bool = False) -> pd.Series:
    """Return which rows belong to a grid of several models, each with each.

    With `once`, a grid that has two values for a pair of layers is none.
    """
    grids = frame[frame["layer_y"].notna() & frame["model_y"].notna()]
    columns = ["task", "comparison", "n", *MEASURE_COLUMNS, *more]
    found = frame["layer_y"].notna() & False
    for _, rows in grids.groupby(columns, dropna=False, sort=False):
        repeated = once and rows.duplicated(["model_x", "model_y", *_LAYERS]).any()
        found[rows.index] = is_joint(rows) and not repeated
    return found


def _inputs(frame: pd.DataFrame) -> pd.Series:
    """Return the number of the input of every row by its labels, whichever file it is from."""
    key = frame[["task", "comparison", "n", *MEASURE_COLUMNS, *_MODELS, "joint"]].copy()
    key.loc[frame["joint"], list(_MODELS)] = None
    key.loc[frame["comparison"] == TRAINING_CKA, "options"] = None  # the step
    return key.groupby(list(key), dropna=False, sort=False).ngroup()


def _parts(frame: pd.DataFrame) -> pd.Series:
    """Return, for every row, how many rows of the same file have the same labels and come before.

    The runs of one record of training are one part, because their steps tell them apart.
    """
    cell = ["_input", "file", "model_x", "model_y", *_LAYERS]
    number = frame.groupby(cell, dropna=False, sort=False).cumcount()
    return number.where(frame["comparison"] != TRAINING_CKA, 0)


def _without_copies(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table without inputs that repeat an input before them, value for value."""
    parts = frame.drop_duplicates(["_input", "file", "_part"])
    several = parts.loc[parts.duplicated("_input"), "_input"]
    content = [name for name in frame if name not in ("file", "_part")]
    seen, dropped = set(), []
    rows_of = frame[frame["_input"].isin(several)].groupby(["_input", "file", "_part"], sort=False)
    for _, rows in rows_of:
        text = rows[content].sort_values([*_MODELS, *_LAYERS, "options"]).to_csv(index=False)
        if text in seen:
            dropped += list(rows.index)
        seen.add(text)
    return frame.drop(index=dropped)


def _sources(frame: pd.DataFrame) -> pd.Series:
    """Return what tells the inputs with the same labels apart; empty where an input is alone."""
    import pandas as pd

    source = pd.Series("", index=frame.index, dtype=object)
    cell = ["_input", "model_x", "model_y", *_LAYERS]
    again = frame.duplicated(cell)
    # Records of training and joint grids are in one file each; others may be in several.
    whole = frame["joint"] | (frame["comparison"] == TRAINING_CKA)
    again = again.where(frame["comparison"] != TRAINING_CKA, False)
    again |= whole & (frame.groupby("_input")["file"].transform("nunique") > 1)
    contradicting = frame["_input"].isin(frame.loc[again, "_input"])
    for _, rows in frame[contradicting].groupby("_input"):
        files = rows["file"].unique()
        source[rows.index] = rows["file"].map(dict(zip(files, short_names(files), strict=True)))
        if rows["_part"].any():
            source[rows.index] += " input " + (rows["_part"] + 1).astype(str)
    return source.str.strip()


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
