"""Skip layers (Phang et al. 2021, section 4.1): leave out every contiguous span, without training.

Span [i, j) leaves out layers i + 1 to j: the output of layer i (0 is the embedding output) takes
the place of the output of layer j. A model of L layers has L (L + 1) / 2 spans besides the empty
span, which stands for the whole model.

A forward pass for each span would run

    L + sum over lengths k = 1..L of (L + 1 - k) (L - k)  =  L + (L - 1) L (L + 1) / 3

layers. But up to layer i, a model without span [i, j) has the states of the whole model, so only
the layers after layer j have to run. In one sweep, layer l (from 0) runs on the state of the whole
model and on the states of the l (l + 1) / 2 spans that end at or before this layer. This is

    sum over l = 0..L-1 of 1 + l (l + 1) / 2  =  L + (L - 1) L (L + 1) / 6

runs of a layer on a batch: 41 instead of 76 for 6 layers, 298 instead of 584 for 12. The model's
own forward pass gives the logits of the empty span, so they equal the model's bit for bit. The
logits of other spans differ from a model without the layers by rounding alone, because
their matrix products have more rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from simlab.bounds import Bytes, Length, bounded
from simlab.errors import UserError, argument
from simlab.experiments.spans import EMPTY, Span, in_parts, spans
from simlab.experiments.subject import Subject
from simlab.models.alone import reads_padding
from simlab.models.architectures import text_config
from simlab.models.batches import batches
from simlab.models.evaluate import EVALUATION_BATCH, heldout_columns
from simlab.models.fitting import load_scored
from simlab.models.load import load_tokenizer
from simlab.models.padding import encode_for_head
from simlab.models.place import AUTO, PRECISIONS, check_device, moved, place, scratch_beside
from simlab.models.recognise import architecture_of
from simlab.models.sources import ModelSource
from simlab.models.states import LayerChain
from simlab.store.console import progress
from simlab.store.jobs import Outcome
from simlab.store.results import SKIPPING, ResultRow, Side, ensure_results

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from simlab.tasks import Task, TaskOptions

# With more rows a matrix product is not faster, and the temporaries outgrow the caches (on a CPU,
# the fresh pages that every call touches would cost a quarter of the time).
TOKENS_PER_CALL = {"cpu": 4096, "cuda": 65536}
# Memory of a layer while it runs, as a multiple of its input: four times the width before and after
# the activation (six with a gate), queries, keys, values, their products, residuals.
_LAYER_STATES = 24
_FLOAT32_BYTES = 4


def skip_logits(chain: LayerChain, states_per_call: int) -> dict[Span, torch.Tensor]:
    """Return the logits [b, labels] of a model without each of `spans`, in one sweep over layers.

    A layer takes at most `states_per_call` states, each of the size of the batch, in one call. The
    logits of the empty span are the model's own.
    """
    layers = len(chain.layers)
    running: dict[Span, torch.Tensor] = {}
    for layer in range(layers):
        running |= {(start, layer): chain.states[start] for start in range(layer)}
        for part in in_parts(list(running), states_per_call):
            states = chain.run(layer, [running[span] for span in part])
            running.update(zip(part, states, strict=True))
    running |= {(start, layers): chain.states[start] for start in range(layers)}
    logits = {EMPTY: chain.logits}
    for part in in_parts(list(running), states_per_call):
        logits.update(zip(part, chain.finish([running.pop(s) for s in part]), strict=True))
    return logits


@dataclass(frozen=True)
class SkipPlan:
    """The number of examples in a sweep, and of their states in one call of a layer."""

    examples: int
    states: int


def plan_skip(
    model: PreTrainedModel, layers: int, batch: Mapping[str, torch.Tensor], max_memory: int
) -> SkipPlan:
    """Return the largest sweep whose states and temporaries fit into `max_memory` bytes."""
    ids = batch["input_ids"]
    tokens = ids[0].numel()
    config = text_config(model.config)
    state = tokens * config.hidden_size * _FLOAT32_BYTES
    scores = ids.shape[-1] * tokens * config.num_attention_heads * _FLOAT32_BYTES
    # States of the spans and of the whole model, and a quarter more for gaps of the allocator.
    per_example = (layers * (layers + 1) // 2 + layers + 1) * state * 5 // 4
    per_call = (_LAYER_STATES * state) + 3 * scores
    if per_example + per_call > max_memory:
        raise UserError(
            f"{argument('max_memory')}: wanted at least {per_example + per_call:,} bytes for one "
            f"example of {tokens} tokens in {layers} layers, found {max_memory:,}"
        )
    examples = min(len(ids), max_memory // (per_example + per_call))
    room = (max_memory - examples * per_example) // (examples * per_call)
    useful = max(1, TOKENS_PER_CALL[ids.device.type] // (examples * tokens))
    states = int(min(room, useful, max(1, layers * (layers - 1) // 2)))
    return SkipPlan(examples, states)


def all_skip_logits(
    source: ModelSource,
    task: Task,
    max_length: int,
    *,
    max_memory: int | None = None,
    batch_size: int = EVALUATION_BATCH,
    description: str = "skipping",
    device: str = AUTO,
    scratch: Path | None = None,
) -> dict[Span, np.ndarray]:
    """Return the logits [n, labels] float32 of every held-out example without each of `spans`.

    `max_memory` counts the bytes of hidden states and temporaries; None is a quarter of
    `simcore.free_memory`. Results do not depend on it, except for rounding.
    """
    import torch

    from simcore import free_memory

    tokenizer, computes = load_tokenizer(source), place(source, PRECISIONS[0], device)
    model = moved(load_scored(source, task, device=device, scratch=scratch), computes)
    limit = free_memory(computes) // 4 if max_memory is None else max_memory
    encoded = encode_for_head(model, tokenizer, task.heldout, max_length)
    # For multiple choice, the number of choices.
    shape = (len(encoded), cast(int, model.config.num_labels))
    layers = len(architecture_of(model).layers(model))
    logits = {span: np.empty(shape, np.float32) for span in spans(layers)}
    alike = reads_padding(model, tokenizer, encoded, batch_size)
    fed = batches(tokenizer, encoded, batch_size, computes, alike=alike)
    with torch.inference_mode(), progress(description, len(encoded)) as advance:
        for rows, batch in fed:
            plan = plan_skip(model, layers, batch, limit)
            for start in range(0, len(rows), plan.examples):
                part = slice(start, start + plan.examples)
                chain = LayerChain(model, {n: v[part] for n, v in batch.items()}, source.name)
                for span, of_span in skip_logits(chain, plan.states).items():
                    logits[span][rows[part]] = of_span.cpu().numpy()
                advance(len(rows[part]))
    return logits


def skip_rows(
    source: ModelSource,
    task: Task,
    max_length: int,
    model: Side,
    **how: Any,
) -> list[ResultRow]:
    """Return the held-out metrics of fine-tuned model `source` without each span of its layers.

    `layer_x` is i and `layer_y` is j of span [i, j); both are 0 for the model itself.
    """
    description = f"skipping in {model.label}"
    by_span = all_skip_logits(source, task, max_length, description=description, **how)
    return [
        ResultRow(
            experiment=SKIPPING,
            **model.columns(),
            layer_x=start,
            layer_y=end,
            n=len(task.heldout),
            task=task.name,
            **columns,
        )
        for (start, end), logits in by_span.items()
        for columns in heldout_columns(logits, task)
    ]


@bounded
def skip(
    checkpoint: str | Path | ModelSource,
    task: str | Path | Task,
    out: str | Path,
    *,
    max_length: Length | None = None,
    label: str | None = None,
    seed: int | None = None,
    max_memory: Bytes | None = None,
    device: str = AUTO,
    task_options: TaskOptions | None = None,
    overwrite: bool = False,
) -> Outcome:
    """Leave out every contiguous span of layers of a fine-tuned model, and write the metrics.

    Nothing is trained.

    Parameters
    ----------
    checkpoint, out, label, seed, device, task_options, overwrite
        As for `truncate`.
    task
        As for `finetune`.
    max_length
        Tokens kept per example; None is as in the fine-tuning of the model.
    max_memory
        Bytes for hidden states and temporaries, such as 1e9; None is 1/4 of the free memory.

    Returns
    -------
    Outcome
        The results file: the held-out metrics without each span (`skip_rows`).

    Raises
    ------
    UserError
        `checkpoint` is not a fine-tuned checkpoint, its head does not fit the task, there is too
        little memory, or `out` has other content and `overwrite` is False.

    Examples
    --------
    >>> from simlab import TaskOptions, finetune, read_results, skip
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = finetune("minilm", "rt", "runs/ft-1", seed=1, max_steps=2, task_options=few)
    >>> step = skip("runs/ft-1", "rt", "runs/results/skipping.parquet")
    >>> len(read_results(step.path))  # 21 spans of 6 layers, and the whole model
    22
    """
    check_device(device, in_blocks=True)
    subject = Subject(checkpoint, task, task_options, max_length)
    source = subject.source
    model = source.side(label or source.path.name, seed)
    inputs: dict[str, Any] = {
        "step": "skip",
        **subject.inputs,
        "named": vars(model),
    }

    def make() -> list[ResultRow]:
        limit = None if max_memory is None else int(max_memory)
        with scratch_beside(Path(out)) as scratch:
            how: dict[str, Any] = {"max_memory": limit, "device": device, "scratch": scratch}
            return skip_rows(source, subject.task, subject.length, model, **how)

    return ensure_results(Path(out), inputs, make, replace=overwrite)
