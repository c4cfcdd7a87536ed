"""The sweep file: the questions of a study, in TOML, checked key by key.

The smallest file::

    models = ["minilm"]
    tasks = ["rt"]

    [finetune]
    seeds = "1..3"

`Spec` is the whole file; each section is a class here, and `docs/guides/sweeps.md` has a table of
them. A number or word may stand for a list of one. A key that is not in the file has the default of
the command of the same name, or the choice of `paper`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from simlab.errors import UserError
from simlab.experiments.freeze_study import freeze_study
from simlab.experiments.inject import inject
from simlab.experiments.options import InjectOptions, StudyOptions
from simlab.experiments.truncate import MODES, TruncationOptions
from simlab.papers.presets import PAPERS
from simlab.representations.kinds import KINDS
from simlab.representations.passes import OF_STATES, ExtractOptions
from simlab.representations.recorded import KINDS as MODULE_KINDS
from simlab.representations.recorded import POOLS
from simlab.results.results import FT, ORIG, STAGES
from simlab.similarity.blocks import blocks
from simlab.similarity.catalogue import MEASURES, OPTIONS, MeasureOptions, settings, spelled
from simlab.similarity.grids import grid
from simlab.similarity.localization import localize
from simlab.similarity.resampling import Resampling
from simlab.steps.record import Parameter, fields_of, parameters_of
from simlab.sweeps.entries import (
    OWN_ERROR,
    ModelEntry,
    Section,
    Seeds,
    Several,
    Size,
    TaskEntry,
    checked,
    entry,
    keys_of,
    one_of,
    wrong,
)
from simlab.sweeps.plan import KEEP_ALL, KEEPS
from simlab.tasks import ALL, SPLITS, TEST
from simlab.training.recipes import RECIPES, Recipe, parse_freeze

WITHIN, TUNING, RESTARTS, MODELS, JOINT, STEPS = BETWEEN = (
    *("within", "tuning", "restarts", "models", "joint", "steps"),
)
LAST, PREVIOUS, FIRST = REFERENCES = ("last", "previous", "first")  # steps of a training

Kind: TypeAlias = Annotated[str, one_of(*KINDS)]
AnyKind: TypeAlias = Annotated[str, one_of(*KINDS, *MODULE_KINDS)]
Stages: TypeAlias = Several[Annotated[str, one_of(*STAGES)]]
Pairs: TypeAlias = Annotated[int, Field(ge=1)] | Literal["all"]


class FinetuneSection(keys_of(*fields_of(Recipe), without=("seed",))):  # type: ignore[misc]
    """Fine-tuning of every model on every task: a recipe, and keys that replace its fields."""

    recipe: Annotated[str, one_of(*RECIPES)] | None = None
    seeds: Seeds | None = None

    @model_validator(mode="after")
    def _freezes(self) -> FinetuneSection:
        if self.freeze is not None:
            checked(parse_freeze, self.freeze)
        return self


_EXTRACT = fields_of(ExtractOptions)


class ExtractSection(keys_of(*_EXTRACT, without=("random_init_seed",))):  # type: ignore[misc]
    """Rows to store: each of `kind` for each of `split`, of models at `stages`."""

    kind: Several[Kind] | None = None
    # In place of `kind`: modules to record, and the pool that makes rows of their outputs
    # (``simcore extract --module``). The kind of these rows is ``modules-<pool>``.
    modules: Annotated[Several[str], Field(min_length=1)] | None = None
    pool: Annotated[str, one_of(*POOLS)] | None = None
    split: Several[Annotated[str, one_of(*SPLITS, TEST, ALL)]] | None = None
    stages: Stages = (ORIG, FT)
    # The labels of the models whose rows are stored; None is all.
    models: Several[str] | None = None
    # A corpus or task whose texts all models read, those fine-tuned on any task too, so that all
    # can be compared; None is the rows of every task.
    on: Annotated[TaskEntry, BeforeValidator(entry)] | None = None

    @model_validator(mode="after")
    def _fits(self) -> ExtractSection:
        if self.on is not None and self.split not in (None, (ALL,)):
            raise wrong(f"split {ALL!r} beside the key 'on'", ", ".join(self.split or ()))
        if self.modules is None and self.pool is not None:
            raise wrong("the key 'modules' beside this one", self.pool, key="pool")
        for name in OF_STATES if self.modules is not None else ():
            if (value := getattr(self, name)) is not None:
                shown = ", ".join(value) if isinstance(value, tuple) else value
                raise wrong("none beside 'modules', whose pool says what a row is", shown, key=name)
        return self


Measure: TypeAlias = Annotated[
    str,
    one_of(*MEASURES),
    BeforeValidator(lambda name: spelled(name) if isinstance(name, str) else name),
]
_GRID = parameters_of(grid)
_OF_MEASURES = [Parameter(p.name, p.kinds) for p in fields_of(MeasureOptions)]


class GridSection(
    keys_of(*_GRID, only=("bootstrap", "permutations", "resampling_seed", "device")),  # type: ignore[misc]
    keys_of(*_OF_MEASURES),  # type: ignore[misc]
    keys_of(*fields_of(StudyOptions), only=("pair_seed",)),  # type: ignore[misc]
):
    """Grids to compute: measures, their options, and the pairs of models."""

    measure: Several[Measure] = ("cka",)
    # ``within`` a model; ``tuning``: a fine-tuned model, or the random twin of a model, with the
    # model before fine-tuning; ``restarts`` of one model, fine-tuned or not; different ``models``;
    # ``joint``: all layers of all models of a task in one grid; or ``steps`` of a training.
    between: Several[Annotated[str, one_of(*BETWEEN)]] = (WITHIN, TUNING, RESTARTS)
    # The steps that every other step is compared with: the ``last``, the ``previous``, the
    # ``first``; by default the last and the previous, unless `layer` is there.
    to: Several[Annotated[str, one_of(*REFERENCES)]] | None = None
    # Layers that are compared between all steps of a training, each in a grid of steps by steps.
    layer: Several[Annotated[int, Field(ge=0)]] | None = None
    stages: Stages = (ORIG, FT)
    # The kinds of rows; None is every extracted kind that the measure takes.
    kind: Several[AnyKind] | None = None
    split: Annotated[str, one_of(*SPLITS, TEST, ALL)] | None = None
    models: Several[str] | None = None  # the labels of the models that are compared; None is all
    # Number of pairs to draw among the pairs of restarts, and of models; ``all`` is the default.
    pairs: Pairs | None = None

    @model_validator(mode="after")
    def _fits(self) -> GridSection:
        for key in ("to", "layer"):
            if getattr(self, key) is not None and STEPS not in self.between:
                raise wrong("between = 'steps' beside this key", ", ".join(self.between), key=key)
        for measure in self.measure:
            checked(settings, measure, self.options())
        return self

    def options(self) -> dict[str, Any]:
        """Return the options of the measure that the file gives."""
        return {name: value for name in OPTIONS if (value := getattr(self, name)) is not None}

    def resampling(self) -> Resampling:
        """Return the draws for intervals and p-values."""
        return Resampling(self.bootstrap or 0, self.permutations or 0, self.resampling_seed or 0)


class TruncateSection(keys_of(*fields_of(TruncationOptions), without=("original",))):  # type: ignore[misc]
    """Every layer of every fine-tuned model straight to a head (`simcore truncate`)."""

    modes: Several[Annotated[str, one_of(*MODES)]] | None = None


class SkipSection(Section):
    """Every span of layers of every fine-tuned model left out (`simcore skip`); it has no keys."""


class InjectSection(
    keys_of(*fields_of(InjectOptions), without=("original",)),  # type: ignore[misc]
    keys_of(*parameters_of(inject), only=("pair_seed", "directions")),  # type: ignore[misc]
):
    """A fine-tuned model continues from another's states (`simcore inject`): pairs of restarts."""

    layer: Several[int] | None = None
    pairs: Pairs | None = None
    directions: Annotated[str, one_of("both", "one")] | None = None


class AlignSection(keys_of(*fields_of(StudyOptions), without=("at_once",))):  # type: ignore[misc]
    """Maps between restarts (`simcore align-study`), for each of `stages` and kinds."""

    stages: Stages = (ORIG, FT)
    kind: Several[AnyKind] | None = None
    # ``heldout``: maps are fitted on a part of the held-out rows, and judged on the others;
    # ``train``: fitted on training rows, and judged on test rows if they are stored, else on
    # held-out rows.
    fit: Annotated[str, one_of(*SPLITS)] = SPLITS[0]
    pairs: Pairs | None = None


class FreezeSection(keys_of(*parameters_of(freeze_study), only=("bottom", "top"))):  # type: ignore[misc]
    """Fine-tuning with frozen layers compared (`simcore freeze-study`), with the same seeds."""


class BaselinesSection(Section):
    """Scores to compare fine-tuned models with; the section has no keys."""


class LocalizeSection(keys_of(*parameters_of(localize), only=("standardize",))):  # type: ignore[misc]
    """Localization scores from joint grids of neuronsim and SVCCA (`simcore localize`)."""


_OF_BLOCKS = ("clusters", "permutations", "resampling_seed")


class BlocksSection(keys_of(*parameters_of(blocks), only=_OF_BLOCKS)):  # type: ignore[misc]
    """Blocks of layers in the grids within models (`simcore blocks`)."""


class ComplexitySection(Section):
    """Nuclear norms of the layers of every model."""

    stages: Stages = (ORIG, FT)
    kind: Several[AnyKind] | None = None


class FiguresSection(Section):
    """Figures that are drawn at the end."""

    formats: Several[Annotated[str, one_of("png", "pdf", "svg")]] = ("png", "pdf")
    metric: str | None = None


M: TypeAlias = Annotated[ModelEntry, BeforeValidator(entry)]
N: TypeAlias = Annotated[TaskEntry, BeforeValidator(entry)]


class Spec(Section):
    """A sweep file.

    Attributes
    ----------
    paper
        The paper whose choices are the values of keys that the file leaves open.
    keep
        Objects that stay when no job needs them any more: ``all``; ``representations``, but no
        checkpoints; or ``results`` alone.
    max_disk
        Bytes that checkpoints and representations may take together.
    """

    models: Annotated[Several[M], Field(min_length=1)]
    tasks: Annotated[Several[N], Field(min_length=1)]
    paper: Annotated[str, one_of(*PAPERS)] | None = None
    keep: Annotated[str, one_of(*KEEPS)] = KEEP_ALL
    max_disk: Size | None = None
    finetune: FinetuneSection | None = None
    extract: Several[ExtractSection] = (ExtractSection(),)
    grids: Several[GridSection] | None = None
    truncate: TruncateSection | None = None
    skip: SkipSection | None = None
    inject: Several[InjectSection] = ()
    align: Several[AlignSection] = ()
    freeze: FreezeSection | None = None
    baselines: BaselinesSection | None = None
    localize: LocalizeSection | None = None
    blocks: BlocksSection | None = None
    complexity: ComplexitySection | None = None
    figures: FiguresSection = FiguresSection()

    @model_validator(mode="after")
    def _fits(self) -> Spec:
        tuned = ("truncate", "skip", "inject", "freeze", "baselines")
        needing = [name for name in tuned if getattr(self, name)]
        if needing and self.finetune is None:
            raise wrong(f"a section [finetune], which [{needing[0]}] needs", "none")
        for section in (model.pretrain for model in self.models if model.pretrain is not None):
            section.require_unread(self.tasks)
        return self

    def all_grids(self) -> tuple[GridSection, ...]:
        """Return the grids of the file, or CKA if the file asks for nothing else."""
        if self.grids is not None:
            return self.grids
        others = (self.truncate, self.skip, self.inject, self.align, self.freeze, self.complexity)
        return () if any(others) else (GridSection(),)


def pairs_of(pairs: int | str | None) -> int | None:
    """Return the number of pairs to draw; None is all."""
    return pairs if isinstance(pairs, int) else None


def read_spec(path: str | Path) -> Spec:
    """Read and check a sweep file."""
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"sweep {path}: wanted a file, found: {error.strerror}") from error
    except ValueError as error:  # no TOML, or no text
        raise UserError(f"sweep {path}: wanted TOML, found: {error}") from error
    return make_spec(content, f"sweep {path}")


def make_spec(content: Any, where: str = "sweep") -> Spec:
    """Check the content of a sweep file, as tables and lists."""
    try:
        return Spec.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        own = first["type"].partition(OWN_ERROR)[2]
        place = (*first["loc"], own) if own else first["loc"]
        raise UserError(f"{where}, {_where(place)}: {_message(first)}") from None


def _where(place: tuple[int | str, ...]) -> str:
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return f"key {key.removeprefix('.')}" if key else "the file"


# Types of pydantic's errors whose messages say "valid number" and how the reading failed.
_WANTED = {"float": "a number", "int": "a whole number", "bool": "true or false"}


def _message(error: Any) -> str:
    if error["type"].startswith(OWN_ERROR):
        return error["msg"]
    if error["type"] == "missing":
        return "wanted this key, found none"
    text = _WANTED.get(error["type"].partition("_")[0], error["msg"])
    for start in ("Input should be ", "Tuple should have "):
        text = text.removeprefix(start)
    return f"wanted {text}, found {error['input']!r}"
