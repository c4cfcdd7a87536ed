"""Compare ways of freezing layers (Wu et al. 2020, appendix D, table 1).

A model is fine-tuned with every way of freezing and every seed, each time as a job of its own. The
results table gets the held-out metrics, the number of trained parameters and the median time of a
training step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.bounds import Count, bounded, check_values
from simlab.errors import UserError, argument
from simlab.models.checkpoint import Checkpoint, load_task_of
from simlab.models.sources import ModelSource
from simlab.results.results import FREEZING, SECONDS, TRAINED, ResultRow, Side, ensure_results
from simlab.store.files import read_json
from simlab.store.jobs import RECORD, Outcome
from simlab.training.finetune import finetune, require_trainable
from simlab.training.recipes import BOTTOM, NONE, QUICK, TOP, Recipe, make_recipe, parse_seeds

if TYPE_CHECKING:
    import pandas as pd

    from simlab.tasks import Task, TaskOptions

CHECKPOINTS, RESULTS = "checkpoints", Path("results") / f"{FREEZING}.parquet"


def ways(bottom: Sequence[int], top: Sequence[int]) -> list[str]:
    """Return the ways of freezing in the order of table 1: none, then top:K and bottom:K by K."""
    counts = sorted({*bottom, *top})
    sides = {TOP: top, BOTTOM: bottom}
    return [NONE, *(f"{side}:{k}" for k in counts for side in sides if k in sides[side])]


@bounded
def freeze_study(
    model: str | Path | ModelSource,
    task: str | Path | Task,
    out: str | Path,
    recipe: str | Recipe = QUICK,
    *,
    bottom: Sequence[Count] = (),
    top: Sequence[Count] = (),
    seeds: str | Sequence[int] = (1,),
    task_options: TaskOptions | None = None,
    overwrite: bool = False,
    tell: Callable[[Outcome], object] = lambda _: None,
    **changes: Any,
) -> Outcome:
    """Fine-tune without freezing and with layers frozen from either end, with every seed.

    Parameters
    ----------
    model, task, recipe, task_options, **changes
        As for `finetune`.
    out
        Folder for checkpoints, results and figures, with ``checkpoints/`` and
        ``results/freezing.parquet``. An interrupted study continues where it was.
    bottom
        Number of layers to freeze from the bottom; each number is a way of freezing.
    top
        Number of layers to freeze from the top; each number is a way of freezing.
    seeds
        Seeds to fine-tune every way of freezing with, such as ``0..4`` or ``0,3,7``.
    overwrite
        Make checkpoints anew that were made from other inputs; if False, raise an error instead.
    tell
        Function that is called with the outcome of every checkpoint as soon as it is made.

    Returns
    -------
    Outcome
        Path of the results file; `simlab.experiments.freeze_study.summary` makes a table of its
        rows, with a row for each way of freezing and metric.

    Raises
    ------
    UserError
        The model has fewer layers than are to be frozen, its layers share their weights, or
        `finetune` raises an error.

    Examples
    --------
    >>> from simlab import TaskOptions, freeze_study, read_results
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = freeze_study("minilm", "rt", "runs/freezing", top=[2], max_steps=1, task_options=few)
    >>> list(read_results(step.path)["label_x"].unique())
    ['none', 'top:2']
    """
    if {"freeze", "seed"} & changes.keys():
        raise TypeError("freeze_study: wanted bottom, top and seeds in place of freeze and seed")
    check_values(Recipe, changes)
    freezes = ways(bottom, top)
    seeds = parse_seeds(seeds) if isinstance(seeds, str) else seeds
    if not seeds:
        raise UserError(f"{argument('seeds')}: wanted at least one seed, found none")
    out, source = Path(out), Checkpoint.open(model)
    require_trainable(source, recipe, changes, freezes)
    task = load_task_of([source], task, task_options)
    recipe = make_recipe(recipe, task.name, changes)
    outcomes = {}
    for seed in seeds:  # seeds outside: an unfinished study then compares all ways on fewer seeds
        for freeze in freezes:
            place = out / CHECKPOINTS / f"{freeze.replace(':', '-')}-seed-{seed}"
            outcomes[freeze, seed] = finetune(
                source, task, place, recipe, freeze=freeze, seed=seed, overwrite=overwrite
            )
            tell(outcomes[freeze, seed])
    checkpoints = {name: Checkpoint.open(outcome.path) for name, outcome in outcomes.items()}
    models = [(checkpoint, checkpoint.side(*name)) for name, checkpoint in checkpoints.items()]
    # The key of a checkpoint that was made anew may be the same while its times differ: replace.
    return ensure_freezing(out / RESULTS, models, replace=True)


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each way of freezing and metric of a study, summarised over its seeds.

    ``standard_deviation`` is nan for one seed, ``seconds_per_step`` the mean over the medians of
    the seeds, and ``time_saved`` a share of the time of a step without freezing.
    """
    groups = frame[frame["experiment"] == FREEZING].groupby(["label_x", "measure"], sort=False)
    table = groups["value"].agg(["size", "mean", "std"]).reset_index()
    table.columns = ["freeze", "metric", "seeds", "mean", "standard_deviation"]
    means = table.pivot(index="freeze", columns="metric", values="mean")
    trained, seconds = (table["freeze"].map(means[name]) for name in (TRAINED, SECONDS))
    table = table[["freeze", "seeds", "metric", "mean", "standard_deviation"]].assign(
        trained_parameters=trained.astype(int),
        seconds_per_step=seconds,
        time_saved=1 - seconds / means.loc[NONE, SECONDS],
    )
    return table[~table["metric"].isin([TRAINED, SECONDS])].reset_index(drop=True)


def ensure_freezing(
    path: Path, models: Sequence[tuple[Checkpoint, Side]], *, replace: bool = False
) -> Outcome:
    """Write the metrics, trained parameters and time of a step of checkpoints to `path`.

    Nothing is done if `path` was written from the same inputs. The label of a checkpoint's side is
    its way of freezing.
    """
    inputs = {
        "step": FREEZING,
        "checkpoints": [read_json(checkpoint.path / RECORD)["key"] for checkpoint, _ in models],
        "named": [vars(side) for _, side in models],
        "metrics": [list(checkpoint.scores) for checkpoint, _ in models],
    }

    def make() -> Iterator[ResultRow]:
        for checkpoint, side in models:
            facts = checkpoint.evaluation
            values = checkpoint.scores | {TRAINED: facts["trained_parameters"]}
            for measure, value in (values | {SECONDS: facts["seconds_per_step"]}).items():
                low, high = facts.get("intervals", {}).get(measure, (math.nan, math.nan))
                yield ResultRow(
                    experiment=FREEZING,
                    measure=measure,
                    **side.columns(),
                    value=float(value),
                    low=low,
                    high=high,
                    draws=facts.get("draws", {}).get(measure),
                    n=facts["n"],
                    task=facts["task"],
                )

    return ensure_results(path, inputs, make, replace=replace)
