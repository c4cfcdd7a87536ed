"""Rows of results on disk: a small file for each job, gathered into one data set.

A job writes its rows to a Parquet file of its own, a *part*. The driver moves parts into
``results/part-00000.parquet``, ``part-00001.parquet``, ...: rows are added to the last file, which
is replaced by one rename, until the file has `FULL_BYTES`; then the next file begins. So the rows
of a job stand in one file of the data set, whoever reads it and whenever, and a part is deleted
only after the file that has its rows is on the disk.

Each row names its job in a column of its own, ``job``. The footer of a file lists its jobs with
their numbers of rows and their seconds, so that what is done is read without the rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.store.files import atomic_file, sync, sync_names
from simlab.store.results import TYPES, ResultRow
from simlab.store.tables import RESULTS
from simlab.sweeps.plan import Job

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

FULL_BYTES = 1 << 20
_ROW_BYTES = 12  # of a row among many, compressed
# A part is read once and soon: its time counts, and not its size.
_QUICK = {"compression": "none", "use_dictionary": False, "write_statistics": False}
_SMALL = {"compression": "zstd"}
JOB = "job"
_JOBS, _CONTENTS = b"simlab.jobs", b"simlab.contents"


@dataclass(frozen=True)
class Made:
    """The rows of a job: its kind, how many rows there are, and how long they took."""

    kind: str
    rows: int
    seconds: float


def write_part(
    path: Path, job: Job, rows: Iterable[ResultRow], seconds: float, durable: bool = True
) -> None:
    """Write the rows of a job to file `path`, atomically."""
    import pyarrow as pa

    records = [_record(row, job.key) for row in rows]
    table = pa.Table.from_pylist(records, schema=_schema())
    _write(table, path, {job.key: Made(job.kind, len(records), seconds)}, durable, _QUICK)


def read_made(path: Path) -> dict[str, Made]:
    """Return the jobs whose rows a file has; empty if the file is damaged or of another kind."""
    try:
        state = path.stat()
    except OSError:
        return {}
    return dict(_read_made(path, state.st_ino, state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=4096)
def _read_made(path: Path, *_state: int) -> dict[str, Made]:
    """Read the jobs in the footer of a file; a file that was replaced has another state."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(path).metadata or {}
    except (OSError, pa.ArrowInvalid):
        return {}
    return {key: Made(*made) for key, made in json.loads(metadata.get(_JOBS, b"{}")).items()}


class DataSet:
    """The gathered rows of a sweep, in a folder of Parquet files."""

    def __init__(self, folder: Path, durable: bool = True) -> None:
        self.folder, self.durable = folder, durable

    def files(self) -> list[Path]:
        """Return the files in order."""
        return sorted(self.folder.glob("part-*.parquet"))

    def made(self) -> dict[str, Made]:
        """Return all jobs whose rows are there."""
        return {key: made for file in self.files() for key, made in read_made(file).items()}

    def has(self, key: str) -> bool:
        """Return whether the rows of a job are there."""
        for file in reversed(self.files()):
            state = file.stat()
            if key in _read_made(file, state.st_ino, state.st_mtime_ns, state.st_size):
                return True
        return False

    def drop_damaged(self) -> list[Path]:
        """Delete the files that are no Parquet files, whose jobs then count as not done."""
        damaged = [file for file in self.files() if not read_made(file)]
        for file in damaged:
            file.unlink()
        return damaged

    def gather(self, parts: Sequence[Path]) -> set[Path]:
        """Move the rows of `parts` into the data set; return the parts that are damaged."""
        damaged = set()
        there = self.made()
        waiting = list(parts)
        while waiting:
            tail, jobs, tables, used, size = self._begin()
            while waiting and size < 2 * FULL_BYTES:
                part = waiting.pop(0)
                used.append(part)
                new = read_made(part)
                table = _read_if_whole(part)
                if table is None:
                    if part.exists():  # else another driver has gathered it
                        damaged.add(part)
                elif not new.keys() <= there.keys():
                    tables.append(table)
                    jobs |= new
                    there |= new
                    size += _ROW_BYTES * len(table)
            if len(jobs) > len(read_made(tail)):
                self._write(tables, tail, jobs)
            for part in used:
                part.unlink(missing_ok=True)
        return damaged

    def _begin(self) -> tuple[Path, dict[str, Made], list[pa.Table], list[Path], int]:
        """Return the file to write, and what is in it already."""
        files = self.files()
        if files and files[-1].stat().st_size < FULL_BYTES:
            last = files[-1]
            size = last.stat().st_size
            return last, read_made(last), [read_rows_file(last)], [], size
        number = int(files[-1].stem.partition("-")[2]) + 1 if files else 0
        return self.folder / f"part-{number:05}.parquet", {}, [], [], 0

    def _write(self, tables: Sequence[pa.Table], path: Path, jobs: Mapping[str, Made]) -> None:
        import pyarrow as pa

        _write(pa.concat_tables(tables), path, jobs, self.durable, _SMALL)

    def rows(self, keys: Collection[str]) -> pa.Table:
        """Return the rows of some jobs, in the order of `keys`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted, found = set(keys), []
        for file in self.files():
            mine = [key for key in read_made(file) if key in wanted]
            if mine:
                table = read_rows_file(file)
                found.append(table.filter(pc.is_in(table[JOB], pa.array(mine, pa.string()))))
        table = pa.concat_tables(found) if found else _schema().empty_table()
        place = {key: number for number, key in enumerate(keys)}
        order = sorted(
            range(len(table)), key=[place[k] for k in table[JOB].to_pylist()].__getitem__
        )
        return table.take(pa.array(order, pa.int64()))

    def take_out(self, keys: Collection[str]) -> Iterator[tuple[str, pa.Table, Made]]:
        """Yield the rows of every job in `keys` that is there, and remove them from the files.

        The rows of a file are removed when the rows of its last job have been taken.
        """
        import pyarrow.compute as pc

        wanted = set(keys)
        for file in self.files():
            jobs = read_made(file)
            if not wanted & jobs.keys():
                continue
            table = read_rows_file(file)
            for key in [key for key in jobs if key in wanted]:
                yield key, table.filter(pc.equal(table[JOB], key)), jobs.pop(key)
            if jobs:
                import pyarrow as pa

                kept = pc.is_in(table[JOB], pa.array(list(jobs), pa.string()))
                self._write([table.filter(kept)], file, jobs)
            else:
                file.unlink()


def write_table(table: pa.Table, path: Path, key: str, made: Made, durable: bool = True) -> None:
    """Write rows that `DataSet.take_out` gave as a part."""
    _write(table, path, {key: made}, durable, _QUICK)


def read_rows_file(path: Path) -> pa.Table:
    """Return the rows of a part, or of a file of the data set."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        return file.read().replace_schema_metadata()


def _read_if_whole(path: Path) -> pa.Table | None:
    try:
        return read_rows_file(path)
    except (OSError, ValueError):  # pyarrow's errors are both
        return None


def as_results(table: pa.Table) -> pd.DataFrame:
    """Return rows as a results table (`simlab.store.results`), without the column of jobs."""
    from simlab.store.results import typed

    return typed(table.drop_columns(JOB).to_pandas())


def _record(row: ResultRow, key: str) -> dict[str, Any]:
    record = asdict(row)
    # As `store.tables` writes them: a value that is not there is null, and nan is such a value.
    for name, value in record.items():
        if isinstance(value, float) and math.isnan(value):
            record[name] = None
    record[JOB] = key
    return record


@cache
def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(n, pa.type_for_alias(kind)) for n, kind in {**TYPES, JOB: "string"}.items()])


def _write(
    table: pa.Table, path: Path, jobs: Mapping[str, Made], durable: bool, how: Mapping[str, Any]
) -> None:
    import pyarrow.parquet as pq

    listed = {key: [made.kind, made.rows, round(made.seconds, 4)] for key, made in jobs.items()}
    metadata = {_JOBS: json.dumps(listed), _CONTENTS: RESULTS}
    with atomic_file(path) as partial:
        pq.write_table(
            table.replace_schema_metadata(metadata),
            partial,
            write_page_checksum=True,
            **how,
        )
        if durable:
            sync(partial)
    if durable:
        sync_names(path.parent)
