"""The steps of a sweep: a function for each kind of job.

A step is called with a `Work`. Steps that make folders write to ``work.out``; the other steps
return rows of the results table. A step knows nothing of keys, claims, engines and other jobs: it
calls the function that `simcore` has for this step, with paths of inputs that exist.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.models.checkpoint import Checkpoint
from simlab.models.sources import ModelSource, resolve
from simlab.models.trained_tasks import length_of, load_task_of
from simlab.store.jobs import Outcome
from simlab.store.results import BASELINE, GRID, JOINT, SIDE, ResultRow, Side
from simlab.sweeps import plan as kinds
from simlab.sweeps.execute import Work
from simlab.tasks import ALL, Task, TaskOptions
from simlab.tasks.texts import Texts, load_texts

if TYPE_CHECKING:
    import pandas as pd

    from simlab.representations.folder import Representations

_COLUMNS = ("text_column", "pair_column")  # all that a corpus without labels takes


def pretrain(work: Work) -> None:
    """Make a model."""
    from simlab.training.pretrain import pretrain as function
    from simlab.training.pretraining import Pretraining

    named = [(name, TaskOptions(**options)) for name, options in work.hints["texts"]]
    texts = [_texts(name, options, work.state) for name, options in named]
    recipe = Pretraining(**work.params["recipe"], tokenizer=work.hints["tokenizer"])
    function(texts, work.out, recipe)


def finetune(work: Work) -> None:
    """Make a checkpoint."""
    from simlab.training.finetune import finetune as function
    from simlab.training.recipes import Recipe

    function(_model(work), _task(work), work.out, Recipe(**work.params["recipe"]))


def extract(work: Work) -> None:
    """Make a representation folder."""
    from simlab.representations.extract import ExtractOptions
    from simlab.representations.extract import extract as function

    options = ExtractOptions(**work.params["options"])
    named = {"label": work.hints["label"], "seed": work.hints["seed"]}
    named |= {"modules": work.params.get("modules", ()), "pool": work.params.get("pool")}
    source = _checkpoint(work) if work.inputs else _model(work)
    if options.split == ALL:
        columns = {name: work.hints["task_options"][name] for name in _COLUMNS}
        chosen = TaskOptions(**columns)
        function(source, work.hints["task"], work.out, options, task_options=chosen, **named)
    else:
        function(source, _task(work), work.out, options, **named)


def scores(work: Work) -> Iterable[ResultRow]:
    """Return the held-out metrics of a fine-tuned model."""
    checkpoint = _checkpoint(work)
    for metric, value in checkpoint.scores.items():
        yield ResultRow(
            experiment=BASELINE,
            measure=metric,
            **Side(**work.params["side"]).columns(),
            value=value,
            n=checkpoint.evaluation["n"],
            task=work.params["task"],
        )


def baselines(work: Work) -> Iterable[ResultRow]:
    """Return the held-out metrics of the most frequent class and of TF-IDF."""
    from simlab.experiments.baselines import majority_rows, tfidf_rows

    task = _task(work)
    return [*majority_rows(task), *tfidf_rows(task)]


def truncate(work: Work) -> Outcome:
    """Return the metrics of a fine-tuned model cut after every layer."""
    from simlab.experiments.truncate import TUNED_ORIG, TruncationOptions
    from simlab.experiments.truncate import truncate as function
    from simlab.models.head_recipe import HeadRecipe

    stored = dict(work.params["options"])
    stored |= {"recipe": HeadRecipe(**stored["recipe"]), "modes": tuple(stored["modes"])}
    options = TruncationOptions(**stored)
    if TUNED_ORIG in options.modes:
        original = work.hints.get("model") or str(work.inputs[-1])
        options = dataclasses.replace(options, original=original)
    return function(_checkpoint(work), _task(work), _results(work), options, **_named(work))


def skip(work: Work) -> Outcome:
    """Return the metrics of a fine-tuned model without every span of layers."""
    from simlab.experiments.skip import skip as function

    return function(_checkpoint(work), _task(work), _results(work), **_named(work))


def bases(work: Work) -> None:
    """Store the bases of the layers of a representation folder."""
    from simlab.representations.folder import load_representations
    from simlab.similarity.bases import store_bases

    store_bases(load_representations(work.inputs[0]), work.out, work.params["standardize"])


def grid(work: Work) -> Iterable[ResultRow]:
    """Return a grid; of a tile of a symmetric joint grid, the mirrored rows too."""
    from simlab.similarity.catalogue import MEASURES, settings
    from simlab.similarity.grids import Naming, grid_rows
    from simlab.similarity.resampling import Resampling

    params, sides = work.params, _members(work)
    xs = sides[: len(params["x"])]
    ys = sides[len(xs) :] or xs
    chosen = settings(params["measure"], params["options"])
    resampling = Resampling.of_inputs(params["resampling"])
    naming = Naming(params["comparison"], JOINT if params["joint"] else GRID, params.get("grid"))
    rows = grid_rows(params["measure"], chosen, xs, ys, naming, resampling)
    mirrored = params["joint"] and ys is not xs and MEASURES[params["measure"]].symmetric
    for row in rows:
        yield row
        if mirrored:
            yield dataclasses.replace(row, **{x: getattr(row, y) for x, y in _SWAPPED})


_SWAPPED = [(f"{end}_{x}", f"{end}_{y}") for end in (*SIDE, "layer") for x, y in ("xy", "yx")]


def complexity(work: Work) -> Iterable[ResultRow]:
    """Return a measure of complexity of every layer."""
    from simlab.experiments.align_options import StudyOptions
    from simlab.experiments.align_part import Part
    from simlab.experiments.align_rows import Member
    from simlab.store.results import COMPLEXITY

    (side,) = _members(work)
    return Part(COMPLEXITY, work.params["measure"], (Member(side),), StudyOptions(), {})()


def blocks(work: Work) -> Iterable[ResultRow]:
    """Return the blocks of the grids among the inputs."""
    from simlab.similarity.blocks import block_rows
    from simlab.similarity.resampling import Resampling

    options = work.params["options"]
    draws = Resampling(permutations=options["permutations"], seed=options["resampling_seed"])
    found = block_rows(_joined(work.inputs), options["clusters"], draws)
    return [row for _, rows in found for row in rows]


def localize(work: Work) -> Iterable[ResultRow]:
    """Return the localization scores of a joint grid of two measures."""
    from simlab.similarity.localization import localization_rows
    from simlab.similarity.resampling import Resampling

    members = work.params.get("members", [])
    grids = len(work.inputs) - len(members)
    sides = [named(p, side) for p, side in zip(work.inputs[grids:], members, strict=True)]
    resampling = Resampling.of_inputs(work.params.get("resampling", {}))
    return localization_rows(
        _joined(work.inputs[:grids]), sides, resampling, standardize=work.params["standardize"]
    )


def align(work: Work) -> Iterable[ResultRow]:
    """Return the errors of maps between pairs of models, pair by pair."""
    from simlab.experiments.align_options import StudyOptions
    from simlab.experiments.align_part import Part
    from simlab.experiments.align_rows import Member

    params = work.params
    method, count = params["method"], len(params["members"])
    options = StudyOptions(
        name=params["name"],
        methods=(method,),
        at_once=work.hints["at_once"],
        **params["options"],
    )
    fitted = [named(p, side) for p, side in zip(work.inputs, params["members"], strict=False)]
    others: list[Any] = [None] * count
    if params["judged"]:
        places = zip(work.inputs[count:], params["members"], strict=True)
        others = [named(path, side) for path, side in places]
    members = [Member(*both) for both in zip(fitted, others, strict=True)]
    protocol = options.protocol(params["part"], method, params["judged"])
    for i, j in params["pairs"]:
        yield from Part(params["part"], method, (members[i], members[j]), options, protocol)()


def inject(work: Work) -> Iterable[ResultRow]:
    """Return the metrics of a model that continues from another model's states."""
    from simlab.experiments.injection_options import InjectOptions
    from simlab.experiments.injection_pair import InjectionPair

    stored = dict(work.params["options"])
    if stored["methods"] is not None:
        stored["methods"] = tuple(stored["methods"])
    a, b = _checkpoint(work, 0), _checkpoint(work, 1)
    stored["max_length"] = length_of([b, a], None)
    pair = InjectionPair(a, b, _task(work), InjectOptions(**stored), _model(work))
    return pair.rows(*(Side(**side) for side in work.params["sides"]))


def freeze(work: Work) -> Iterable[ResultRow]:
    """Return the metrics, trained parameters and time of a step of a way of freezing."""
    from simlab.experiments.freeze_study import freezing_rows

    return freezing_rows(_checkpoint(work), Side(**work.params["side"]), work.params["task"])


STEPS: Mapping[str, Callable[[Work], Iterable[ResultRow] | Outcome | None]] = {
    kinds.PRETRAIN: pretrain,
    kinds.FINETUNE: finetune,
    kinds.EXTRACT: extract,
    kinds.BASES: bases,
    kinds.SCORES: scores,
    kinds.TRUNCATE: truncate,
    kinds.SKIP: skip,
    kinds.GRID: grid,
    kinds.COMPLEXITY: complexity,
    kinds.BLOCKS: blocks,
    kinds.ALIGN: align,
    kinds.INJECT: inject,
    kinds.FREEZE: freeze,
    kinds.BASELINES: baselines,
    kinds.LOCALIZE: localize,
}
# Steps that continue where they were interrupted, in the same folder.
RESUMABLE = (kinds.PRETRAIN, kinds.FINETUNE)


def named(folder: Path, side: Mapping[str, Any]) -> Representations:
    """Return stored representations under a name of this sweep."""
    from simlab.representations.folder import load_representations

    found = load_representations(folder)
    return dataclasses.replace(found, manifest={**found.manifest, **side})


def _results(work: Work) -> Path:
    """Return the results file that a step makes in place of returning rows."""
    return work.out.with_suffix(".parquet")


def _named(work: Work) -> dict[str, Any]:
    """Return the name and the seed of the one model of a job, as commands take them."""
    side = work.params["side"]
    return {"label": side["label"], "seed": side["seed"]}


def _model(work: Work) -> ModelSource:
    """Return the model before fine-tuning; one that is pretrained here is the last input."""
    if "pretrained" in work.hints:
        found = ModelSource(work.hints["pretrained"], work.inputs[-1])
    else:
        found = resolve(work.hints["model"])
    return dataclasses.replace(found, family=work.hints["base"])


def _checkpoint(work: Work, number: int = 0) -> Checkpoint:
    """Return the fine-tuned model among the inputs."""
    path: Path = work.inputs[number]
    return Checkpoint.open(ModelSource(path.name[:12], path, family=work.hints.get("base")))


def _task(work: Work) -> Task:
    """Return the task, split as for the model before fine-tuning."""
    options = TaskOptions(**work.hints["task_options"])
    # A model that is pretrained here was fine-tuned on nothing, so that its folder has no split.
    earlier = None if "pretrained" in work.hints else _model(work)
    return _load_task(earlier, work.hints["task"], options, work.state)


def _members(work: Work) -> list[Representations]:
    """Return the representations of both sides, with their names in results.

    Where their bases are among the inputs, these stand in place of the layers.
    """
    from simlab.similarity.bases import load_bases

    sides = [*work.params["x"], *(work.params.get("y") or ())]
    found = [named(path, side) for path, side in zip(work.inputs, sides, strict=False)]
    stored = work.inputs[len(sides) :]
    if not stored:
        return found
    both = zip(found, stored, strict=True)
    return [dataclasses.replace(side, layers=load_bases(folder)) for side, folder in both]


# The state of the files is an argument: what was read in another state is read again.
@lru_cache(maxsize=4)
def _load_task(model: ModelSource | None, task: str, options: TaskOptions, state: str) -> Task:
    return load_task_of([] if model is None else [Checkpoint.open(model)], task, options)


@lru_cache(maxsize=4)
def _texts(name: str, options: TaskOptions, state: str) -> Texts:
    return load_texts(name, options)


def _joined(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat(list(frames), ignore_index=True)
