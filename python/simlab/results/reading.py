"""Read results files: Parquet, csv, and the .jsonl of a `simcore.Track`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError
from simlab.results.results import COLUMNS, DRAWS, PANDAS_TYPES, REQUIRED, TRAINING
from simlab.results.tables import files_of
from simlab.store.files import as_paths, hash_json, read_json

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from simcore.recording.history import History

_FILLED = tuple(name for name in REQUIRED if name != "value")  # in every row
CSV, TRACK = ".csv", ".jsonl"  # the ends of names of files that are not Parquet
PLAN = "plan.json"
JOB = "job"
_FIRST = 1  # layer of a track; layer 0 is the embedding output
_FACTS = {"task": str, "label": str, "seed": int, "base": str}


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
        A row for each value. `simlab.results.results` describes the columns.

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
    """Return the files among `paths`, and all results files in the folders among `paths`."""
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
        frame = {"csv": _read_csv, "track": _read_track, "Parquet": _read_parquet}[kind](path)
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


def _read_track(path: Path) -> pd.DataFrame:
    """Return the values that a `simcore.Track` wrote, by columns of the results table."""
    import pandas as pd

    from simcore.recording.history import read_history

    history = read_history(path)
    about = history.about["about"]
    for name, wanted in _FACTS.items():
        if (name == "task" or name in about) and not isinstance(about.get(name), wanted):
            raise UserError(
                f"results {path}: wanted {name!r} among the facts of the track, about={{...}}, as "
                f"{wanted.__name__}, found {about}"
            )
    return pd.DataFrame(list(_rows(history, about, str(about.get("label", path.stem)))))


def _rows(history: History, about: dict[str, Any], label: str) -> Iterator[dict[str, Any]]:
    head = history.about
    options = dict(head["options"])
    kernel, bandwidth = options.pop("kernel", None), options.pop("bandwidth", None)
    same = {
        "experiment": TRAINING,
        "grid": hash_json([head, history.steps, str(history.values)]),
        "measure": head["measure"],
        "kind": f"modules-{head['pool']}" if head["pool"] else "modules",  # as `extract` says
        "estimator": options.pop("estimator", None),
        "kernel": kernel,
        "bandwidth": bandwidth if kernel == "rbf" else None,
        "label_x": label,
        **{f"{name}_x": about.get(name) for name in ("seed", "base")},
        "n": head["n"],
        "task": about["task"],
    }
    options |= {name: value for name, value in about.items() if name not in _FACTS}
    same["options"] = json.dumps(options, sort_keys=True) if options else None
    places = {name: place for place, name in enumerate(head["layers"], _FIRST)}
    others = {
        reference: {name: place for place, name in enumerate(layers, _FIRST)}
        for reference, layers in head["references"].items()
    }
    for row in history.rows():
        reference = row["reference"]
        yield {
            **same,
            "comparison": reference,
            "label_y": reference,
            "step_x": row["step"],
            "layer_x": places[row["layer"]],
            "layer_y": others[reference][row["other"]],
            "value": row["value"],
        }


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
    """Return the place in the plan of the job of every row; None if the file is of no sweep."""
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
