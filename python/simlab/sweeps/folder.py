"""The folder of a sweep: objects by their keys, and all that is known of jobs.

A folder has::

    sweep.json         the file of the sweep, complete, as the last driver read it
    plan.json          the keys of all jobs, which `simcore status` reads
    objects/KIND/ab/abcd...           what a fine-tuning or an extraction made, with ``object.json``
    objects/KIND/ab/abcd....gone      the record of an object that was deleted again
    objects/KIND/ab/abcd....parquet   rows of a job that are not gathered yet
    results/           the data set of all rows (`parts`)
    claims/            who works on which job (`claims`)
    drivers/           the drivers at work (`drivers`)
    failures/          jobs that raised, or whose process died
    work/              unfinished outputs
    log/               a line for every finished job, a file for every driver; output of workers
    figures/           drawn at the end

There is no other index: what is done is what is there.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from simlab.errors import UserError
from simlab.models.sources import PRETRAINING
from simlab.store.files import hash_file, read_json, sync, sync_names, write_json, writing
from simlab.sweeps.parts import DataSet, Made
from simlab.sweeps.plan import FOLDERS

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

    def present(self, kind: str) -> Iterator[str]:
        """Yield the keys of all outputs of a kind that have a place of their own."""
        folder = self.root / "objects" / kind
        end = "" if kind in FOLDERS else ".parquet"
        for place in _names(folder):
            for name in _names(folder / place):
                key = name.removesuffix(end)
                if len(key) == 64 and name == key + end:
                    yield key

    def publish(self, kind: str, key: str, made: Path, seconds: float, title: str) -> None:
        """Give a finished folder its place, complete and on the disk, with a record of its files.

        If another process was first, its object stays. A note says if an object that had gone is
        made again with other content.
        """
        place = self.place(kind, key)
        files: dict[str, list[Any]] = {
            str(file.relative_to(made)): [file.stat().st_size, hash_file(file)]
            for file in sorted(made.rglob("*"))
            if file.is_file() and file != made / OBJECT  # of a process that was killed here
        }
        record = {
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
        with writing(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.rename(made, place)
            except OSError:
                if not (place / OBJECT).is_file():
                    raise
                shutil.rmtree(made, ignore_errors=True)  # another process was first
        if self.durable:
            sync_names(place.parent)
        self._compare_with_gone(kind, key, record)

    def record(self, kind: str, key: str) -> dict[str, Any]:
        """Return the record of an object.

        Raises
        ------
        DamagedError
            There is no record, or it is cut short.
        """
        place = self.place(kind, key) / OBJECT
        try:
            return read_json(place)
        except (FileNotFoundError, UserError) as error:
            raise DamagedError(f"{place}: wanted the record of an object, found none") from error

    def check(self, kind: str, key: str, hashes: bool = True) -> Path:
        """Return the place of an object whose files have the sizes and hashes of its record.

        Raises
        ------
        DamagedError
            A file is missing, has another size or another hash.
        """
        place = self.place(kind, key)
        for name, (size, digest) in self.record(kind, key)["files"].items():
            file = place / name
            found = file.stat().st_size if file.is_file() else None
            if found != size:
                raise DamagedError(f"{file}: wanted {size:,} bytes, found {found}")
            if hashes and hash_file(file) != digest:
                raise DamagedError(f"{file}: wanted SHA-256 {digest}, found another")
        return place

    def delete(self, kind: str, key: str, damaged: bool = False) -> int:
        """Delete an object, and leave its record; return how many bytes went."""
        place = self.place(kind, key)
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
            shutil.rmtree(away, ignore_errors=True)
        return size

    def _compare_with_gone(self, kind: str, key: str, record: Mapping[str, Any]) -> None:
        """Note if an object that was made again has other files than before."""
        earlier = self.gone(kind, key)
        if not earlier.is_file():
            return
        before, now = (
            {name: entry for name, entry in files.items() if name not in _TIMED}
            for files in (read_json(earlier)["files"], record["files"])
        )
        changed = sorted(n for n in {*before, *now} if before.get(n) != now.get(n))
        earlier.unlink()
        if changed:
            from simlab.store.console import note

            note(
                f"{record['title']}: wanted the same files as before it was deleted, found other "
                f"{', '.join(changed)} (another device, another number of threads?)"
            )

    def made_rows(self, kinds: Iterator[str] | list[str]) -> dict[str, Made | None]:
        """Return the jobs whose rows are there; None for those that are not gathered yet."""
        found: dict[str, Made | None] = {k: None for kind in kinds for k in self.present(kind)}
        return {**found, **self.data.made()}

    def failed(self) -> dict[str, dict[str, Any]]:
        """Return the record of every job that failed, by its key."""
        found = {}
        for name in _names(self.failures):
            if name.endswith(".json") and not name.startswith("."):
                with contextlib.suppress(FileNotFoundError, UserError):
                    found[name.removesuffix(".json")] = read_json(self.failures / name)
        return found

    def failure(self, key: str) -> dict[str, Any] | None:
        """Return the record of the failure of one job; None if it did not fail."""
        try:
            return read_json(self.failures / f"{key}.json")
        except (FileNotFoundError, UserError):
            return None

    def fail(self, key: str, record: Mapping[str, Any]) -> None:
        """Write the record of a failure."""
        write_json(self.failures / f"{key}.json", dict(record))

    def forgive(self, key: str) -> None:
        """Delete the record of a failure."""
        (self.failures / f"{key}.json").unlink(missing_ok=True)

    def mean_bytes(self) -> dict[str, int]:
        """Return the mean size of objects of every kind; of some, where there are many."""
        found = {}
        for kind in FOLDERS:
            sizes = []
            for key in islice(self.present(kind), _SAMPLE):
                with contextlib.suppress(DamagedError):
                    sizes.append(self.record(kind, key)["bytes"])
            if sizes:
                found[kind] = sum(sizes) // len(sizes)
        return found

    def claimed(self) -> list[str]:
        """Return the keys of all jobs that are claimed."""
        return [name for name in _names(self.claims) if not name.startswith(".")]

    def finished(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of all logs: key, kind, seconds and time of finished jobs."""
        for name in _names(self.log):
            if not name.endswith(".jsonl"):
                continue
            for line in (self.log / name).read_text("utf-8").split("\n"):
                with contextlib.suppress(ValueError):  # a driver was killed while it wrote
                    if line:
                        yield json.loads(line)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
