"""The rows of a sweep as one data set: parts are gathered into a few files.

The driver moves parts into ``results/part-00000.parquet``, ``part-00001.parquet``, ...: rows are
added to the last file, which is replaced by one rename, until the file has `FULL_BYTES`; then the
next file begins. So the rows of a job stand in one file of the data set, whoever reads it and
whenever, and a part is deleted only after the file that has its rows is on the disk.

A damaged file is renamed into the folder ``damaged/``, and its jobs are done again. A file that
the system refused to read stays where it is.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.store.files import reading, writing
from simlab.store.planned import JOB
from simlab.store.results import DRAWS
from simlab.store.tables import Made
from simlab.sweeps.parts import (
    DamagedRowsError,
    is_whole,
    read_jobs,
    read_jobs_and_rows,
    read_made,
    read_rows_file,
    row_schema,
    write_rows_file,
)

if TYPE_CHECKING:
    import pyarrow as pa

FULL_BYTES = 1 << 20
_ROW_BYTES = 12  # of a row among many, compressed, without its draws
_SMALL = {"compression": "zstd"}


class DataSet:
    """The gathered rows of a sweep, in a folder of Parquet files.

    Damaged files are renamed into the folder ``damaged`` beside it.
    """

    def __init__(self, folder: Path, durable: bool = True) -> None:
        self.folder, self.durable = folder, durable
        self.aside = folder.with_name("damaged")

    def files(self) -> list[Path]:
        """Return the files in order."""
        # `Path.glob` gives no files where the system refuses to list them.
        try:
            with reading(self.folder):
                names = os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [self.folder / n for n in sorted(names) if Path(n).match("part-*.parquet")]

    def made(self, checked: bool = False) -> dict[str, Made]:
        """Return all jobs whose rows are there; with `checked`, those in files without damage."""
        files = (file for file in self.files() if not checked or is_whole(file))
        return {key: made for file in files for key, made in read_made(file).items()}

    def has(self, key: str) -> bool:
        """Return whether the rows of a job are there."""
        return any(key in read_made(file) for file in reversed(self.files()))

    def damaged(self) -> list[Path]:
        """Return the files that are damaged."""
        return [file for file in self.files() if not is_whole(file)]

    def set_aside(self, file: Path) -> Path:
        """Rename a damaged file, so that its jobs count as not done; return its new place.

        There is no such place if another process has renamed or deleted the file meanwhile.
        """
        place = self.aside / f"{file.stem}-{time.time_ns()}{file.suffix}"
        with writing(place):
            self.aside.mkdir(exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                os.rename(file, place)
        return place

    def set_aside_damaged(self) -> list[Path]:
        """Set all damaged files aside; return where they stood."""
        damaged = self.damaged()
        for file in damaged:
            self.set_aside(file)
        return damaged

    def gather(self, parts: Sequence[Path]) -> set[Path]:
        """Move the rows of `parts` into the data set.

        Returns
        -------
        set
            The files that were damaged and are set aside: parts, and files of the data set.
        """
        damaged = set(self.set_aside_damaged())  # the rows of their jobs count as not there
        there = self.made()
        waiting = list(parts)
        while waiting:
            tail, jobs, tables, size = self._begin()
            before, used = len(jobs), []
            while waiting and size < 2 * FULL_BYTES:
                part = waiting.pop(0)
                try:
                    new, table = read_jobs_and_rows(part)
                except FileNotFoundError:  # another driver has gathered it
                    continue
                except DamagedRowsError:
                    self.set_aside(part)
                    damaged.add(part)
                    continue
                used.append(part)
                if not new.keys() <= there.keys():
                    tables.append(table)
                    jobs |= new
                    there |= new
                    size += _ROW_BYTES * len(table) + table[DRAWS].nbytes
            if len(jobs) > before:
                self._write(tables, tail, jobs)
            for part in used:
                part.unlink(missing_ok=True)
        return damaged

    def _begin(self) -> tuple[Path, dict[str, Made], list[pa.Table], int]:
        """Return the file to write, and what is in it already."""
        files = self.files()
        if files and files[-1].stat().st_size < FULL_BYTES:
            jobs, table = read_jobs_and_rows(files[-1])
            return files[-1], jobs, [table], files[-1].stat().st_size
        number = int(files[-1].stem.partition("-")[2]) + 1 if files else 0
        return self.folder / f"part-{number:05}.parquet", {}, [], 0

    def _write(self, tables: Sequence[pa.Table], path: Path, jobs: Mapping[str, Made]) -> None:
        import pyarrow as pa

        table = pa.concat_tables(tables)
        write_rows_file(table, path, jobs, durable=self.durable, how=_SMALL)

    def rows(self, keys: Collection[str]) -> pa.Table:
        """Return the rows of some jobs, in the order of `keys`.

        Raises
        ------
        DamagedRowsError
            A file is damaged that has rows of these jobs, or may have them.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted, tables = set(keys), []
        for file in self.files():
            try:
                mine = [key for key in read_jobs(file) if key in wanted]
                table = read_rows_file(file) if mine else None
            except FileNotFoundError:  # another driver has set it aside, or taken its rows out
                continue
            if table is not None:
                tables.append(table.filter(pc.is_in(table[JOB], pa.array(mine, pa.string()))))
        table = pa.concat_tables(tables) if tables else row_schema().empty_table()
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
            if not wanted & read_made(file).keys():
                continue
            jobs, table = read_jobs_and_rows(file)
            for key in [key for key in jobs if key in wanted]:
                yield key, table.filter(pc.equal(table[JOB], key)), jobs.pop(key)
            if jobs:
                import pyarrow as pa

                rest = pc.is_in(table[JOB], pa.array(list(jobs), pa.string()))
                self._write([table.filter(rest)], file, jobs)
            else:
                file.unlink()
