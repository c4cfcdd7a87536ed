"""Drivers of `protocol` as processes: their machines, claims, and what each has for itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.sweeps import claims
from support.lab.actors import Actor, this_actor

if TYPE_CHECKING:
    from support.lab.protocol import World


@dataclass
class Machine:
    """A machine: its name, and by how many seconds its two clocks are wrong."""

    name: str
    skew: float


@dataclass
class Process:
    """A driver or a worker, as the world sees it; `observer` is the driver of a worker.

    `lost` are the claims that others took, which it takes for its own until it looks.
    """

    machine: Machine
    pid: int
    observer: Process | None = None
    actor: Actor | None = None
    frozen: bool = False
    claims: dict[Path, claims.Claim] = field(default_factory=dict)
    lost: set[Path] = field(default_factory=set)
    given_up: list[claims.Claim] = field(default_factory=list)
    beat: float = 0.0
    awake: float = 0.0
    seen: dict[int, float] = field(default_factory=dict)
    at_work: str | None = None
    waited: int = 0

    @property
    def lives(self) -> bool:
        return self.actor is not None and not self.actor.ended


class Beats:
    """In place of the thread that touches the claims of a process: `World.pass_time` does."""

    def __init__(self, world: World) -> None:
        self.world = world

    def add(self, held: claims.Claim) -> None:
        self.world.claimed(self.world._this(), held)

    def discard(self, held: claims.Claim) -> None:
        process = self.world._this()
        if process.actor is None or not process.actor.killed:  # the dead do nothing
            process.claims.pop(held.path, None)

    def release_later(self, held: claims.Claim) -> None:
        self.world._this().given_up.append(held)


class OfEachProcess(dict[Any, Any]):
    """What each process remembers for itself, where drivers are threads of one."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get((this_actor(), key), default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__((this_actor(), key), value)
