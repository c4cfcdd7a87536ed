"""Names in figures: their order, seeds of one model, and equal names of different models."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from simlab.results.labels import at_step, natural_key, split_step, without_task

ALL_TASKS = "all-tasks"  # the first word of a file that shows several tasks
_SEED = "*"  # stands for the seed in a name that several seeds share
# Columns that tell models apart, and those that tell rows of one model and seed apart.
MODEL = ("label_x", "seed_x", "base_x", "stage_x")
DETAILS = ("kind", "options", "n", "step_x")


def task_name(tasks: Iterable[str]) -> str:
    """Return the first word of the file of a figure: its task, or `ALL_TASKS`."""
    distinct = set(tasks)
    return str(distinct.pop()) if len(distinct) == 1 else ALL_TASKS


def in_order(names: Iterable[str]) -> list[str]:
    """Return the distinct names as they were given, but M2 before M10.

    A shell expands ``M*`` to M1, M10, M2. Names that differ in numbers alone and stand in that
    order are sorted by their numbers; any other order is the user's, and is kept.
    """
    ordered = list(dict.fromkeys(names))
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
    runs: list[list[int]] = []
    for number in sorted(set(seeds)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    ranges = (f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return name.replace(_SEED, ", ".join(ranges))


def with_models(
    rows: pd.DataFrame, cell: Sequence[str] = (), together: bool = True
) -> pd.DataFrame:
    """Return the rows with column `model`, the name of their model with all its seeds.

    Rows belong to seeds of one model if they have the same values in `DETAILS`, and the same label
    with different seeds, or one base and stage and labels that differ only in the number of the
    seed (`without_seed`). Unless `together`, each seed is a model. Models of one `cell`, rows with
    the same values in these columns, have different names. With several tasks, names leave out the
    task.
    """
    columns = list(dict.fromkeys([*MODEL, *DETAILS, "task", *cell]))
    distinct = rows[columns].drop_duplicates()
    of_row = rows.groupby(columns, dropna=False, sort=False).ngroup()  # by first appearance
    facts = distinct.astype(object).where(distinct.notna(), None).to_dict("records")
    several = len({row["task"] for row in facts}) > 1
    labels, families, models = [], [], []
    seeds: dict[tuple[Any, ...], set[int]] = defaultdict(set)
    for row in facts:
        label, seed, *origin = (row[name] for name in MODEL)
        stem = without_seed(label, seed, origin[0]) if together else label
        alone = None if together and seed is not None else (label, seed)
        labels.append(stem)
        models.append((stem, alone, *origin, *(row[name] for name in DETAILS)))
        families.append((without_task(stem, row["task"]) if several else stem, *origin))
        seeds[families[-1]] |= set() if seed is None else {seed}
    names = [with_seeds(family[0], seeds[family]) for family in families]
    places: dict[Any, dict[Any, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, row in enumerate(facts):
        places[tuple(row[name] for name in cell)][models[place]].append(place)
    for in_cell in places.values():
        first = [group[0] for group in in_cell.values()]
        details = []
        for group in in_cell.values():
            numbers = [facts[place]["seed_x"] for place in group]
            ordered = sorted(number for number in numbers if number is not None)
            words = f"seed {with_seeds(_SEED, ordered)}" if ordered else "no seed"
            row = facts[group[0]]
            shown = {"label": labels[group[0]].replace(_SEED, with_seeds(_SEED, ordered))}
            shown |= {"base": row["base_x"], "stage": row["stage_x"], "seeds": words}
            details.append(describe({**shown, **{name: row[name] for name in DETAILS}}))
        named = tell_apart([names[place] for place in first], details)
        for group, name in zip(in_cell.values(), named, strict=True):
            for place in group:
                names[place] = name
    return rows.assign(model=[names[place] for place in of_row])


def describe(details: Mapping[str, Any]) -> dict[str, str]:
    """Return the words in which `tell_apart` says what differs, from columns of the table."""
    words: dict[str, str] = {}
    for name, value in details.items():
        if pd.isna(value) or value == "":
            continue
        if name == "options":
            words |= {key: f"{key} {entry}" for key, entry in json.loads(value).items()}
        else:
            said = {"n": f"n = {value}", "seed_x": f"seed {value}", "step_x": f"step {value}"}
            words[name] = said.get(name, str(value))
    return words


def tell_apart(names: Sequence[str], details: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the names, with what differs in brackets behind equal names."""
    result = list(names)
    for name in set(names):
        places = [place for place, other in enumerate(names) if other == name]
        keys = dict.fromkeys(key for place in places for key in details[place])
        differing = [key for key in keys if len({details[p].get(key) for p in places}) > 1]
        for place in places:
            words = [details[place][key] for key in differing if key in details[place]]
            result[place] = f"{name} ({', '.join(words)})" if words else name
    return result


def steps_in_words(steps: Sequence[int]) -> str:
    """Return steps of training in words; "" if there are none.

    >>> steps_in_words([0, 1000]), steps_in_words([8, 8])
    ('steps 0 and 1,000', 'step 8')
    """
    word = "step" if len(set(steps)) == 1 else "steps"
    return f"{word} {' and '.join(f'{step:,}' for step in dict.fromkeys(steps))}" if steps else ""
