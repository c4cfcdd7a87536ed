"""What a plan says about models and data: their content, or the name where only the hub has them.

Planning downloads nothing. A task of the hub is known by its name, one of the offline packages by
its pinned version, and local files by their content. The hash of a file is kept beside its size and
time of change, so that a plan of 300 local models is read once.

A model of the hub is known by its name and its revision: that of ``name@revision``, or the one that
the cache of the hub's client held when the folder of the sweep first met the name. The folder
remembers it, and its jobs load this revision and no later one. A model that was not in the cache
then is known by its name alone, for as long as the folder is there: a key must not change because
a model was downloaded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from simlab.errors import UserError
from simlab.models.built import is_built
from simlab.models.sources import (
    OFFLINE_MODEL,
    ModelSource,
    cached_revision,
    is_hub_name,
    split_revision,
)
from simlab.store.assets import ASSETS
from simlab.store.files import hash_file, hash_json, write_json
from simlab.sweeps.survey import PLAN
from simlab.tasks.specs import TASKS

_REVISIONS = "revisions of the hub"  # a key of the memory, beside the names of files
_PACKAGES = {"rotten_tomatoes": "rt", "imdb": "rt"}  # other readers are called as their package


class Fingerprints:
    """The fingerprints of models and tasks, each made once.

    Parameters
    ----------
    memory
        File that keeps the hashes of files from one plan to the next; None keeps none.
    """

    def __init__(self, memory: Path | None = None) -> None:
        self.memory = memory
        self._files: dict[str, list[Any]] = {}
        self._revisions: dict[str, str | None] | None = None
        self._found: dict[tuple[str, str], Any] = {}
        if memory is not None and memory.is_file():
            try:
                self._files = json.loads(memory.read_text("utf-8"))
            except ValueError:  # cut short: every file is read again
                self._files = {}
            self._revisions = self._files.pop(_REVISIONS, None)  # type: ignore[assignment]
        self._known = len(self._files)
        self._changed = False
        # A folder from before revisions were remembered has keys without them.
        if self._revisions is None and (memory is None or not _has_plan(memory.parent)):
            self._revisions, self._changed = {}, True

    def model(self, name: str) -> Any:
        """Return what a key contains of model `name`."""
        return self._once("model", name, self._model)

    def pinned(self, name: str) -> str:
        """Return the name of a model; of one of the hub, with the revision that is taken."""
        if self._revisions is None or not is_hub_name(name) or split_revision(name)[1]:
            return name
        if name not in self._revisions:
            self._revisions[name] = cached_revision(name)
            self._changed = True
        revision = self._revisions[name]
        return name if revision is None else f"{name}@{revision}"

    def task(self, name: str) -> Any:
        """Return what a key contains of the data of task `name`."""
        return self._once("task", name, self._task)

    def save(self) -> None:
        """Write the memory, if it has grown."""
        if self.memory is not None and (self._changed or len(self._files) > self._known):
            kept = {} if self._revisions is None else {_REVISIONS: self._revisions}
            write_json(self.memory, {**self._files, **kept})

    def _once(self, what: str, name: str, find: Any) -> Any:
        if (what, name) not in self._found:
            self._found[what, name] = find(name)
        return self._found[what, name]

    def _model(self, name: str) -> Any:
        if is_built(name):
            raise UserError(f"sweep, key models: wanted a model of transformers, found {name}")
        if name == OFFLINE_MODEL:
            return _package(OFFLINE_MODEL)
        folder = Path(name).expanduser()
        if folder.is_dir():
            return {"files": self._folder(folder, ModelSource(name, folder).files)}
        if not is_hub_name(name):
            raise UserError(f"model {name}: wanted a folder with config.json, found no such folder")
        named, revision = split_revision(name)
        return {"hub": named} if revision is None else {"hub": named, "revision": revision}

    def _task(self, name: str) -> Any:
        known, _, folder = name.partition(":")
        if known in TASKS and not folder:
            offline = TASKS[known].offline
            return _package(_PACKAGES.get(offline, offline)) if offline else {"hub": known}
        place = Path(folder if known in TASKS else name).expanduser()
        if place.is_file():
            return {"files": self._folder(place.parent, [place])}
        if place.is_dir():
            files = sorted(file for file in place.rglob("*") if file.is_file())
            return {"files": self._folder(place, files)}
        if known in TASKS or place.suffix or place.is_absolute():
            raise UserError(f"task {name}: wanted a file or folder, found none")
        return {"hub": name}

    def _folder(self, folder: Path, files: list[Path]) -> str:
        return hash_json({str(file.relative_to(folder)): self._file(file) for file in files})

    def _file(self, file: Path) -> str:
        state = file.stat()
        now = [state.st_size, state.st_mtime_ns, state.st_ino]
        place = str(file.resolve())
        known = self._files.get(place)
        if known is None or known[:3] != now:
            self._files[place] = [*now, hash_file(file)]
            self._known -= 1
        return self._files[place][3]


def _has_plan(folder: Path) -> bool:
    return (folder / PLAN).is_file()


def _package(name: str) -> dict[str, str]:
    asset = ASSETS[name]
    return {"package": asset.package, "version": asset.version}
