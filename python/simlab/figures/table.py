"""The results table as figures need it: every input once, and inputs told apart by their files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simlab.errors import UserError, argument
from simlab.figures.measured import CALIBRATED, MEASURE_COLUMNS, MEASURED, Measured
from simlab.store.labels import run_names
from simlab.store.results import ALIGNMENTS, GRID, GRIDS, JOINT, SIDE
from simlab.store.tracks import TRAINING

if TYPE_CHECKING:
    import pandas as pd

_MODELS = tuple(f"{name}_{side}" for side in "xy" for name in SIDE)
_CELL = ("layer_x", "layer_y")
_MOST_NUMBERS = 2**40  # that products of numbers of values may reach


def complete(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the columns that figures go by, where they are missing.

    * `quantity`: what `value` is; empty for the measure itself, or `CALIBRATED`;
    * `file`: the file of a row; empty if the table was given;
    * `source`: what tells this input from other inputs that have the same labels (`distinguish`);
    * `MEASURED`: the measure with its options, in words (`Measured`).
    """
    import pandas as pd

    frame = frame.assign(**{n: "" for n in ("quantity", "file", "source") if n not in frame})
    if MEASURED in frame:
        return frame
    number = numbered(frame, MEASURE_COLUMNS)
    kinds = frame.iloc[firsts(number)][list(MEASURE_COLUMNS)].astype(object)
    kinds = kinds.where(kinds.notna(), None)
    measures = [Measured(*kind) for kind in kinds.itertuples(index=False, name=None)]
    return frame.assign(**{MEASURED: pd.Categorical.from_codes(number, categories=measures)})


def distinguish(frame: pd.DataFrame) -> pd.DataFrame:
    """Return every input once, with `source` filled in.

    An input is what one job made for one model or pair of models, or for one joint grid; an input
    that repeats another one, value for value, is dropped. Inputs that have the same labels but not
    the same values contradict each other: their `source` is the name of their file, or the number
    of the input if one file holds both.
    """
    import pandas as pd

    frame = complete(frame).reset_index(drop=True)
    kinds, kind = _kinds(frame)
    frame["_input"] = kinds["_input"].to_numpy()[kind]
    frame["_label"] = kinds["_label"].to_numpy()[kind]
    frame = _without_copies(frame, numbered(kinds, ["_input", *_MODELS])[kind])
    frame = _without_equals(frame)
    inputs = frame.drop_duplicates("_input")
    several = inputs[inputs.duplicated("_label", keep=False)]
    sources = {
        number: source
        for _, of_label in several.groupby("_label")
        for number, source in zip(of_label["_input"], _sources(of_label["file"]), strict=True)
    }
    source_of = pd.Series(sources, dtype=object)
    frame["source"] = frame["_input"].map(source_of).astype(object).fillna("")
    frame = frame.drop(columns=["_input", "_label"])
    # The figures of alignment tell models apart by their labels alone.
    renamed = (frame["source"] != "") & frame["experiment"].isin(ALIGNMENTS)
    if renamed.any():
        for side in ("label_x", "label_y"):
            frame.loc[renamed, side] += " (" + frame.loc[renamed, "source"] + ")"
    return frame


@dataclass(frozen=True)
class Parts:
    """The rows of a table by the figures that show them; grids have their calibrated values too."""

    pairs: pd.DataFrame  # grids of two models
    joint: pd.DataFrame  # joint grids
    steps: pd.DataFrame  # joint grids of one layer at several steps
    others: pd.DataFrame


def parts_of(table: pd.DataFrame, comparisons: Sequence[str] = ()) -> Parts:
    """Return the parts of a table that `distinguish` returned.

    `comparisons` are the comparisons of grids that are wanted, in order, and all if there are none.
    """
    # Grids of steps are curves, and heatmaps where their comparison is asked for.
    inside = table["experiment"].isin(GRIDS) & (~between_steps(table) | bool(comparisons))
    grids = with_calibrated(_chosen(table[inside], comparisons))
    joint = grids[grids["experiment"] == JOINT]
    of_steps = is_of_steps(joint)
    pairs = grids[grids["experiment"] == GRID]
    return Parts(pairs, joint[~of_steps], joint[of_steps], table[~inside])


def _chosen(grids: pd.DataFrame, comparisons: Sequence[str]) -> pd.DataFrame:
    """Return the rows of the wanted comparisons in the wanted order; without a wish, all rows."""
    if not comparisons:
        return grids
    names = list(dict.fromkeys(grids["comparison"]))
    missing = [name for name in comparisons if name not in names]
    if missing:
        raise UserError(
            f"{argument('comparisons', missing[0])}: wanted a comparison in the results "
            f"({', '.join(names) or 'none'})"
        )
    rank = grids["comparison"].map({name: place for place, name in enumerate(comparisons)})
    return grids.loc[rank.dropna().sort_values(kind="stable").index]


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
    grid = [frame[name] for name in ("task", "comparison", "source")]
    own = {"inside": inside, "run": runs, "layer": frame["layer_x"]}
    grouped = frame.assign(**own).groupby(grid, dropna=False, sort=False)
    of_one = (grouped["run"].transform("nunique") == 1) & (
        grouped["layer"].transform("nunique") == 1
    )
    return grouped["inside"].transform("all").astype(bool) & of_one


def with_calibrated(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with further rows, whose `value` is column `calibrated`, where it is known.

    An undefined value of a calibrated grid has no calibrated value, and stays undefined.
    """
    import pandas as pd
    from pandas.api.types import union_categoricals

    grid = ["task", "experiment", "comparison", "source", *_MODELS, MEASURED]
    keys = [frame[name] for name in grid]
    groups = frame["calibrated"].notna().groupby(keys, dropna=False, observed=True)
    rows = frame[groups.transform("any")]
    if rows.empty:
        return frame
    measures = rows[MEASURED].cat.rename_categories(lambda measure: measure.calibrated)
    without = dict.fromkeys(("low", "high", "pvalue"), float("nan"))
    rows = rows.assign(value=rows["calibrated"], quantity=CALIBRATED, **without)
    whole = pd.concat([frame.drop(columns=MEASURED), rows.drop(columns=MEASURED)])
    whole[MEASURED] = union_categoricals([frame[MEASURED], measures])
    return whole.reset_index(drop=True)


def numbered(frame: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """Return a number for every row: rows with equal values in `columns` have the same number.

    The numbers rise in the order in which rows bring new values.
    """
    import pandas as pd

    number, count = np.zeros(len(frame), dtype=np.int64), 1
    for name in columns:
        codes, values = pd.factorize(frame[name], use_na_sentinel=False)
        if len(values) < 2:
            continue
        # A row's number has one digit for each column, in base len(values). Numbers that would
        # overflow are first replaced by their ranks of appearance.
        if count * len(values) > _MOST_NUMBERS:
            number, known = pd.factorize(number)
            count = len(known)
        number = number * len(values) + codes
        count *= len(values)
    return pd.factorize(number)[0]


def firsts(numbers: np.ndarray) -> np.ndarray:
    """Return the place at which each of the numbers that `numbered` gave stands first."""
    # New numbers rise, so that each stands first where the running maximum grows.
    return np.flatnonzero(np.diff(np.maximum.accumulate(numbers), prepend=-1))


def _kinds(frame: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the rows of `frame` that differ in more than their layers, and the kind of every row.

    A large table has few such rows. Column `_label` numbers inputs by what figures say of them, and
    `_input` by their job besides; a table without keys of jobs has one job for each file.
    """
    labels = ["task", "experiment", "comparison", "n", MEASURED, *_MODELS]
    names = [*labels, "grid", "file"]
    number = numbered(frame, names)
    kinds = frame.iloc[firsts(number)][names].reset_index(drop=True)
    shown = kinds[labels].astype(object)
    shown.loc[kinds["experiment"] == JOINT, list(_MODELS)] = None  # all pairs are one input
    # A training is one input at all steps. Figures of alignment tell models apart by their labels.
    stepless = kinds["experiment"].isin((TRAINING, *ALIGNMENTS))
    shown.loc[stepless, ["step_x", "step_y"]] = None
    kinds["_label"] = numbered(shown, labels)
    kinds["_job"] = kinds["grid"].astype(object).fillna(kinds["file"])
    kinds["_input"] = numbered(kinds, ["_label", "_job"])
    return kinds, number


def _without_copies(frame: pd.DataFrame, pair: np.ndarray) -> pd.DataFrame:
    """Return the table with every cell of an input once: files may be copies of each other.

    `pair` numbers the pairs of models of all inputs.
    """
    import pandas as pd

    cells = pair
    for name in _CELL:
        # One more digit of the cell's number; 0 stands for a cell that has no such place.
        place = frame[name].fillna(-1).to_numpy(dtype=np.int64) + 1
        cells = cells * (place.max(initial=0) + 1) + place
    again = pd.Series(cells).duplicated().to_numpy()
    if not again.any():
        return frame
    marked = frame.assign(_cell=cells)
    values = marked.drop_duplicates(["_cell", "file", "value"])
    wrong = values[values.duplicated(["_cell", "file"])]
    if len(wrong):
        row = wrong.iloc[0]
        raise UserError(
            f"results {row['file']}: wanted one value of {row['measure']} for each layer of "
            f"{row['label_x']}, found two ({row['experiment']}, task {row['task']})"
        )
    return frame[~again]


def _without_equals(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table without inputs that repeat an input before them, value for value."""
    import pandas as pd

    inputs = frame.drop_duplicates("_input")
    several = inputs.loc[inputs.duplicated("_label"), "_label"]
    rows = frame[frame["_label"].isin(several)]
    content = rows.drop(columns=["file", "grid", "source", "_input", MEASURED])
    # The sum of hashes does not depend on the order of the rows.
    hashes = pd.util.hash_pandas_object(content, index=False).groupby(rows["_input"]).sum()
    copies = rows["_input"].map(hashes).groupby(rows["_input"], sort=False).first()
    of_label = rows.drop_duplicates("_input").set_index("_input")["_label"]
    repeated = pd.DataFrame({"hash": copies, "label": of_label}).duplicated()
    return frame[~frame["_input"].isin(repeated.index[repeated])].reset_index(drop=True)


def _sources(files: pd.Series) -> list[str]:
    """Return the identity of every input: its file, and its number within the file."""
    different = list(dict.fromkeys(files))
    names = dict(zip(different, short_names(different), strict=True))
    counts = files.map(files.value_counts())
    places = files.groupby(files).cumcount() + 1
    return [
        f"{names[file]} input {place}".strip() if count > 1 else names[file]
        for file, count, place in zip(files, counts, places, strict=True)
    ]


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
