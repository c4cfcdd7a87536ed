"""The results table as figures need it: every value once, and the rows of each kind of figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simlab.errors import UserError
from simlab.figures.measured import MEASURE_COLUMNS, MEASURED, Measured
from simlab.results.labels import run_names
from simlab.results.results import GRID, JOINT, SIDE

if TYPE_CHECKING:
    import pandas as pd

_MODELS = tuple(f"{name}_{side}" for side in "xy" for name in SIDE)
_CELL = ("task", "experiment", "comparison", MEASURED, "n", *_MODELS, "layer_x", "layer_y")


def complete(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with column `MEASURED`, and `file`, which is empty for a given table."""
    import pandas as pd

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
    import pandas as pd

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
