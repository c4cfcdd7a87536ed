"""The jobs behind results: the records that they leave in their folders (`store.jobs.RECORD`).

A file that is no record, because another program wrote it or because it is damaged, is left out:
the page shows results, whatever lies beside them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, FiniteFloat, ValidationError

from simlab.results.reading import PLAN
from simlab.store.jobs import PARTIAL_SUFFIX, RECORD

_KEY = re.compile(r"[0-9a-f]{64}")  # of an object of a sweep
_OBJECT = "object.json"  # beside the record of an object of a sweep: its kind and title
# Of a sweep: what `simcore status --json` prints, and failed jobs by title and error.
_STATUS = "status.json"


class _Job(BaseModel):
    inputs: dict[str, Any]
    seconds: FiniteFloat


class _Object(BaseModel):
    key: str
    kind: str
    title: str


class _Plan(BaseModel):
    jobs: list[tuple[int, str, list[int]]]  # the key is in the middle


class _Failure(BaseModel):
    title: str
    error: str


class _Status(BaseModel):
    kinds: dict[str, dict[str, int]]
    last_error: str | None = None
    failed: list[_Failure] = []


_Record = TypeVar("_Record", bound=BaseModel)


def jobs(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return every finished and unfinished job below the folders, as JSON values.

    The jobs of a sweep stand in the order of its plan. A job has ``name`` (kind and title of a job
    of a sweep, or the path), ``path`` (below its folder; keys of objects are cut), ``seconds``,
    ``done``, and ``inputs``, whose values are text.
    """
    entries = []
    for folder in folders:
        plan = _read(folder / PLAN, _Plan)
        keys = [] if plan is None else [key for _, key, _ in plan.jobs]
        numbers = {key: number for number, key in enumerate(keys)}
        files = sorted(_records(folder))
        for file in sorted(files, key=lambda file: numbers.get(file.parent.name, len(numbers))):
            record, stored = _read(file, _Job), _read(file.with_name(_OBJECT), _Object)
            path = _short(file.parent.relative_to(folder.parent))
            if record is not None:
                entries.append(
                    {
                        "name": path if stored is None else f"{stored.kind} {stored.title}",
                        "path": path,
                        "inputs": dict(_named(record.inputs)),
                        "seconds": round(record.seconds, 1),
                        "done": not file.parent.name.endswith(PARTIAL_SUFFIX),
                    }
                )
    return entries


def _short(place: Path) -> str:
    """Return the path of a job; of an object of a sweep, its kind and the start of its key."""
    *_, kind, shelf, key = ("", "", "", *place.parts)
    is_object = _KEY.fullmatch(key) and key.startswith(shelf)
    return str(Path(place.parts[0], kind, key[:12])) if is_object else str(place)


def statuses(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return what is done, has failed and is missing in the folders that say so.

    Each has ``folder``, ``kinds`` (the number of jobs by kind and state), ``error`` (the last one),
    and ``failed`` (jobs by ``title`` and ``error``).
    """
    records = [(folder, _read(folder / _STATUS, _Status)) for folder in folders]
    return [
        {"folder": folder.name, "error": status.last_error or ""}
        | status.model_dump(include={"kinds", "failed"})
        for folder, status in records
        if status is not None
    ]


def folders_of(results: Sequence[Path]) -> list[Path]:
    """Return the folders whose records say how results were made.

    A folder of results, or the folder above it where that is the folder of a sweep. A single file
    has a folder of records only in a sweep: its own folder may be any.
    """
    folders = []
    for path in results:
        place = path.resolve()
        folder = place if place.is_dir() else place.parent
        if statuses([folder.parent]):
            folders.append(folder.parent)
        elif place.is_dir() or statuses([folder]):
            folders.append(folder)
    return list(dict.fromkeys(folders))


def _records(folder: Path) -> Iterator[Path]:
    """Yield the records below a folder; hidden folders are being replaced."""
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if RECORD in files:
            yield Path(place) / RECORD


def _read(file: Path, kind: type[_Record]) -> _Record | None:
    """Return what a file holds; None if it is none of its kind, or has just been replaced."""
    try:
        return kind.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None


def _named(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and words of inputs; an input within another one has the names of both."""
    for name, value in sorted(values.items()):
        if isinstance(value, dict) and value:
            yield from _named(value, f"{before}{name}.")
        elif isinstance(value, list) and not any(isinstance(part, (dict, list)) for part in value):
            yield before + name, ", ".join(map(_words, value))
        else:
            yield before + name, _words(value)


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
