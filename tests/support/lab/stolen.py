"""Steps that lose their claim while they work, as those of a process that stood still for long."""

from __future__ import annotations

import json
from typing import Any

from simlab.errors import BusyError, WriteError
from support.lab import toysteps
from support.lab.toysteps import RESUMABLE

FAR = {"place": ["elsewhere"], "pid": 1, "started": "1", "token": "another"}


def rob(work: Any) -> None:
    """Do what a process of another machine does that takes over the job of `work`."""
    folder = work.out.parent.parent.parent
    claim = folder / "claims" / work.out.parent.name.partition("-")[0]
    claim.unlink()
    claim.write_text(json.dumps(FAR))


def _lost(name: str) -> Any:
    """Return a step that is robbed, and then ends as its hint says."""

    def step(work: Any) -> Any:
        hints = work.hints.get("lost", {})
        if work.params["name"] not in hints:
            return toysteps.STEPS[name](work)
        how = hints[work.params["name"]]
        if how == "busy":
            raise BusyError("a process that stands still holds a lock")
        rob(work)
        if how == "raise":
            raise FileNotFoundError("the scratch folder was taken, too")
        if how == "refuse":
            raise WriteError("the scratch folder was taken, too")
        return toysteps.STEPS[name](work)

    return step


STEPS = {name: _lost(name) for name in toysteps.STEPS}
__all__ = ["FAR", "RESUMABLE", "STEPS", "rob"]
