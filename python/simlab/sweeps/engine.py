"""Engines: how orders come to processes that do them, and answers come back.

An engine is small: it takes an order where one of its slots is free, and gives the answers that
have come. A process that dies is an answer as well (`CRASHED`). Claims, checks, retries, and what
to do next are no business of engines, and steps do not know which engine runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from simlab.sweeps.execute import Answer, Order


class Engine(Protocol):
    """A way to run orders elsewhere."""

    def free(self) -> int:
        """Return how many orders `submit` takes now."""

    def submit(self, order: Order) -> None:
        """Start an order."""

    def collect(self, seconds: float) -> Sequence[Answer]:
        """Return the answers that have come; wait for the first one, `seconds` at most."""

    def close(self) -> None:
        """End all processes that the engine started; orders that run are lost."""
