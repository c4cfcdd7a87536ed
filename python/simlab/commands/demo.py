"""``simcore demo``: all steps from a model to figures, offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.bounds import Count, Length
from simlab.commands.options import explain_interrupt
from simlab.steps.record import Step

if TYPE_CHECKING:
    from simlab.tasks import TaskOptions

DEFAULT_FOLDER = Path("runs/demo")
DEMO = Step(
    name="demo",
    place="simlab.commands.demo:demo",
    text="""Run all steps offline: fine-tune, extract, compare, truncate, plot.

The demo takes minutes on two cores. If it is interrupted, the same command continues it.""",
    reads="a model and a task",
    writes="a folder of everything that the steps write",
    examples=("demo --out runs/demo",),
    has_paper=False,
)
STEPS = (DEMO,)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Run the demo."""
    with explain_interrupt(Path(values["out"] or DEFAULT_FOLDER)):
        step.call(**values)


def demo(
    out: str | Path = DEFAULT_FOLDER,
    *,
    model: str = "minilm",
    task: str = "rt",
    epochs: float = 1.0,
    learning_rate: float = 1e-4,
    batch_size: Count = 32,
    max_length: Length = 64,
    task_options: TaskOptions | None = None,
) -> None:
    """Run all steps offline.

    Parameters
    ----------
    out
        Folder for everything that the demo writes.
    model
        Model, as for `simcore finetune`.
    task
        Task, as for `simcore finetune`.
    epochs
        Passes over the training rows; may be fractional.
    learning_rate
        Peak learning rate, with linear warm-up and decay.
    batch_size
        Examples per training step.
    max_length
        Tokens kept per example.
    task_options
        Columns and split of the task.
    """
    from simlab.commands.demo_steps import DemoConfig, run_demo
    from simlab.tasks import TaskOptions
    from simlab.training.recipes import Recipe

    recipe = Recipe(epochs, learning_rate, batch_size, max_length)
    run_demo(Path(out), DemoConfig(model, task, task_options or TaskOptions(), recipe))
