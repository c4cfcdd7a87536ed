"""A progress bar for long operators."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch

import simcore._C as _C

Item = TypeVar("Item")


class _Bar:
    width = 30

    def __init__(self, label: str) -> None:
        self.label = label
        self.start = self.last = time.monotonic()

    def __call__(self, share: float) -> None:
        now = time.monotonic()
        if share < 1 and now - self.last < 0.1:
            return
        self.last = now
        elapsed = now - self.start
        left = elapsed / share - elapsed
        filled = round(self.width * share)
        bar = "#" * filled + "." * (self.width - filled)
        text = f"\r{self.label} [{bar}] {share:4.0%} {elapsed:.1f} s, {left:.1f} s left "
        sys.stderr.write(text)
        sys.stderr.flush()


def counted(
    items: Sequence[np.ndarray] | np.ndarray, label: str, enabled: bool
) -> Iterator[np.ndarray]:
    """Yield the items, and show on stderr how many are done if ``enabled``."""
    bar = _Bar(label)
    for done, item in enumerate(items, 1):
        yield item
        if enabled:
            bar(done / len(items))
    if enabled:
        sys.stderr.write("\n")


class _Thread(threading.local):
    bar: _Bar | None = None  # of the grid that runs in this thread


_thread = _Thread()


def reported(parts: Iterable[Item]) -> Iterator[Item]:
    """Yield the parts of an operator in torch's operations, and show how many are done."""
    parts, bar = list(parts), _thread.bar
    for done, part in enumerate(parts, 1):
        yield part
        if bar is not None:
            bar(done / len(parts))


@contextmanager
def progress_bar(label: str, enabled: bool) -> Iterator[Callable[[float], None]]:
    """Show on stderr how far the operators called inside have come, if ``enabled``."""
    # Nothing is shown where torch.compile traces the operators. The yielded function takes the
    # finished share, for loops around operators that report no progress themselves.
    if not enabled or torch.compiler.is_compiling():
        yield lambda share: None
        return
    bar = _Bar(label)
    _C.set_progress(bar)
    _thread.bar = bar
    try:
        yield bar
    finally:
        _C.set_progress(None)
        _thread.bar = None
        sys.stderr.write("\n")
