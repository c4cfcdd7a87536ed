"""Commands that train models: ``pretrain``, ``finetune`` and ``freeze-study``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.commands.options import explain_interrupt, folder_of_several, opened, took
from simlab.errors import UserError, argument
from simlab.steps.catalogue import FINETUNE, FREEZE_STUDY, PRETRAIN

if TYPE_CHECKING:
    import pandas as pd

    from simlab.models.checkpoint import Checkpoint
    from simlab.store.jobs import Outcome


def run_pretrain(values: dict[str, Any]) -> None:
    """Make the model of every seed, and print its losses on held-out texts."""
    from simlab.store import console
    from simlab.tasks.corpus import load_texts
    from simlab.training.pretrain import pretrain, read_pretraining

    folders = _seed_folders(values)
    with explain_interrupt(values["out"]):
        if len(folders) > 1:  # every seed takes the texts that are read here
            options = PRETRAIN.task_options(values)
            values["texts"] = [load_texts(name, options) for name in values["texts"]]
        for seed, folder in folders.items():  # each folder is a job of its own
            outcome = pretrain(**PRETRAIN.arguments(values | {"out": folder, "seed": seed}))
            record = read_pretraining(outcome.path)
            console.out.print(
                f"{outcome.path}: held-out loss {record['loss']:.3f} (frequencies of words alone "
                f"{record['unigram_loss']:.3f}), accuracy {record['accuracy']:.3f} "
                f"(n = {record['n']:,} predicted tokens, {took(outcome)})"
            )


def run_finetune(values: dict[str, Any]) -> None:
    """Make the checkpoint of every seed, and print its held-out metrics."""
    from simlab.training.finetune import finetune

    paper, recipe = values["paper"], values["recipe"]
    if paper is not None and paper != recipe:
        raise UserError(
            f"{argument('paper', paper)}, {argument('recipe', recipe)}: wanted one recipe, found "
            "two; here both options name the recipe"
        )
    folders = _seed_folders(values)
    with explain_interrupt(values["out"]):
        if values["seeds"] is not None:  # every seed takes what is opened here
            values = opened(FINETUNE, values, "model")
        checkpoints = [
            _print_scores(finetune(**FINETUNE.arguments(values | {"out": folder, "seed": seed})))
            for seed, folder in folders.items()  # each folder is a job of its own
        ]
    if values["seeds"] is not None:
        _summarise([checkpoint.scores for checkpoint in checkpoints])


def run_freeze_study(values: dict[str, Any]) -> None:
    """Do the study, draw its figures, and print a table of all ways of freezing."""
    from simlab.experiments.freeze_study import CSV, freeze_study, summary
    from simlab.figures.draw import plot
    from simlab.results.reading import read_results
    from simlab.store import console

    out, paper, recipe = Path(values["out"]), values["paper"], values["recipe"]
    if paper is not None and paper != recipe:
        console.note(
            f"{argument('recipe', recipe)} takes the place of the recipe of "
            f"{argument('paper', paper)}"
        )
    with explain_interrupt(out):
        outcome = freeze_study(**FREEZE_STUDY.arguments(values), tell=_print_scores)
        frame = read_results(outcome.path)
        figures = plot(frame, out / "figures")
    _print_ways(summary(frame), frame["task"].iloc[0])
    for file in (outcome.path, out / CSV, *figures):
        console.out.print(str(file))


def _seed_folders(values: Mapping[str, Any]) -> dict[int | None, Path]:
    """Return the checkpoint folder of every seed: `out` itself, or with --seeds ``out/seed-N``.

    None is the seed of the recipe.
    """
    from simlab.training.recipes import parse_seeds

    seed, seeds = values["seed"], values["seeds"]
    if seeds is None:
        return {seed: Path(values["out"])}
    if seed is not None:
        raise UserError(
            f"{argument('seeds')}: wanted {argument('seeds')} or {argument('seed')}, found both"
        )
    out = folder_of_several(values, "seeds", "a folder that is itself a checkpoint")
    return {number: out / f"seed-{number}" for number in parse_seeds(seeds)}


def _print_scores(outcome: Outcome) -> Checkpoint:
    """Open the checkpoint that was made, and print its held-out metrics."""
    from simlab.models.checkpoint import Checkpoint
    from simlab.store import console

    checkpoint = Checkpoint.open(outcome.path)
    scores = ", ".join(f"{name} {value:.3f}" for name, value in checkpoint.scores.items())
    console.out.print(
        f"{outcome.path}: held-out {scores} (n = {checkpoint.evaluation['n']:,}, {took(outcome)})"
    )
    return checkpoint


def _summarise(scores: Sequence[Mapping[str, float]]) -> None:
    import numpy as np

    from simlab.store import console

    for metric in scores[0]:
        values = np.array([of_seed[metric] for of_seed in scores])
        spread = f", standard deviation {values.std(ddof=1):.3f}" if len(values) > 1 else ""
        console.out.print(f"{len(values)} seeds: mean {metric} {values.mean():.3f}{spread}")


def _print_ways(summary: pd.DataFrame, task: str) -> None:
    import math

    from simlab.store import console

    console.out.print(f"{task}: frozen layers, mean over {summary['seeds'].max()} seeds")
    metrics = summary["metric"].unique()
    headings = [heading for metric in metrics for heading in (metric, "± sd")]
    table = []
    for freeze, rows in summary.groupby("freeze", sort=False):
        row, of_metric = rows.iloc[0], rows.set_index("metric")
        values = of_metric.loc[:, ["mean", "standard_deviation"]].reindex(metrics).to_numpy()
        cells = ["" if math.isnan(value) else f"{value:.3f}" for value in values.ravel()]
        cost = (
            f"{row.trained_parameters:,}",
            f"{1000 * row.seconds_per_step:.0f}",
            f"{row.time_saved:.0%}",
        )
        table.append((str(freeze), *cells, *cost))
    names = ("frozen", *headings, "trained parameters", "ms per step", "time saved")
    console.print_rows(names, table)
