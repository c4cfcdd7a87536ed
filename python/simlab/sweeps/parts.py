"""Parquet files of rows: a *part* has the rows of one job, other files have the rows of many.

Each row names its job in a column of its own, ``job``. The footer of a file lists its jobs with
their numbers of rows and their seconds, so that what is done is read without the rows. The footer
has the SHA-256 of all bytes that stand before it, and of its own list.

A file that was read and is not what was written is *damaged*. A file that the system refused to
read is no damaged file: its content is unknown.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, TypeVar

from simlab.errors import ReadError, UserError
from simlab.store.files import atomic_file, reading, sync, sync_names
from simlab.store.jobs import Outcome
from simlab.store.planned import JOB
from simlab.store.results import PANDAS_TYPES, TYPES, ResultRow
from simlab.store.tables import CONTENTS, JOBS, RESULTS, Made, dump_jobs, load_jobs
from simlab.sweeps.plan import Job

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

# A part is read once and soon: its time counts, and not its size.
_QUICK = {"compression": "none", "use_dictionary": False, "write_statistics": False}
_DIGESTS = b"simlab.sha256"
_MAGIC, _END_BYTES = b"PAR1", 8  # of Parquet: the length of the footer, and the magic
_LOOKS = 3  # at a file that another machine replaces

T = TypeVar("T")


class DamagedRowsError(UserError):
    """A file of rows that was read and is not what was written.

    Attributes
    ----------
    path
        The file.
    """

    def __init__(self, path: Path, found: str) -> None:
        super().__init__(f"{path}: wanted rows of a sweep, found a damaged file ({found})")
        self.path = path


def write_part(
    path: Path,
    job: Job,
    made: Iterable[ResultRow | Outcome],
    seconds: float,
    durable: bool = True,
) -> None:
    """Write the rows of a job, which its step returned or wrote to results files, atomically.

    Parameters
    ----------
    path
        The file to write.
    made
        Rows, or the results files of the step.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, steps, tables, records = row_schema(), {}, [], []
    for one in made:
        if isinstance(one, Outcome):
            steps[one.key] = round(one.seconds, 4)
            tables.append(pq.read_table(one.path))
        else:
            records.append(_record(one, job.key))
    tables.append(pa.Table.from_pylist(records, schema=schema))
    table = pa.concat_tables([_of_job(one, job.key) for one in tables])
    listed = {job.key: Made(job.kind, len(table), seconds, steps)}
    write_rows_file(table, path, listed, durable=durable, how=_QUICK)


def _of_job(table: pa.Table, key: str) -> pa.Table:
    """Return rows with the key of their job, in the columns of a file of a sweep."""
    import pyarrow as pa

    schema = row_schema()
    if JOB not in table.schema.names:
        table = table.append_column(JOB, pa.array([key] * len(table), pa.string()))
    return table.select(schema.names).cast(schema)


def read_made(path: Path) -> Mapping[str, Made]:
    """Return the jobs whose rows a file has, from its footer.

    The result is empty if there is no file, or if its footer is damaged.

    Raises
    ------
    ReadError
        The system refused to read the file.
    """
    try:
        return read_jobs(path)
    except (FileNotFoundError, DamagedRowsError):
        return {}


def read_jobs(path: Path) -> Mapping[str, Made]:
    """Return the jobs whose rows a file has, from its footer.

    Raises
    ------
    DamagedRowsError
        The footer is damaged.
    FileNotFoundError
        There is no file.
    ReadError
        The system refused to read the file.
    """
    return _read_footer(path, *_state(path))


def is_whole(path: Path) -> bool:
    """Return whether a file has the bytes that were written, or is gone.

    Raises
    ------
    ReadError
        The system refused to read the file.
    """
    try:
        return _is_whole(path, *_state(path))
    except FileNotFoundError:
        return True


def forget_states() -> None:
    """Have `is_whole` read every file again, whatever its time of change says."""
    _is_whole.cache_clear()


def read_rows_file(path: Path) -> pa.Table:
    """Return the rows of a part, or of a file of the data set.

    Raises
    ------
    DamagedRowsError
        The file is not what was written.
    FileNotFoundError
        There is no file.
    ReadError
        The system refused to read the file.
    """
    return read_jobs_and_rows(path)[1]


def read_jobs_and_rows(path: Path) -> tuple[dict[str, Made], pa.Table]:
    """Return the jobs and the rows of a file, both of the same bytes; errors as `read_rows_file`.

    Whoever writes the rows again needs it: a footer read before may belong to an earlier file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = _steady(Path.read_bytes, path)
    jobs = _checked(path, content)
    try:
        table = pq.read_table(pa.BufferReader(content)).replace_schema_metadata()
    except (OSError, pa.ArrowException) as error:  # no file is read: the bytes are in memory
        raise DamagedRowsError(path, str(error)) from error
    wanted = sum(made.rows for made in jobs.values())
    if len(table) != wanted:
        raise DamagedRowsError(path, f"{len(table):,} of {wanted:,} rows")
    return jobs, table


def write_table(table: pa.Table, path: Path, key: str, made: Made, durable: bool = True) -> None:
    """Write rows that `DataSet.take_out` gave as a part."""
    write_rows_file(table, path, {key: made}, durable=durable, how=_QUICK)


def as_results(table: pa.Table) -> pd.DataFrame:
    """Return rows as a results table (`simlab.store.results`), without the column of jobs."""
    return table.drop_columns(JOB).to_pandas().astype(PANDAS_TYPES)


def _record(row: ResultRow, key: str) -> dict[str, Any]:
    record = dict(vars(row))
    record["grid"] = row.grid or key
    # As `store.tables` writes them: a value that is not there is null, and nan is such a value.
    for name, value in record.items():
        if isinstance(value, float) and math.isnan(value):
            record[name] = None
    record[JOB] = key
    return record


@cache
def row_schema() -> pa.Schema:
    """Return the names and types of the columns."""
    import pyarrow as pa

    return pa.schema([(n, pa.type_for_alias(kind)) for n, kind in {**TYPES, JOB: "string"}.items()])


class _Hashing:
    """A stream to write to, which hashes what is written."""

    closed = False

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.digest = stream, hashlib.sha256()

    def write(self, content: bytes) -> int:
        self.digest.update(content)
        return self._stream.write(content)

    def tell(self) -> int:
        return self._stream.tell()

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """Leave the stream open, which belongs to another."""


def write_rows_file(
    table: pa.Table,
    path: Path,
    jobs: Mapping[str, Made],
    *,
    durable: bool,
    how: Mapping[str, Any],
) -> None:
    """Write rows and the list of their jobs to a file, atomically.

    Parameters
    ----------
    how
        Options of `pyarrow.parquet.ParquetWriter`.
    """
    import pyarrow.parquet as pq

    listed = dump_jobs(jobs)
    with atomic_file(path) as partial:
        with partial.open("wb") as stream:
            hashing, schema = _Hashing(stream), table.schema.with_metadata({CONTENTS: RESULTS})
            with pq.ParquetWriter(hashing, schema, write_page_checksum=True, **how) as writer:
                writer.write_table(table)
                digests = f"{hashing.digest.hexdigest()} {_digest_list(listed, schema)}"
                writer.add_key_value_metadata({JOBS: listed, _DIGESTS: digests})
        if durable:
            sync(partial)
    if durable:
        sync_names(path.parent)


def _digest_list(listed: str, schema: pa.Schema) -> str:
    """Return the SHA-256 of the list of jobs, and of the names and types of the columns."""
    columns = [[field.name, str(field.type)] for field in schema]
    return hashlib.sha256(f"{listed} {json.dumps(columns)}".encode()).hexdigest()


def _state(path: Path) -> tuple[int, int, int]:
    """Return the state of a file; a file that replaces it has another state."""
    state = _steady(_open_state, path)
    return state.st_ino, state.st_mtime_ns, state.st_size


def _open_state(path: Path) -> os.stat_result:
    # On a network file system, opening asks the server; a stat alone may be a minute old.
    with path.open("rb", buffering=0) as stream:
        return os.fstat(stream.fileno())


def _steady(read: Callable[[Path], T], path: Path) -> T:
    """Return ``read(path)``; look again if another machine has replaced the file meanwhile."""
    for _ in range(_LOOKS - 1):
        try:
            with reading(path):
                return read(path)
        except ReadError as error:
            if getattr(error.__cause__, "errno", None) != errno.ESTALE:
                raise
    with reading(path):
        return read(path)


@lru_cache(maxsize=4096)
def _read_footer(path: Path, *_state: int) -> Mapping[str, Made]:
    """Read the jobs in the footer of a file; a file that was replaced has another state."""
    return MappingProxyType(_jobs_of(path, _steady(_read_end, path))[0])


def _read_end(path: Path) -> bytes:
    """Read the footer of a Parquet file, its length, and the magic."""
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _END_BYTES))
        length = int.from_bytes(stream.read(4), "little")
        stream.seek(max(0, size - _END_BYTES - length))
        return stream.read()


def _jobs_of(path: Path, end: bytes) -> tuple[dict[str, Made], str]:
    """Return the jobs in a footer, and the SHA-256 of the bytes before it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(pa.BufferReader(end))
        listed, digests = (footer.metadata[name].decode() for name in (JOBS, _DIGESTS))
        before, of_list = digests.split()
        if of_list != _digest_list(listed, footer.schema.to_arrow_schema()):
            raise DamagedRowsError(path, "another list of jobs")
        jobs = load_jobs(listed)
        wanted = sum(made.rows for made in jobs.values())
        if footer.num_rows != wanted:
            raise DamagedRowsError(path, f"{footer.num_rows:,} of {wanted:,} rows")
        return jobs, before
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise DamagedRowsError(path, str(error) or "no footer") from error


@lru_cache(maxsize=1 << 16)
def _is_whole(path: Path, *_state: int) -> bool:
    """Read all bytes of a file; a file that was replaced has another state."""
    try:
        _checked(path, _steady(Path.read_bytes, path))
    except DamagedRowsError:
        return False
    return True


def _checked(path: Path, content: bytes) -> dict[str, Made]:
    """Return the jobs of a file, whose bytes are those that were written."""
    if not content.endswith(_MAGIC) or len(content) < _END_BYTES:
        raise DamagedRowsError(path, f"{len(content):,} bytes without the end of a Parquet file")
    length = int.from_bytes(content[-_END_BYTES:-4], "little")
    start = len(content) - _END_BYTES - length
    jobs, digest = _jobs_of(path, content[max(0, start) :])
    if hashlib.sha256(memoryview(content)[: max(0, start)]).hexdigest() != digest:
        raise DamagedRowsError(path, "other bytes than were written")
    return jobs
