"""From values of models to the units of a verdict, which are what its claim is about.

Fine-tunings of one pretrained model share all but noise, so that they are one unit of a claim about
pretrained models, however many they are. In the same way pretraining seeds of one base model are
one unit of a claim about architectures. The mean over tasks has the tasks as units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from simlab.evidence.claim import ARCHITECTURES, MODELS, NETWORKS, RUNS
from simlab.evidence.intervals import Statistic, Value, mean_value, value_of

if TYPE_CHECKING:
    from simlab.evidence.labels import Who


def units_of_task(
    values: Sequence[Value], who: Mapping[str, Who], about: str
) -> tuple[str, list[Value]]:
    """Return the kind of the units of values in one task, and the units.

    Fine-tunings of several pretrained models are no restarts of one: the pretrained models count.
    Of architectures, all values of one, or of one pair, are averaged first.
    """
    if about == NETWORKS:
        return about, list(values)
    if about == ARCHITECTURES:
        return about, _of_architectures(values, who)
    origins = {who[name].origin for value in values for name in value.names}
    kind = MODELS if about == MODELS or len(origins) > 1 else RUNS
    units = []
    for value in values:
        names = {who[name].origin if kind == MODELS else name for name in value.names}
        units.append(Value(frozenset(names), value.value, value.group))
    return kind, units


def _of_architectures(values: Sequence[Value], who: Mapping[str, Who]) -> list[Value]:
    """Return the mean value of each architecture or pair of them, in each group."""
    parts: dict[tuple[frozenset[str], str], list[Value]] = {}
    for value in values:
        names = frozenset(who[name].architecture for name in value.names)
        parts.setdefault((names, value.group), []).append(value)
    return [
        Value(names, mean_value([one for one in some if one.value == one.value]), group)
        for (names, group), some in parts.items()
    ]


def units_over_tasks(
    values: Iterable[Value], who: Mapping[str, Who], statistic: Statistic, *, apart: bool = True
) -> dict[str, dict[str, Value]]:
    """Return, for each base model, a unit for each task of fine-tuning.

    Values of pairs of base models, or of pairs of tasks, are left out. Unless `apart`, the base
    model is "" for all models.
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
