"""Atomic writes and content hashes: nothing in a run folder is ever half there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_BLOCK = 1 << 20


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it to `path` if the block succeeds.

    The suffix is kept, because writers such as matplotlib choose the format by it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{uuid.uuid4().hex}.partial{path.suffix}")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def replace_folder(partial: Path, path: Path) -> None:
    """Rename folder `partial` to `path`, taking the place of whatever folder stood there.

    A folder cannot be renamed over a non-empty one, so the old one steps aside first; a kill
    between the two renames leaves no `path`, which a later run takes for "not done yet".
    """
    if path.exists():
        old = path.with_name(f".{path.name}.{uuid.uuid4().hex}.old")
        os.replace(path, old)
        os.replace(partial, path)
        shutil.rmtree(old)
    else:
        os.replace(partial, path)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text("utf-8"))


def read_json_lines(path: Path) -> list[Any]:
    """Read a file of one JSON value a line."""
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def hash_json(value: Any) -> str:
    """SHA-256 of the canonical JSON form of `value` (sorted keys, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
