"""Rows of a sweep in the order of its plan, and not in that in which its jobs ended.

A file of the data set of a sweep has a column with the job of each row. The plan, which lists the
jobs, stands beside the folder of the data set.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.results.tables import is_csv
from simlab.results.tracks import is_track
from simlab.store.files import read_json

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

PLAN = "plan.json"
JOB = "job"


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

    if is_csv(file) or is_track(file) or JOB not in pq.read_schema(file).names:
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
