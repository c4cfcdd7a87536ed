"""Atomic writes and content hashes: nothing in a run folder is ever half there."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simlab.errors import UserError, WriteError

_BLOCK = 1 << 20
# What a system answers where the user has to make room or choose another place.
_REFUSALS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
}
_OS_ERROR = re.compile(r"\(os error (\d+)\)")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a full disk and the like, met while `path` is written, into one line.

    Raises
    ------
    WriteError
        The system refused to write. Any other exception passes.
    """
    try:
        yield
    except Exception as error:
        reason = _refusal(error)
        if reason is None:
            raise
        where = (error.filename if isinstance(error, OSError) else None) or path
        raise WriteError(f"{where}: wanted to write there, found: {reason}") from error


def _refusal(error: Exception) -> str | None:
    """What the system said when it refused to write; None if `error` is about something else."""
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno in _REFUSALS else None
    # safetensors quotes the system in its own exception, torch.save does not even do that.
    quoted = _OS_ERROR.search(str(error)) if type(error).__name__ == "SafetensorError" else None
    if quoted is not None and int(quoted[1]) in _REFUSALS:
        return os.strerror(int(quoted[1]))
    if isinstance(error, RuntimeError) and "inline_container.cc" in str(error):
        return "torch could not write all of a file; is there room left?"
    return None


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it to `path` if the block succeeds.

    The suffix is kept, because writers such as matplotlib choose the format by it.

    Raises
    ------
    WriteError
        The disk is full or the place cannot be written (`writing`).
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{uuid.uuid4().hex}.partial{path.suffix}")
    try:
        with writing(path):
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
    """Read a JSON file.

    Raises
    ------
    UserError
        It is no JSON.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: wanted JSON, found a damaged file ({error})") from error


def as_paths(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    """Make a list of what a caller gave as one path or as several."""
    return [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]


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
