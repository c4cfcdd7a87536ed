"""Steps of a training that are downloaded when their jobs come, and deleted afterwards.

With `max_disk`, a sweep does not begin with all revisions of a run in the cache of the hub's
client. The driver downloads a revision while jobs of another one run, one revision ahead, and
deletes it when no job needs it any more. A file in the folder names each revision that a sweep
downloads, so that the next driver sees which may go; a revision that was in the cache before the
sweep stays there.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from pathlib import Path

from simlab.errors import UserError
from simlab.models.hub import find_whole, split_revision
from simlab.models.revisions import delete_revision
from simlab.models.sources import resolve
from simlab.store.files import write_json
from simlab.sweeps.plan import Plan
from simlab.sweeps.records import FetchedRecord, read_record

FETCHED = "fetched"  # folder of a sweep with a file for each revision that it downloads


class Fetching:
    """The revisions that a sweep downloads in the course of its jobs.

    Parameters
    ----------
    root
        The folder of the sweep.
    plan
        The jobs; `Plan.revisions` has names of the revisions, and their bytes.
    needed, failed
        Which jobs are still to be done, and those among them that failed, by the number of the job;
        they change while the driver works.
    """

    def __init__(
        self, root: Path, plan: Plan, needed: Sequence[bool], failed: Collection[int]
    ) -> None:
        self.folder, self.sizes = root / FETCHED, plan.revisions
        self.needed, self.failed = needed, failed
        self._names: dict[int, str] = {}
        self._users: dict[str, list[int]] = {}
        for number, job in enumerate(plan.jobs):
            if (name := job.hints.get("model")) is not None:
                self._users.setdefault(name, []).append(number)
            if name in plan.revisions:
                self._names[number] = name
        self._own: set[str] = set()  # that a sweep in this folder downloaded
        self._there: set[str] = set()  # in the cache, whoever downloaded it
        self._download: _Download | None = None

    @property
    def bytes(self) -> int:
        """Bytes of the revisions that this sweep has downloaded, or downloads now."""
        return self.bytes_besides(None)

    def bytes_besides(self, number: int | None) -> int:
        """Return `bytes` without the revision of a job."""
        names = self._own if self._download is None else {*self._own, self._download.model}
        other = None if number is None else self._names.get(number)
        return sum(self.sizes.get(name, 0) for name in names if name != other)

    @property
    def is_busy(self) -> bool:
        """Whether a revision is downloaded now."""
        return self._download is not None

    def begin(self) -> None:
        """Find the revisions of earlier runs, and delete those that no job needs."""
        self._there = {name for name in self.sizes if find_whole(name) is not None}
        for file in sorted(self.folder.glob("*.json")):
            record = read_record(file, FetchedRecord)
            if record is not None:
                self._own.add(record["model"])
        self.drop_unneeded(())
        # A download that was killed begins anew.
        self._own = {name for name in self._own if find_whole(name) is not None}

    def wanted_bytes(self, number: int) -> int:
        """Return the bytes that a download for a job would add."""
        name = self._names.get(number)
        loading = self._download is not None and self._download.model == name
        return 0 if name is None or loading or name in self._there else self.sizes[name]

    def has(self, number: int) -> bool:
        """Return whether the cache has the revision of a job, or the job needs none."""
        name = self._names.get(number)
        return name is None or name in self._there

    def fetch(self, number: int, running: Collection[int], most: int | None) -> None:
        """Begin to download the revision of a job, unless one is downloaded or waits for its jobs.

        Parameters
        ----------
        running
            Numbers of the jobs that run.
        most
            ``max_disk`` of the file.

        Raises
        ------
        UserError
            The revision alone is larger than `most`.
        """
        if self.is_busy or any(self._is_idle(name, running) for name in self._own):
            return
        name = self._names[number]
        if most is not None and self.sizes[name] > most:
            raise UserError(
                f"sweep, key max_disk: wanted at least {self.sizes[name]:,} bytes, which model "
                f"{name} takes alone, found {most:,}"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self._record(name), {"model": name})
        self._download = _Download(name)
        self._download.start()

    def collect(self, running: Collection[int]) -> Exception | None:
        """Take a download that has ended, and return its error, if any."""
        if self._download is None or self._download.is_alive():
            return None
        name, error = self._download.model, self._download.error
        self._download = None
        if error is None:
            self._own.add(name)
            self._there.add(name)
        self.drop_unneeded(running)
        return error

    def drop_unneeded(self, running: Collection[int]) -> None:
        """Delete the revisions that no job needs any more."""
        for name in sorted(self._own):
            if not any(self._wants(user) or user in running for user in self._users.get(name, ())):
                self._drop(name)

    def drop_idle(self, number: int, running: Collection[int]) -> None:
        """Delete revisions that wait for their jobs, to make room for another job."""
        for name in sorted(self._own):
            if name != self._names.get(number) and self._is_idle(name, running):
                self._drop(name)

    def wait(self, seconds: float) -> None:
        """Wait for the download that runs, at most for some seconds."""
        if self._download is not None:
            self._download.join(seconds)

    def _wants(self, number: int) -> bool:
        return self.needed[number] and number not in self.failed

    def _is_idle(self, name: str, running: Collection[int]) -> bool:
        users = self._users.get(name, ())
        return not any(user in running for user in users) and any(map(self._wants, users))

    def _drop(self, name: str) -> None:
        # The client deletes all of a repository with its last whole revision, and so the parts of
        # one that is downloaded: `collect` comes back.
        if self.is_busy:
            return
        delete_revision(name)
        self._own.discard(name)
        self._there.discard(name)
        self._record(name).unlink(missing_ok=True)

    def _record(self, name: str) -> Path:
        return self.folder / f"{split_revision(name)[1]}.json"


class _Download(threading.Thread):
    """A download that the end of the process does not wait for."""

    def __init__(self, model: str) -> None:
        super().__init__(daemon=True)
        self.model = model
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            resolve(self.model)
        except Exception as error:  # `collect` gives it to the driver
            self.error = error
