"""The choice of an engine: which executor runs the jobs of a sweep."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from simlab.errors import UserError, argument, require_known
from simlab.sweeps.engines import parse_resources
from simlab.sweeps.outputs import SweepFolder
from simlab.sweeps.pool import Pool

ENGINES = LOCAL, RAY, SLURM = ("local", "ray", "slurm")


@dataclass(frozen=True)
class EngineChoice:
    """Which engine runs a sweep, and how."""

    # ``local``: worker processes of this machine; ``ray``: processes on the nodes of a Ray cluster;
    # ``slurm``: job arrays of Slurm.
    name: str = LOCAL
    workers: int = 0  # jobs at once, and threads of each (`Pool`, `RayExecutor`, `SlurmExecutor`)
    threads: int | None = None
    address: str | None = None  # as in `RayExecutor`; for ``ray`` alone
    resources: tuple[str, ...] = ()  # as `parse_resources` reads them; for ``ray`` and ``slurm``
    slurm: tuple[str, ...] = ()  # as in `SlurmExecutor`; for ``slurm`` alone

    def check(self) -> None:
        """Check the choice before anything is written."""
        require_known("engine", self.name, ENGINES)
        owners = {"address": (RAY,), "resources": (RAY, SLURM), "slurm": (SLURM,)}
        for option, engines in owners.items():
            if getattr(self, option) and self.name not in engines:
                wanted = " or ".join(argument("engine", name) for name in engines)
                raise UserError(f"{argument(option)}: wanted {wanted} beside it, found {self.name}")
        if self.name == RAY:
            from simlab.sweeps.cluster import load_ray

            load_ray(self.address)
        if self.name == SLURM:
            from simlab.sweeps.slurm import parse_slurm

            parse_slurm(self.slurm)
        parse_resources(self.resources)

    def start(self, folder: SweepFolder) -> Executor:
        """Start the executor."""
        if self.name == LOCAL:
            return Pool(self.workers, folder.log, self.threads)
        how: dict[str, Any] = {"workers": self.workers, "threads": self.threads}
        how["resources"] = self.resources
        if self.name == SLURM:
            from simlab.sweeps.slurm import SlurmExecutor

            return SlurmExecutor(folder.root, slurm=self.slurm, **how)
        from simlab.sweeps.cluster import RayExecutor

        return RayExecutor(folder.root, address=self.address, **how)
