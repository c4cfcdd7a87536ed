"""Atomic writes and content hashes: no file of a run folder is ever half-written.

A file is hashed once while it stays as it is: `FileHashes` remembers a hash with the state of its
file (size, times of change, number on the disk). A file can change twice within one tick of the
file system's clock and keep its state, so a hash is remembered only if the file was at rest for
`_REST_NS` before it was read. The time of the last change is by the server's clock, where a server
has the file, and the time of the reading is by the clock of this machine: `_REST_NS` is longer than
a tick by more than two clocks of a cluster differ. A clock of the server that is ahead makes files
look younger, which are then read again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simlab.errors import ReadError, UserError, WriteError, argument, first_line

_BLOCK = 1 << 20
# What only writing meets. Libraries in Rust and C++ wrap the error of the system, and torch's
# writer drops its words.
_NO_ROOM = re.compile(
    "|".join(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)))
    + r"|inline_container\.cc|iostream"
)
# File systems count time in ticks of up to two seconds. Clocks of a network differ by less than
# five minutes: Kerberos, by which its servers know their users, refuses more.
_REST_NS = (5 * 60 + 2) * 1_000_000_000
_LOOKS = 3  # at a file that is written while it is read
State = tuple[int, int, int, int]  # size, time of change, number, time of change of the state


@contextmanager
def writing(path: Path, size: int | None = None, *, partial: Path | None = None) -> Iterator[None]:
    """Turn what the system says where it refuses to write `path` into a `WriteError` of one line.

    Where the block fills folder `partial`, which becomes `path`, it reads files as well: an error
    about a file elsewhere passes unchanged, unless it says that there is no room.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        said = str(error)
        number = error.errno if isinstance(error, OSError) else None
        is_refused = number not in (None, errno.ENOENT)
        if not (_NO_ROOM.search(said) or (is_refused and str(partial or "") in said)):
            raise
        wanted = "to write there" if size is None else f"to write {size:,} bytes there"
        reason = first_line(error) if number is None else os.strerror(number)
        raise WriteError(f"{path}: wanted {wanted}, found: {reason} ({_room(path)})") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the system says where it refuses to read `path` into a `ReadError` of one line.

    A file that is not there passes unchanged, and so does an OSError without a number, which a
    library raised because of the content of a file.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (None, errno.ENOENT, errno.ENOTDIR):
            raise
        where = error.filename or path
        raise ReadError(f"{where}: wanted to read it, found: {os.strerror(error.errno)}") from error


def _room(path: Path) -> str:
    """Describe how much room there is for `path`, which need not exist."""
    folder = next(folder for folder in path.absolute().parents if folder.is_dir())
    return f"{shutil.disk_usage(folder).free:,} bytes free"


def create_reserved(path: Path, size: int) -> None:
    """Create file `path` of `size` zero bytes, and reserve room on the disk for all of them.

    A file that `truncate` made `size` bytes long would be a hole: the system assigns room to a
    block when the block is first written. If a program writes through a mapping and the disk is
    full, no call can report an error, and the system kills the process (SIGBUS).
    """
    # Readable too: where a file system cannot reserve room, the C library reads the blocks.
    with writing(path, size), path.open("w+b", buffering=0) as stream:
        if size:
            os.posix_fallocate(stream.fileno(), 0, size)


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
    """Follow `path` to the place that it leads to, unless it has a name and is no link."""
    if path.name not in ("", "..") and not os.path.islink(path):
        return path
    real = Path(os.path.realpath(path))
    if not real.name or os.path.islink(real):
        reason = "links in a circle" if real.name else "the root of the file system"
        raise UserError(
            f"{argument('out', path)}: wanted a place with a name of its own, found {reason}; "
            f"choose another {argument('out')}"
        )
    return real


def require_replaceable(path: Path) -> None:
    """Check that `replace_folder` may replace folder `path`."""
    if Path.cwd().is_relative_to(os.path.realpath(path)):
        raise UserError(
            f"{argument('out', path)}: wanted a folder to replace, found the working directory or "
            f"one above it; choose another {argument('out')} or start elsewhere"
        )


def replace_folder(partial: Path, path: Path) -> None:
    """Rename folder `partial` to `path`, and delete the folder that `path` was before."""
    if path.exists():
        # A folder cannot be renamed over another. After a kill between the two renames there is no
        # `path`, and a later run makes it anew.
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


@dataclass
class FileHashes:
    """The SHA-256 of local files, each read again when the state of the file is another."""

    # The state and the hash of every file that was at rest.
    known: dict[str, tuple[State, str]] = field(default_factory=dict)
    # The state of every file that was asked for, in which it had its hash.
    states: dict[str, State] = field(default_factory=dict)

    def hash(self, file: Path) -> str:
        """Return the SHA-256 of a file; a file that changes while it is read raises UserError."""
        place = str(file.resolve())
        for _ in range(_LOOKS):
            state, began = state_of(file), time.time_ns()
            entry = self.known.get(place)
            if entry is not None and entry[0] == state:
                self.states[str(file)] = state
                return entry[1]
            with reading(file):
                digest = hash_file(file)
            if state_of(file) == state:
                if began - state[3] > _REST_NS:
                    self.known[place] = (state, digest)
                self.states[str(file)] = state
                return digest
        raise UserError(f"{file}: wanted a file that stays as it is, found one that changes")


def state_of(file: Path) -> State:
    """Return a mark that changes when a file is written or replaced."""
    # On a network file system, opening a file asks the server for its state.
    with reading(file):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            state = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    return state.st_size, state.st_mtime_ns, state.st_ino, state.st_ctime_ns


HASHES = FileHashes()  # of this process
