"""What a plan says about models and data: their content, or the name where only the hub has them.

Planning downloads nothing. A model or task of the hub is known by its name, one of the offline
packages by its pinned version, and local files by their content. The hash of a file is kept beside
its size and time of change, so that a plan of 300 local models is read once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from simlab.errors import UserError
from simlab.models.sources import OFFLINE_MODEL, ModelSource
from simlab.store.assets import ASSETS
from simlab.store.files import hash_file, hash_json, write_json
from simlab.tasks.specs import TASKS

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
        self._found: dict[tuple[str, str], Any] = {}
        if memory is not None and memory.is_file():
            try:
                self._files = json.loads(memory.read_text("utf-8"))
            except ValueError:  # cut short: every file is read again
                self._files = {}
        self._known = len(self._files)

    def model(self, name: str) -> Any:
        """Return what a key contains of model `name`."""
        return self._once("model", name, self._model)

    def task(self, name: str) -> Any:
        """Return what a key contains of the data of task `name`."""
        return self._once("task", name, self._task)

    def save(self) -> None:
        """Write the memory, if files were read."""
        if self.memory is not None and len(self._files) > self._known:
            write_json(self.memory, self._files)

    def _once(self, what: str, name: str, find: Any) -> Any:
        if (what, name) not in self._found:
            self._found[what, name] = find(name)
        return self._found[what, name]

    def _model(self, name: str) -> Any:
        if name == OFFLINE_MODEL:
            return _package(OFFLINE_MODEL)
        folder = Path(name).expanduser()
        if folder.is_dir():
            return {"files": self._folder(ModelSource(name, folder).files)}
        if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
            raise UserError(f"model {name}: wanted a folder with config.json, found no such folder")
        return {"hub": name}

    def _task(self, name: str) -> Any:
        known, _, folder = name.partition(":")
        if known in TASKS and not folder:
            offline = TASKS[known].offline
            return _package(_PACKAGES.get(offline, offline)) if offline else {"hub": known}
        place = Path(folder if known in TASKS else name).expanduser()
        if place.is_file():
            return {"files": self._folder([place])}
        if place.is_dir():
            return {"files": self._folder(sorted(f for f in place.rglob("*") if f.is_file()))}
        if known in TASKS or place.suffix or place.is_absolute():
            raise UserError(f"task {name}: wanted a file or folder, found none")
        return {"hub": name}

    def _folder(self, files: list[Path]) -> str:
        return hash_json({file.name: self._file(file) for file in files})

    def _file(self, file: Path) -> str:
        state = file.stat()
        now = [state.st_size, state.st_mtime_ns, state.st_ino]
        place = str(file.resolve())
        known = self._files.get(place)
        if known is None or known[:3] != now:
            self._files[place] = [*now, hash_file(file)]
            self._known -= 1
        return self._files[place][3]


def _package(name: str) -> dict[str, str]:
    asset = ASSETS[name]
    return {"package": asset.package, "version": asset.version}
