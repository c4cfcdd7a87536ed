"""Fine-tuning with the Hugging Face Trainer: seeded, resumable, atomic."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.batches import batches, collator, encode
from simlab.console import progress
from simlab.errors import UserError
from simlab.files import read_json, write_json
from simlab.jobs import Outcome, run_job
from simlab.models import ModelSource, load_classifier, load_tokenizer
from simlab.runtime import best_device, quiet_libraries

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainerCallback

    from simlab.tasks import Examples, Task

EVALUATION = "evaluation.json"
EVALUATION_BATCH = 64
SAVES_PER_RUN = 4
_TRAINER_FOLDER = "trainer"


@dataclass(frozen=True)
class Recipe:
    """How to fine-tune; the defaults suit a small encoder and a few thousand sentences."""

    epochs: float = 1.0
    learning_rate: float = 1e-4
    batch_size: int = 32
    max_length: int = 64
    warmup_share: float = 0.1
    weight_decay: float = 0.01
    seed: int = 1
    random_init: bool = False

    def check(self) -> None:
        """Raise UserError where a value makes no sense."""
        for option in ("epochs", "learning_rate", "batch_size"):
            if getattr(self, option) <= 0:
                name = option.replace("_", "-")
                raise UserError(f"--{name}: wanted more than 0, found {getattr(self, option)}")
        if self.max_length < 3:
            raise UserError(f"--max-length: wanted at least 3, found {self.max_length}")


def finetune(
    source: ModelSource, task: Task, recipe: Recipe, folder: Path, *, replace: bool = False
) -> Outcome:
    """Fine-tune `source` on the training rows of `task`; evaluate on the held-out rows.

    The folder gets the model and tokenizer (plain ``from_pretrained`` loads it) and
    ``evaluation.json``. A run that was interrupted continues at its last Trainer checkpoint and
    ends with the weights an uninterrupted run would have.

    Raises
    ------
    UserError
        A bad recipe or model, or `folder` holds something else and not `replace`.
    """
    recipe.check()
    inputs = {
        "step": "finetune",
        "model": source.fingerprint,
        "train": task.train.fingerprint,
        "heldout": task.heldout.fingerprint,
        "labels": list(task.label_names),
        "recipe": asdict(recipe),
    }

    def make(partial: Path) -> None:
        _train(source, task, recipe, partial)

    return run_job(folder, inputs, make, replace=replace, resumable=True)


def read_evaluation(folder: Path) -> dict[str, Any]:
    """Read a checkpoint's ``evaluation.json``: metric, value, n, task, model, recipe."""
    return read_json(folder / EVALUATION)


def predict_logits(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Examples,
    max_length: int,
    description: str = "evaluating",
) -> np.ndarray:
    """Logits of every example in example order, shape [n, labels], float32."""
    import torch

    device = best_device()
    model.to(device).eval()
    encoded = encode(tokenizer, examples, max_length)
    logits = np.empty((len(examples), model.config.num_labels), np.float32)
    with torch.inference_mode(), progress(description, len(examples)) as advance:
        for rows, batch in batches(tokenizer, encoded, EVALUATION_BATCH, device):
            logits[rows] = model(**batch).logits.cpu().numpy()
            advance(len(rows))
    return logits


def predictions_of(logits: np.ndarray, task: Task) -> np.ndarray:
    """Class indices, or the single output of a regressor, shape [n]."""
    return logits[:, 0] if task.is_regression else logits.argmax(axis=1)


def _train(source: ModelSource, task: Task, recipe: Recipe, folder: Path) -> None:
    from transformers import set_seed

    tokenizer = load_tokenizer(source)
    model = load_classifier(source, task, seed=recipe.seed, random_init=recipe.random_init)
    set_seed(recipe.seed)
    name = "random twin" if recipe.random_init else "fine-tuning"
    steps = max(1, round(recipe.epochs * -(-len(task.train) // recipe.batch_size)))
    with progress(f"{name}, seed {recipe.seed}", steps) as advance:
        scratch = folder / _TRAINER_FOLDER
        trainer = _make_trainer(model, tokenizer, task, recipe, steps, scratch)
        trainer.add_callback(_progress_callback(advance))
        trainer.train(resume_from_checkpoint=_last_checkpoint(scratch))
    _write_checkpoint(model, tokenizer, source, task, recipe, folder)
    shutil.rmtree(scratch)


def _write_checkpoint(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: ModelSource,
    task: Task,
    recipe: Recipe,
    folder: Path,
) -> None:
    logits = predict_logits(model, tokenizer, task.heldout, recipe.max_length)
    evaluation = {
        "model": source.name,
        "task": task.name,
        "metric": task.metric,
        "value": task.score(predictions_of(logits, task), task.heldout.labels),
        "n": len(task.heldout),
        "recipe": asdict(recipe),
    }
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_json(folder / EVALUATION, evaluation)


def _make_trainer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    recipe: Recipe,
    steps: int,
    folder: Path,
) -> Trainer:
    quiet_libraries()
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_callback import PrinterCallback

    rows = encode(tokenizer, task.train, recipe.max_length)
    for row, label in zip(rows, task.train.labels.tolist(), strict=True):
        row["labels"] = label
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=recipe.batch_size,
        learning_rate=recipe.learning_rate,
        warmup_steps=round(recipe.warmup_share * steps),
        weight_decay=recipe.weight_decay,
        train_sampling_strategy="group_by_length",
        save_steps=max(1, -(-steps // SAVES_PER_RUN)),
        save_total_limit=1,
        seed=recipe.seed,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=best_device() == "cuda",
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        data_collator=collator(tokenizer, task),
        processing_class=tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _progress_callback(advance: Callable[[int], None]) -> TrainerCallback:
    from transformers import TrainerCallback

    class ShowProgress(TrainerCallback):
        """Draws the project's bar; a resumed run starts it where it left off."""

        def on_train_begin(self, args, state, control, **kwargs):
            advance(state.global_step)

        def on_step_end(self, args, state, control, **kwargs):
            advance(1)

    return ShowProgress()


def _last_checkpoint(folder: Path) -> str | None:
    """The newest checkpoint that is complete: the Trainer writes its state file last."""
    complete = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
    if not complete:
        return None
    return str(max(complete, key=lambda path: int(path.name.rpartition("-")[2])))
