"""The members of a sweep: every model at every stage, with its name in results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import Any

from simlab.experiments.options import ONE, drawn, drawn_pairs
from simlab.models.sources import Restart, base_name
from simlab.results.results import FT, RANDOM, Side, at_step, split_step
from simlab.sweeps.entries import ModelEntry, PretrainSection, RowsEntry, require
from simlab.sweeps.sources import MODEL, ROWS, Sources
from simlab.sweeps.spec import FIRST, LAST, PREVIOUS, Spec
from simlab.training.recipes import Pretraining


@dataclass(frozen=True)
class Model:
    """A model before fine-tuning."""

    family: str  # name that restarts of one model share in results
    restart: int | None  # number of the restart; None if there is one model of this name
    # Where the model is, as every command takes it; of a model that is pretrained in the sweep, a
    # name for people.
    name: str
    # What keys contain of the model, or of the pretraining that makes it.
    data: Any = field(compare=False)
    tuned: bool = True  # whether the model is fine-tuned, if others are
    # Name of the model as the base of others in rows of results: as commands name it, or the family
    # of restarts whose names alone do not say that they are restarts.
    base: str = ""
    step: int | None = None  # step of training; None if there is one step of this model
    run: str = ""  # name of the model without its step
    # Recipe of a model that is pretrained in the sweep, and names and options of its texts.
    pretraining: Pretraining | None = None
    texts: Any = field(compare=False, default=())
    # Rows of a model that another program recorded; what keys contain of their files is `data`.
    rows: tuple[RowsEntry, ...] = field(compare=False, default=())

    def is_of(self, labels: Sequence[str] | None) -> bool:
        """Return whether the model is one of those with these labels; None is all models."""
        return labels is None or self.family in labels


@dataclass(frozen=True)
class Member:
    """A model at a stage of one task: a side of a grid or of a map."""

    model: Model  # the model before fine-tuning
    stage: str  # ``orig`` or ``ft``
    seed: int | None  # seed of the fine-tuning; None before it
    # Name and seed in results. The seed tells restarts apart: the seed of the fine-tuning, or the
    # number of the pretrained restart if all restarts are fine-tuned with one seed.
    label: str
    number: int | None
    checkpoint: int | None = None  # number of the job of the fine-tuning; None before it
    # Name of the task of the fine-tuning, where models of several tasks are compared.
    task: str = ""

    @property
    def side(self) -> Side:
        """Return how rows of results name the member."""
        return Side(self.label, self.number, self.model.base, self.stage, self.model.step)


def sides_of(members: Sequence[Member]) -> list[dict[str, Any]]:
    """Return how rows of results name members, as JSON values."""
    return [vars(member.side) for member in members]


def find_models(spec: Spec, sources: Sources) -> list[Model]:
    """Return all models of a sweep file."""
    models: dict[tuple[str, int | None, int | None], Model] = {}
    for entry in spec.models:
        restarts: list[Restart] = entry.restarts()
        several = len({restart.family for restart in restarts}) > 1
        for one in restarts:
            family, run = entry.label or one.family, one.run or one.name
            if entry.label is not None and several:
                family = f"{entry.label}-{one.family}"
            # As commands name the base, which know restarts by the word "seed" alone.
            same = [other for other in restarts if other.family == one.family]
            names = {base_name(other.run or other.name) for other in same}
            base = family if entry.pretrain is not None or len(names) > 1 else names.pop()
            how = {"step": one.step, "run": run, **_origin(entry, one, sources)}
            tuned = entry.finetune and not entry.rows
            model = Model(family, one.number, tuned=tuned, base=base, **how)
            earlier = models.setdefault((family, one.number, one.step), model)
            found = f"{at_step(family, one.step)!r} for {earlier.name} and {one.name}"
            require(earlier is model, "models", "another label for each model", found)
    return list(models.values())


def _origin(entry: ModelEntry, one: Restart, sources: Sources) -> dict[str, Any]:
    if entry.pretrain is not None:
        return _pretrained(entry.pretrain, one, sources)
    if entry.rows:
        data = {rows.file: sources.content(ROWS, rows.file) for rows in entry.rows}
        return {"name": one.name, "data": data, "rows": entry.rows}
    pinned = sources.pinned(one.name)
    return {"name": pinned, "data": sources.content(MODEL, pinned)}


def _pretrained(entry: PretrainSection, one: Restart, sources: Sources) -> dict[str, Any]:
    recipe = entry.recipe(one.number or 0)
    recipe = replace(recipe, tokenizer=sources.pinned(recipe.tokenizer))
    keys, texts = [], []
    for text in entry.texts:
        text.require_columns("models.pretrain.texts", labelled=False)
        options = {k: v for k, v in asdict(text.options()).items() if v is not None}
        keys.append({"name": text.called, "data": sources.task(text.name), **options})
        texts.append([text.name, options])
    tokenizer = sources.content(MODEL, recipe.tokenizer)
    data = {"texts": keys, "tokenizer": tokenizer, "recipe": recipe.without_tokenizer()}
    return {"name": one.name, "data": data, "pretraining": recipe, "texts": texts}


def label_of(model: Model, stage: str, seed: int | None, several: bool) -> tuple[str, int | None]:
    """Return the name and the seed in results of a model, which may have `several` fine-tunings."""
    number = "" if model.restart is None else f"[{model.restart}]"
    label, shown = f"{model.family}-{stage.upper()}{number}", model.restart
    if stage == RANDOM:  # the names of untrained models begin with this word
        label, shown = f"{stage.upper()} {model.family}{number}", model.restart or 0
    elif stage == FT and (model.restart is None or several):
        label, shown = f"{model.family}{number}-{stage.upper()}[{seed}]", seed
    return at_step(label, model.step), shown


def restart_pairs(
    members: Sequence[Member], count: int | None, seed: int, directions: str = ONE
) -> Iterator[tuple[Member, Member]]:
    """Yield pairs of restarts of one model at one stage and step: `count` of each, or all."""
    groups: dict[tuple[Any, ...], list[Member]] = {}
    for member in members:
        model = member.model
        groups.setdefault((model.family, member.stage, member.task, model.step), []).append(member)
    for (family, stage, *_), group in groups.items():
        if len(group) > 1:
            of = f"{len(group)} restarts of {family} ({stage})"
            for i, j in drawn_pairs(len(group), count, seed, directions, of):
                yield group[i], group[j]


def model_pairs(
    members: Sequence[Member], count: int | None, seed: int
) -> Iterator[tuple[Member, Member]]:
    """Yield pairs of different models at one stage and step, with the same restart and seed."""
    pairs = [
        (x, y)
        for x, y in combinations(members, 2)
        if x.model.family != y.model.family
        and (x.stage, x.seed, x.task) == (y.stage, y.seed, y.task)
        and (x.model.restart, x.model.step) == (y.model.restart, y.model.step)
    ]
    if pairs:
        for k in drawn(len(pairs), count, seed, "these models"):
            yield pairs[k]


def short(member: Member) -> str:
    """Return the stage and seed of a member, as the names of grids have them: ``FT[1]``."""
    number = "" if member.number is None else f"[{member.number}]"
    return f"{member.stage.upper()}{number}"


DEFAULT = (LAST, PREVIOUS)  # two grids for each step, where all pairs would be thousands


def step_pairs(
    members: Sequence[Member], references: Sequence[str] = DEFAULT
) -> Iterator[tuple[str, Member, Member]]:
    """Yield each step of a run with a step that it is compared with, and the comparison's name."""
    for _, run in runs_of(members):
        last, first = [(one, run[-1]) for one in run[:-1]], [(one, run[0]) for one in run[1:]]
        pairs = {LAST: last, PREVIOUS: [*zip(run[1:], run, strict=False)], FIRST: first}
        for reference in references:
            for x, y in pairs[reference]:
                yield f"{run[0].stage.upper()}-{reference} step", x, y


def runs_of(members: Sequence[Member]) -> list[tuple[str, list[Member]]]:
    """Return the members of every run of several steps, in the order of the steps, and its name."""
    runs: dict[tuple[object, ...], list[Member]] = {}
    for member in sorted(members, key=lambda member: member.model.step or 0):
        model = member.model
        if model.step is not None:
            run = (model.family, model.restart, member.stage, member.seed, member.task)
            runs.setdefault(run, []).append(member)
    ordered = [run for run in runs.values() if len(run) > 1]
    wanted = "models with several steps of training (the key 'revisions' of a model) for 'steps'"
    require(bool(ordered), "grids.between", wanted)
    return [(split_step(run[0].label)[0], run) for run in ordered]
