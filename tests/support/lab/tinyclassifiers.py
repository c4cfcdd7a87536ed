"""Tiny checkpoints with heads, whose layers all matter, and a multiple-choice task."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from simlab.models.batches import pad
from simlab.models.heads import classifier_vectors
from simlab.models.load import load_classifier, load_tokenizer
from simlab.models.sources import ModelSource, resolve
from simlab.models.states import layer_states
from simlab.models.tokens import encode
from simlab.tasks import Examples, Task
from support.lab.tinymodels import save_tiny_model

# Freshly drawn weights are so small that one layer more or less hardly changes the output.
SHAKING = 0.3


def save_classifier(
    folder: Path, architecture: str, task: Task, head: str = "transformers"
) -> ModelSource:
    """Save a checkpoint with a head for `task` as fine-tuning does, but of random weights."""
    import torch

    source = resolve(str(save_tiny_model(folder, architecture)))
    model = load_classifier(source, task, seed=5, head=head)
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(SHAKING * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(folder)
    return source


def batch_of(source: ModelSource, task: Task, count: int = 6) -> dict:
    """Return the first held-out examples, padded: texts of very different lengths."""
    examples = task.heldout.head(min(count, len(task.heldout)))
    tokenizer = load_tokenizer(source)
    return pad(tokenizer, encode(tokenizer, examples, 64))


def vectors_of_layers(model, batch: dict):
    """Return the classifier vectors of all layers of a batch, [layers + 1, b, ...]."""
    import torch

    states, mask = layer_states(model, batch), batch["attention_mask"]
    last = len(states) - 1
    return torch.stack(
        [classifier_vectors(model, one, mask, k == last) for k, one in enumerate(states)]
    )


def choice_task(count: int = 12) -> Task:
    """Return questions with three answers of different lengths; the right one names the film."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=count)
    others = ("the plot is dull", "music", "some scenes and a cast", "bright")
    choices = tuple(
        tuple("the film" if k == label else others[(row + k) % 4] for k in range(3))
        for row, label in enumerate(labels)
    )
    ids = tuple(f"row-{row}" for row in range(count))
    texts = tuple(("fresh", "the music is moving")[row % 2] for row in range(count))
    examples = Examples(ids, texts, None, labels, choices)
    return Task("choices", examples, examples, ("0", "1", "2"))
