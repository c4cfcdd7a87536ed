"""What was run: the records that jobs leave in their folders (`store.jobs.RECORD`)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simlab.store.files import read_json
from simlab.store.jobs import PARTIAL_SUFFIX, RECORD

_MANIFEST = "manifest.json"  # of a demo: configuration and versions
# Of a sweep: what `simcore status --json` prints, and failed jobs by title and error.
_STATUS = "status.json"


def jobs(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return every finished and unfinished job below the folders, as JSON values.

    Returns
    -------
    list of dict
        ``path`` (below its folder), ``seconds``, ``done``, and ``inputs``, whose values are text.
    """
    found = []
    for folder in folders:
        for record in sorted(_records(folder)):
            content = read_json(record)
            place = record.parent
            inputs = {name: _words(value) for name, value in sorted(content["inputs"].items())}
            job = {"path": str(place.relative_to(folder.parent)), "inputs": inputs}
            done = not place.name.endswith(PARTIAL_SUFFIX)
            found.append({**job, "seconds": round(content["seconds"], 1), "done": done})
    return found


def manifests(folders: Sequence[Path]) -> list[dict[str, str]]:
    """Return the manifests of the demos in the folders, with values as text."""
    files = [folder / _MANIFEST for folder in folders]
    found = [(file, read_json(file)) for file in files if file.is_file()]
    return [
        {"folder": file.parent.name, **{name: _words(value) for name, value in content.items()}}
        for file, content in found
        if "command" in content
    ]


def statuses(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return what is done, has failed and is missing in the folders that say so.

    Returns
    -------
    list of dict
        ``folder``, ``kinds`` (the number of jobs by kind and state), ``error`` (the last one), and
        ``failed`` (jobs by ``title`` and ``error``).
    """
    found = [(folder, read_json(folder / _STATUS)) for folder in folders if _has_status(folder)]
    return [
        {
            "folder": folder.resolve().name,
            "kinds": content["kinds"],
            "error": content.get("last_error") or "",
            "failed": content.get("failed") or [],
        }
        for folder, content in found
    ]


def _has_status(folder: Path) -> bool:
    return (folder / _STATUS).is_file()


def folders_of(results: Sequence[Path]) -> list[Path]:
    """Return the folders whose records say how results were made.

    A folder of results, or the folder above it where that is the folder of a demo or a sweep.
    """
    found = [path if path.is_dir() else path.parent for path in results]
    found = [f.parent if _is_run(f.parent) else f for f in found]
    return list(dict.fromkeys(found))


def _is_run(folder: Path) -> bool:
    return (folder / _MANIFEST).is_file() or _has_status(folder)


def _records(folder: Path) -> list[Path]:
    return [Path(place) / RECORD for place, _, files in os.walk(folder) if RECORD in files]


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
