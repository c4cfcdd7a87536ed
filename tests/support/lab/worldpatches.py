"""How each actor of `protocol` gets a machine, a number, a start and a clock of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simlab.store import ownership
from simlab.sweeps import claims, driver, elsewhere, gathering, inputs, processes
from support.lab import worldsteps
from support.lab.worldprocesses import Beats, OfEachProcess

if TYPE_CHECKING:
    import pytest

    from support.lab.protocol import World

CLOCKS_BEGIN = 1e9  # of the own clocks of processes


def give_each_its_own(world: World, patch: pytest.MonkeyPatch) -> None:
    """Give each actor a machine, a number, a start and a clock of its own."""
    patch.setattr(processes, "place", lambda: [world._this().machine.name])
    patch.setattr(processes, "own_pid", lambda: world._this().pid)
    patch.setattr(processes, "own_start", str)
    patch.setattr(processes, "started", world._started)
    patch.setattr(processes, "machine", lambda: world._this().machine.name)
    patch.setattr(processes, "clock", lambda: world.now + world._this().machine.skew + CLOCKS_BEGIN)
    patch.setattr(claims, "_BEATING", Beats(world))
    patch.setattr(claims, "_POLL_SECONDS", 0.0)
    for module in (driver, elsewhere, gathering):
        patch.setattr(module, "note", lambda _: None)
    # Nobody waits for the lock of the data set: a driver that does not get it comes again.
    patch.setattr(ownership, "_PATIENCE_SECONDS", 0.0)
    patch.setattr(gathering, "PATIENCE_SECONDS", float("inf"))
    patch.setattr(worldsteps, "world", world)
    patch.setattr(inputs, "_CHECKED", OfEachProcess())
