"""The models and tasks of a sweep file, and models that are pretrained in the sweep."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union

from pydantic import (
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from simlab.errors import UserError, did_you_mean
from simlab.models.sources import SEED, Restart, training_runs
from simlab.representations.kinds import ATTENTION, KINDS
from simlab.results.results import at_step
from simlab.steps.record import Parameter, fields_of
from simlab.steps.words import key_and_rest
from simlab.tasks import ALL, SPLITS, TASKS, TaskOptions, load_task, task_name
from simlab.tasks.files import FILE_SUFFIXES, read_columns
from simlab.training.recipes import Pretraining, parse_seeds

OWN_ERROR = "sweep:"  # the type of our errors; the key that is wrong follows, if it is below
_SIZES = TypeAdapter(ByteSize)


class Section(BaseModel):
    """A table of the file; an unknown key is an error that names the nearest key."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)

    @model_validator(mode="before")
    @classmethod
    def _take(cls, value: Any) -> Any:
        if value is True:  # ``skip = true`` is short for an empty table
            return {}
        if isinstance(value, dict):
            for key in value:
                if key not in cls.model_fields:
                    known = cls.model_fields
                    raise wrong(f"one of {', '.join(known)}", key, known, key=str(key))
        return value

    def given(self, without: Collection[str] = ()) -> dict[str, Any]:
        """Return the keys that the file gives, with their values."""
        return {name: getattr(self, name) for name in self.model_fields_set if name not in without}


def wrong(
    wanted: str, found: Any, known: Collection[str] = (), key: str = ""
) -> PydanticCustomError:
    """Return the error of a value, or of the `key` below it, with the nearest of `known` values."""
    meant = did_you_mean(str(found), known)
    return PydanticCustomError(f"{OWN_ERROR}{key}", f"wanted {wanted}, found {found!r}{meant}")


def checked(check: Any, *arguments: Any) -> None:
    """Call ``check(*arguments)``, and raise its UserError as the error of the key that it names."""
    try:
        check(*arguments)
    except UserError as error:
        key, rest = key_and_rest(error)
        raise PydanticCustomError(f"{OWN_ERROR}{key}", rest) from error


@contextmanager
def under_key(section: str) -> Iterator[None]:
    """Turn an error that names an argument into one that names a key of `section`."""
    try:
        yield
    except UserError as error:
        key, rest = key_and_rest(error)
        if not key:
            raise
        raise UserError(f"sweep, key {section}.{key}: {rest}") from error


def require(holds: bool, key: str, wanted: str, found: object = "none") -> None:
    """Raise the UserError of a key of the file unless something holds."""
    if not holds:
        raise UserError(f"sweep, key {key}: wanted {wanted}, found {found}")


def _several(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _seeds(value: Any) -> Any:
    seeds = _several(value)
    if isinstance(value, str):
        with suppress(UserError):
            seeds = parse_seeds(value)
    if not all(isinstance(seed, int) and not isinstance(seed, bool) for seed in seeds):
        raise wrong("seeds such as 3, '0..4' or [0, 3, 7]", value)
    twice = next((seed for seed in seeds if seeds.count(seed) > 1), None)
    if not seeds or min(seeds) < 0 or twice is not None:
        raise wrong("seeds from 0, each once", value)
    return seeds


def _size(value: Any) -> Any:
    try:
        size = _SIZES.validate_python(value)
    except ValidationError:
        size = 0
    if isinstance(value, bool) or size <= 0:
        raise wrong("a size such as '200 GB'", value)
    return int(size)


def one_of(*names: str) -> BeforeValidator:
    """Return a check that a value is one of `names`, whose error names the nearest one."""

    def check(value: Any) -> Any:
        if value not in names:
            raise wrong(f"one of {', '.join(names)}", value, names)
        return value

    return BeforeValidator(check)


T = TypeVar("T")
Several = Annotated[tuple[T, ...], BeforeValidator(_several)]
Seeds = Annotated[tuple[int, ...], BeforeValidator(_seeds)]
Size = Annotated[int, BeforeValidator(_size)]


def keys_of(
    *parameters: Parameter, without: Collection[str] = (), only: Collection[str] | None = None
) -> type[Section]:
    """Return a section whose keys are parameters of a step, all or `only` some, or absent."""
    fields: dict[str, Any] = {
        one.name: (_type_of(one) | None, None)
        for one in parameters
        if one.name not in without and (only is None or one.name in only)
    }
    missing = {*without, *(only or ())} - {one.name for one in parameters}
    if missing:
        raise TypeError(f"wanted names of parameters, found {', '.join(sorted(missing))}")
    return create_model("Keys", __base__=Section, __module__=__name__, **fields)


def _type_of(parameter: Parameter) -> Any:
    """Return the type of a key; a number or word may stand for a sequence of one."""
    kind: Any = Union[parameter.kinds]  # noqa: UP007
    if parameter.least is not None:
        kind = Annotated[kind, Field(ge=parameter.least)]
    return Several[kind] if parameter.several else kind


PRETRAINED = "pretrained"  # the name of models that are made here and have no label


class TaskEntry(keys_of(*fields_of(TaskOptions))):  # type: ignore[misc]
    """A task: its name as for every command, and how to read and split it (`TaskOptions`)."""

    name: str

    @property
    def called(self) -> str:
        """Return the name of the task in results."""
        return task_name(self.name, self.options())

    @property
    def heldout_rows(self) -> tuple[int | None, int]:
        """Return the number of held-out rows and the seed of the split."""
        options = self.options()
        default = getattr(TASKS.get(self.called), "heldout_size", None)
        size = default if options.heldout_size is None else options.heldout_size
        return size, options.seed

    def options(self) -> TaskOptions:
        """Return how to read and split the task."""
        return TaskOptions(**self.given(without=("name",)))

    def require_columns(self, key: str, labelled: bool) -> None:
        """Check that a table on this machine has the columns that are read."""
        path = _table(self.name)
        names = [] if path is None else read_columns(path)
        columns = {"text_column": self.text_column or "text", "pair_column": self.pair_column}
        columns |= {"label_column": self.label_column or "label"} if labelled else {}
        for option, column in columns.items():
            wanted = f"a column of {path} ({', '.join(names)})"
            is_there = path is None or column is None or column in names
            require(is_there, f"{key}.{option}", wanted, repr(column))

    def require_rows(self) -> None:
        """Check that data on this machine have as many rows as the sizes want."""
        is_here = _table(self.name) or (self.name in TASKS and TASKS[self.name].offline is not None)
        if (self.train_size or self.heldout_size) and is_here:
            load_task(self.name, self.options())


def _table(name: str) -> Path | None:
    path = Path(name).expanduser()
    return path if path.suffix.lower() in FILE_SUFFIXES and path.is_file() else None


def entry(value: Any) -> Any:
    """Return the table that a name stands for."""
    return {"name": value} if isinstance(value, str) else value


class PretrainSection(keys_of(*fields_of(Pretraining), without=("seed",))):  # type: ignore[misc]
    """How models are pretrained here: on which texts, of which size, for how long."""

    texts: Annotated[Several[Annotated[TaskEntry, BeforeValidator(entry)]], Field(min_length=1)]

    @model_validator(mode="after")
    def _is_possible(self) -> PretrainSection:
        checked(self.recipe, 0)
        return self

    def require_unread(self, tasks: Sequence[TaskEntry]) -> None:
        """Check that the held-out rows of tasks are held out from the pretraining too."""
        for text in self.texts:
            for task in tasks:
                ours, theirs = text.heldout_rows, task.heldout_rows
                if text.name == task.name and ours != theirs:
                    raise wrong(
                        f"heldout_size {theirs[0]} and split_seed {theirs[1]} for the text "
                        f"{text.name}, as in 'tasks', so that held-out rows are not read",
                        f"{ours[0]} and {ours[1]}",
                        key="models",
                    )

    def recipe(self, seed: int) -> Pretraining:
        """Return the recipe of the model with a seed."""
        return Pretraining().changed({**self.given(without=("texts",)), "seed": seed})


class RowsEntry(Section):
    """Rows of a model that another program recorded (`simcore import`)."""

    # The extraction whose rows these are: its corpus or task, its kind, and its split, by default
    # all texts.
    on: Annotated[TaskEntry, BeforeValidator(entry)]
    kind: Annotated[str, one_of(*(kind for kind in KINDS if kind != ATTENTION))]
    file: str  # as for the command
    layers: Several[str] = ()
    split: Annotated[str, one_of(*SPLITS, ALL)] = ALL


class ModelEntry(Section):
    """A model, all models of a pattern (``google/multiberts-seed_{0..24}``), or other models."""

    # As for every command; ``{0..24}`` stands for restarts of one model, and at the end of the name
    # ``@step{0,1,2}``, ``-step_{0..40..20}k`` or ``/checkpoint-*`` for steps of training.
    name: str | None = None
    # The steps of training: revisions of a model of the hub, or folders in a local folder. The
    # number of each is read from its name.
    revisions: Annotated[Several[str], Field(min_length=1)] | None = None
    # In place of a name: models are pretrained, one for each of `seeds`; with `keep_steps`, each at
    # every step that is kept.
    pretrain: PretrainSection | None = None
    # In place of a name: rows of the model that another program recorded.
    rows: Several[RowsEntry] = ()
    # The restarts that ``{seed}`` in `name` stands for, or the seeds of the pretraining.
    seeds: Seeds | None = None
    label: str | None = None  # the name in results and figures; by default made from `name`
    finetune: bool = True  # whether the model is fine-tuned, if others are

    @model_validator(mode="after")
    def _expands(self) -> ModelEntry:
        keys = ("name", "pretrain", "rows")
        origins = [key for key in keys if getattr(self, key) not in (None, ())]
        if len(origins) != 1:
            raise wrong("one of the keys name, pretrain and rows", ", ".join(origins) or "none")
        if self.rows and self.label is None:
            raise wrong("the key 'label' beside 'rows'", "none")
        for key in ("seeds", "revisions") if self.rows else ():
            if getattr(self, key) is not None:
                raise wrong("none beside 'rows'", getattr(self, key), key=key)
        if self.name is not None and (SEED in self.name) != (self.seeds is not None):
            raise wrong(f"a name with {SEED} together with the key 'seeds'", self.name)
        if self.pretrain is not None and self.revisions is not None:
            value = ", ".join(self.revisions)
            raise wrong("none beside 'pretrain', whose key is 'keep_steps'", value, key="revisions")
        if "*" not in "".join([self.name or "", *(self.revisions or ())]):  # no folder is looked at
            checked(self.restarts)
        return self

    def restarts(self) -> list[Restart]:
        """Return every model of the pattern at every step, or every model that is made here."""
        if self.name is not None:
            return training_runs(self.name, self.seeds or (), self.revisions or ())
        family = self.label or PRETRAINED
        runs = [Restart(family, family, None)]
        if self.seeds is not None:
            runs = [Restart(f"{family}[{seed}]", family, seed) for seed in self.seeds]
        kept = () if self.pretrain is None else self.pretrain.recipe(0).kept
        at_steps = [
            replace(run, name=at_step(run.name, step), step=step, run=run.name)
            for run in runs
            for step in kept
        ]
        return at_steps or runs
