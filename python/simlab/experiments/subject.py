"""A fine-tuned model and the task that an experiment scores it on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.models.checkpoint import Checkpoint, length_of, load_task_of
from simlab.models.sources import ModelSource

if TYPE_CHECKING:
    from simlab.tasks import Task, TaskOptions


class Subject:
    """A fine-tuned model, opened once, with the held-out rows and the length of its fine-tuning."""

    def __init__(
        self,
        checkpoint: str | Path | ModelSource,
        task: str | Path | Task,
        task_options: TaskOptions | None,
        max_length: int | None,
    ) -> None:
        self.source = Checkpoint.open_classifier(checkpoint)
        self.task = load_task_of([self.source], task, task_options)
        self.length = length_of([self.source], max_length)  # tokens kept per example

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of every job that scores the model on the held-out rows."""
        return {
            "model": self.source.fingerprint,
            "heldout": self.task.heldout.fingerprint,
            "max_length": self.length,
            **self.task.metric_inputs,
        }
