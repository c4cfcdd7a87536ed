"""timm and torchvision for the tests that need them, from a folder of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import torch

FOLDER = Path(sys.prefix) / "vision"  # `make` puts them there (requirements/vision.txt)
NAMES = ("timm", "torchvision")
NO_VISION = "no timm and torchvision on this machine"
# Operators that torchvision describes when it is imported, whether it could load them or not. Those
# of a build for another torch cannot be loaded; no model here needs them.
_OPERATORS = ("nms", "qnms")
_declared: list[torch.library.Library] = []  # a library ends with its object


def has_vision() -> bool:
    """Return whether the libraries are installed, here or in their folder."""
    return all(find_spec(name) or (FOLDER / name).is_dir() for name in NAMES)


@contextmanager
def vision() -> Iterator[None]:
    """Let timm and torchvision be imported inside the block; once in a process."""
    if all(find_spec(name) for name in NAMES):
        yield
        return
    sys.path.append(str(FOLDER))
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in _OPERATORS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)
    try:
        yield
    finally:
        sys.path.remove(str(FOLDER))
        for name in [*sys.modules]:
            if name.partition(".")[0] in NAMES:
                del sys.modules[name]
