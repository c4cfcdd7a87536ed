"""The main job on real input, offline: Phang et al.'s figure 1 and truncation for one encoder.

Every step is a job of its own (`jobs.run_job`), so an interrupted demo continues where it was
and a finished one answers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from simlab import baselines
from simlab.console import out
from simlab.errors import UserError
from simlab.extract import ExtractOptions, extract
from simlab.files import read_json, write_json
from simlab.finetune import Recipe, finetune, read_evaluation
from simlab.grids import ESTIMATORS, cka_rows
from simlab.jobs import Outcome
from simlab.models import ModelSource, resolve
from simlab.representations import load_representations
from simlab.results import ResultRow, ensure_results, read_results
from simlab.runtime import versions
from simlab.tasks import Task, TaskOptions, load_task
from simlab.truncate import truncation_rows

DEFAULT_FOLDER = Path("runs/demo")
RANDOM_BASELINE = "random init, same recipe"
# name of the grid: (folder of the rows, folder of the columns), below representations/
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


@dataclass(frozen=True)
class DemoConfig:
    """What the demo runs on; the defaults need no model hub."""

    model: str = "minilm"
    task: str = "rt"
    task_options: TaskOptions = field(default_factory=TaskOptions)
    recipe: Recipe = field(default_factory=Recipe)


class Run:
    """A run folder and its manifest, which is rewritten after every step."""

    def __init__(self, folder: Path, config: DemoConfig, source: ModelSource, task: Task) -> None:
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
        """Note a finished job and say so."""
        self.manifest["steps"][name] = {"key": outcome.key, "seconds": round(outcome.seconds, 1)}
        self.save()
        when = "done before" if outcome.skipped else f"{outcome.seconds:.0f} s"
        out.print(f"  {name} [dim]({when})[/dim]")

    def results(
        self, name: str, inputs: dict[str, Any], make: Callable[[], Iterable[ResultRow]]
    ) -> None:
        """Write ``results/<name>.parquet`` unless it is there, and note it."""
        path = self.folder / "results" / f"{name}.parquet"
        outcome = ensure_results(path, {"step": name, **inputs}, make, replace=True)
        self.record(f"results/{name}.parquet", outcome)


def run_demo(folder: Path, config: DemoConfig) -> None:
    """Run or continue the demo in `folder`; see the module and the README for its steps.

    Raises
    ------
    UserError
        An asset, model or task cannot be had, or another process is using `folder`.
    """
    from filelock import FileLock, Timeout

    config.recipe.check()
    source, task = resolve(config.model), load_task(config.task, config.task_options)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            _run_steps(Run(folder, config, source, task))
    except Timeout as error:
        raise UserError(f"--out {folder}: another process is using this folder") from error


def _run_steps(run: Run) -> None:
    _say(1, f"fine-tune {run.source.name} on {run.task.name} with seeds 1 and 2, and baselines")
    _finetune_all(run)
    _say(2, f"extract every layer's CLS for {len(run.task.heldout):,} held-out examples")
    _extract_all(run)
    _say(3, "compare layers with CKA, biased and unbiased")
    _compare_all(run)
    _say(4, "truncate: every layer straight to the head, nothing trained")
    _truncate_all(run)
    _say(5, "draw the figures")
    files = _plot_all(run)
    run.manifest["status"] = "finished"
    run.save()
    _summarise(run, files)


def _say(step: int, what: str) -> None:
    out.print(f"[bold]\\[{step}/5][/bold] {what}")


def _checkpoints(run: Run) -> dict[str, Recipe]:
    recipe = run.config.recipe
    tuned = {f"ft-{seed}": replace(recipe, seed=seed) for seed in SEEDS}
    return {**tuned, "random-init": replace(recipe, seed=SEEDS[0], random_init=True)}


def _finetune_all(run: Run) -> None:
    for name, recipe in _checkpoints(run).items():
        folder = run.folder / "checkpoints" / name
        outcome = finetune(run.source, run.task, recipe, folder, replace=True)
        run.record(f"checkpoints/{name}", outcome)
    evaluations = [_evaluation(run, name) for name in _checkpoints(run)]
    inputs = {
        "train": run.task.train.fingerprint,
        "heldout": run.task.heldout.fingerprint,
        "evaluations": evaluations,
        "inverse_penalty": baselines.INVERSE_PENALTY,
    }
    run.results("baselines", inputs, lambda: _baseline_rows(run))


def _evaluation(run: Run, name: str) -> dict[str, Any]:
    return read_evaluation(run.folder / "checkpoints" / name)


def _baseline_rows(run: Run) -> Iterable[ResultRow]:
    task = run.task
    majority = baselines.majority_row(task)
    if majority is not None:
        yield majority
    yield baselines.tfidf_row(task)
    random_value = _evaluation(run, "random-init")["value"]
    yield baselines.baseline_row(task, RANDOM_BASELINE, random_value, SEEDS[0])
    for seed in SEEDS:
        value = _evaluation(run, f"ft-{seed}")["value"]
        yield baselines.baseline_row(task, f"FT[{seed}]", value, seed)


def _extract_all(run: Run) -> None:
    folder = run.folder / "representations"
    options = ExtractOptions(max_length=run.config.recipe.max_length)
    random = replace(options, random_init_seed=0)
    jobs = [("orig", run.source, options, "ORIG", None)]
    for seed in SEEDS:
        checkpoint = ModelSource(f"FT[{seed}]", run.folder / "checkpoints" / f"ft-{seed}")
        jobs.append((f"ft-{seed}", checkpoint, options, f"FT[{seed}]", seed))
    jobs.append(("random", run.source, random, "RANDOM", 0))
    for name, source, chosen, label, seed in jobs:
        outcome = extract(
            source, run.task, folder / name, chosen, label=label, seed=seed, replace=True
        )
        run.record(f"representations/{name}", outcome)


def _compare_all(run: Run) -> None:
    folder = run.folder / "representations"
    names = sorted({name for _, *pair in GRIDS for name in pair})
    inputs = {name: read_json(folder / name / "manifest.json")["data_sha256"] for name in names}

    def make() -> Iterable[ResultRow]:
        loaded = {name: load_representations(folder / name) for name in names}
        for comparison, x, y in GRIDS:
            yield from cka_rows(loaded[x], loaded[y], comparison, estimators=ESTIMATORS)

    run.results("cka", {"grids": GRIDS, "representations": inputs}, make)


def _truncate_all(run: Run) -> None:
    sources = {
        seed: ModelSource(f"FT[{seed}]", run.folder / "checkpoints" / f"ft-{seed}")
        for seed in SEEDS
    }
    max_length = run.config.recipe.max_length
    inputs = {
        "models": [source.fingerprint for source in sources.values()],
        "heldout": run.task.heldout.fingerprint,
        "max_length": max_length,
    }

    def make() -> Iterable[ResultRow]:
        for seed, source in sources.items():
            yield from truncation_rows(source, run.task, max_length, label=source.name, seed=seed)

    run.results("truncation", inputs, make)


def _plot_all(run: Run) -> list[Path]:
    from simlab.plots import plot_results

    # Drawing takes seconds and reads results only, so it is always done anew.
    files = plot_results(read_results(run.folder / "results"), run.folder / "figures")
    out.print(f"  {len(files)} files in figures/")
    return files


def _summarise(run: Run, figures: list[Path]) -> None:
    from rich.table import Table

    frame = read_results(run.folder / "results" / "baselines.parquet")
    metric = run.task.metric
    table = Table(title=f"{run.task.name}: held-out {metric}, n = {len(run.task.heldout):,}")
    table.add_column("model")
    table.add_column(metric, justify="right")
    for row in frame.itertuples():
        style = "bold" if row.model_x.startswith("FT[") else None
        table.add_row(_escape(row.model_x), f"{row.value:.3f}", style=style)
    out.print(table)
    tuned = frame["model_x"].str.startswith("FT[")
    if frame.loc[tuned, "value"].min() <= frame.loc[~tuned, "value"].max():
        out.print("[yellow]A fine-tuned model does not beat every baseline with this recipe.[/]")
    seconds = sum(step["seconds"] for step in run.manifest["steps"].values())
    out.print(f"steps took {seconds:.0f} s in all; everything is in {run.folder}:")
    for name in ("manifest.json", "checkpoints", "representations", "results"):
        out.print(f"  {run.folder / name}")
    for file in figures:
        out.print(f"  {file}")


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
