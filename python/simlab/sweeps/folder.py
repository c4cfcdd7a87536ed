"""The folder of a sweep: objects by their keys, and all that is known of jobs.

A folder has::

    sweep.json         the file of the sweep, complete, as the last driver read it
    plan.json          the keys of all jobs, which `simcore status` reads
    objects/KIND/ab/abcd...           what a fine-tuning or an extraction made, with ``object.json``
    objects/KIND/ab/abcd....gone      the record of an object that was deleted again
    objects/KIND/ab/abcd....parquet   rows of a job that are not gathered yet
    results/           the data set of all rows (`dataset`)
    damaged/           files of rows that are not what was written
    claims/            who works on which job (`claims`)
    drivers/           the drivers at work (`drivers`)
    failures/          jobs that raised, or whose process died
    fetched/           steps of a training that a sweep downloaded (`fetching`)
    work/              unfinished outputs
    log/               a line for every finished job, a file for every driver; output of workers
    models/, checkpoints/, representations/   links to objects, by names for people (`names`)
    figures/           drawn at the end

There is no other index: what is done is what is there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path

from simlab.errors import BusyError, UserError
from simlab.models.sources import PRETRAINING
from simlab.store.files import hash_file, reading, sync, sync_names, write_json, writing
from simlab.store.tables import Made
from simlab.sweeps import claims
from simlab.sweeps.dataset import DataSet
from simlab.sweeps.plan import FOLDERS
from simlab.sweeps.records import (
    FailureRecord,
    FinishedRecord,
    ObjectRecord,
    parse_record,
    read_record,
)

OBJECT = "object.json"
_GONE = ".gone"
_SAMPLE = 100
# Files of objects that say how long something took: all others are the same when made again.
_TIMED = ("job.json", "evaluation.json", PRETRAINING, "training_args.bin", OBJECT)


class DamagedError(UserError):
    """An object whose files are not those that were written: cut short, or changed."""


class MissingError(DamagedError):
    """An output that another job is said to have made, and that is not there."""


class SweepFolder:
    """The folder of a sweep, and its objects.

    Parameters
    ----------
    durable
        Whether what is finished is written to the disk before it counts (fsync).
    """

    def __init__(self, root: Path, durable: bool = True) -> None:
        self.root, self.durable = Path(root), durable
        self.data = DataSet(self.root / "results", durable)
        self.claims, self.failures = self.root / "claims", self.root / "failures"
        self.drivers = self.root / "drivers"
        self.work, self.log = self.root / "work", self.root / "log"
        self.figures = self.root / "figures"

    def create(self) -> None:
        """Make the folders that jobs write to."""
        folders = (self.claims, self.drivers, self.failures, self.work, self.log, self.data.folder)
        with writing(self.root):
            for folder in folders:
                folder.mkdir(parents=True, exist_ok=True)

    def place(self, kind: str, key: str) -> Path:
        """Return where the output of a job stands: a folder, or the file of a part."""
        name = key if kind in FOLDERS else f"{key}.parquet"
        return self.root / "objects" / kind / key[:2] / name

    def gone(self, kind: str, key: str) -> Path:
        """Return where the record of a deleted object stands."""
        return self.place(kind, key).with_name(key + _GONE)

    def refresh(self, kind: str, key: str) -> None:
        """Ask for the output of a job anew.

        A network file system remembers for a while that a name was not there, and forgets it when
        the folder of the name is opened and has changed.
        """
        place = self.place(kind, key)
        for folder in (place.parent.parent, place.parent):
            _names(folder)

    def present(self, kind: str) -> Iterator[str]:
        """Yield the keys of all outputs of a kind that have a place of their own."""
        folder = self.root / "objects" / kind
        end = "" if kind in FOLDERS else ".parquet"
        for place in _names(folder):
            for name in _names(folder / place):
                key = name.removesuffix(end)
                if len(key) == 64 and name == key + end:
                    yield key

    def publish(
        self,
        kind: str,
        key: str,
        made: Path,
        seconds: float,
        title: str,
        lock: AbstractContextManager[None] | None = None,
    ) -> str:
        """Give a finished folder its place, complete and on the disk, with a record of its files.

        The folder gets its place while `lock` is held. If an object is there, it stays.

        Returns
        -------
        str
            A note for the user if an object that had gone is made again with other content, or "".
        """
        place = self.place(kind, key)
        files = {
            str(file.relative_to(made)): (file.stat().st_size, hash_file(file))
            for file in sorted(made.rglob("*"))
            if file.is_file() and file != made / OBJECT  # of a process that was killed here
        }
        record: ObjectRecord = {
            "key": key,
            "kind": kind,
            "title": title,
            "seconds": round(seconds, 3),
            "bytes": sum(size for size, _ in files.values()),
            "finished": time.time(),
            "files": files,
        }
        write_json(made / OBJECT, record)
        if self.durable:
            sync(made)
        with lock or contextlib.nullcontext(), writing(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.rename(made, place)
            except OSError:
                if not (place / OBJECT).is_file():
                    raise
                shutil.rmtree(made, ignore_errors=True)  # an owner ended before it wrote the log
            if self.durable:
                sync_names(place.parent)
        return self._compare_with_gone(kind, key, record)

    def record(self, kind: str, key: str) -> ObjectRecord:
        """Return the record of an object.

        Raises
        ------
        DamagedError
            There is no record, or it is damaged.
        ReadError
            The system refused to read it.
        """
        return read_object(self.place(kind, key), key)

    def check(self, kind: str, key: str, hashes: bool = True) -> Path:
        """Return the place of an object whose files have the sizes and hashes of its record.

        Raises
        ------
        DamagedError
            A file is missing, has another size or another hash.
        ReadError
            The system refused to read a file.
        """
        place = self.place(kind, key)
        check_object(place, key, hashes)
        return place

    def delete(self, kind: str, key: str, damaged: bool = False) -> int:
        """Delete an object, and leave its record; return how many bytes went.

        A damaged part is set aside among the damaged files of rows, because it is a file.
        """
        place = self.place(kind, key)
        if kind not in FOLDERS:
            self.data.set_aside(place)
            return 0
        size = 0
        if not damaged:
            record = self.record(kind, key)
            size = record["bytes"]
            write_json(self.gone(kind, key), record)
        # The folder first loses its name, so that half of it is never taken for an object.
        self.work.mkdir(exist_ok=True)
        away = self.work / f"deleted-{key}-{uuid.uuid4().hex}"
        with contextlib.suppress(FileNotFoundError):
            os.rename(place, away)
            discard(away)
        return size

    def _compare_with_gone(self, kind: str, key: str, record: ObjectRecord) -> str:
        """Return a note if an object that was made again has other files than before, or ""."""
        earlier = self.gone(kind, key)
        gone = read_record(earlier, ObjectRecord)
        if gone is None:  # it was never deleted, or there is no record of it
            earlier.unlink(missing_ok=True)
            return ""
        before, now = (
            {name: entry for name, entry in files.items() if name not in _TIMED}
            for files in (gone["files"], record["files"])
        )
        changed = sorted(n for n in {*before, *now} if before.get(n) != now.get(n))
        earlier.unlink(missing_ok=True)
        if not changed:
            return ""
        return (
            f"{record['title']}: wanted the same files as before it was deleted, found other "
            f"{', '.join(changed)} (another device, another number of threads?)"
        )

    def made_rows(self, kinds: Iterator[str] | list[str]) -> dict[str, Made | None]:
        """Return the jobs whose rows are there; None for those that are not gathered yet.

        Rows in a damaged file of the data set are not there.
        """
        rows: dict[str, Made | None] = {k: None for kind in kinds for k in self.present(kind)}
        return {**rows, **self.data.made(checked=True)}

    def failed(self) -> dict[str, FailureRecord]:
        """Return the record of every job that failed, by its key."""
        names = [name for name in _names(self.failures) if not name.startswith(".")]
        keys = [name.removesuffix(".json") for name in names if name.endswith(".json")]
        records = {key: self.failure(key) for key in keys}
        return {key: record for key, record in records.items() if record is not None}

    def failure(self, key: str) -> FailureRecord | None:
        """Return the record of the failure of one job; None if it did not fail."""
        return read_record(self.failures / f"{key}.json", FailureRecord)

    def fail(self, key: str, record: FailureRecord) -> None:
        """Write the record of a failure."""
        write_json(self.failures / f"{key}.json", record)

    def forgive(self, key: str) -> None:
        """Delete the record of a failure, unless another process works on the job.

        That process may have recorded a failure of its own since the record was read: it stays.
        """
        record = self.failures / f"{key}.json"
        held = claims.claim(self.claims, key) if record.exists() else None
        if held is None:
            return
        try:
            with contextlib.suppress(BusyError), held.locked():
                record.unlink(missing_ok=True)
        finally:
            held.release()

    def mean_bytes(self) -> dict[str, int]:
        """Return the mean size of objects of every kind; of some, where there are many."""
        means = {}
        for kind in FOLDERS:
            sizes = []
            for key in islice(self.present(kind), _SAMPLE):
                with contextlib.suppress(DamagedError):
                    sizes.append(self.record(kind, key)["bytes"])
            if sizes:
                means[kind] = sum(sizes) // len(sizes)
        return means

    def claimed(self) -> list[str]:
        """Return the keys of all jobs that are claimed."""
        return [name for name in _names(self.claims) if not name.startswith(".")]

    def finished(self) -> Iterator[FinishedRecord]:
        """Yield the lines of all logs: key, kind, seconds and time of finished jobs.

        A line that a driver was killed over is left out.
        """
        for name in _names(self.log):
            if not name.endswith(".jsonl"):
                continue
            with reading(self.log / name):
                lines = (self.log / name).read_bytes().split(b"\n")
            for line in lines:
                record = parse_record(line, FinishedRecord) if line else None
                if record is not None:
                    yield record


def read_object(place: Path, key: str) -> ObjectRecord:
    """Return the record of an object that stands at `place`; errors as `SweepFolder.record`."""
    record = read_record(place / OBJECT, ObjectRecord)
    if record is None or record["key"] != key:
        raise DamagedError(f"{place / OBJECT}: wanted the record of an object, found none")
    return record


def check_object(place: Path, key: str, hashes: bool = True) -> ObjectRecord:
    """Check the files of an object at `place` as `SweepFolder.check`; return its record."""
    record = read_object(place, key)
    for name, (size, digest) in record["files"].items():
        file = place / name
        try:
            with reading(file):
                actual = file.stat().st_size
                same = actual == size and (not hashes or hash_file(file) == digest)
        except (FileNotFoundError, NotADirectoryError):
            raise DamagedError(f"{file}: wanted {size:,} bytes, found no file") from None
        if actual != size:
            raise DamagedError(f"{file}: wanted {size:,} bytes, found {actual}")
        if not same:
            raise DamagedError(f"{file}: wanted SHA-256 {digest}, found another")
    return record


def discard(path: Path) -> None:
    """Delete a folder or a file that nothing needs; what is in use on another machine stays."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _names(folder: Path) -> list[str]:
    try:
        with reading(folder):
            return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
