"""Stands for ``simcore._C`` where no compiled library fits; operations of torch compute there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path, PurePosixPath

# Mount of a hierarchy of control groups, its limit, its usage, and the entry of memory.stat that
# can be taken back: version 1, version 2, and version 2 beside version 1.
_VERSION_1 = ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = ("", "memory.max", "memory.current", "inactive_file")
_BESIDE_VERSION_1 = ("unified", *_VERSION_2[1:])


def build_info() -> dict[str, str]:
    return {"version": version("simcore"), "compiler": "", "flags": "", "cpu_isa": "torch"}


def free_memory(root: str = "/") -> int:
    free = _entry(Path(root, "proc/meminfo"), "MemAvailable:")
    if free is not None:
        free *= 1024
    elif hasattr(os, "sysconf"):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    else:
        free = 2**32  # Windows
    for folder, (_, limit, usage, reclaimable) in _groups(root):
        most = _number(folder / limit)
        if most is not None:
            used = (_number(folder / usage) or 0) - (
                _entry(folder / "memory.stat", reclaimable) or 0
            )
            free = min(free, most - max(used, 0))
    return max(free, 0)


def _groups(root: str) -> Iterator[tuple[Path, tuple[str, str, str, str]]]:
    """Yield the folders of the control groups that this process is in."""
    for line in _text(Path(root, "proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        kinds = [_VERSION_1] if "memory" in controllers.split(",") else []
        kinds += [] if controllers else [_VERSION_2, _BESIDE_VERSION_1]
        inside = PurePosixPath(path.lstrip("/"))
        groups = [] if ".." in inside.parts else [inside, *inside.parents]
        for kind in kinds:
            mount = Path(root, "sys/fs/cgroup", kind[0])
            yield mount, kind
            yield from ((mount / group, kind) for group in groups if group.name)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # no such group, or no such file in it
        return ""


def _number(file: Path) -> int | None:
    """Return the number in a file; None for a word such as "max"."""
    text = _text(file).strip()
    return int(text) if text.isdigit() else None


def _entry(file: Path, name: str) -> int | None:
    """Return the number behind a name in a file of lines "name number"."""
    words = (line.split() for line in _text(file).splitlines())
    return next((int(line[1]) for line in words if line and line[0] == name), None)


def memory_bound(max_memory: int) -> int:
    """Return the bytes that a bound of 0 (a quarter of the free memory) or more stands for."""
    return max_memory if max_memory > 0 else max(free_memory() // 4, 1)


def set_progress(function: Callable[[float], None] | None) -> None:
    """Do nothing: operations of torch report by `simcore._grid.progress`."""
