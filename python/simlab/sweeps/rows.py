"""Rows in Parquet files: the part of a job, and the data set into which parts are gathered.

Each row names its job in a column of its own, ``job``. The metadata of a file list its jobs, some
of which may have no row, and have the SHA-256 of all other bytes of the file. A file that was read
and has another hash is *damaged*; a file that the system refused to read is not.

The driver adds rows of parts to the last file of ``results/``, which is replaced by one rename,
until it has `FULL_BYTES`; then the next file begins. A part is deleted only after the file that has
its rows is on the disk. A damaged file is renamed into ``damaged/``, and its jobs are done again.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError
from simlab.results.reading import JOB
from simlab.results.results import DRAWS, PANDAS_TYPES, TYPES, ResultRow
from simlab.results.tables import CONTENTS, RESULTS
from simlab.store.console import note
from simlab.store.files import reading, sync, sync_names, write_bytes, writing
from simlab.store.jobs import Outcome

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

FULL_BYTES = 1 << 20
_ROW_BYTES = 12  # of a row among many, compressed, without its draws
_JOBS, _SEAL, _MARK, _OPEN = "simlab.jobs", "simlab.seal", b"sha256 of all else: ", b"0" * 64
_SMALL = {"compression": "zstd", "write_statistics": False}
# A part is read once and soon: its time counts, and not its size.
_QUICK = {"compression": "none", "use_dictionary": False, "write_statistics": False}


class DamagedRowsError(UserError):
    """A file of rows that was read and is not what was written."""

    def __init__(self, path: Path, found: str) -> None:
        super().__init__(f"{path}: wanted rows of a sweep, found a damaged file ({found})")
        self.path = path


def write_part(
    path: Path, key: str, made: Iterable[ResultRow | Outcome], durable: bool = True
) -> None:
    """Write the rows of a job, which its step returned, or wrote to results files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made, schema = list(made), row_schema()
    tables: list[pa.Table] = []
    for stored in (pq.read_table(one.path) for one in made if isinstance(one, Outcome)):
        keyed = stored.append_column(JOB, pa.array([key] * len(stored), pa.string()))
        tables.append(keyed.select(schema.names).cast(schema))
    rows = [one for one in made if isinstance(one, ResultRow)]
    records = [{**vars(row), "grid": row.grid or key, JOB: key} for row in rows]
    for record in records:  # as `results.tables` writes them: nan is a value that is not there
        record |= dict.fromkeys([name for name, value in record.items() if value != value])
    tables.append(pa.Table.from_pylist(records, schema=schema))
    _write(pa.concat_tables(tables), [key], path, durable, _QUICK)


def _write(
    table: pa.Table, jobs: Sequence[str], path: Path, durable: bool, how: dict[str, Any]
) -> None:
    """Write rows and the list of their jobs to a file, atomically."""
    import pyarrow.parquet as pq

    stream, schema = BytesIO(), table.schema.with_metadata({CONTENTS: RESULTS})
    with pq.ParquetWriter(stream, schema, write_page_checksum=True, **how) as writer:
        writer.write_table(table)
        seal = (_MARK + _OPEN).decode()
        writer.add_key_value_metadata({_JOBS: json.dumps(jobs), _SEAL: seal})
    content = stream.getvalue()
    digest = hashlib.sha256(content).hexdigest().encode()
    write_bytes(path, content.replace(_MARK + _OPEN, _MARK + digest))
    if durable:
        sync(path)
        sync_names(path.parent)


def read_rows(path: Path) -> tuple[list[str], pa.Table]:
    """Return the jobs of a file, and its rows; DamagedRowsError if it is not what was written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path):
        content = path.read_bytes()
    before, mark, after = content.rpartition(_MARK)
    digest, rest = after[:64], after[64:]
    if mark and hashlib.sha256(before + mark + _OPEN + rest).hexdigest().encode() != digest:
        raise DamagedRowsError(path, "other bytes than were written")
    try:  # a file of an earlier version has no hash that is known here
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        jobs = list(json.loads(file.metadata.metadata[_JOBS.encode()]))
        table = file.read(use_threads=False).replace_schema_metadata()
        return jobs, table.select(row_schema().names).cast(row_schema())
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise DamagedRowsError(path, str(error) or "no list of jobs") from error


def jobs_in(path: Path) -> frozenset[str]:
    """Return the jobs of a file, which is read once in each state; none if it is gone."""
    try:
        with reading(path), path.open("rb") as stream:  # which asks a server for the state
            state = os.fstat(stream.fileno())
    except FileNotFoundError:
        return frozenset()
    return _jobs_in(path, state.st_ino, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=1 << 16)
def _jobs_in(path: Path, *_state: int) -> frozenset[str]:
    return frozenset(read_rows(path)[0])


def forget_states() -> None:
    """Have every file read again, whatever its time of change says."""
    _jobs_in.cache_clear()


def as_results(table: pa.Table) -> pd.DataFrame:
    """Return rows as a results table (`simlab.results.results`), without the column of jobs."""
    return table.drop_columns(JOB).to_pandas().astype(PANDAS_TYPES)


@cache
def row_schema() -> pa.Schema:
    """Return the names and types of the columns."""
    import pyarrow as pa

    return pa.schema([(n, pa.type_for_alias(kind)) for n, kind in {**TYPES, JOB: "string"}.items()])


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, in order; none if there is no folder."""
    try:
        with reading(folder):
            return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


class DataSet:
    """Rows of many jobs, in a folder of Parquet files."""

    def __init__(self, folder: Path, durable: bool = True) -> None:
        self.folder, self.durable = folder, durable
        self.damaged = folder.with_name("damaged")

    def files(self) -> list[Path]:
        """Return the files in order."""
        names = names_in(self.folder)
        return [self.folder / name for name in names if Path(name).match("part-*.parquet")]

    def jobs(self) -> set[str]:
        """Return the jobs that the files list; a file without a list has none."""
        found: set[str] = set()
        for file in self.files():
            with suppress(DamagedRowsError):
                found |= jobs_in(file)
        return found

    def set_aside(self, file: Path) -> None:
        """Rename a damaged file, so that its jobs count as not done, and say so."""
        place = self.damaged / f"{file.stem}-{time.time_ns()}{file.suffix}"
        with writing(place):
            self.damaged.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):
                os.rename(file, place)
                note(
                    f"{file}: wanted rows, found a damaged file; it is set aside in "
                    f"{self.damaged}, and its jobs are done again"
                )

    def set_aside_damaged(self) -> None:
        """Set all damaged files aside."""
        for file in self.files():
            try:
                jobs_in(file)
            except DamagedRowsError:
                self.set_aside(file)

    def gather(self, parts: Sequence[Path]) -> None:
        """Move the rows of `parts` into the data set; damaged files are set aside."""
        self.set_aside_damaged()
        there, new, size = self.jobs(), [], 0
        for part in parts:
            try:
                jobs, table = read_rows(part)
            except FileNotFoundError:
                continue
            except DamagedRowsError:
                self.set_aside(part)
                continue
            if not there.issuperset(jobs):  # a driver was killed before it deleted the part
                new.append((jobs, table))
                there.update(jobs)
                size += _ROW_BYTES * len(table) + table[DRAWS].nbytes
            if size > FULL_BYTES:
                self.add(new)
                new, size = [], 0
        self.add(new)
        for part in parts:
            part.unlink(missing_ok=True)

    def add(self, new: Sequence[tuple[list[str], pa.Table]]) -> None:
        """Add rows to the last file, or begin another one if that is full."""
        import pyarrow as pa

        if not any(keys for keys, _ in new):
            return
        files = self.files()
        number = int(files[-1].stem.partition("-")[2]) if files else -1
        old: list[tuple[list[str], pa.Table]] = []
        if files and files[-1].stat().st_size < FULL_BYTES:
            old = [read_rows(files[-1])]
        path = self.folder / f"part-{number if old else number + 1:05}.parquet"
        there = {key for keys, _ in old for key in keys}  # also by a driver without our lock
        both = old + [one for one in new if there.isdisjoint(one[0])]
        jobs = [key for keys, _ in both for key in keys]
        table = pa.concat_tables([table for _, table in both])
        _write(table, jobs, path, self.durable, _SMALL)

    def rows(self, keys: Collection[str]) -> pa.Table:
        """Return the rows of some jobs, in the order of `keys`; errors as `read_rows`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = set(keys)
        found = [_choose(file, wanted)[1] for file in self.files() if jobs_in(file) & wanted]
        table = pa.concat_tables([row_schema().empty_table(), *found])
        ranks = pc.index_in(table[JOB], pa.array([*keys], pa.string()))
        return table.take(pc.sort_indices(ranks))  # which leaves equal ranks in their order

    def keep_only(self, wanted: Collection[str]) -> int:
        """Move rows of other jobs to ``aside``, and wanted rows back; return how many jobs went."""
        aside, moved = DataSet(self.folder.with_name("aside"), self.durable), 0
        aside.set_aside_damaged()
        for file in self.files():
            if others := jobs_in(file).difference(wanted):
                aside.add([_choose(file, others - aside.jobs())])
                jobs, table = _choose(file, wanted)
                moved += len(others)
                if jobs:
                    _write(table, jobs, file, self.durable, _SMALL)
                else:
                    file.unlink()
        back = aside.jobs().intersection(wanted) - self.jobs()
        self.add([_choose(file, back) for file in aside.files() if jobs_in(file) & back])
        return moved


def _choose(file: Path, wanted: Collection[str]) -> tuple[list[str], pa.Table]:
    """Return the jobs of a file that are wanted, and their rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    jobs, table = read_rows(file)
    chosen = [key for key in jobs if key in wanted]
    return chosen, table.filter(pc.is_in(table[JOB], pa.array(chosen, pa.string())))
