"""Names in figures: their order, seeds of one model, and equal names of different models."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simlab.store.labels import at_step, natural_key, split_step, without_task

if TYPE_CHECKING:
    import pandas as pd

ALL_TASKS = "all-tasks"  # the first word of a file that shows several tasks
_SEED = "*"  # stands for the seed in a name that several seeds share
MODEL = ("label_x", "seed_x", "base_x", "stage_x")
# Columns that tell rows of one model and seed apart.
DETAILS = ("kind", "options", "n", "step_x", "source")


def task_name(tasks: Iterable[str]) -> str:
    """Return the first word of the file of a figure: its task, or `ALL_TASKS`."""
    distinct = set(tasks)
    return str(distinct.pop()) if len(distinct) == 1 else ALL_TASKS


def in_order(names: Iterable[str]) -> list[str]:
    """Return the distinct names as they were given, but M2 before M10.

    A shell expands ``M*`` to M1, M10, M2. Names in that order are sorted by their numbers; the
    expanded names may be a part of all names. Any other order is the user's, and is kept.
    """
    ordered = list(dict.fromkeys(names))
    if ordered == sorted(ordered):
        return sorted(ordered, key=natural_key)
    series = defaultdict(list)
    for place, name in enumerate(ordered):
        series[re.sub("[0-9]+", "0", name)].append(place)
    for places in series.values():
        members = [ordered[place] for place in places]
        if members == sorted(members, key=lambda name: re.findall("[0-9]+", name)):
            for place, name in zip(places, sorted(members, key=natural_key), strict=True):
                ordered[place] = name
    return ordered


def without_seed(label: str, seed: int | None, base: str | None) -> str:
    """Return `label` with an asterisk for the number of its seed: ``FT[1]`` becomes ``FT[*]``.

    Two models of one base and stage are seeds of one model if they become the same name. A model
    without a known base or seed keeps its label.
    """
    if seed is None or base is None:
        return label
    label, step = split_step(label)
    before, number, after = label.rpartition(str(seed))
    if not number or before[-1:].isdigit() or after[:1].isdigit():  # a part of another number
        return at_step(label, step)
    return at_step(f"{before}{_SEED}{after}", step)


def with_seeds(name: str, seeds: Iterable[int]) -> str:
    """Return the name that `without_seed` gave, with the numbers of all seeds: ``FT[1–3]``."""
    return name.replace(_SEED, _ranges(sorted(set(seeds))))


def _ranges(numbers: Sequence[int]) -> str:
    """Return numbers in rising order as text: 1, 2, 3, 7 become ``1–3, 7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


@dataclass(frozen=True, eq=False)
class Model:
    """A model in one experiment and task, with all its seeds if they are known to be its seeds."""

    stem: str  # the label without the task and without the number of the seed
    label: str  # the label with the numbers of all seeds
    seeds: tuple[int, ...]  # empty if the table does not say the seed
    details: dict[str, str]  # tells the model from others with the same stem; `describe` returns it
    rows: pd.DataFrame  # of all seeds


def models_of(rows: pd.DataFrame, task: str = "", together: bool = True) -> list[Model]:
    """Return the models that `rows` of one experiment, task and measure belong to.

    Rows belong to seeds of one model if they have the same layers and values in `DETAILS`, and the
    same label with different seeds, or one base and stage and labels that differ only in the number
    of the seed (`without_seed`). The name `task` is left out of labels, and unless `together`, each
    seed is a model.
    """
    import pandas as pd

    seeds_of: dict[tuple[Any, ...], list[tuple[str, int | None, pd.DataFrame]]] = defaultdict(list)
    groups = rows.groupby([*MODEL, *DETAILS], dropna=False, sort=False)
    for (label, *known), part in groups:
        seed, base, stage = (None if pd.isna(fact) else fact for fact in known[:3])
        rest = known[3:]
        spans = zip(*(part[side].fillna(-1) for side in ("layer_x", "layer_y")), strict=True)
        stem = without_seed(label, seed, base) if together else label
        # A row without a seed, or any row of seeds that are drawn apart, is a model of its own.
        alone = None if together and seed is not None else (label, seed)
        details = describe(dict(zip(DETAILS, rest, strict=True)))
        key = (stem, base, stage, alone, tuple(details.items()), tuple(sorted(spans)))
        seeds_of[key].append((label, seed, part))
    models = []
    for (stem, _, _, _, details, _), parts in seeds_of.items():
        seeds = tuple(seed for _, seed, _ in parts if seed is not None)
        word = "seed" if len(seeds) == 1 else "seeds"
        numbers = f"{word} {_ranges(sorted(seeds))}" if seeds else "no seed"
        model = Model(
            stem=without_task(stem, task),
            label=with_seeds(stem, seeds),
            seeds=seeds,
            details={"seed": numbers, **dict(details)},
            rows=pd.concat([part for *_, part in parts]),
        )
        models.append(model)
    return models


def name_models(models: Sequence[Model], cells: Sequence[Any] = ()) -> list[str]:
    """Return the name of every model: its stem with the seeds that any model of this stem has.

    Models of one cell that would have the same name are named by their labels and what differs.
    Names need to differ only within a cell, which is where a model is drawn; by default, all models
    are in one cell.
    """
    seeds: defaultdict[str, set[int]] = defaultdict(set)
    for model in models:
        seeds[model.stem] |= set(model.seeds)
    names = [with_seeds(model.stem, seeds[model.stem]) for model in models]
    of_cell = defaultdict(list)
    for place in range(len(models)):
        of_cell[cells[place] if cells else None].append(place)
    for places in of_cell.values():
        counts = Counter(names[place] for place in places)
        labels = [models[p].label if counts[names[p]] > 1 else names[p] for p in places]
        distinct = tell_apart(labels, [models[place].details for place in places])
        for place, name in zip(places, distinct, strict=True):
            names[place] = name
    return names


def describe(details: Mapping[str, Any]) -> dict[str, str]:
    """Return the words in which `tell_apart` says what differs, from columns of the table."""
    import pandas as pd

    words: dict[str, str] = {}
    for name, value in details.items():
        if pd.isna(value) or value == "":
            continue
        if name == "options":
            words |= {key: f"{key} {entry}" for key, entry in json.loads(value).items()}
        else:
            said = {"n": f"n = {value}", "seed": f"seed {value}", "step_x": f"step {value}"}
            words[name] = said.get(name, str(value))
    return words


def tell_apart(names: Sequence[str], details: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the names, with what differs in brackets behind equal names, so that all differ."""
    details = list(details)
    places = defaultdict(list)
    for place, name in enumerate(names):
        places[name].append(place)
    result = list(names)
    for name, mine in places.items():
        if len(mine) == 1:
            continue
        properties = dict.fromkeys(key for place in mine for key in details[place])
        differing = [key for key in properties if len({details[p].get(key) for p in mine}) > 1]
        for place in mine:
            words = [details[place][key] for key in differing if key in details[place]]
            result[place] = f"{name} ({', '.join(words)})" if words else name
    for place, name in enumerate(result):
        number = result[:place].count(name)
        result[place] = f"{name} #{number + 1}" if number else name
    return result


def steps_in_words(steps: Sequence[int]) -> str:
    """Return steps of training in words; "" if there are none.

    >>> steps_in_words([0, 1000]), steps_in_words([8, 8])
    ('steps 0 and 1,000', 'step 8')
    """
    word = "step" if len(set(steps)) == 1 else "steps"
    return f"{word} {' and '.join(f'{step:,}' for step in dict.fromkeys(steps))}" if steps else ""
