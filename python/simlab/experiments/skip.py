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
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from simlab.bounds import Length, bounded
from simlab.experiments.truncate import Subject, heldout_rows
from simlab.models.architectures import text_config
from simlab.models.batches import Halving, batches, reads_padding
from simlab.models.evaluate import EVALUATION_BATCH
from simlab.models.load import load_scored, load_tokenizer
from simlab.models.place import AUTO, check_device, moved, place, scratch_beside
from simlab.models.recognise import architecture_of
from simlab.models.sources import ModelSource
from simlab.models.states import LayerChain
from simlab.models.tokens import encode_for_head
from simlab.results.results import SKIPPING, ResultRow, ensure_results
from simlab.store.console import progress
from simlab.store.jobs import Outcome

if TYPE_CHECKING:
    import torch

    from simlab.tasks import Task, TaskOptions

Span = tuple[int, int]
EMPTY: Span = (0, 0)

# With more rows a matrix product is not faster, and the temporaries outgrow the caches (on a CPU,
# the fresh pages that every call touches would cost a quarter of the time).
TOKENS_PER_CALL = {"cpu": 4096, "cuda": 65536}
_FLOAT32_BYTES = 4


def spans(layers: int) -> list[Span]:
    """Return the empty span, and every contiguous span of a model with so many layers."""
    return [EMPTY, *((i, j) for i in range(layers) for j in range(i + 1, layers + 1))]


def skip_logits(chain: LayerChain, states_per_call: int) -> dict[Span, torch.Tensor]:
    """Return the logits [b, labels] of a model without each of `spans`, in one sweep over layers.

    A layer takes at most `states_per_call` states, each of the size of the batch, in one call. The
    logits of the empty span are the model's own.
    """
    layers = len(chain.layers)
    running: dict[Span, torch.Tensor] = {}
    for layer in range(layers):
        running |= {(start, layer): chain.states[start] for start in range(layer)}
        for part in _parts(list(running), states_per_call):
            states = chain.run(layer, [running[span] for span in part])
            running.update(zip(part, states, strict=True))
    running |= {(start, layers): chain.states[start] for start in range(layers)}
    logits = {EMPTY: chain.logits}
    for part in _parts(list(running), states_per_call):
        logits.update(zip(part, chain.finish([running.pop(s) for s in part]), strict=True))
    return logits


def states_per_call(batch: Mapping[str, torch.Tensor]) -> int:
    """Return the number of states of a batch that a layer takes in one call."""
    ids = batch["input_ids"]
    return max(1, TOKENS_PER_CALL[ids.device.type] // ids.numel())


def all_skip_logits(
    source: ModelSource,
    task: Task,
    max_length: int,
    *,
    batch_size: int = EVALUATION_BATCH,
    description: str = "skipping",
    device: str = AUTO,
    scratch: Path | None = None,
) -> dict[Span, np.ndarray]:
    """Return the logits [n, labels] float32 of every held-out example without each of `spans`."""
    import torch

    from simcore import free_memory

    tokenizer, computes = load_tokenizer(source), place(source, None, device)
    model = moved(load_scored(source, task, device=device, scratch=scratch), computes)
    encoded = encode_for_head(model, tokenizer, task.heldout, max_length)
    # For multiple choice, the number of choices.
    shape = (len(encoded), cast(int, model.config.num_labels))
    layers = len(architecture_of(model).layers(model))
    logits = {span: np.empty(shape, np.float32) for span in spans(layers)}
    alike = reads_padding(model, tokenizer, encoded, batch_size)
    # All states of a batch may take a quarter of the free memory: a system that promises more than
    # it has kills a process that would use it. What else does not fit runs in halves.
    states = (len(logits) + layers) * text_config(model.config).hidden_size * _FLOAT32_BYTES
    how: dict[str, Any] = {"alike": alike, "tokens": int(free_memory(computes) // 4 // states)}
    halving = Halving()

    def sweep(_: np.ndarray, batch: dict[str, Any]) -> dict[Span, torch.Tensor]:
        return skip_logits(LayerChain(model, batch, source.name), states_per_call(batch))

    with torch.inference_mode(), progress(description, len(encoded)) as advance:
        for examples, batch in batches(tokenizer, encoded, batch_size, computes, **how):
            for rows, by_span in halving.run(sweep, examples, batch):
                for span, of_span in by_span.items():
                    logits[span][rows] = of_span.cpu().numpy()
                advance(len(rows))
    return logits


@bounded
def skip(
    checkpoint: str | Path | ModelSource,
    task: str | Path | Task,
    out: str | Path,
    *,
    max_length: Length | None = None,
    label: str | None = None,
    seed: int | None = None,
    device: str = AUTO,
    task_options: TaskOptions | None = None,
    overwrite: bool = False,
) -> Outcome:
    """Leave out every contiguous span of layers of a fine-tuned model, and write the metrics.

    Nothing is trained.

    Parameters
    ----------
    checkpoint, out, label, seed, task_options, overwrite
        As for `truncate`.
    task
        As for `finetune`.
    max_length
        Tokens kept per example; None is as in the fine-tuning of the model.
    device
        As for `leave_out`.

    Returns
    -------
    Outcome
        The results file: the held-out metrics without each span; `layer_x` is i and `layer_y` is j
        of span [i, j), and both are 0 for the model itself.

    Raises
    ------
    UserError
        `checkpoint` is not a fine-tuned checkpoint, its head does not fit the task, or `out` has
        other content and `overwrite` is False.

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
    model = source.side(label or source.folder.name, seed)
    inputs = {"step": "skip", **subject.inputs, "named": vars(model)}

    def make() -> list[ResultRow]:
        with scratch_beside(Path(out)) as scratch:
            how: dict[str, Any] = {"device": device, "scratch": scratch}
            how |= {"description": f"skipping in {model.label}"}
            by_span = all_skip_logits(source, subject.task, subject.length, **how)
        return [
            row
            for (i, j), logits in by_span.items()
            for row in heldout_rows(SKIPPING, logits, subject.task, model, layer_x=i, layer_y=j)
        ]

    return ensure_results(Path(out), inputs, make, replace=overwrite)


def _parts(items: list[Span], size: int) -> list[list[Span]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
