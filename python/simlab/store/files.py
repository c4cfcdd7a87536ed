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

from simlab.errors import ReadError, UserError, WriteError, argument

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
    errno.EISDIR,
    errno.ENAMETOOLONG,
}
_NO_ROOM = {errno.ENOSPC, errno.EFBIG}
# Errors that only writing raises; the other errors may come from a file that is read.
_NEVER_OF_READING = {*_NO_ROOM, errno.EDQUOT, errno.EROFS}
# Errors of a file system that cannot reserve room.
_NO_RESERVATION = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}
_PARTIAL_FILE = re.compile(r"\.[0-9a-f]+\.partial")  # the hidden files of `atomic_file`
# Libraries written in Rust (safetensors, tokenizers) raise exceptions that quote the error number.
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
# torch.save quotes no number; its message names the writer or the C++ stream.
_TORCH_ERROR = re.compile(r"inline_container\.cc|iostream")


@contextmanager
def writing(path: Path, size: int | None = None, *, partial: Path | None = None) -> Iterator[None]:
    """Turn the error of a full disk or a forbidden place into a `WriteError` of one line.

    Any other exception passes unchanged, also an exception that names another file than `path`.
    Where the block fills folder `partial`, which becomes `path`, it reads files as well, so that an
    error without a file name passes unless it says that there is no room.
    """
    try:
        yield
    except Exception as error:
        refused = _refusal(error, path, partial)
        if refused is None:
            raise
        where, reason = refused
        what = "to write there" if size is None else f"to write {size:,} bytes there"
        raise WriteError(f"{where}: wanted {what}, found: {reason}") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an error of the system, which refused to read `path`, into a `ReadError` of one line.

    FileNotFoundError and NotADirectoryError pass unchanged, and so does an OSError without a
    number, which a library raised because of the content of a file.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        if error.errno is None:
            raise
        where = error.filename if isinstance(error.filename, str) else path
        raise ReadError(f"{where}: wanted to read it, found: {os.strerror(error.errno)}") from error


def _refusal(error: Exception, path: Path, partial: Path | None) -> tuple[Path, str] | None:
    """Return the file that the system refused to write and the reason; None for other errors."""
    if isinstance(error, RuntimeError) and _TORCH_ERROR.search(str(error)):
        return path, f"torch could not write all of a file ({_room(path)})"
    quoted = _OS_ERROR.search(str(error))
    number = error.errno if isinstance(error, OSError) else quoted and int(quoted[1])
    if number not in _REFUSALS:
        return None
    names = (getattr(error, name, None) for name in ("filename", "filename2"))
    paths = [Path(name) for name in names if isinstance(name, str)]
    written = [file for file in paths if _is_written(file, path, partial)]
    unknown = not paths and partial is None
    if not (written or unknown or number in _NEVER_OF_READING):
        return None
    where = (written or paths or [path])[0]
    where = path if _is_hidden(where, path) else where
    return where, os.strerror(number) + (f" ({_room(where)})" if number in _NO_ROOM else "")


def _is_written(file: Path, path: Path, partial: Path | None) -> bool:
    """Return whether `file` belongs to the writing of `path`.

    That is: `file` is `path`, `partial`, or a file or folder in or above one of them; or `file` is
    in a temporary file or folder that this module makes beside `path`.
    """
    file, path = _absolute(file), _absolute(path)
    outputs = [path] if partial is None else [path, _absolute(partial)]
    if any(file.is_relative_to(output) or output.is_relative_to(file) for output in outputs):
        return True
    beside = file.relative_to(path.parent).parts[0] if file.is_relative_to(path.parent) else ""
    return beside.startswith(f".{path.name}.") or _PARTIAL_FILE.match(beside) is not None


def _is_hidden(file: Path, path: Path) -> bool:
    """Return whether `file` is a hidden file in the folder of `path`."""
    return file.name.startswith(".") and _absolute(file).parent == _absolute(path).parent


def _absolute(path: Path) -> Path:
    """Follow the links above `path`, not `path` itself."""
    return Path(os.path.realpath(path.parent), path.name)


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


def real_output(path: Path) -> Path:
    """Follow `path` to the place that it leads to, unless it has a name and is no link.

    The partial output and the lock stand beside that place, whichever link names it, and the link
    stays when the output is replaced.
    """
    if path.name not in ("", "..") and not os.path.islink(path):
        return path
    real = Path(os.path.realpath(path))
    if not real.name or os.path.islink(real):
        found = "links in a circle" if real.name else "the root of the file system"
        raise UserError(
            f"{argument('out', path)}: wanted a place with a name of its own, found {found}; "
            f"choose another {argument('out')}"
        )
    return real


def require_replaceable(path: Path) -> None:
    """Check that `replace_folder` may replace folder `path`.

    It may not hold the working directory, below which the relative paths of a command are found.
    """
    if Path.cwd().is_relative_to(os.path.realpath(path)):
        raise UserError(
            f"{argument('out', path)}: wanted a folder to replace, found the working directory or "
            f"one above it; choose another {argument('out')} or start elsewhere"
        )


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


def sync(path: Path) -> None:
    """Have the system write a file, or a folder with all that is in it, to the disk now."""
    with writing(path):
        for entry in sorted(path.iterdir()) if path.is_dir() else ():
            sync(entry)
        sync_names(path)


def sync_names(path: Path) -> None:
    """Have the system write a file, or the names in a folder, to the disk now."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to file `path`, atomically."""
    with atomic_file(path) as partial, writing(path, len(content)):
        partial.write_bytes(content)


def write_json(path: Path, value: Any) -> None:
    """Write `value` to file `path` as indented JSON, atomically."""
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read a JSON file."""
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
