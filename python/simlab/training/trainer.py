"""The Hugging Face Trainer with a resumable order of rows, a progress bar, and times of steps."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch.utils.data import Sampler
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import ExportableState, PrinterCallback
from transformers.trainer_pt_utils import get_length_grouped_indices

from simlab.models.sources import step_of
from simlab.store.jobs import RECORD, SCRATCH

if TYPE_CHECKING:
    from transformers import (
        DataCollator,
        PreTrainedModel,
        PreTrainedTokenizerBase,
        TrainerControl,
        TrainerState,
    )

    from simlab.training.recipes import Schedule

SAVES_PER_RUN = 4
_STATE = "trainer_state.json"  # the last file of a checkpoint that the Trainer writes
# First steps, left out of the median time: allocators and caches warm up. In short runs, half of
# the steps at most.
_WARM_UP_STEPS = 5


def generator_of(*numbers: int) -> torch.Generator:
    """Return a generator whose seed is drawn from all the numbers and their order.

    Their sum would not do: epoch 1 of seed 1 would be epoch 0 of seed 2.
    """
    mixed = np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(mixed >> np.uint64(1)))


class RowOrder(Sampler[int]):
    """A sampler whose order of rows depends on seed and epoch alone.

    The Trainer's own sampler by length draws from the global random generator. In the middle of an
    epoch, the state of the generator does not determine the order of that epoch, so a resumed run
    would continue with other rows.
    """

    def __init__(
        self, lengths: Sequence[int], batch_size: int, seed: int, *, group_by_length: bool
    ) -> None:
        self.lengths, self.batch_size, self.seed = list(lengths), batch_size, seed
        self.group_by_length = group_by_length
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that follows; the Trainer calls this method."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = generator_of(self.seed, self.epoch)
        if not self.group_by_length:
            return iter(torch.randperm(len(self.lengths), generator=generator).tolist())
        grouped = get_length_grouped_indices(self.lengths, self.batch_size, generator=generator)
        return iter(grouped)


class ResumableTrainer(Trainer):
    """A Trainer that takes its rows in the order of `rows`."""

    rows: RowOrder
    # Arguments of `TrainingArguments` that a subclass adds to the arguments of every training.
    more_arguments: Mapping[str, Any] = MappingProxyType({})

    def _get_train_sampler(self, train_dataset: Any = None) -> RowOrder:
        return self.rows


class UnpaddedTrainer(ResumableTrainer):
    """A Trainer for a model whose rows depend on padding (`batches.reads_padding`).

    The model gets texts of one length at a time, without their padding. Rows of a batch and its
    loss, the mean over them, are as for any other model.
    """

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor:
        """Return the mean loss of a batch."""
        if return_outputs:
            raise NotImplementedError("wanted the loss alone, because outputs differ in length")
        tokenizer = cast("PreTrainedTokenizerBase", self.processing_class)
        ids = inputs["input_ids"]  # [b, t], or [b, choices, t] with choices of one length
        lengths = (ids[:, 0] if ids.dim() > 2 else ids).ne(tokenizer.pad_token_id)
        lengths = lengths.sum(-1)
        losses = []
        for length in lengths.unique().tolist():
            rows = lengths == length
            span = slice(-length, None) if tokenizer.padding_side == "left" else slice(length)
            part = {
                name: values[rows][..., span] if values.dim() == ids.dim() else values[rows]
                for name, values in inputs.items()
            }
            losses.append(rows.double().mean().float() * super().compute_loss(model, part))
        return torch.stack(losses).sum()


class ShowProgress(TrainerCallback):
    """Advance the progress bar of simlab; in a resumed run it starts at the steps done before."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self.advance = advance

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Count the steps that a resumed run has done before."""
        self.advance(state.global_step)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Count one step."""
        self.advance(1)


class StepTimes(TrainerCallback, ExportableState):
    """Record the seconds of every step (forward, backward, update), also over interruptions."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._started = 0.0

    def state(self) -> dict[str, Any]:
        """Return the state that the Trainer stores with its checkpoints."""
        return {"args": {}, "attributes": {"seconds": self.seconds}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Load the times that a resumed run recorded before."""
        callbacks = cast("dict[str, Any]", state.stateful_callbacks)  # annotated as a list
        stored = callbacks.setdefault(type(self).__name__, self.state())
        self.seconds = list(stored["attributes"]["seconds"])

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the clock."""
        self._started = _now()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Stop the clock, and record the seconds."""
        self.seconds.append(_now() - self._started)


def train(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Mapping[str, Any]],
    collator: DataCollator,
    recipe: Schedule,
    folder: Path,
    callbacks: Sequence[TrainerCallback],
    kind: type[ResumableTrainer],
    device: str,
) -> None:
    """Train `model` by `recipe`, from the last checkpoint in `folder` if there is one.

    The Trainer saves `SAVES_PER_RUN` checkpoints into `folder`. Each of `rows` has what `collator`
    takes: the inputs of the model, and perhaps ``labels``.
    """
    steps = recipe.steps(len(rows))
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=recipe.batch_size,
        learning_rate=recipe.learning_rate,
        warmup_steps=recipe.warmup_steps(steps),
        weight_decay=recipe.weight_decay,
        adam_epsilon=recipe.adam_epsilon,
        save_steps=max(1, -(-steps // SAVES_PER_RUN)),
        save_total_limit=1,
        seed=recipe.seed,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available() and device != "cpu",
        use_cpu=device == "cpu",
        **kind.more_arguments,
    )
    with _on_one_device(arguments, device):
        trainer = kind(
            model=model,
            args=arguments,
            train_dataset=rows,
            data_collator=collator,
            processing_class=tokenizer,
            callbacks=list(callbacks),
        )
        trainer.rows = RowOrder(
            [_length(row["input_ids"]) for row in rows],
            recipe.batch_size,
            recipe.seed,
            group_by_length=recipe.group_by_length,
        )
        trainer.remove_callback(PrinterCallback)
        checkpoint = last_checkpoint(folder)
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)


@contextmanager
def _on_one_device(arguments: TrainingArguments, device: str) -> Iterator[None]:
    """Let a Trainer of these arguments use `device` alone inside the block.

    Its own choice is the first GPU, and on several GPUs a larger batch.
    """
    chosen = torch.device(device)
    if arguments.device.type != "cuda" or chosen.type != "cuda":
        yield
        return
    chosen = torch.device("cuda", chosen.index or 0)
    arguments._n_gpu = 1
    vars(arguments)["_setup_devices"] = chosen  # the cached property behind `device`
    with torch.cuda.device(chosen):
        yield


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint in `folder`, or None if there is none."""
    complete = [path.parent for path in folder.glob(f"checkpoint-*/{_STATE}") if _is_json(path)]
    return max(complete, key=lambda path: step_of(path.name), default=None)


def remove_incomplete_checkpoints(folder: Path) -> None:
    """Delete the incomplete checkpoints that a failed save left in `folder`."""
    import shutil

    for path in folder.glob("checkpoint-*"):
        if not _is_json(path / _STATE):
            shutil.rmtree(path)


@contextmanager
def trainer_folder(folder: Path) -> Iterator[Path]:
    """Yield the folder of the Trainer within the partial folder of a job, which deletes it.

    If the work is interrupted, the Trainer's complete checkpoints and the record of the job stay,
    and all other files are deleted.
    """
    import shutil

    scratch = folder / SCRATCH
    try:
        yield scratch
    except BaseException:
        remove_incomplete_checkpoints(scratch)
        for path in folder.iterdir():
            if path.name == RECORD or (path == scratch and last_checkpoint(scratch)):
                continue
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise


def finished_checkpoint(folder: Path, steps: int) -> Path | None:
    """Return the newest checkpoint in `folder` if no step of training is left after it."""
    checkpoint = last_checkpoint(folder)
    done = checkpoint is not None and step_of(checkpoint.name) >= steps
    return checkpoint if done else None


def last_state(folder: Path) -> dict[str, Any]:
    """Read the state that the Trainer stored with the newest checkpoint in `folder`."""
    checkpoint = last_checkpoint(folder)
    assert checkpoint is not None, f"{folder}: wanted a checkpoint, found none"
    return json.loads((checkpoint / _STATE).read_text("utf-8"))


def median_step_seconds(state: dict[str, Any]) -> float:
    """Return the median time of a step after warm-up; `state` comes from `last_state`."""
    seconds = state["stateful_callbacks"][StepTimes.__name__]["attributes"]["seconds"]
    return median(seconds[min(_WARM_UP_STEPS, len(seconds) // 2) :])


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return True


def _length(ids: list[Any]) -> int:
    """Return the number of tokens of an example, or of the longest of its choices."""
    return max(map(len, ids)) if isinstance(ids[0], list) else len(ids)


def _now() -> float:
    if torch.cuda.is_initialized():  # kernels run asynchronously: wait until they are done
        torch.cuda.synchronize()
    return time.perf_counter()
