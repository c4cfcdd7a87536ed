"""Plan one task of a sweep: fine-tuning, rows, and what a fine-tuned model alone needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from simlab.experiments.freeze_study import ways
from simlab.experiments.truncate import GONE, TUNED_ORIG, TruncationOptions
from simlab.models.checkpoint import DEFAULT_MAX_LENGTH
from simlab.papers.presets import find_paper, paper_options
from simlab.representations.passes import OF_STATES, ExtractOptions
from simlab.representations.recorded import kind_of
from simlab.results.results import FT, ORIG, RANDOM, Side, at_step
from simlab.sweeps import plan as kinds
from simlab.sweeps.disk import checkpoint_bytes, rows_bytes
from simlab.sweeps.entries import RowsEntry, TaskEntry, require, under_key
from simlab.sweeps.members import Member, Model, label_of
from simlab.sweeps.plan import Plan
from simlab.sweeps.sources import MODEL, ROWS, TASK, source_hints
from simlab.sweeps.spec import ExtractSection, GridSection, Spec
from simlab.tasks import ALL, SPLITS, TASKS
from simlab.training.recipes import NONE, QUICK, Recipe, make_recipe

_, TRAIN = SPLITS
_OWN = ("kind", "modules", "pool", "split", "stages", "models", "on")  # keys that are no options


@dataclass(frozen=True)
class View:
    """Rows that are extracted of every model: a kind of rows of a split, and how."""

    kind: str
    split: str
    stages: tuple[str, ...]
    options: ExtractOptions
    modules: tuple[str, ...] = ()  # of rows of modules, with a pool
    pool: str | None = None
    models: tuple[str, ...] | None = None  # labels; None is all

    def of(self, member: Member) -> bool:
        """Return whether the rows of a member are extracted."""
        return member.stage in self.stages and member.model.is_of(self.models)


class TaskStudy:
    """The jobs of one task of a sweep, or of one corpus."""

    def __init__(
        self,
        spec: Spec,
        plan: Plan,
        entry: TaskEntry,
        data: Any,
        models: Sequence[Model],
        corpus: bool = False,
    ) -> None:
        self.spec, self.plan, self.entry, self.models = spec, plan, entry, models
        self.corpus = corpus
        self.name = entry.called
        self.options = entry.options()
        chosen = {k: v for k, v in asdict(self.options).items() if v is not None}
        self.task = {"name": self.name, "data": data, **chosen}
        self.recipes = [] if corpus else self._recipes()
        self.views = self._views()  # all rows that are extracted
        labelled = bool(self.recipes) or any(view.split != ALL for view in self.views)
        entry.require_columns("extract.on" if corpus else "tasks", labelled)
        if labelled:
            entry.require_rows()
        self.members: list[Member] = []  # all models at all stages
        self.originals: dict[Model, Member] = {}  # the models before fine-tuning
        self.rows: dict[tuple[str, View], int] = {}  # of a label and view, the extraction
        self.compared: list[GridSection] = []  # once for each grid that was planned
        self.imported: list[RowsEntry] = []

    def add(
        self,
        kind: str,
        needs: Sequence[int],
        hints: Mapping[str, Any],
        *title: str,
        through: Sequence[int] = (),
        **params: Any,
    ) -> int:
        """Add a job of this task, which stands in its params and its title; return its number."""
        params = {"task": self.name, **params}
        return self.plan.add(kind, params, needs, hints, " ".join([*title, self.name]), through)

    def chosen(self, command: str, settings: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
        """Return `settings`, and what the paper of the sweep chooses besides."""
        paper = self.spec.paper
        settings = {name: value for name, value in settings.items() if value is not None}
        if paper is None or not any(c.command == command for c in find_paper(paper).choices):
            return settings
        own = paper_options(paper, command, task=self.name, **facts, **settings)
        return {k: tuple(v) if isinstance(v, list) else v for k, v in own.items()} | settings

    def views_of(self, wanted: Sequence[str] | None, split: str | None = None) -> Iterator[View]:
        """Yield the views of some kinds: of `split`, or by default of the rows that are judged."""
        of_training = all(view.split == TRAIN for view in self.views)
        for view in self.views:
            if wanted is None or view.kind in wanted:
                judged = split is None and (of_training or view.split != TRAIN)
                if judged or view.split == split:
                    yield view

    def rows_of(self, view: View, members: Sequence[Member]) -> list[int] | None:
        """Return the extractions of members; None if the file does not ask for one of them."""
        numbers = [self.rows.get((member.label, view)) for member in members]
        return None if None in numbers else [number for number in numbers if number is not None]

    def hints(
        self, model: Model | None, read: Sequence[tuple[str, str, Any]] = (), **more: Any
    ) -> dict[str, Any]:
        """Return the further arguments of steps: names of the task and of a model, and inputs."""
        hints: dict[str, Any] = {"task": self.entry.name, "task_options": asdict(self.options)}
        read = [(TASK, self.entry.name, self.task["data"]), *read]
        if model is not None:
            hints["model" if model.pretraining is None else "pretrained"] = model.name
            hints["base"], hints["step"] = model.base, model.step
        if model is not None and model.pretraining is None:
            read.append((MODEL, model.name, model.data))
        return {**hints, **source_hints(read), **more}

    def origin(self, model: Model) -> tuple[dict[str, Any], tuple[int, ...]]:
        """Return the params of a job that reads a model before fine-tuning, and what it needs.

        The key of the job that pretrains a model here contains all but the step that is read.
        """
        if model.pretraining is None:
            return {"model": model.data}, ()
        size = checkpoint_bytes(model.pretraining) * (1 + len(model.pretraining.kept))
        tokenizer, read = model.pretraining.tokenizer, model.data
        texts = zip(model.texts, read["texts"], strict=True)
        sources = [(TASK, text[0], one["data"]) for text, one in texts]
        sources.append((MODEL, tokenizer, read["tokenizer"]))
        hints = {"texts": model.texts, "tokenizer": tokenizer, "bytes": size}
        hints |= source_hints(sources)
        job = self.plan.add(kinds.PRETRAIN, model.data, (), hints, model.run)
        return {} if model.step is None else {"step": model.step}, (job,)

    def add_models(self) -> Iterator[Member]:
        """Add the jobs of every model at every stage, and yield each member after its jobs."""
        several = len(self.recipes) > 1
        for model in self.models:
            yield from self._untuned(model)
            for recipe in self.recipes if model.tuned else ():
                label, number = label_of(model, FT, recipe.seed, several)
                checkpoint = self.finetune(model, recipe, label)
                member = Member(model, FT, recipe.seed, label, number, checkpoint)
                yield self._add_member(member)

    def add_others(self, studies: Sequence[TaskStudy]) -> Iterator[Member]:
        """Add the models of a corpus: all models, and those that tasks have fine-tuned."""
        for model in self.models:
            yield from self._untuned(model)
            for study in studies:
                for one in study.members:
                    if one.model == model and one.checkpoint is not None:
                        called = dataclasses.replace(model, family=f"{model.family}-{study.name}")
                        label, _ = label_of(called, FT, one.seed, len(study.recipes) > 1)
                        member = dataclasses.replace(one, label=label, task=study.name)
                        yield self._add_member(member)

    def _untuned(self, model: Model) -> Iterator[Member]:
        stages = {stage for section in self._sections() for stage in section.stages}
        for stage in (ORIG, RANDOM) if RANDOM in stages and not model.rows else (ORIG,):
            label, number = label_of(model, stage, None, several=False)
            yield self._add_member(Member(model, stage, None, label, number))

    def _sections(self) -> list[ExtractSection]:
        mine = self.entry if self.corpus else None
        return [section for section in self.spec.extract if section.on == mine]

    def add_freezing(self) -> None:
        """Add the ways of freezing of every model, if the file compares them."""
        if self.spec.freeze is None:
            return
        settings = self.chosen("freeze-study", self.spec.freeze.given())
        freezes = ways(settings.get("bottom", ()), settings.get("top", ()))
        for model in (model for model in self.models if model.tuned):
            needs, sides = [], []
            for recipe in self.recipes:
                for freeze in freezes:
                    frozen = dataclasses.replace(recipe, freeze=freeze)
                    label, number = label_of(model, FT, recipe.seed, len(self.recipes) > 1)
                    name = label if freeze == NONE else f"{label} {freeze}"
                    needs.append(self.finetune(model, frozen, name))
                    sides.append(vars(Side(freeze, number, model.base, FT, model.step)))
            title = at_step(model.family, model.step), "freezing"
            self.add(kinds.FREEZE, needs, {}, *title, sides=sides)

    def add_baselines(self) -> None:
        """Add scores without a model, and every model from random weights, if the file asks."""
        tuned = [model for model in self.models if model.tuned]
        for model in tuned if self.spec.baselines is not None else ():
            recipe = dataclasses.replace(self.recipes[0], random_init=True)
            number = "" if model.restart is None else f"[{model.restart}]"
            label = at_step(f"{model.family}{number} from random weights", model.step)
            checkpoint = self.finetune(model, recipe, label)
            side = Side(label, recipe.seed, stage=FT)  # a row with a base is no baseline
            self.add(kinds.SCORES, (checkpoint,), {}, label, side=vars(side))
            if model is tuned[0]:  # the other models have the same rows
                self.add(kinds.BASELINES, (checkpoint,), self.hints(model))

    def finetune(self, model: Model, recipe: Recipe, label: str) -> int:
        """Add the fine-tuning of a model."""
        read, needs = self.origin(model)
        size = checkpoint_bytes(model.pretraining or model.name)
        hints = self.hints(model, label=label, bytes=size)
        params = {**read, "task": self.task, "recipe": asdict(recipe)}
        return self.add(kinds.FINETUNE, needs, hints, label, **params)

    def of_stage(self, stages: Sequence[str]) -> list[Member]:
        """Return the members at some stages."""
        return [member for member in self.members if member.stage in stages]

    def _recipes(self) -> list[Recipe]:
        section = self.spec.finetune
        if section is None:
            return []
        own = section.given(without=("recipe", "seeds"))
        recipe = make_recipe(section.recipe or self.spec.paper or QUICK, self.name, own)
        seeds = section.seeds or (recipe.seed,)
        return [dataclasses.replace(recipe, seed=seed) for seed in seeds]

    def _views(self) -> list[View]:
        views = [view for section in self._sections() for view in self._views_of(section)]
        modules: dict[tuple[str, str], tuple[str, ...]] = {}
        for view in views:  # results tell rows apart by their kind
            wanted = f"one list of modules for rows of kind {view.kind}"
            found = modules.setdefault((view.kind, view.split), view.modules)
            require(found == view.modules, "extract", wanted, "two")
        return views

    def _views_of(self, section: ExtractSection) -> list[View]:
        views = []
        for kind, options in self._kinds(section):
            default = ALL if self.corpus else options.get("split", ExtractOptions.split)
            for split in section.split or (default,):
                length = self.recipes[0].max_length if self.recipes else DEFAULT_MAX_LENGTH
                extraction = ExtractOptions(**{"max_length": length, **options, "split": split})
                with under_key("extract"):
                    extraction.check()
                self._require_rows(extraction, split)
                modules = section.modules or ()
                chosen = (section.stages, extraction, modules, section.pool, section.models)
                views.append(View(kind, split, *chosen))
        return views

    def _kinds(self, section: ExtractSection) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield every kind of rows of a section, and the options of the extraction."""
        settings = section.given(without=_OWN)
        choice = self.chosen("extract", settings)
        if section.modules is not None:
            yield kind_of(section.pool), {k: v for k, v in choice.items() if k not in OF_STATES}
            return
        for kind in section.kind or (choice.get("kind", ExtractOptions.kind),):
            yield kind, self.chosen("extract", {**settings, "kind": kind})

    def _require_rows(self, options: ExtractOptions, split: str) -> None:
        """Check that a split whose size is known has the rows that are to be extracted."""
        size = f"{split}_size"
        rows = getattr(self.options, size, None) or getattr(TASKS.get(self.name), size, None)
        fits = rows is None or (options.limit or 0) <= rows
        wanted = f"at most the {rows} {split} rows of task {self.name}"
        require(fits, "extract.limit", wanted, options.limit)

    def _add_member(self, member: Member) -> Member:
        self.members.append(member)
        if member.stage == ORIG:
            self.originals[member.model] = member
        for view in self.views:
            if view.of(member):
                number = self._import if member.model.rows else self._extract
                if (rows := number(member, view)) is not None:
                    self.rows[member.label, view] = rows
        if member.checkpoint is not None and not self.corpus:
            self._add_tuned(member, member.checkpoint)
        return member

    def _extract(self, member: Member, view: View) -> int:
        options = {k: v for k, v in asdict(view.options).items() if v is not None}
        device = options.pop("device")  # rows that are there serve another device as well
        if member.stage == RANDOM:
            options["random_init_seed"] = member.number
        read: dict[str, Any] = {}
        if member.checkpoint is None:
            read, needs = self.origin(member.model)
        else:
            needs = (member.checkpoint,)
        params = {"task": self.task, "options": options, **read}
        if view.modules:
            params |= {"modules": list(view.modules), "pool": view.pool}
        model = member.model.pretraining or member.model.name
        size = rows_bytes(model, view.options, self.entry)
        named = {"label": member.label, "seed": member.number, "device": device}
        hints = self.hints(member.model, **named, bytes=size)
        title = member.label, view.kind, view.split
        return self.add(kinds.EXTRACT, needs, hints, *title, **params)

    def _import(self, member: Member, view: View) -> int | None:
        """Add the import of rows that another program recorded; None if none are of the view."""
        place = (self.entry, view.kind, view.split)
        rows = next((r for r in member.model.rows if (r.on, r.kind, r.split) == place), None)
        if rows is None:
            return None
        self.imported.append(rows)
        data = member.model.data[rows.file]
        options: dict[str, Any] = {"limit": view.options.limit, "dtype": view.options.dtype}
        options |= {"kind": view.kind, "split": view.split, "layers": [*rows.layers]}
        params: dict[str, Any] = {"task": self.task, "files": [data], "options": options}
        size, sources = Path(rows.file).expanduser().stat().st_size, [(ROWS, rows.file, data)]
        hints = self.hints(None, sources, file=rows.file, label=member.label, bytes=size)
        title = member.label, view.kind, view.split
        return self.add(kinds.IMPORT, (), hints, *title, **params)

    def _add_tuned(self, member: Member, checkpoint: int) -> None:
        """Add the jobs that read one fine-tuned model."""
        hints, side = self.hints(member.model), vars(member.side)
        self.add(kinds.SCORES, (checkpoint,), {}, member.label, side=side)
        if self.spec.truncate is not None:
            chosen = self.chosen("truncate", self.spec.truncate.given())
            options = TruncationOptions().changed(chosen)
            options.check()
            read, needs = self.origin(member.model) if TUNED_ORIG in options.modes else ({}, ())
            params = {"side": side, "options": asdict(options) | GONE, **read}
            self.add(kinds.TRUNCATE, (checkpoint, *needs), hints, member.label, **params)
        if self.spec.skip is not None:
            self.add(kinds.SKIP, (checkpoint,), hints, member.label, side=side)
