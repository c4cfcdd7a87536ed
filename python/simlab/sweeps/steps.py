"""The steps of a sweep: a function for each kind of job.

A step is called with a `Work`. Steps that make folders write to ``work.out``. The other steps yield
results files beside ``work.out``, which the function of the command has written, so that each file
has the key of the command. A step uses nothing of the driver and of other jobs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.experiments.align_rows import Member, note_few_rows
from simlab.experiments.align_study import Part
from simlab.experiments.freeze_study import ensure_freezing
from simlab.experiments.inject import Injected, ensure_injection
from simlab.experiments.options import InjectOptions, StudyOptions
from simlab.experiments.skip import skip as skip_layers
from simlab.experiments.truncate import (
    GONE,
    TUNED_ORIG,
    TruncationOptions,
    baseline_rows,
    majority_rows,
    tfidf_rows,
)
from simlab.experiments.truncate import truncate as truncate_model
from simlab.models.checkpoint import Checkpoint, length_of, load_task_of
from simlab.models.heads import HeadRecipe
from simlab.models.hub import download_into
from simlab.models.sources import ModelSource, resolve, step_name
from simlab.representations.extract import extract as extract_rows
from simlab.representations.folder import Representations, load_representations, only
from simlab.representations.imported import import_representations
from simlab.representations.passes import ExtractOptions
from simlab.results.results import COMPLEXITY, GRID, JOINT, ResultRow, Side
from simlab.similarity.blocks import ensure_blocks
from simlab.similarity.catalogue import settings
from simlab.similarity.grids import Naming, ensure_grid
from simlab.similarity.layers import load_bases, store_bases
from simlab.similarity.localization import ensure_localization
from simlab.similarity.resampling import Resampling
from simlab.store.jobs import Outcome
from simlab.sweeps.job import Work
from simlab.sweeps.plan import IMPORT
from simlab.tasks import ALL, TEST, Task, TaskOptions
from simlab.tasks.corpus import Texts, corpus_options, load_texts
from simlab.training.finetune import finetune as finetune_model
from simlab.training.pretrain import pretrain as pretrain_model
from simlab.training.recipes import Pretraining, Recipe

if TYPE_CHECKING:
    import pandas as pd


def fetch(work: Work) -> None:
    """Download a model."""
    download_into(work.params["model"], work.out)


def pretrain(work: Work) -> None:
    """Make a model."""
    sources = [(name, TaskOptions(**options)) for name, options in work.hints["texts"]]
    texts = [_texts(name, options, work.state) for name, options in sources]
    recipe = Pretraining(**work.params["recipe"], tokenizer=work.hints["tokenizer"])
    pretrain_model(texts, work.out, recipe)


def finetune(work: Work) -> None:
    """Make a checkpoint."""
    finetune_model(_model(work), _task(work), work.out, Recipe(**work.params["recipe"]))


def extract(work: Work) -> None:
    """Make a representation folder."""
    options = ExtractOptions(**work.params["options"], device=work.hints["device"])
    naming = {"label": work.hints["label"], "seed": work.hints["seed"]}
    naming |= {"modules": work.params.get("modules", ()), "pool": work.params.get("pool")}
    is_tuned = work.inputs and not {"model", "step"} & work.params.keys()
    source = _checkpoint(work) if is_tuned else _model(work)  # which is read before fine-tuning
    task: Task | str = work.hints["task"]
    if options.split == ALL:
        naming["task_options"] = corpus_options(TaskOptions(**work.hints["task_options"]))
    elif options.split != TEST:
        task = _task(work)
    extract_rows(source, task, work.out, options, **naming)


def import_rows(work: Work) -> None:
    """Make a representation folder of rows that another program recorded."""
    options = TaskOptions(**work.hints["task_options"])
    if work.params["options"]["split"] == ALL:
        options = corpus_options(options)
    naming = {"label": work.hints["label"], "task": work.hints["task"], "task_options": options}
    import_representations(work.hints["file"], work.out, **naming, **work.params["options"])


def scores(work: Work) -> Iterable[ResultRow]:
    """Return the held-out metrics of a fine-tuned model, which its checkpoint has, as rows."""
    tuned = _checkpoint(work)
    n, task = tuned.evaluation["n"], tuned.evaluation["task"]
    return baseline_rows(Side(**work.params["side"]), tuned.scores, n, task)


def baselines(work: Work) -> Iterable[ResultRow]:
    """Return the held-out metrics of the most frequent class and of TF-IDF."""
    task = _task(work)
    return [*majority_rows(task), *tfidf_rows(task)]


def truncate(work: Work) -> Iterator[Outcome]:
    """Write the metrics of a fine-tuned model cut after every layer."""
    stored = {k: v for k, v in work.params["options"].items() if k not in GONE}
    stored |= {"recipe": HeadRecipe(**stored["recipe"]), "modes": tuple(stored["modes"])}
    stored |= _original(work) if TUNED_ORIG in stored["modes"] else {}
    options = TruncationOptions(**stored)
    yield truncate_model(_checkpoint(work), _task(work), _results(work), options, **_named(work))


def skip(work: Work) -> Iterator[Outcome]:
    """Write the metrics of a fine-tuned model without every span of layers."""
    yield skip_layers(_checkpoint(work), _task(work), _results(work), **_named(work))


def bases(work: Work) -> None:
    """Store the bases of the layers of a representation folder."""
    store_bases(load_representations(work.inputs[0]), work.out, work.params["standardize"])


def grid(work: Work) -> Iterator[Outcome]:
    """Write a grid, or a tile of a joint grid."""
    params, sides = work.params, _members(work)
    xs = sides[: len(params["x"])]
    ys = sides[len(xs) :] or xs
    chosen = settings(params["measure"], params["options"])
    resampling = Resampling(**params["resampling"])
    naming = Naming(params["comparison"], JOINT if params["joint"] else GRID, params.get("grid"))
    out, device = _results(work), work.hints["device"]
    yield ensure_grid(out, params["measure"], chosen, xs, ys, naming, resampling, device=device)


def complexity(work: Work) -> Iterator[Outcome]:
    """Write a measure of complexity of every layer."""
    (side,) = _members(work)
    part = Part(COMPLEXITY, work.params["measure"], (Member(side),), StudyOptions())
    yield part.ensure(_results(work))


def blocks(work: Work) -> Iterator[Outcome]:
    """Write the blocks of the grids among the inputs."""
    options = work.params["options"]
    drawn = options["permutations"], options["resampling_seed"]
    yield ensure_blocks(_results(work), _joined(work), options["clusters"], *drawn)


def localize(work: Work) -> Iterator[Outcome]:
    """Write the localization scores of a joint grid of two measures."""
    grids, standardize = _joined(work), work.params["standardize"]
    yield ensure_localization(_results(work), grids, standardize=standardize)


def align(work: Work) -> Iterator[Outcome]:
    """Write the errors of maps between pairs of models, a file for each pair."""
    params, at_once = work.params, work.hints["at_once"]
    method, count = params["method"], len(params["members"])
    how = {"name": params["name"], "methods": (method,), "at_once": at_once, **params["options"]}
    options = StudyOptions(**how)
    fitted = _sides(work.inputs[:count], params["members"])
    judged = _sides(work.inputs[count:], params["members"]) if params["judged"] else [None] * count
    members = [Member(*both) for both in zip(fitted, judged, strict=True)]
    note_few_rows(members[0], options)
    for number, (i, j) in enumerate(params["pairs"]):
        part = Part(params["part"], method, (members[i], members[j]), options)
        yield part.ensure(_results(work, number))


def inject(work: Work) -> Iterator[Outcome]:
    """Write the metrics of a model that continues from another model's states."""
    stored = dict(work.params["options"])
    stored["methods"] = stored["methods"] and tuple(stored["methods"])
    a, b = _checkpoint(work, 0), _checkpoint(work, 1)
    stored["max_length"] = length_of([b, a], stored["max_length"])
    options = InjectOptions(**stored | _original(work))
    sides = (Side(**side) for side in work.params["sides"])
    pair = [Injected(*both) for both in zip((a, b), sides, strict=True)]
    yield ensure_injection(_results(work), pair, _task(work), options)


def freeze(work: Work) -> Iterator[Outcome]:
    """Write the metrics, trained parameters and time of a step of every way of freezing."""
    sides = [Side(**side) for side in work.params["sides"]]
    models = [(_checkpoint(work, number), side) for number, side in enumerate(sides)]
    yield ensure_freezing(_results(work), models)


STEPS: Mapping[str, Callable[[Work], Iterable[ResultRow] | Iterable[Outcome] | None]] = {
    **{step.__name__: step for step in (fetch, pretrain, finetune, extract, bases, scores)},
    **{step.__name__: step for step in (truncate, skip, grid, complexity, blocks, localize)},
    **{step.__name__: step for step in (align, inject, freeze, baselines)},
    IMPORT: import_rows,
}


def _sides(folders: Sequence[Path], sides: Sequence[Mapping[str, Any]]) -> list[Representations]:
    stored = [load_representations(folder) for folder in folders]
    return [
        dataclasses.replace(rows, manifest={**rows.manifest, **side})
        for rows, side in zip(stored, sides, strict=True)
    ]


def _results(work: Work, number: int = 0) -> Path:
    return work.out.with_name(f"{number}.parquet")


def _named(work: Work) -> dict[str, Any]:
    return {name: work.params["side"][name] for name in ("label", "seed")}


def _model(work: Work) -> ModelSource:
    """Return the model before fine-tuning; one that a job made is the last input."""
    if "pretrained" in work.hints:
        source = ModelSource(work.hints["pretrained"], _pretrained(work))
    elif "fetched" in work.hints:
        source = ModelSource(work.hints["model"], work.inputs[-1])
    else:
        source = resolve(work.hints["model"])
    return dataclasses.replace(source, family=work.hints["base"], step=work.hints["step"])


def _original(work: Work) -> dict[str, str]:
    """Return the option for a model that is pretrained here: a checkpoint has its name alone."""
    return {"original": str(_pretrained(work))} if "pretrained" in work.hints else {}


def _pretrained(work: Work) -> Path:
    folder, step = work.inputs[-1], work.params.get("step")
    return folder if step is None else folder / step_name(step)


def _checkpoint(work: Work, number: int = 0) -> Checkpoint:
    """Return the fine-tuned model among the inputs."""
    path: Path = work.inputs[number]
    base, step = work.hints.get("base"), work.hints.get("step")
    return Checkpoint.open(ModelSource(path.name[:12], path, family=base, step=step))


def _task(work: Work) -> Task:
    """Return the task, split as for the model before fine-tuning."""
    options = TaskOptions(**work.hints["task_options"])
    # A model that is pretrained here was fine-tuned on nothing, so that its folder has no split.
    earlier = None if "pretrained" in work.hints else _model(work)
    return _load_task(earlier, work.hints["task"], options, work.state)


def _members(work: Work) -> list[Representations]:
    """Return the representations of both sides, with their bases in place of layers if stored."""
    sides = [*work.params["x"], *(work.params.get("y") or ())]
    members = _sides(work.inputs[: len(sides)], sides)
    if stored := work.inputs[len(sides) :]:
        both = zip(members, stored, strict=True)
        members = [dataclasses.replace(side, layers=load_bases(folder)) for side, folder in both]
    layer = work.params.get("layer")
    return members if layer is None else [only(side, layer) for side in members]


def _joined(work: Work) -> pd.DataFrame:
    import pandas as pd

    return pd.concat(work.inputs, ignore_index=True)


# The state of the files is an argument: what was read in another state is read again.
@lru_cache(maxsize=4)
def _load_task(model: ModelSource | None, task: str, options: TaskOptions, state: str) -> Task:
    return load_task_of([] if model is None else [Checkpoint.open(model)], task, options)


@lru_cache(maxsize=4)
def _texts(name: str, options: TaskOptions, state: str) -> Texts:
    return load_texts(name, options)
