"""``simcore demo``: the sweep of ``demo.toml``, from a model to figures, offline."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from simlab.commands.options import explain_interrupt
from simlab.commands.sweep import FAILED, print_report
from simlab.steps.record import Step

if TYPE_CHECKING:
    from simlab.sweeps.driver import Report
    from simlab.tasks import TaskOptions

DEFAULT_FOLDER = Path("runs/demo")
FILE = Path(__file__).with_name("demo.toml")
DEMO = Step(
    name="demo",
    place="simlab.commands.demo:demo",
    options="simlab.training.recipes:Recipe",
    without=("seed", "random_init"),
    text=f"""Run a whole study offline: fine-tune, extract, compare, truncate, draw.

The demo is a sweep, whose file is `{FILE.name}` in the package; options take the place of values in
the file. It takes minutes on two cores. If it is interrupted, the same command continues it.""",
    reads="a model and a task",
    writes="the folder of a sweep",
    examples=("demo --out runs/demo",),
    has_paper=False,
)
STEPS = (DEMO,)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Run the demo, and print the scores of the models and where everything is."""
    from simlab.store.console import out as console

    out = Path(values["out"] or DEFAULT_FOLDER)
    console.print(
        f"the demo runs a sweep, as `simcore sweep {FILE} --out {out}` does", markup=False
    )
    with explain_interrupt(out):
        report = step.call(**values)
    if not report.failed:
        _print_scores(out)
    print_report(report, out)
    if report.failed:
        raise typer.Exit(FAILED)
    console.print(f"models by their names: {out / 'checkpoints'}, {out / 'representations'}")


def demo(
    out: str | Path = DEFAULT_FOLDER,
    *,
    model: str = "minilm",
    task: str = "rt",
    task_options: TaskOptions | None = None,
    **changes: Any,
) -> Report:
    """Run the sweep of ``demo.toml`` with another model, task or recipe.

    Parameters
    ----------
    out
        Folder for everything that the demo writes.
    model
        Model, as for `simcore finetune`.
    task
        Task, as for `simcore finetune`.
    task_options
        Columns and split of the task.
    **changes
        Keywords replace fields of the recipe, such as ``epochs=2``.
    """
    from dataclasses import asdict

    from simlab.models.checkpoint import Checkpoint, load_task_of
    from simlab.sweeps.sweep import Sweep
    from simlab.tasks import TaskOptions
    from simlab.training.recipes import QUICK, make_recipe

    make_recipe(QUICK, task, changes)  # an error names the argument, and no key of the file
    options = task_options or TaskOptions()
    study = tomllib.loads(FILE.read_text(encoding="utf-8"))
    given = {name: value for name, value in asdict(options).items() if value is not None}
    study["models"], study["tasks"] = [model], [{"name": task, **given}]
    study["finetune"] |= changes
    rows = len(load_task_of([Checkpoint.open(model)], task, options).heldout)
    for section in study["extract"]:
        if "limit" in section:
            section["limit"] = min(section["limit"], rows)
    return Sweep(study).run(out)


def _print_scores(out: Path) -> None:
    """Print the held-out metrics of the models and the baselines."""
    from simlab.results.reading import read_results
    from simlab.results.results import BASELINE
    from simlab.store import console

    frame = read_results(out / "results")
    frame = frame[frame["experiment"] == BASELINE].drop_duplicates(["label_x", "measure"])
    metrics = list(dict.fromkeys(frame["measure"]))
    table = frame.pivot(index="label_x", columns="measure", values="value")
    table = table.loc[frame["label_x"].unique(), metrics]
    rows = [(label, *(f"{value:.3f}" for value in values)) for label, *values in table.itertuples()]
    console.print_rows((f"{frame['n'].iloc[0]:,} held-out examples", *metrics), rows)
    main = frame[frame["measure"] == metrics[0]]
    tuned = main["base_x"].notna()  # a baseline has no base
    if main.loc[tuned, "value"].min() <= main.loc[~tuned, "value"].max():
        console.out.print(
            "[yellow]A fine-tuned model does not beat every baseline with this recipe.[/]"
        )
