"""Engines: how orders come to processes that do them, and answers come back.

An engine is small: it takes an order where one of its slots is free, and gives the answers that
have come. The end of a process is an answer as well: `CRASHED`, or `STOPPED` if a signal from
outside ended it. Claims, checks, retries, and what to do next are no business of
engines, and no step depends on the engine that runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from simlab.errors import UserError, argument, require_known
from simlab.sweeps.execute import Answer, Order
from simlab.sweeps.folder import SweepFolder

ENGINES = LOCAL, RAY, SLURM = ("local", "ray", "slurm")


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
        cluster; ``slurm``: job arrays of Slurm.
    workers, threads
        Jobs at once, and threads of each (`LocalEngine`, `RayEngine`, `SlurmEngine`).
    address
        As in `RayEngine`; for ``ray`` alone.
    resources
        As in `RayEngine` and `SlurmEngine`.
    slurm
        As in `SlurmEngine`; for ``slurm`` alone.
    """

    name: str = LOCAL
    workers: int = 0
    threads: int | None = None
    address: str | None = None
    resources: tuple[str, ...] = ()
    slurm: tuple[str, ...] = ()

    def check(self) -> None:
        """Check the choice before anything is written.

        Raises
        ------
        UserError
            The engine is unknown or not installed, or an option is one of another engine.
        """
        from simlab.sweeps.cluster import load_ray
        from simlab.sweeps.resources import parse_resources
        from simlab.sweeps.slurm import parse_slurm

        require_known("engine", self.name, ENGINES)
        owners = {"address": (RAY,), "resources": (RAY, SLURM), "slurm": (SLURM,)}
        for option, engines in owners.items():
            if getattr(self, option) and self.name not in engines:
                wanted = " or ".join(argument("engine", name) for name in engines)
                raise UserError(f"{argument(option)}: wanted {wanted} beside it, found {self.name}")
        if self.name == RAY:
            load_ray(self.address)
        if self.name == SLURM:
            parse_slurm(self.slurm)
        parse_resources(self.resources)

    def start(self, folder: SweepFolder, kinds: Iterable[str]) -> Engine:
        """Start the engine for jobs of some kinds."""
        if self.name == LOCAL:
            from simlab.sweeps.local import LocalEngine

            return LocalEngine(self.workers, folder.log, self.threads)
        how: dict[str, Any] = {"workers": self.workers, "threads": self.threads}
        how["resources"] = self.resources
        if self.name == SLURM:
            from simlab.sweeps.slurm import SlurmEngine

            return SlurmEngine(folder.root, slurm=self.slurm, **how)
        from simlab.sweeps.cluster import RayEngine

        return RayEngine(folder.root, kinds, address=self.address, **how)
