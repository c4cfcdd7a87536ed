"""Read results files: Parquet, csv, and the .jsonl of a `simcore.Track`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.errors import UserError
from simlab.results.results import COLUMNS, DRAWS, PANDAS_TYPES, REQUIRED
from simlab.results.tables import files_of
from simlab.results.tracks import read_track
from simlab.store.files import as_paths, read_json

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

_FILLED = tuple(name for name in REQUIRED if name != "value")  # in every row
CSV, TRACK = ".csv", ".jsonl"  # the ends of names of files that are not Parquet
PLAN = "plan.json"
JOB = "job"


def read_results(paths: str | Path | Sequence[str | Path]) -> pd.DataFrame:
    """Read results files, or all results files of a folder, into one table.

    Parameters
    ----------
    paths
        A results file (.parquet, or .csv with the same columns, or the .jsonl of a
        `simcore.Track`), a folder of .parquet files, or several files and folders. A file
        that is named twice is read once.

    Returns
    -------
    DataFrame
        A row for each value. `simlab.results.results` describes the columns, and its function
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
    return in_plan_order(files, [_read_file(file) for file in files])


def read_table(results: pd.DataFrame | str | Path | Sequence[str | Path]) -> pd.DataFrame:
    """Return the table that was given, or rows of files with column `file`, which names theirs."""
    import pandas as pd

    if isinstance(results, pd.DataFrame):
        return results
    files = results_files(results)
    return in_plan_order(files, [_read_file(file).assign(file=str(file)) for file in files])


def results_files(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    """Return the files among `paths`, and all results files in the folders among `paths`.

    A file that is named twice, or that a link leads to, is returned once, by its first name.
    """
    files: dict[Path, Path] = {}
    for path in as_paths(paths):
        for file in files_of(path):
            files.setdefault(file.resolve(), file)
    return list(files.values())


def _read_file(path: Path) -> pd.DataFrame:
    """Return the rows of one results file, in the order in which they stand in it."""
    is_csv, is_track = path.suffix == CSV, path.suffix == TRACK
    kind = "csv" if is_csv else "track" if is_track else "Parquet"
    try:
        frame = {"csv": _read_csv, "track": read_track, "Parquet": _read_parquet}[kind](path)
    except (ValueError, OSError) as error:  # the errors of pyarrow and pandas are ValueErrors
        problem = str(error).removeprefix(f"{path}: ")
        raise UserError(f"results {path}: wanted a {kind} file, found {problem}") from error
    # Neither a csv file that a study publishes nor a track has columns without values.
    for name in REQUIRED if is_csv or is_track else COLUMNS:
        if name not in frame.columns and name != DRAWS:
            raise UserError(
                f"results {path}: wanted column {name!r}, found a table without it; make the file "
                "again"
            )
    try:
        frame = frame.reindex(columns=list(COLUMNS)).astype(PANDAS_TYPES)
    except (ValueError, TypeError) as error:
        raise UserError(f"results {path}: wanted numbers where they belong: {error}") from error
    for name in _FILLED:
        missing = frame[name].isna().to_numpy()
        if missing.any():
            row = int(missing.argmax()) + 1
            raise UserError(
                f"results {path}: wanted column {name!r} in every row, found nothing in row {row:,}"
            )
    for name in ("options", "resampling") if is_csv else ():  # which other programs write too
        for text in frame[name].dropna().unique():
            try:
                good = isinstance(json.loads(text), dict)
            except ValueError:
                good = False
            if not good:
                raise UserError(
                    f"results {path}: wanted a JSON object in column {name!r}, found {text}"
                )
    return frame


def _read_csv(path: Path) -> pd.DataFrame:
    """Read every cell as text, so that words such as "none" stay names of models."""
    import pandas as pd

    frame = pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[""])
    # pandas writes 3 as 3.0 where another cell of the column is empty.
    whole = [name for name in frame if PANDAS_TYPES.get(name) == "Int64"]
    return frame.assign(**{name: frame[name].replace(r"\.0$", "", regex=True) for name in whole})


def _read_parquet(path: Path) -> pd.DataFrame:
    """Read texts by their dictionaries, which is faster: large tables repeat few texts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pq.ParquetDataset(path).schema  # its errors are named by `_read_file`
    texts = [field.name for field in schema if field.type == pa.string()]
    return pq.read_table(path, read_dictionary=texts).cast(schema).to_pandas()


def in_plan_order(files: Sequence[Path], tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all tables; rows of one sweep stand in the order of its plan."""
    import numpy as np
    import pandas as pd

    whole = pd.concat(tables, ignore_index=True)
    ranks = [_ranks(file) for file in files]
    if all(rank is None for rank in ranks):
        return whole
    folders = [
        file if rank is None else file.parent for file, rank in zip(files, ranks, strict=True)
    ]
    sizes = [len(table) for table in tables]
    group = np.repeat([folders.index(folder) for folder in folders], sizes)
    of_row = [
        np.zeros(size, dtype=np.int64) if rank is None else rank
        for rank, size in zip(ranks, sizes, strict=True)
    ]
    order = np.lexsort((np.concatenate(of_row), group))
    return whole.iloc[order].reset_index(drop=True)


@lru_cache(maxsize=4)
def _job_numbers(path: Path, *_state: int) -> dict[str, int]:
    """Return the place of every job in a plan; a file that was replaced has another state."""
    return {key: number for number, (_, key, _) in enumerate(read_json(path)["jobs"])}


def _ranks(file: Path) -> np.ndarray | None:
    """Return the place in the plan of the job of every row; None if the file is of no sweep.

    Jobs that the plan no longer has come last.
    """
    import numpy as np
    import pyarrow.parquet as pq

    if file.suffix in (CSV, TRACK) or JOB not in pq.read_schema(file).names:
        return None
    plan = file.resolve().parent.parent / PLAN
    if not plan.is_file():
        return None
    state = plan.stat()
    numbers = _job_numbers(plan, state.st_mtime_ns, state.st_size)
    jobs = pq.read_table(file, columns=[JOB])[JOB].combine_chunks().dictionary_encode()
    places = np.array([numbers.get(key, len(numbers)) for key in jobs.dictionary.to_pylist()])
    ranks: np.ndarray = places[jobs.indices.to_numpy()]
    return ranks
