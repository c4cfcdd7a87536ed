"""Steps of a training that are the same weights under several names.

Revisions of published runs may all serve the final weights. Grids between them would then say that
the training had converged.
"""

from __future__ import annotations

from collections.abc import Sequence

from simlab.models.revisions import equal_steps
from simlab.sweeps.fingerprints import Fingerprints
from simlab.sweeps.members import Model

_MOST_NAMED = 3  # runs in the note


def repeated_steps(models: Sequence[Model], prints: Fingerprints) -> list[str]:
    """Return a note on the steps of runs that have the same weights; none if all differ.

    Weight files alone are compared: configurations and commits may differ. A model that is not on
    this machine is left out, and a model that the sweep pretrains.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for model in models:
        if model.step is None or model.pretraining is not None:
            continue
        if (weights := prints.weights(model.name)) is None:
            continue
        groups.setdefault((model.family, model.restart, weights), []).append(model.step)
    same = [(run, sorted(steps)) for run, steps in groups.items() if len(steps) > 1]
    if not same:
        return []
    count = sum(len(steps) for _, steps in same)
    lines = [f"{_name(*run[:2])}: steps {equal_steps(steps)}" for run, steps in same[:_MOST_NAMED]]
    more = f"; and {len(same) - _MOST_NAMED} more" if len(same) > _MOST_NAMED else ""
    return [f"{count} steps have the weights of another step: {'; '.join(lines)}{more}"]


def _name(family: object, restart: object) -> str:
    return f"{family}" if restart is None else f"{family}[{restart}]"
