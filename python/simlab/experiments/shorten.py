"""Write the first layers of a fine-tuned model and a head, for plain ``from_pretrained``."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError, argument
from simlab.experiments.truncate import (
    Subject,
    Truncated,
    TruncationOptions,
    cut_model,
    tuning_inputs,
)
from simlab.models.checkpoint import EVALUATION
from simlab.models.evaluate import EVALUATION_BATCH, heldout_metrics, predict_logits
from simlab.models.load import load_config, load_scored, load_tokenizer
from simlab.models.place import AUTO, check_device
from simlab.models.recognise import architecture_of
from simlab.models.sources import ModelSource
from simlab.store.files import write_json
from simlab.store.jobs import Outcome, run_job

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from simlab.tasks import Task, TaskOptions

_ROUNDING = 1e-3  # of the largest output


def keep_layers(model: PreTrainedModel, kept: Sequence[int]) -> PreTrainedModel:
    """Return a copy of `model` with its layers `kept` alone, counted from 0."""
    architecture = architecture_of(model)
    groups = len(set(map(id, architecture.layers(model))))
    if architecture.shared and groups > 1:
        raise UserError(
            f"model of type {model.config.model_type!r}: wanted layers that all share one set of "
            f"weights, found {groups} groups of layers, which a shorter model would group otherwise"
        )
    shorter = deepcopy(model)
    if not architecture.shared:
        path, _, name = architecture.layers_path.rpartition(".")
        holder = shorter.base_model.get_submodule(path)
        layers = getattr(holder, name)
        setattr(holder, name, type(layers)([layers[layer] for layer in kept]))
    config = architecture.keep_layers(model.config, kept)
    for module in shorter.modules():  # many modules hold the configuration
        if hasattr(module, "config"):
            module.config = config  # type: ignore[assignment]
    return shorter


def shorten(
    checkpoint: str | Path | ModelSource,
    task: str | Path | Task,
    layers: int,
    out: str | Path,
    options: TruncationOptions | None = None,
    *,
    max_length: int | None = None,
    device: str = AUTO,
    task_options: TaskOptions | None = None,
    overwrite: bool = False,
    **changes: Any,
) -> Outcome:
    """Write the first layers of a fine-tuned model and a head, as ``truncate --export`` does.

    Parameters
    ----------
    checkpoint, task_options, overwrite
        As for `truncate`.
    task
        As for `finetune`.
    layers
        Number of layers to keep.
    out
        The checkpoint folder to make; plain ``from_pretrained`` loads it.
    options, **changes
        Options with a single mode, which chooses the head: the fine-tuned model's own head
        (``untuned``, the default), or a head trained for the last kept layer; keywords replace
        fields of `TruncationOptions`.
    max_length
        Tokens kept per example; None is the length of the fine-tuning.
    device
        As for `inject`.

    Returns
    -------
    Outcome
        Path of the folder, and whether it was there before.

    Raises
    ------
    UserError
        There is more than one mode, `layers` is not between 1 and the number of layers, or `out`
        has other content and `overwrite` is False.

    Examples
    --------
    >>> from simlab import TaskOptions, finetune, shorten
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = finetune("minilm", "rt", "runs/ft-1", seed=1, max_steps=2, task_options=few)
    >>> shorten("runs/ft-1", "rt", 4, "runs/ft-1-short").path
    PosixPath('runs/ft-1-short')
    """
    options = (options or TruncationOptions()).changed(changes)
    if len(options.modes) != 1:
        raise UserError(
            f"{argument('layers')}: wanted one {argument('modes')}, found "
            f"{', '.join(options.modes)}"
        )
    (mode,) = options.modes
    check_device(device)
    subject = Subject(checkpoint, task, task_options, max_length)
    count = load_config(subject.source).num_hidden_layers
    if not 1 <= layers <= count:
        raise UserError(f"{argument('layers', layers)}: wanted 1 to {count} layers, found {layers}")
    inputs = {
        "step": "export",
        **subject.inputs,
        "layers": layers,
        "mode": mode,
        **tuning_inputs(subject.source, subject.task, options),
    }

    def make(partial: Path) -> None:
        source, task, length = subject.source, subject.task, subject.length
        how: dict[str, Any] = {"device": device, "in_blocks": False}
        truncated = cut_model(source, task, length, mode, options, **how)
        shorter = shortened(truncated, layers)
        logits = predict_logits(shorter, truncated.tokenizer, task.heldout, length)
        shorter.save_pretrained(partial)
        truncated.tokenizer.save_pretrained(partial)
        first = task.heldout.head(min(EVALUATION_BATCH, len(task.heldout)))
        written = ModelSource(str(partial), partial)
        model = load_scored(written, replace(task, heldout=first))
        title = "checking the export"
        answers = predict_logits(model, load_tokenizer(written), first, length, title)
        apart = np.abs(answers - logits[: len(answers)]).max()
        if not apart <= _ROUNDING * np.abs(logits).max():
            raise UserError(
                f"model of type {model.config.model_type!r}: wanted layers that compute alike at "
                f"every position, found outputs that differ by {apart:.3g} from those of the same "
                "layers in their old places"
            )
        scores = heldout_metrics(logits, task)
        evaluation = {
            "model": source.name,
            "task": task.name,
            "metric": task.metric,
            "value": scores[task.metric],
            "scores": scores,
            "n": len(task.heldout),
            "splits": source.splits,
            "layers": layers,
            "mode": mode,
            # Heads were trained with the length kept here; without heads nothing was trained.
            "max_length": length if truncated.heads else source.length or length,
        }
        write_json(partial / EVALUATION, evaluation)

    return run_job(Path(out), inputs, make, replace=overwrite)


def shortened(truncated: Truncated, layers: int) -> PreTrainedModel:
    """Return a model of the first `layers` layers, with the head trained for them, if any."""
    import torch

    model = keep_layers(truncated.model, range(layers))
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, every in (truncated.heads or {}).items():
            parameters[name].copy_(every[layers])
    return model
