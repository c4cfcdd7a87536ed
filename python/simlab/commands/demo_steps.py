"""The steps of ``simcore demo``: compare an encoder before and after fine-tuning, offline.

The demo draws figure 1 and the truncation curve of Phang et al. 2021 from the CLS vectors of all
held-out examples, and figures 1, 3 and 7 of Wu et al. 2020 from the words and the attention of some
held-out examples.

Every step is a job of its own (`jobs.run_job`), so an interrupted demo continues where it was, and
a finished demo ends at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from simlab.experiments import baselines
from simlab.experiments.truncate import truncation_rows
from simlab.models.checkpoint import Checkpoint
from simlab.models.sources import ModelSource
from simlab.models.trained_tasks import load_task_of
from simlab.representations.extract import ExtractOptions, extract
from simlab.representations.folder import MANIFEST, load_representations
from simlab.representations.kinds import ATTENTION
from simlab.similarity.catalogue import MEASURES, settings
from simlab.similarity.grids import Naming, grid_rows
from simlab.similarity.localization import NEEDED, localize
from simlab.store.console import out, print_table
from simlab.store.files import read_json, write_json
from simlab.store.jobs import Outcome
from simlab.store.ownership import owned
from simlab.store.results import (
    FT,
    JOINT,
    LOCALIZATION,
    ResultRow,
    Side,
    ensure_results,
    read_results,
)
from simlab.store.runtime import versions
from simlab.tasks import Task, TaskOptions
from simlab.training.finetune import finetune
from simlab.training.recipes import Recipe

RANDOM_BASELINE = "random init, same recipe"
# Name of the grid, folder of the rows, folder of the columns; folders are below representations/.
GRIDS = (
    ("ORIG-ORIG", "orig", "orig"),
    ("FT-ORIG", "ft-1", "orig"),
    ("FT-ORIG", "ft-2", "orig"),
    ("FT-FT", "ft-1", "ft-1"),
    ("FT-FT", "ft-2", "ft-2"),
    ("FT[1]-FT[2]", "ft-1", "ft-2"),
    ("RANDOM-ORIG", "random", "orig"),
    ("RANDOM-RANDOM", "random", "random"),
)
SEEDS = (1, 2)
# The joint grids compare all layers of these models with each other. A word is represented by its
# last sub-word, as in Wu et al. 2020; 200 sentences have thousands of words.
MODELS = ("orig", *(f"ft-{seed}" for seed in SEEDS))
JOINT_COMPARISON = "ORIG + FT"
JOINT_MEASURES = ("neuronsim", "svcca", "pwcca", "mixedsim", "attention-js")
WORD_KIND = "word-last"
WORD_SENTENCES = 200
REPORT = "report.html"


@dataclass(frozen=True)
class DemoConfig:
    """The model, task and recipe of a demo; the defaults need no model hub."""

    model: str = "minilm"
    task: str = "rt"
    task_options: TaskOptions = field(default_factory=TaskOptions)
    recipe: Recipe = field(default_factory=Recipe)


@dataclass(frozen=True)
class _Model:
    """A model, its name in results, and the seed of its weights or fine-tuning."""

    source: Checkpoint
    label: str
    seed: int | None

    @property
    def side(self) -> Side:
        return self.source.side(self.label, self.seed)


class Run:
    """A run folder and its manifest, which is rewritten after every step."""

    def __init__(self, folder: Path, config: DemoConfig, source: Checkpoint, task: Task) -> None:
        self.folder, self.config, self.source, self.task = folder, config, source, task
        self.manifest: dict[str, Any] = {
            "command": "simcore demo",
            "status": "unfinished",
            "configuration": asdict(config),
            "seeds": list(SEEDS),
            "versions": versions(),
            "inputs": {
                "model_sha256": source.fingerprint,
                "train_sha256": task.train.fingerprint,
                "heldout_sha256": task.heldout.fingerprint,
                "train_rows": len(task.train),
                "heldout_rows": len(task.heldout),
            },
            "steps": {},
        }
        self.save()

    def save(self) -> None:
        """Write ``manifest.json``."""
        write_json(self.folder / "manifest.json", self.manifest)

    def record(self, name: str, outcome: Outcome) -> None:
        """Note a finished job in the manifest, and print its name and time."""
        self.manifest["steps"][name] = {"key": outcome.key, "seconds": round(outcome.seconds, 1)}
        self.save()
        when = "done before" if outcome.skipped else f"{outcome.seconds:.0f} s"
        out.print(f"  {name} [dim]({when})[/dim]")

    def results(
        self, name: str, inputs: dict[str, Any], make: Callable[[], Iterable[ResultRow]]
    ) -> None:
        """Write ``results/<name>.parquet`` unless it is there, and note it in the manifest."""
        path = self.folder / "results" / f"{name}.parquet"
        outcome = ensure_results(path, {"step": name, **inputs}, make, replace=True)
        self.record(f"results/{name}.parquet", outcome)


def run_demo(folder: Path, config: DemoConfig) -> None:
    """Run or continue the demo in `folder`.

    Raises
    ------
    UserError
        An asset, model or task cannot be loaded.
    BusyError
        Another process is using `folder`.
    """
    config.recipe.check()
    source = Checkpoint.open(config.model)
    task = load_task_of([source], config.task, config.task_options)
    with owned(folder, lock=folder / ".lock"):
        _run_steps(Run(folder, config, source, task))


def _run_steps(run: Run) -> None:
    _say(1, f"fine-tune {run.source.name} on {run.task.name} with seeds 1 and 2, and baselines")
    _finetune_all(run)
    sentences = _word_sentences(run)
    _say(2, f"extract every layer's CLS for {len(run.task.heldout):,} held-out examples")
    _extract_all(run)
    _say(3, "compare layers with CKA, biased and unbiased")
    _compare_all(run)
    _say(4, f"compare words and attention of {sentences:,} examples: {', '.join(JOINT_MEASURES)}")
    _extract_words(run)
    _compare_jointly(run)
    _say(5, "truncate: every layer straight to the head, nothing trained")
    _truncate_all(run)
    _say(6, "draw the figures, write the report")
    files = _plot_all(run)
    run.manifest["status"] = "finished"
    run.save()
    _write_report(run)
    _summarise(run, files)


def _say(step: int, what: str) -> None:
    out.print(f"[bold]\\[{step}/6][/bold] {what}")


def _checkpoints(run: Run) -> dict[str, Recipe]:
    recipe = run.config.recipe
    tuned = {f"ft-{seed}": replace(recipe, seed=seed) for seed in SEEDS}
    return {**tuned, "random-init": replace(recipe, seed=SEEDS[0], random_init=True)}


def _finetune_all(run: Run) -> None:
    for name, recipe in _checkpoints(run).items():
        folder = run.folder / "checkpoints" / name
        outcome = finetune(run.source, run.task, folder, recipe, overwrite=True)
        run.record(f"checkpoints/{name}", outcome)
    scores = [_scores(run, name) for name in _checkpoints(run)]
    inputs = {
        "train": run.task.train.fingerprint,
        "heldout": run.task.heldout.fingerprint,
        "scores": scores,
        "inverse_penalty": baselines.INVERSE_PENALTY,
        **run.task.metric_inputs,
    }
    run.results("baselines", inputs, lambda: _baseline_rows(run))


def _scores(run: Run, name: str) -> dict[str, float]:
    return Checkpoint.open(run.folder / "checkpoints" / name).scores


def _baseline_rows(run: Run) -> Iterable[ResultRow]:
    task = run.task
    yield from baselines.majority_rows(task)
    yield from baselines.tfidf_rows(task)
    random_scores = _scores(run, "random-init")
    random = Side(RANDOM_BASELINE, SEEDS[0], stage=FT)
    yield from baselines.baseline_rows(task, random, random_scores)
    for name, model in _tuned(run).items():
        scores = _scores(run, name)
        yield from baselines.baseline_rows(task, model.side, scores)


def _extract_all(run: Run) -> None:
    options = ExtractOptions(max_length=run.config.recipe.max_length)
    for name, model in _models(run).items():
        _extract_one(run, name, model, options)
    random = _Model(run.source, "RANDOM", 0)
    _extract_one(run, "random", random, replace(options, random_init_seed=0))


def _extract_words(run: Run) -> None:
    limit, length = _word_sentences(run), run.config.recipe.max_length
    for kind in (WORD_KIND, ATTENTION):
        options = ExtractOptions(kind=kind, max_length=length, limit=limit)
        for name, model in _models(run).items():
            _extract_one(run, f"{name}-{kind}", model, options)


def _models(run: Run) -> dict[str, _Model]:
    """Return the models of the joint grids."""
    return {"orig": _Model(run.source, "ORIG", None), **_tuned(run)}


def _tuned(run: Run) -> dict[str, _Model]:
    """Return the fine-tuned models."""
    models = {}
    for seed in SEEDS:
        folder = run.folder / "checkpoints" / f"ft-{seed}"
        source = Checkpoint.open(ModelSource(f"FT[{seed}]", folder))
        models[f"ft-{seed}"] = _Model(source, source.name, seed)
    return models


def _extract_one(run: Run, name: str, model: _Model, options: ExtractOptions) -> None:
    folder = run.folder / "representations" / name
    outcome = extract(
        model.source, run.task, folder, options, label=model.label, seed=model.seed, overwrite=True
    )
    run.record(f"representations/{name}", outcome)


def _word_sentences(run: Run) -> int:
    return min(WORD_SENTENCES, len(run.task.heldout))


def _compare_all(run: Run) -> None:
    folder = run.folder / "representations"
    names = sorted({name for _, *pair in GRIDS for name in pair})
    chosen = settings("cka", {})

    def make() -> Iterable[ResultRow]:
        loaded = {name: load_representations(folder / name) for name in names}
        for comparison, x, y in GRIDS:
            yield from grid_rows("cka", chosen, [loaded[x]], [loaded[y]], Naming(comparison))

    run.results("cka", {"grids": GRIDS, "representations": _hashes(run, names), **chosen}, make)


def _hashes(run: Run, names: Iterable[str]) -> dict[str, str]:
    folder = run.folder / "representations"
    return {name: read_json(folder / name / MANIFEST)["data_sha256"] for name in names}


def _compare_jointly(run: Run) -> None:
    folder = run.folder / "representations"
    # Representations are read when the first grid needs them, and once for all grids.
    load = cache(lambda kind: [load_representations(folder / f"{n}-{kind}") for n in MODELS])
    for measure in JOINT_MEASURES:
        kind = WORD_KIND if MEASURES[measure].takes_representations else ATTENTION
        chosen = settings(measure, {})

        def make(
            measure: str = measure, kind: str = kind, chosen: dict[str, Any] = chosen
        ) -> Iterable[ResultRow]:
            return grid_rows(
                measure, chosen, load(kind), load(kind), Naming(JOINT_COMPARISON, JOINT)
            )

        hashes = _hashes(run, [f"{name}-{kind}" for name in MODELS])
        run.results(measure, {"representations": hashes, **chosen}, make)
    results = run.folder / "results"
    grids = [results / f"{measure}.parquet" for measure in NEEDED]
    file = results / f"{LOCALIZATION}.parquet"
    run.record(f"results/{file.name}", localize(grids, file, overwrite=True))


def _truncate_all(run: Run) -> None:
    models = _tuned(run).values()
    max_length = run.config.recipe.max_length
    inputs = {
        "models": [model.source.fingerprint for model in models],
        "heldout": run.task.heldout.fingerprint,
        "max_length": max_length,
        **run.task.metric_inputs,
    }

    def make() -> Iterable[ResultRow]:
        for model in models:
            yield from truncation_rows(model.source, run.task, max_length, model.side)

    run.results("truncation", inputs, make)


def _plot_all(run: Run) -> list[Path]:
    from simlab.figures.draw import plot

    # Drawing takes seconds and only reads results, so figures are always drawn anew.
    files = plot(run.folder / "results", run.folder / "figures")
    out.print(f"  {len(files)} files in figures/")
    return files


def _write_report(run: Run) -> None:
    from simlab.report.write import write_report

    title = f"{run.source.name} on {run.task.name}, before and after fine-tuning"
    write_report(run.folder / "results", run.folder / REPORT, title=title)


def _summarise(run: Run, figures: list[Path]) -> None:
    from rich.table import Table

    frame = read_results(run.folder / "results" / "baselines.parquet")
    metrics = run.task.all_metrics
    names = ", ".join(metrics)
    table = Table(title=f"{run.task.name}: held-out {names}, n = {len(run.task.heldout):,}")
    table.add_column("model")
    for metric in metrics:
        table.add_column(metric, justify="right")
    for (model, base), rows in frame.groupby(["label_x", "base_x"], dropna=False, sort=False):
        style = "bold" if isinstance(base, str) else None
        values = rows.set_index("measure")["value"].reindex(metrics)
        table.add_row(_escape(model), *(f"{value:.3f}" for value in values), style=style)
    print_table(table)
    frame = frame[frame["measure"] == run.task.metric]
    tuned = frame["base_x"].notna()  # baselines have no base
    if frame.loc[tuned, "value"].min() <= frame.loc[~tuned, "value"].max():
        out.print("[yellow]A fine-tuned model does not beat every baseline with this recipe.[/]")
    seconds = sum(step["seconds"] for step in run.manifest["steps"].values())
    out.print(f"steps took {seconds:.0f} s in all; everything is in {run.folder}:")
    for name in ("manifest.json", "checkpoints", "representations", "results"):
        out.print(f"  {run.folder / name}")
    for file in figures:
        out.print(f"  {file}")
    out.print(f"the page to look at: {run.folder / REPORT}")


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
