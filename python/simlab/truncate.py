"""Untuned truncation (Phang et al. 2021, section 4): an intermediate layer goes to the head.

Layer l's representation takes the place of the encoder's output, and the model's own code after
the encoder (pooler, dropout, classifier, whatever the architecture has) does the rest. Nothing is
trained. At the last layer this is the fine-tuned model itself, logit for logit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.batches import batches, encode
from simlab.console import progress
from simlab.errors import UserError
from simlab.files import read_json
from simlab.finetune import EVALUATION_BATCH, predictions_of
from simlab.jobs import Outcome
from simlab.models import ModelSource, load_classifier, load_tokenizer
from simlab.results import TRUNCATION, ResultRow, ensure_results
from simlab.runtime import best_device

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from simlab.tasks import Task

# Where the architectures keep their stack of blocks, below `base_model`.
_STACKS = ("encoder", "transformer")


def truncation_rows(
    source: ModelSource, task: Task, max_length: int, *, label: str, seed: int | None
) -> list[ResultRow]:
    """Held-out metric of the fine-tuned model `source` cut after every layer.

    Returns
    -------
    list of ResultRow
        One row per layer, embedding output first; `layer_x` is the layer fed to the head.

    Raises
    ------
    UserError
        The architecture does not separate its blocks from its head, or the head does not fit
        the task.
    """
    logits = truncated_logits(source, task, max_length, f"truncating {label}")
    return [
        ResultRow(
            comparison=TRUNCATION,
            measure=task.metric,
            model_x=label,
            seed_x=seed,
            layer_x=layer,
            value=task.score(predictions_of(layer_logits, task), task.heldout.labels),
            n=len(task.heldout),
            task=task.name,
        )
        for layer, layer_logits in enumerate(logits)
    ]


def write_truncation(
    checkpoint: Path,
    task: Task,
    path: Path,
    max_length: int,
    *,
    label: str | None = None,
    seed: int | None = None,
    replace: bool = False,
) -> Outcome:
    """Write `truncation_rows` of a checkpoint folder to results file `path`.

    Raises
    ------
    UserError
        Not a fine-tuned checkpoint, a head that does not fit, or another `path`.
    """
    require_classifier(checkpoint)
    source = ModelSource(str(checkpoint), checkpoint)
    label = label or checkpoint.name
    inputs = {
        "step": "truncate",
        "model": source.fingerprint,
        "heldout": task.heldout.fingerprint,
        "max_length": max_length,
        "label": label,
        "seed": seed,
    }

    def make() -> list[ResultRow]:
        return truncation_rows(source, task, max_length, label=label, seed=seed)

    return ensure_results(path, inputs, make, replace=replace)


def require_classifier(folder: Path) -> None:
    """Check that `folder` is a checkpoint with a sequence-classification head.

    Raises
    ------
    UserError
        No such folder, or a model without that head (whose head would be a random one).
    """
    config = folder / "config.json"
    names = read_json(config).get("architectures") or [] if config.is_file() else []
    if not any(name.endswith("ForSequenceClassification") for name in names):
        found = ", ".join(names) or "none"
        raise UserError(
            f"{folder}: wanted a checkpoint written by `simcore finetune`, found {found}"
        )


def truncated_logits(
    source: ModelSource, task: Task, max_length: int, description: str = "truncating"
) -> np.ndarray:
    """Logits of every truncated model, shape [layers + 1, n, labels], float32."""
    import torch

    tokenizer = load_tokenizer(source)
    model = load_classifier(source)
    require_head(model, source, task)
    device = best_device()
    model.to(device)
    encoded = encode(tokenizer, task.heldout, max_length)
    logits: np.ndarray | None = None
    with torch.inference_mode(), progress(description, len(encoded)) as advance:
        for rows, batch in batches(tokenizer, encoded, EVALUATION_BATCH, device):
            hidden = model(**batch, output_hidden_states=True).hidden_states
            if logits is None:
                shape = (len(hidden), len(encoded), model.config.num_labels)
                logits = np.empty(shape, np.float32)
            for layer, states in enumerate(hidden):
                logits[layer, rows] = head_logits(model, states, batch, source.name).cpu().numpy()
            advance(len(rows))
    return logits


def head_logits(
    model: PreTrainedModel, states: torch.Tensor, batch: dict[str, Any], name: str = "model"
) -> torch.Tensor:
    """Logits of `model` when `states`, [b, t, p], stand in for its encoder's output."""
    with _encoder_output(model, states, name):
        return model(**batch).logits


@contextmanager
def _encoder_output(model: PreTrainedModel, states: torch.Tensor, name: str) -> Iterator[None]:
    from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

    base = model.base_model
    stack = next((getattr(base, part) for part in _STACKS if hasattr(base, part)), None)
    if stack is None:
        raise UserError(
            f"model {name}: wanted an encoder with a separate stack of blocks, found "
            f"architecture {model.config.model_type!r}, which cannot be truncated yet"
        )
    # An instance attribute hides the method of the class until it is deleted: the blocks are not
    # even run, and everything before and after them is the model's own code.
    # Most heads read the last hidden state, DeBERTa's the last of all of them.
    stack.forward = lambda *_, **__: BaseModelOutputWithPastAndCrossAttentions(
        last_hidden_state=states, hidden_states=(states,)
    )
    try:
        yield
    finally:
        del stack.forward


def require_head(model: PreTrainedModel, source: ModelSource, task: Task) -> None:
    """Check that the head of `model` has as many outputs as `task` has labels.

    Raises
    ------
    UserError
        It has another number of them.
    """
    wanted = 1 if task.is_regression else len(task.label_names)
    if model.config.num_labels != wanted:
        raise UserError(
            f"model {source.name}: task {task.name} wanted a head with {wanted} outputs, found "
            f"{model.config.num_labels}"
        )
