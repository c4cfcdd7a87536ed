"""Find models by name: the offline model, local folders, the hub, and patterns of names.

A step of training stands at the end of a name: ``pythia-70m@step1000``,
``runs/bert/checkpoint-500``, ``multiberts-seed_0-step_20k``. Its number is read there; ``k`` is a
thousand and ``m`` a million.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from glob import escape, glob
from pathlib import Path

from simlab.errors import UserError, argument, first_line
from simlab.models import adapters
from simlab.models.built import is_built
from simlab.models.hub import CONFIG, cached_names, fetch_model, model_files, split_revision
from simlab.results.results import at_step
from simlab.store import assets
from simlab.store.files import HASHES, hash_json, read_json
from simlab.store.hub import HubError

OFFLINE_MODEL = "minilm"
PRETRAINING = "pretraining.json"  # what `simlab.pretrain` measured
_BRACES = re.compile(
    r"\{(?:(?P<first>\d+)\.\.(?P<last>\d+)(?:\.\.(?P<by>\d+))?|(?P<words>[^{}]*,[^{}]*))\}"
)
SEED = "{seed}"
_SEED_NUMBER = re.compile(r"[-_.]*(?<![a-z])seed[-_.]*\d+", re.IGNORECASE)
_SEED_WORD = re.compile(r"[-_.]*(?:seed)?[-_.]*\{seed\}", re.IGNORECASE)
_MOST_STEPS = 6  # of a training that a note names
_WORD = r"(?<![a-z])(?:step|checkpoint)[-_]?"
_NUMBER = re.compile(_WORD + r"(?P<number>\d+)(?P<unit>[km]?)(?![a-z0-9])", re.IGNORECASE)
_PATTERN = re.compile(rf"[-_./@]?{_WORD}(?:\{{[^{{}}]*\}}|\*)[km]?$", re.IGNORECASE)
_STEP_END = re.compile(rf"[-_./@]?{_WORD}\d+[km]?$", re.IGNORECASE)
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}


@dataclass(frozen=True)
class ModelSource:
    """A model on this machine."""

    name: str  # as the user gave it
    path: Path  # the folder of the model
    # Name that restarts of the model share; None is the name without the number of the seed.
    family: str | None = field(default=None, kw_only=True, compare=False)
    # Step of training, if the model is one of several steps of a run.
    step: int | None = field(default=None, kw_only=True, compare=False)
    # The folder of the adapter that `name` is; `path` has the model that it was trained on.
    adapter: Path | None = field(default=None, kw_only=True)

    @property
    def folder(self) -> Path:
        """The folder that gives the model its name in rows."""
        return self.adapter or self.path

    @property
    def base_name(self) -> str:
        """The name of the model as the base of others in rows of results."""
        return self.family or base_name(self.name)

    @property
    def files(self) -> list[Path]:
        """Return the configuration, tokenizer and weight files, in order."""
        # The rest of the folder (records of jobs, a trainer's state) may hold a time.
        own = [] if self.adapter is None else adapters.adapter_files(self.adapter)
        return [*model_files(self.path), *own]

    @property
    def fingerprint(self) -> str:
        """Return the SHA-256 of the configuration, tokenizer and weight files."""
        return hash_json({file.name: HASHES.hash(file) for file in self.files})


@contextmanager
def load_errors(source: ModelSource, wanted: str) -> Iterator[None]:
    """Turn an error of a library that reads the files of a model into a UserError of one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each configuration, model and reader of files has its own type
        for file in source.files:
            if file.suffix == ".json":  # of a damaged one, the library says no name
                read_json(file)
        where = "" if source.name == str(source.path) else f" in {source.path}"
        raise UserError(
            f"model {source.name}: wanted {wanted}{where}, found: {first_line(error)}"
        ) from error


def base_name(name: str) -> str:
    """Return the name that all restarts of a model share in results.

    >>> base_name("google/multiberts-seed_3"), base_name("minilm")
    ('google/multiberts', 'minilm')
    """
    return _SEED_NUMBER.sub("", name) or name


def expand_names(names: Sequence[str]) -> list[str]:
    """Expand ``{0..24}``, ``{0..24..2}`` and ``{a,b}`` in names of models as a shell does.

    >>> expand_names(["google/multiberts-seed_{0..2}"])[-1]
    'google/multiberts-seed_2'
    >>> expand_names(["runs/bert-step_{0..5..2}k"])
    ['runs/bert-step_0k', 'runs/bert-step_2k', 'runs/bert-step_4k']
    """
    return [expanded for name in names for expanded in _expand(name)]


@dataclass(frozen=True)
class Restart:
    """A model of a pattern of names."""

    name: str  # as `resolve` takes it
    family: str  # short name that all restarts of the model share: ``multiberts``
    number: int | None  # of the restart; None if the pattern has no restarts
    step: int | None = None  # step of training; None if the pattern has no steps
    run: str | None = None  # name without the step


def restarts(pattern: str, seeds: Sequence[int] = ()) -> list[Restart]:
    """Return the models of a pattern of names, and which of them are restarts of one model.

    In the pattern, ``{0..24}`` stands for restarts of a model, ``{a,b}`` for different models, and
    ``{seed}`` for the restarts `seeds`.

    >>> [(model.family, model.number) for model in restarts("google/multiberts-seed_{1..2}")]
    [('multiberts', 1), ('multiberts', 2)]
    """
    models = []
    ranges = [match for match in _BRACES.finditer(pattern) if match["words"] is None]
    if len(ranges) + pattern.count(SEED) > 1:
        raise UserError(f"model {pattern}: wanted one range of restarts at most, found several")
    for span in ranges:
        seeds = [int(number) for number in _expand(span[0])]
        pattern = pattern.replace(span[0], SEED)
    for template in _expand(pattern):
        named, _ = split_revision(template)
        family = _SEED_WORD.sub("", Path(named).name) or named.replace(SEED, "")
        if SEED in template:
            models += [Restart(template.replace(SEED, str(s)), family, s) for s in seeds]
        else:
            models.append(Restart(template, family, None))
    return models


def _expand(name: str) -> list[str]:
    pattern = _BRACES.search(name)
    if pattern is None:
        return [name]
    if pattern["words"] is not None:
        middles = pattern["words"].split(",")
    else:
        first, last, step = (int(pattern[end] or 1) for end in ("first", "last", "by"))
        if step == 0:
            raise UserError(f"model {name}: wanted a range that advances by 1 or more, found 0")
        sign = 1 if first <= last else -1
        middles = [str(number) for number in range(first, last + sign, sign * step)]
    start, end = name[: pattern.start()], name[pattern.end() :]
    return [expanded for middle in middles for expanded in _expand(f"{start}{middle}{end}")]


def is_hub_name(name: str) -> bool:
    """Return whether a name is a model of the hub, and not a folder or package."""
    named, _ = split_revision(name)
    folder = Path(name).expanduser()
    local = folder.is_absolute() or name.startswith((".", "~")) or named.count("/") > 1
    return name != OFFLINE_MODEL and not local and not folder.is_dir()


def similar_name(name: str) -> str:
    """Return a question that names the model that a misspelt name resembles; "" if none does.

    >>> similar_name("minlm")
    " (did you mean 'minilm'?)"
    """
    folder = Path(name).expanduser().parent
    beside = [str(path) for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    # A name with another number is another model of a series; with another revision, the model is
    # there.
    series = re.sub("[0-9]+", "0", name)
    passed = {series, split_revision(series)[0]}
    others = [
        other
        for other in (OFFLINE_MODEL, *beside, *cached_names())
        if re.sub("[0-9]+", "0", other) not in passed
    ]
    matches = get_close_matches(name, others, n=1, cutoff=0.75)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


def resolve(model: str | Path | ModelSource) -> ModelSource:
    """Find `model` and return the local folder that holds it.

    `model` is ``minilm`` (the offline default), a folder written by ``save_pretrained``, or a model
    of the hub (``name`` or ``name@revision``), which is downloaded to the cache of the hub's client
    if it is not there. A folder may have an adapter of PEFT, whose base is found in the same way. A
    `ModelSource` is returned unchanged.
    """
    if isinstance(model, ModelSource):
        return model
    name = str(model)
    if is_built(name):
        raise UserError(
            f"model {name}: wanted a model of transformers, found a name that "
            f"{argument('modules', of='extract')} alone takes"
        )
    if name == OFFLINE_MODEL:
        return ModelSource(name, assets.fetch("minilm"))
    folder = Path(name).expanduser()
    if len(several := _expand(name)) > 1 and not folder.exists():
        raise UserError(f"model {name}: wanted one model, found a pattern of {len(several)} names")
    if folder.is_file():
        raise UserError(f"model {name}: wanted a folder with {CONFIG}, found a file")
    if not folder.is_dir():
        if not is_hub_name(name):
            raise UserError(f"model {name}: wanted a folder with {CONFIG}, found no such folder")
        folder = _from_hub(name)
    if adapters.is_adapter(folder):
        return with_base(name, folder)
    if not (folder / CONFIG).is_file():
        within = sorted(file.parent for file in folder.glob(f"*/{CONFIG}"))
        other = f"; {within[-1]} has one" if within else ""
        raise UserError(
            f"model {name}: wanted a folder with {CONFIG}, found a folder without it{other}"
        )
    return ModelSource(name, folder)


def with_base(name: str, adapter: Path) -> ModelSource:
    """Return an adapter of PEFT with the model that it was trained on."""
    base = adapters.base_of(name, adapter)
    try:
        found = resolve(base)
    except UserError as error:
        raise UserError(f"model {name}, an adapter whose base is missing: {error}") from error
    if found.adapter is not None:
        raise UserError(
            f"model {name}: wanted an adapter of a whole model, found one of an adapter"
        )
    return ModelSource(name, found.path, adapter=adapter)


def _from_hub(name: str) -> Path:
    from huggingface_hub.errors import HFValidationError

    try:
        return fetch_model(name)
    except HFValidationError as error:
        raise UserError(f"model {name}: wanted a folder or a hub name, found neither") from error
    except HubError as error:
        rest = str(error).removeprefix(f"model {name}")
        if "/" not in name:  # it may have been meant for a folder
            rest = rest.replace("wanted a download", "wanted a folder here, or a download", 1)
        raise HubError(f"model {name}{similar_name(name)}{rest}") from error


def step_of(name: str, run: str = "") -> int:
    """Return the step of training in a name of a revision or folder, which stands behind `run`.

    >>> step_of("step1000"), step_of("checkpoint-50"), step_of("multiberts-seed_0-step_20k")
    (1000, 50, 20000)
    """
    numbers = list(_NUMBER.finditer(name))
    if len(numbers) != 1:
        words = ", ".join(number[0] for number in numbers) or "none"
        raise UserError(
            f"model {run}{name}: wanted one step in the name of a revision or folder (step1000, "
            f"checkpoint-500, step_20k), found {words}"
        )
    return int(numbers[0]["number"]) * _UNITS[numbers[0]["unit"].lower()]


def run_name(name: str) -> str:
    """Return the name of a model without the step at its end.

    >>> run_name("a/b@step1000"), run_name("runs/mini/checkpoint-50"), run_name("a/b")
    ('a/b', 'runs/mini', 'a/b')
    """
    return _STEP_END.sub("", name) or name


def step_label(name: str, step: int) -> str:
    """Return the label of a model at a step, which has no other label.

    >>> step_label("a/b@step1000", 1000)
    'b @ 1000'
    """
    return at_step(Path(run_name(name)).name, step)


def equal_steps(steps: Sequence[int]) -> str:
    """Return steps in words, cut where there are many."""
    shown = [str(step) for step in sorted(steps)[:_MOST_STEPS]]
    return ", ".join([*shown, "..."] if len(steps) > _MOST_STEPS else shown)


def step_name(step: int) -> str:
    """Return the name that a Trainer gives the folder of a step."""
    return f"checkpoint-{step}"


def training_runs(
    pattern: str, seeds: Sequence[int] = (), revisions: Sequence[str] = ()
) -> list[Restart]:
    """Return the models of a pattern of names, each at every step of its training.

    The pattern may end with a pattern of steps: ``@step{0,1,2,4}``, ``-step_{0..2000..20}k``,
    ``/checkpoint-*``; else, `revisions` are patterns of revisions of every model of the hub, or of
    folders in every local folder.

    >>> runs = training_runs("a/b-seed_{0..1}", (), ["step{0,8}"])
    >>> [(run.number, run.step) for run in runs]
    [(0, 0), (0, 8), (1, 0), (1, 8)]
    """
    steps, names = _PATTERN.search(pattern), expand_names(revisions)
    if steps is not None:
        if names:
            raise UserError(
                f"model {pattern}: wanted steps in the name or in 'revisions', found them in both"
            )
        runs, ends = restarts(pattern[: steps.start()], seeds), expand_names([steps[0]])
        return [step for run in runs for step in _at_steps(run, ends)]
    runs = restarts(pattern, seeds)
    if not names:
        return runs
    taken = next((run.name for run in runs if "@" in run.name), None)
    if taken is not None:
        raise UserError(f"model {taken}: wanted no revision beside 'revisions', found one")
    marks = ["@" if is_hub_name(run.name) else "/" for run in runs]
    return [
        step
        for run, mark in zip(runs, marks, strict=True)
        for step in _at_steps(run, [f"{mark}{name}" for name in names])
    ]


def _at_steps(run: Restart, ends: Iterable[str]) -> list[Restart]:
    """Return a run at its steps, in rising order."""
    restarts: dict[int, Restart] = {}
    every = dict.fromkeys(end for pattern in ends for end in _matching(run.name, pattern))
    for end in every:
        step, name = step_of(end, run.name), f"{run.name}{end}"
        if step in restarts:
            raise UserError(
                f"model {run.name}: wanted another step for each revision, found {step:,} for "
                f"{restarts[step].name} and {name}"
            )
        restarts[step] = replace(run, name=name, step=step, run=run.name)
    return [restarts[step] for step in sorted(restarts)]


def _matching(name: str, end: str) -> list[str]:
    """Return the ends of names that a pattern with an asterisk stands for."""
    if "*" not in end:
        return [end]
    if end.startswith("@"):
        raise UserError(f"model {name}{end}: wanted the numbers of revisions of the hub, found *")
    folders = [folder.rstrip("/") for folder in glob(f"{escape(name)}{end}/")]
    if not folders:
        raise UserError(f"model {name}{end}: wanted folders with such names, found none")
    return [folder[len(name) :] for folder in folders]
