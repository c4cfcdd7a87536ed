"""The folder of a sweep: outputs under their keys, and what is known of jobs.

::

    sweep.json, plan.json, status.json     the whole file; keys of all jobs; how far the sweep is
    objects/KIND/ab/abcd...           what a fine-tuning or an extraction made, with ``object.json``
    objects/KIND/ab/abcd....parquet   rows of a job that are not gathered yet
    results/, aside/, damaged/        all rows; rows of an earlier file; damaged files of rows
    failures/, log/, work/            jobs that failed; finished jobs, output; unfinished outputs
    models/, checkpoints/, representations/, figures/   links to objects (`Names`); drawn at the end

There is no other index: what is done is what is there. An output is made in ``work/``, written to
the disk, and gets its name by one rename; where the name is taken, the output that has it stays.
The driver, which holds ``.lock``, alone takes names away, gathers rows, and writes failures.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from simlab.errors import UserError, argument
from simlab.store.console import note
from simlab.store.files import (
    State,
    hash_file,
    reading,
    state_of,
    sync,
    sync_names,
    write_json,
    writing,
)
from simlab.store.jobs import owned
from simlab.sweeps.plan import EXTRACT, FINETUNE, FOLDERS, IMPORT, PRETRAIN, Plan
from simlab.sweeps.rows import DamagedRowsError, DataSet, as_results, names_in, read_rows

OBJECT = "object.json"
LOCK, _FINISHED = ".lock", "finished.jsonl"
_LOOK_SECONDS = 0.5
_SAMPLE = 100
SHELVES: Mapping[str, str] = {
    **{PRETRAIN: "models", FINETUNE: "checkpoints"},
    **dict.fromkeys((EXTRACT, IMPORT), "representations"),
}
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)  # as FAT and some shares answer
_QUOTED = re.compile(r"[^\w.]+")  # what a shell wants in quotes
_KEY_LETTERS = 8  # which tell objects of one title apart
_CHECKED: dict[Path, dict[str, State]] = {}  # the states in which this process hashed objects

Need = tuple[str, str]  # the kind and the key of a job that another job needs


class DamagedError(UserError):
    """An output that is not what was written; `need` has its kind and key."""

    def __init__(self, message: str, kind: str, key: str) -> None:
        super().__init__(message)
        self.need: Need = (kind, key)


class MissingError(DamagedError):
    """An output that is said to be there, and is not."""


class SweepFolder:
    """The folder of a sweep."""

    def __init__(self, root: Path, durable: bool = True) -> None:
        # Whether what is finished is written to the disk before it counts (fsync).
        self.root, self.durable = Path(root), durable
        self.data = DataSet(self.root / "results", durable)
        self.failures, self.work = self.root / "failures", self.root / "work"
        self.log, self.figures = self.root / "log", self.root / "figures"
        self.require_owner: Callable[[], None] = lambda: None  # raises if another driver came

    def create(self) -> None:
        """Make the folders that jobs write to."""
        with writing(self.root):
            for folder in (self.work, self.failures, self.log, self.data.folder):
                folder.mkdir(parents=True, exist_ok=True)

    def place(self, kind: str, key: str) -> Path:
        """Return where the output of a job stands: a folder, or the file of a part."""
        name = key if kind in FOLDERS else f"{key}.parquet"
        return self.root / "objects" / kind / key[:2] / name

    def present(self, kind: str) -> Iterator[str]:
        """Yield the keys of all outputs of a kind that have a place of their own."""
        folder, end = self.root / "objects" / kind, "" if kind in FOLDERS else ".parquet"
        for name in (name for place in names_in(folder) for name in names_in(folder / place)):
            if len(key := name.removesuffix(end)) == 64:
                yield key

    def stored(self, plan: Plan) -> set[str]:
        """Return the keys of all outputs that are there, whole or not."""
        return {key for kind in plan.counts() for key in self.present(kind)} | self.data.jobs()

    def has(self, kind: str, key: str) -> bool:
        """Return whether an output has its place; rows that are gathered have none."""
        place = self.place(kind, key)
        # A network file system remembers that a name was not there until its folder is opened.
        for folder in (place.parent.parent, place.parent):
            names_in(folder)
        return place.exists()

    def publish(self, kind: str, key: str, made: Path, seconds: float = 0, title: str = "") -> None:
        """Give a finished output its place, and a folder a record of its files."""
        place = self.place(kind, key)
        if kind in FOLDERS:
            files = {
                str(file.relative_to(made)): (file.stat().st_size, hash_file(file))
                for file in sorted(made.rglob("*"))
                if file.is_file() and file != made / OBJECT  # of a process that was killed here
            }
            size = sum(size for size, _ in files.values())
            record = {"key": key, "kind": kind, "title": title, "seconds": round(seconds, 3)}
            write_json(made / OBJECT, {**record, "bytes": size, "files": files})
            if self.durable:
                sync(made)
        with writing(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                if kind in FOLDERS or not place.exists():
                    os.rename(made, place)
            except OSError:
                # Another process was faster, or a server renamed and its reply was lost.
                if not (place / OBJECT if kind in FOLDERS else place).is_file():
                    raise
            if self.durable:
                sync_names(place.parent)

    def read(self, kind: str, key: str, patience: float = 0.0) -> Any:
        """Return an output that a job reads: its folder, checked, or the table of its rows."""
        until = time.monotonic() + patience
        while True:
            try:
                return self._read(kind, key)
            except MissingError:
                if time.monotonic() > until:
                    raise
            time.sleep(_LOOK_SECONDS)
            self.has(kind, key)

    def _read(self, kind: str, key: str) -> Any:
        place = self.place(kind, key)
        if kind in FOLDERS:
            self.check(kind, key)
            return place
        try:
            with contextlib.suppress(FileNotFoundError):  # a driver gathers the part now
                return as_results(read_rows(place)[1])
            if key in self.data.jobs():
                return as_results(self.data.rows([key]))
        except DamagedRowsError as error:
            raise DamagedError(str(error), kind, key) from error
        raise MissingError(f"{place}: wanted the rows of {kind} {key}, found none", kind, key)

    def record(self, kind: str, key: str) -> dict[str, Any]:
        """Return the record of an object; errors as `check`."""
        place = self.place(kind, key)
        record = read_record(place / OBJECT, key=str, bytes=int, files=dict)
        if record is None or record["key"] != key:
            error = DamagedError if place.exists() else MissingError
            raise error(f"{place / OBJECT}: wanted the record of an object, found none", kind, key)
        return record

    def states(self, kind: str, key: str) -> dict[str, State]:
        """Return the states of the files of an object; errors as `check`."""
        place = self.place(kind, key)
        try:
            names = (OBJECT, *self.record(kind, key)["files"])
            return {str(place / name): state_of(place / name) for name in names}
        except (FileNotFoundError, NotADirectoryError) as error:
            found = f"{error.filename}: wanted a file of an object, found none"
            raise DamagedError(found, kind, key) from None

    def check(self, kind: str, key: str) -> None:
        """Check that the files of an object have the sizes and hashes of its record."""
        place, states = self.place(kind, key), self.states(kind, key)
        if _CHECKED.get(place) == states:
            return
        for name, entry in self.record(kind, key)["files"].items():
            file, (actual, *_) = place / name, states[str(place / name)]
            size, digest = entry if isinstance(entry, list) and len(entry) == 2 else (-1, "")
            if actual != size:
                raise DamagedError(f"{file}: wanted {size:,} bytes, found {actual:,}", kind, key)
            with reading(file):
                found = hash_file(file) if file.exists() else "none"
            if found != digest:
                raise DamagedError(f"{file}: wanted SHA-256 {digest}, found {found}", kind, key)
        _CHECKED[place] = states

    def drop(self, kind: str, key: str) -> None:
        """Take its name from an object, and delete it; a part is set aside among damaged files."""
        self.require_owner()
        if kind not in FOLDERS:
            self.data.set_aside(self.place(kind, key))
            return
        away = self.work / f"deleted-{uuid.uuid4().hex}"
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.place(kind, key), away)
        discard(away)

    def failed(self) -> dict[str, dict[str, Any]]:
        """Return the record of every job that failed, by its key."""
        files = sorted(self.failures.glob("[!.]*.json"))
        found = {file.stem: read_record(file, title=str, error=str) for file in files}
        return {key: record for key, record in found.items() if record is not None}

    def fail(self, key: str, record: dict[str, Any]) -> None:
        """Write the record of a failure."""
        self.require_owner()
        write_json(self.failures / f"{key}.json", record)

    def forgive(self, key: str) -> None:
        """Delete the record of a failure."""
        (self.failures / f"{key}.json").unlink(missing_ok=True)

    def mean_bytes(self) -> dict[str, int]:
        """Return the mean size of objects of every kind; of some, where there are many."""
        means: dict[str, int] = {}
        for kind in FOLDERS:
            places = (self.place(kind, key) for key in islice(self.present(kind), _SAMPLE))
            records = [read_record(place / OBJECT, bytes=int) for place in places]
            sizes = [record["bytes"] for record in records if record is not None]
            means |= {kind: sum(sizes) // len(sizes)} if sizes else {}
        return means

    def log_finished(self, kind: str, key: str, seconds: float) -> None:
        """Add a line to the log, of which a killed driver may have left half a line."""
        line = {"key": key, "kind": kind, "seconds": round(seconds, 4), "at": round(time.time(), 2)}
        path = self.log / _FINISHED
        with writing(path), path.open("ab") as stream:
            stream.write(b"\n" + json.dumps(line).encode())

    def finished(self) -> Iterator[tuple[str, float]]:
        """Yield the kind and the seconds of finished jobs."""
        path = self.log / _FINISHED
        with reading(path):
            lines = path.read_bytes().split(b"\n") if path.exists() else []
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                record = json.loads(line)
                yield str(record["kind"]), float(record["seconds"])


@contextmanager
def driving(folder: SweepFolder) -> Iterator[None]:
    """Be the driver of a folder while the block runs."""
    lock = folder.root / LOCK

    def require_owner() -> None:
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(mine, lock.stat()):
                return
        raise UserError(
            f"{argument('out', folder.root)}: wanted the lock of this process in {lock}, found "
            "that somebody removed it; what is done stays, and the same command continues"
        )

    try:
        with owned(folder.root, lock=lock):
            mine = lock.stat()
            folder.require_owner = require_owner
            yield
    finally:
        with contextlib.suppress(OSError):  # a folder in which nothing was made
            folder.root.rmdir()


class Names:
    """Links for people to the objects of a plan, such as ``checkpoints/minilm-ft-1-rt``."""

    def __init__(self, folder: SweepFolder, plan: Plan) -> None:
        self.root, self._are_refused = folder.root, False
        jobs = [job for job in plan.jobs if job.kind in SHELVES]
        names = [f"{SHELVES[j.kind]}/{_QUOTED.sub('-', j.title.lower()).strip('-.')}" for j in jobs]
        count = Counter(names)
        self.places = {
            job.key: self.root / (name if count[name] == 1 else f"{name}-{job.key[:_KEY_LETTERS]}")
            for job, name in zip(jobs, names, strict=True)
        }
        self._targets = {job.key: folder.place(job.kind, job.key) for job in jobs}

    def begin(self, present: Iterable[str]) -> None:
        """Name the objects that are there, and forget the names of all others."""
        links = {self.places[key] for key in present if key in self.places}
        for shelf in set(SHELVES.values()):
            for place in (self.root / shelf).glob("*"):
                if place.is_symlink() and place not in links:
                    place.unlink(missing_ok=True)
        for key in present:
            self.add(key)

    def add(self, key: str) -> None:
        """Name an object; a file system without links leaves it without, and a note says so."""
        place = self.places.get(key)
        if place is None or self._are_refused or (place.exists() and not place.is_symlink()):
            return  # the name may be taken by a copy of the object
        new = place.with_name(f".{place.name}-{uuid.uuid4().hex}")
        with writing(place):
            place.parent.mkdir(exist_ok=True)
            try:
                new.symlink_to(os.path.relpath(self._targets[key], place.parent))
                os.replace(new, place)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self._are_refused = True
                note(f"{place.parent}: objects have no names for people: links are refused there")

    def remove(self, key: str) -> None:
        """Forget the name of an object that went."""
        if key in self.places and self.places[key].is_symlink():
            self.places[key].unlink(missing_ok=True)


def read_record(path: Path, **shape: type) -> dict[str, Any] | None:
    """Read a JSON object with values of some types; None if a power cut left none, or a part."""
    try:
        with reading(path):
            record = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    has = isinstance(record, dict) and all(isinstance(record.get(n), t) for n, t in shape.items())
    return record if has else None


def discard(path: Path) -> None:
    """Delete a folder or a file that nothing needs; what is in use on another machine stays."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
