"""Steps of a training that are kept: a model folder for each, written while the Trainer runs."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from simlab.models.revisions import step_name

if TYPE_CHECKING:
    from transformers import (
        PreTrainedModel,
        PreTrainedTokenizerBase,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )

_KEPT = "kept"  # in the folder of the Trainer, whose own checkpoints stand beside it


class KeepSteps(TrainerCallback):
    """Write the model and its tokenizer at some steps.

    The folders lie in the folder of the Trainer, and are copied when the training has ended. So
    they stay exactly if the Trainer's checkpoint stays, at which an interrupted run continues: a
    step before it is kept already, a step after it is written again.
    """

    def __init__(
        self, steps: Collection[int], tokenizer: PreTrainedTokenizerBase, trainer: Path
    ) -> None:
        self.steps, self.tokenizer, self.folder = frozenset(steps), tokenizer, trainer / _KEPT

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep step 0, which is before the first step."""
        if state.global_step == 0:
            self._keep(state, kwargs)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep the model after a step."""
        self._keep(state, kwargs)

    def _keep(self, state: TrainerState, given: Mapping[str, Any]) -> None:
        if state.global_step not in self.steps:
            return
        out = self.folder / step_name(state.global_step)
        partial = out.with_suffix(".partial")
        for earlier in (out, partial):  # of a run that ended before the Trainer's next checkpoint
            shutil.rmtree(earlier, ignore_errors=True)
        model: PreTrainedModel = given["model"]
        model.save_pretrained(partial)
        self.tokenizer.save_pretrained(partial)
        partial.rename(out)


def kept_folder(trainer: Path, step: int) -> Path:
    """Return the folder of a step in the folder of the Trainer."""
    return trainer / _KEPT / step_name(step)


def copy_kept(trainer: Path, steps: Sequence[int], out: Path) -> None:
    """Copy the folders of steps from the folder of the Trainer to `out`.

    A run that is interrupted here finds all of them again when it continues.
    """
    for step in steps:
        shutil.copytree(kept_folder(trainer, step), out / step_name(step), dirs_exist_ok=True)
