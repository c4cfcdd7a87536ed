"""Atomic writes and content hashes: no file of a run folder is ever half-written."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import resource
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import RawIOBase
from pathlib import Path
from typing import Any

from simlab.errors import UserError, WriteError

_BLOCK = 1 << 20
# Errors after which the user has to make room or choose another place.
_REFUSALS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.ESTALE,
    errno.EEXIST,
    errno.ENOTDIR,
    errno.ENAMETOOLONG,
}
_NO_ROOM = {errno.ENOSPC, errno.EFBIG}
# Errors of a file system that cannot reserve room.
_NO_RESERVATION = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}
# Libraries written in Rust (safetensors, tokenizers) raise exceptions that quote the error number.
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
# torch.save quotes no number; its message names the writer or the C++ stream.
_TORCH_ERROR = re.compile(r"inline_container\.cc|iostream")


@contextmanager
def writing(path: Path, size: int | None = None) -> Iterator[None]:
    """Turn the error of a full disk or a forbidden place into a `WriteError` of one line.

    Parameters
    ----------
    path
        The file or folder that the block writes.
    size
        Number of bytes that the block writes, if known.

    Raises
    ------
    WriteError
        The system refused to write. Any other exception passes unchanged.
    """
    try:
        yield
    except Exception as error:
        where = _refused_file(error, path)
        reason = _refusal(error, where)
        if reason is None:
            raise
        what = "to write there" if size is None else f"to write {size:,} bytes there"
        raise WriteError(f"{where}: wanted {what}, found: {reason}") from error


def _refused_file(error: Exception, path: Path) -> Path:
    """Return the file that `error` names, or `path` if that file is a temporary one beside it."""
    named = getattr(error, "filename", None)
    if not isinstance(named, str):
        return path
    hidden = Path(named).name.startswith(".") and Path(named).parent == path.parent
    return path if hidden else Path(named)


def _refusal(error: Exception, path: Path) -> str | None:
    """Return the reason why the system refused to write `path`; None for any other `error`."""
    if isinstance(error, RuntimeError) and _TORCH_ERROR.search(str(error)):
        return f"torch could not write all of a file ({_room(path)})"
    quoted = _OS_ERROR.search(str(error))
    number = error.errno if isinstance(error, OSError) else quoted and int(quoted[1])
    if number not in _REFUSALS:
        return None
    return os.strerror(number) + (f" ({_room(path)})" if number in _NO_ROOM else "")


def _room(path: Path) -> str:
    """Describe how much room there is for `path`, which need not exist."""
    folder = next(folder for folder in path.absolute().parents if folder.is_dir())
    free = f"{shutil.disk_usage(folder).free:,} bytes free"
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return free if limit == resource.RLIM_INFINITY else f"{free}, at most {limit:,} in one file"


def create_reserved(path: Path, size: int) -> None:
    """Create file `path` of `size` zero bytes, and reserve room on the disk for all of them.

    A file that `truncate` made `size` bytes long would be a hole: the system assigns room to a
    block when the block is first written. If a program writes through a mapping and the disk is
    full, no call can report an error, and the system kills the process (SIGBUS).

    Raises
    ------
    WriteError
        The disk has no room.
    """
    # Readable too: where a file system cannot reserve room, the C library reads the blocks.
    with writing(path, size), path.open("w+b", buffering=0) as stream:
        try:
            _lengthen(stream, size)
        except OSError:
            stream.truncate(0)  # so that the message gives the room that was free before
            raise


def _lengthen(stream: RawIOBase, size: int) -> None:
    try:
        if size:
            os.posix_fallocate(stream.fileno(), 0, size)
    except OSError as error:
        if error.errno not in _NO_RESERVATION:
            raise
        while size:
            size -= stream.write(bytes(min(_BLOCK, size)))


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, and rename that file to `path` if the block succeeds.

    The temporary file has the suffix of `path`, because writers such as matplotlib choose the
    format by the suffix.

    Raises
    ------
    WriteError
        The disk is full or the folder cannot be written (`writing`).
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
    """Rename folder `partial` to `path`, and delete the folder that `path` was before.

    A folder cannot be renamed over a non-empty folder, so the old folder is renamed first. If the
    process is killed between the two renames, `path` does not exist, and a later run makes it anew.
    """
    if path.exists():
        old = path.with_name(f".{path.name}.{uuid.uuid4().hex}.old")
        os.replace(path, old)
        os.replace(partial, path)
        shutil.rmtree(old)
    else:
        os.replace(partial, path)


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to file `path`, atomically."""
    with atomic_file(path) as partial, writing(path, len(content)):
        partial.write_bytes(content)


def write_json(path: Path, value: Any) -> None:
    """Write `value` to file `path` as indented JSON, atomically."""
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises
    ------
    UserError
        The file is not JSON.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: wanted JSON, found a damaged file ({error})") from error


def as_paths(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    """Return one path or several paths as a list."""
    return [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]


def read_json_lines(path: Path) -> list[Any]:
    """Read a file that has one JSON value on each line."""
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def hash_json(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON form of `value` (sorted keys, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def hash_file(path: Path) -> str:
    """Return the SHA-256 of the bytes of file `path`."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
