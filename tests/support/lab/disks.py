"""Places that run out of room: a limit on the size of a file, and a disk in memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def no_more_files() -> Iterator[None]:
    """Let the process open no file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/dev/null", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    """Let the system refuse files of more than `size` bytes, as a full disk refuses to grow them.

    Python ignores SIGXFSZ, so that writers get an error. No bytecode is written meanwhile: Python
    3.11 would leave half a file of it, and fail at the next import.
    """
    limits, bytecode = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = bytecode


class Disk:
    """A file system in memory whose size can change."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def resize(self, size: int) -> None:
        """Set the size of the file system to `size` bytes; the bytes in use must fit."""
        _mount("-o", f"remount,size={size}", self.path)


@contextmanager
def mounted_disk(path: Path) -> Iterator[Disk]:
    """Mount a `Disk` on folder `path`; skip the test where the system does not let us."""
    path.mkdir()
    try:
        _mount("-t", "tmpfs", "-o", "size=4096", "tmpfs", path)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this system does not let us mount a small disk: {error}")
    try:
        yield Disk(path)
    finally:
        # The disk is unmounted lazily: a mapping of a file may live on until it is collected.
        subprocess.run(["umount", "--lazy", path], check=True)


def _mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True, capture_output=True)
