"""From values of models to units: the fine-tunings, pretrained models or tasks of a verdict.

Fine-tunings of one pretrained model share all but noise, so that they are one unit of a claim about
pretrained models, however many they are. The mean over tasks has the tasks as units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from simlab.evidence.claim import MODELS, NETWORKS, RUNS
from simlab.evidence.intervals import Statistic, Value, value_of

if TYPE_CHECKING:
    from simlab.evidence.labels import Who


def units_of_task(
    values: Sequence[Value], who: Mapping[str, Who], about: str
) -> tuple[str, list[Value]]:
    """Return the kind of the units of values in one task, and the units.

    Fine-tunings of several pretrained models are no restarts of one: the pretrained models count.
    """
    if about == NETWORKS:
        return about, list(values)
    origins = {who[name].origin for value in values for name in value.names}
    kind = MODELS if about == MODELS or len(origins) > 1 else RUNS
    units = []
    for value in values:
        names = {who[name].origin if kind == MODELS else name for name in value.names}
        units.append(Value(frozenset(names), value.value, value.group))
    return kind, units


def units_over_tasks(
    values: Iterable[Value], who: Mapping[str, Who], statistic: Statistic, *, apart: bool = True
) -> dict[str, dict[str, Value]]:
    """Return, for each base model, a unit for each task of fine-tuning.

    Values of pairs of base models, or of pairs of tasks, are left out.

    Parameters
    ----------
    apart
        Whether each base model has units of its own. If not, the base is "" for all models.
    """
    parts: dict[tuple[str, str], list[Value]] = {}
    for value in values:
        bases = {who[name].base if apart else "" for name in value.names}
        tasks = {who[name].task for name in value.names}
        if len(bases) == len(tasks) == 1:
            units = parts.setdefault((bases.pop(), tasks.pop()), [])
            units.append(value)
    units_of: dict[str, dict[str, Value]] = {}
    for (base, task), units in parts.items():
        defined = [one for one in units if one.value == one.value]
        units_of.setdefault(base, {})[task] = value_of(task, statistic(defined))
    return units_of
