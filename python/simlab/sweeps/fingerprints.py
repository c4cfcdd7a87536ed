"""Fingerprints of models and data: their content, or the name where only the hub has them.

Planning downloads nothing. A task of the offline packages is known by its pinned version, and local
files by their content (`contents`). The hash of a file is kept beside its size and times of change,
so that a plan of 300 local models is read once.

A model or data set of the hub is known by its name and its commit: the commit of ``name@revision``
or, without a revision, of ``main``, as the cache had it when a command first read the name for this
folder. The commit is stored in the folder, and its jobs load this commit and no later one. A run
downloads the models and data sets that the caches lack before it makes its keys; with `max_disk`,
steps of a training are announced alone, and downloaded when their jobs come. A plan that is only
shown has their names alone.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from simlab.models.files import weight_files
from simlab.models.hub import announced_hash, cached_revision, find_whole, split_revision
from simlab.models.revisions import announce
from simlab.models.sources import is_hub_name
from simlab.store.files import hash_json
from simlab.store.hashes import FileHashes
from simlab.sweeps.contents import HUB, MODEL, REVISION, ROWS, TASK, content_of
from simlab.sweeps.locking import alone
from simlab.sweeps.records import MemoryRecord, read_record, write_durable
from simlab.tasks.hub_data import HubData, cached_commit

_COMMIT = re.compile(r"[0-9a-f]{40}")


class Fingerprints:
    """The fingerprints of models and tasks, each made once.

    Parameters
    ----------
    memory
        File that keeps the hashes of files, and the commits of models and data sets of the hub,
        from one plan to the next; None keeps none. A damaged file counts as none.
    """

    def __init__(self, memory: Path | None = None) -> None:
        self.memory = memory
        record = None if memory is None else read_record(memory, MemoryRecord)
        self._revisions = {} if record is None else record["revisions"]
        self._announced = {} if record is None else record["announced"]
        self._hashes = FileHashes({} if record is None else record["files"])
        self._saved = self._remembered()
        self._found: dict[tuple[str, str], Any] = {}

    def model(self, name: str) -> Any:
        """Return the part of a key that stands for model `name`."""
        return self._once(MODEL, name)

    def rows(self, file: str) -> Any:
        """Return the part of a key that stands for a file of rows."""
        return self._once(ROWS, file)

    def pinned(self, name: str) -> str:
        """Return the name of a model; of one of the hub, with the revision that is taken."""
        hub_name, revision = split_revision(name)
        if not is_hub_name(name) or (revision and _COMMIT.fullmatch(revision)):
            return name
        commit = self._revisions.get(name) or cached_revision(name)
        if commit is None:
            return name
        self._revisions[name] = commit
        return f"{hub_name}@{commit}"

    def announce(self, name: str) -> None:
        """Pin a revision of a model of the hub, and remember its size, before it is downloaded.

        Raises
        ------
        UserError
            As `revisions.announce`.
        """
        found = announce(name)
        pinned = f"{split_revision(name)[0]}@{found.commit}"
        if name != pinned:
            self._revisions[name] = found.commit
        self._announced[pinned] = found.weights, found.bytes

    def announced_bytes(self, name: str) -> int | None:
        """Return the bytes of a model that was announced; None for any other."""
        known = self._announced.get(name)
        return None if known is None else known[1]

    def weights(self, name: str) -> str | None:
        """Return a hash of the weight files of a model alone.

        None if the model is not on this machine and was not announced.
        """
        if (known := self._announced.get(name)) is not None:
            return known[0]
        local = Path(name).expanduser()
        folder = find_whole(name) if is_hub_name(name) else local if local.is_dir() else None
        if folder is None:
            return None
        files = weight_files(folder)
        return hash_json([announced_hash(file) or self._hashes.hash(file) for file in files])

    def task(self, name: str) -> Any:
        """Return the part of a key that stands for the data of task `name`."""
        content = self._once(TASK, name)
        if HUB not in content or _COMMIT.fullmatch(content.get(REVISION, "")):
            return content
        data = HubData.of_task(name)
        commit = self._revisions.get(str(data)) or cached_commit(data)
        if commit is None:
            return content
        self._revisions[str(data)] = commit  # the names of data sets begin with "hub:"
        return {**content, REVISION: commit}

    def save(self) -> bool:
        """Add to the memory what is new; without the revisions, keys would be others.

        Returns
        -------
        bool
            Whether keys that were made of these fingerprints hold. If another command has pinned
            another revision of a name since the memory was read, that one stays, and keys have to
            be made again.
        """
        if self.memory is None or self._remembered() == self._saved:
            return True
        with alone(self.memory.parent):
            record = read_record(self.memory, MemoryRecord)
            merged = self._remembered()
            if record is not None:
                merged["files"] = record["files"] | merged["files"]
                merged["revisions"] |= record["revisions"]
                merged["announced"] |= record["announced"]
            write_durable(self.memory, merged)
        self._saved = merged
        return all(merged["revisions"][name] == one for name, one in self._revisions.items())

    def _remembered(self) -> MemoryRecord:
        return {
            "files": dict(self._hashes.known),
            "revisions": dict(self._revisions),
            "announced": dict(self._announced),
        }

    def forget_contents(self) -> None:
        """Look anew at models and tasks, of which some have been downloaded."""
        self._found.clear()

    def _once(self, what: str, name: str) -> Any:
        if (what, name) not in self._found:
            self._found[what, name] = content_of(what, name, self._hashes)
        return self._found[what, name]
