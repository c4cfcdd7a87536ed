"""The small JSON records of a sweep: their shapes, and how they are read.

A full disk, a power cut or another program can leave a record empty, cut short, or with other
content. A record is therefore read as a whole and checked against its shape: a reader gets every
key with a value of its type, or None.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # before Python 3.12, pydantic takes no other

from simlab.store.files import reading, sync, sync_names, write_json

_open = with_config(ConfigDict(extra="allow", strict=True))


@_open
class ObjectRecord(TypedDict):
    """``object.json`` beside the files of an object; of each file the size and the SHA-256."""

    key: str
    kind: str
    title: str
    seconds: float
    bytes: int
    finished: float
    files: dict[str, tuple[int, str]]


@_open
class FailureRecord(TypedDict):
    """``failures/KEY.json``: a job that raised, or whose process died."""

    key: str
    kind: str
    title: str
    error: str
    traceback: str
    attempts: int
    seconds: float
    machine: str
    when: float
    params: dict[str, Any]
    hints: dict[str, Any]
    state: NotRequired[str]


@_open
class FinishedRecord(TypedDict):
    """A line of a driver's log: a job that it finished."""

    key: str
    kind: str
    seconds: float
    at: float


@_open
class FigureRecord(TypedDict):
    """``figures.json``: the rows that the figures show, and the files."""

    rows: str
    version: int
    files: list[str]


@_open
class PlanRecord(TypedDict):
    """``plan.json``: for every job the number of its kind, its key, and the jobs it needs."""

    keep: str
    kinds: list[str]
    jobs: list[tuple[int, str, list[int]]]


@_open
class MemoryRecord(TypedDict):
    """``fingerprints.json``: states and hashes of local files, and revisions of the hub.

    It has the hash of the weights and the bytes of models that are downloaded when their jobs come.
    """

    files: dict[str, tuple[tuple[int, int, int, int], str]]
    revisions: dict[str, str]
    announced: dict[str, tuple[str | None, int]]


@_open
class FetchedRecord(TypedDict):
    """``fetched/COMMIT.json``: a model that a sweep downloads when its jobs come."""

    model: str


Shape = TypeVar("Shape")
_ADAPTERS: Mapping[Any, TypeAdapter[Any]] = {
    shape: TypeAdapter(shape)
    for shape in (
        *(ObjectRecord, FailureRecord, FinishedRecord),
        *(FigureRecord, PlanRecord, MemoryRecord, FetchedRecord),
    )
}


def parse_record(text: bytes | str, shape: type[Shape]) -> Shape | None:
    """Return a record of the wanted shape; None if `text` is no such record."""
    try:
        record: Shape = _ADAPTERS[shape].validate_json(text)
    except ValidationError:
        return None
    return record


def read_record(path: Path, shape: type[Shape]) -> Shape | None:
    """Read a record of the wanted shape; None if there is no file, or a damaged one.

    Raises
    ------
    ReadError
        The system refused to read the file.
    """
    try:
        with reading(path):
            text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return parse_record(text, shape)


def write_durable(path: Path, record: Any, durable: bool = True) -> None:
    """Write a record as JSON, atomically, and have it on the disk before this function returns."""
    write_json(path, record)
    if durable:
        sync(path)
        sync_names(path.parent)
