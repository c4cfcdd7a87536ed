"""Engines: how orders come to processes that do them, and answers come back.

An engine is small: it takes an order where one of its slots is free, and gives the answers that
have come. The end of a process is an answer as well: `CRASHED`, or `STOPPED` if a signal from
outside ended it. Claims, checks, retries, and what to do next are no business of
engines, and no step depends on the engine that runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from simlab.errors import UserError, argument
from simlab.sweeps.execute import Answer, Order
from simlab.sweeps.folder import SweepFolder

ENGINES = LOCAL, RAY = ("local", "ray")


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


@dataclass(frozen=True)
class EngineChoice:
    """Which engine runs a sweep, and how.

    Attributes
    ----------
    name
        ``local``: worker processes of this machine; ``ray``: processes on the nodes of a Ray
        cluster.
    workers, threads
        Jobs at once, and threads of each (`LocalEngine`, `RayEngine`).
    address, resources
        As in `RayEngine`; for ``ray`` alone.
    """

    name: str = LOCAL
    workers: int = 0
    threads: int | None = None
    address: str | None = None
    resources: tuple[str, ...] = ()

    def check(self) -> None:
        """Check the choice before anything is written.

        Raises
        ------
        UserError
            The engine is unknown or not installed, or an option is one of another engine.
        """
        from simlab.sweeps.cluster import load_ray
        from simlab.sweeps.resources import parse_resources

        if self.name not in ENGINES:
            raise UserError(f"{argument('engine', self.name)}: wanted {' or '.join(ENGINES)}")
        if self.name == RAY:
            load_ray(self.address)
            parse_resources(self.resources)
            return
        for option, value in (("address", self.address), ("resources", self.resources)):
            if value:
                raise UserError(
                    f"{argument(option)}: wanted {argument('engine', RAY)} beside it, found "
                    f"{self.name}"
                )

    def start(self, folder: SweepFolder, kinds: Iterable[str]) -> Engine:
        """Start the engine for jobs of some kinds."""
        if self.name == LOCAL:
            from simlab.sweeps.local import LocalEngine

            return LocalEngine(self.workers, folder.log, self.threads)
        from simlab.sweeps.cluster import RayEngine

        return RayEngine(
            folder.root,
            kinds,
            workers=self.workers,
            threads=self.threads,
            address=self.address,
            resources=self.resources,
        )
