"""Small models of every shape of output, and batches for them."""

from __future__ import annotations

import torch
from torch import nn

from simcore import record


class Encoder(nn.Module):
    """Tokens in, states out: an embedding and linear layers, each with a residual connection."""

    def __init__(self, layers: int = 3, width: int = 8, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, width)
        self.layer = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, 2)

    def forward(self, ids, attention_mask=None):
        states = self.embed(ids)
        for layer in self.layer:
            states = self.dropout(states + torch.tanh(layer(states)))
        return {"logits": self.head(states[:, 0]), "states": states}


class ConvNet(nn.Module):
    """Images in, logits out; a block adds its input to two convolutions."""

    def __init__(self, channels: int = 6) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 3, padding=1)
        self.layer1 = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(True))
        self.layer2 = nn.Sequential(nn.Conv2d(channels, 2 * channels, 3, 2), nn.ReLU(True))
        self.head = nn.Linear(2 * channels, 10)

    def forward(self, images):
        states = self.layer2(self.layer1(self.stem(images)))
        return self.head(states.mean((2, 3)))


class Shared(nn.Module):
    """One layer that runs `times` times in a forward pass, or as often as it is told."""

    def __init__(self, times: int = 3) -> None:
        super().__init__()
        self.cell, self.last, self.times = nn.Linear(4, 4), nn.Linear(4, 3), times

    def forward(self, x, times=None):
        for _ in range(times or self.times):
            x = torch.tanh(self.cell(x))
        return self.last(x)


def taped(model, modules, loader, **options):
    """Record `model` on all batches, and return the tape."""
    with record(model, modules, **options) as tape:
        for batch in loader:
            model(**batch) if isinstance(batch, dict) else model(batch)
    return tape


def seeded(kind, *args, **kwargs):
    """Make a model with weights that are the same each time, in evaluation mode."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(*args, **kwargs).eval()


def token_batches(count=3, size=4, tokens=7):
    """Batches of token numbers with masks; in each, the rows have other lengths."""
    generator = torch.Generator().manual_seed(1)
    batches = []
    for _ in range(count):
        ids = torch.randint(1, 20, (size, tokens), generator=generator)
        lengths = torch.randint(1, tokens + 1, (size, 1), generator=generator)
        lengths[0] = tokens
        mask = (torch.arange(tokens) < lengths).long()
        batches.append({"ids": ids * mask, "attention_mask": mask})
    return batches


def images(count=3, size=5):
    """Batches ``[size, 1, 8, 8]``."""
    return list(torch.randn(count, size, 1, 8, 8, generator=torch.Generator().manual_seed(2)))
