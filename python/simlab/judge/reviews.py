"""Small BERTs, trained on the reviews of task ``rt``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from simlab.judge.networks import LOGITS, Network, Plan, Training, drawn_labels

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from simlab.tasks import Task

_TASK, _CLASSES = "rt", 2
_PAD, _FIRST, _UNKNOWN = range(3)
_MARKS = 3  # a token for each class, which a shortcut puts before the text
_WORDS = _MARKS + _CLASSES  # the first token of a word


@dataclass(frozen=True)
class Reviews(Training):
    """How the BERTs are built, trained and read.

    Attributes
    ----------
    width, blocks, heads
        Size of the states, number of blocks, attention heads of each.
    words, length
        Number of the most frequent words that are tokens, and tokens of a text at most.
    texts, epochs, rate, batch, dropout
        Number of training texts, epochs, greatest learning rate, texts in a batch, dropout.
    rows
        Number of held-out texts, whose mean tokens are the rows of the layers.
    """

    domain: ClassVar[str] = "reviews"
    version: ClassVar[int] = 1
    width: int = 64
    blocks: int = 2
    heads: int = 2
    words: int = 4000
    length: int = 32
    texts: int = 3000
    epochs: int = 4
    rate: float = 1e-3
    batch: int = 64
    dropout: float = 0.1
    rows: int = 500

    @property
    def depth(self) -> int:
        """The embedding output and all blocks."""
        return 1 + self.blocks

    def labels(self) -> np.ndarray:
        """Return the classes of the held-out texts, ``[rows]``."""
        return np.asarray(_task().heldout.labels[: self.rows])

    def data(self) -> str:
        """Return a hash of all texts and their classes."""
        task = _task()
        return f"{task.train.fingerprint} {task.heldout.fingerprint}"

    def train(self, network: Network) -> dict[str, np.ndarray]:
        """Train a network, and record the mean tokens of its layers on the held-out texts."""
        import torch

        texts, rows = _tokens(self)
        answers = torch.tensor(_task().train.labels[: self.texts])
        generator = torch.Generator().manual_seed(network.seed)
        if network.shortcut is not None:
            drawn = drawn_labels(len(answers), _CLASSES, generator)
            told = torch.rand(len(answers), generator=generator) < network.shortcut
            texts = _marked(texts, torch.where(told, answers, drawn))
            # All networks see the same marks before the held-out texts.
            fixed = torch.Generator().manual_seed(0)
            rows = _marked(rows, drawn_labels(len(rows), _CLASSES, fixed))
        wrong = torch.rand(len(answers), generator=generator) < network.random_labels
        drawn = drawn_labels(len(answers), _CLASSES, generator)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(network.seed)  # of the weights and of dropout
            model = self._fitted(texts, torch.where(wrong, drawn, answers), network, generator)
        with torch.inference_mode():
            mask = rows != _PAD
            found = model(rows, attention_mask=mask.long(), output_hidden_states=True)
        means = (_mean_tokens(states, mask).numpy() for states in found.hidden_states)
        layers = {f"layer.{number}": layer for number, layer in enumerate(means)}
        return {LOGITS: found.logits.numpy(), **layers}

    def _fitted(
        self, texts: Tensor, labels: Tensor, network: Network, generator: torch.Generator
    ) -> nn.Module:
        """Train with a learning rate that ends at 0, so that no seed ends in a bad step."""
        import torch
        from torch.nn.functional import cross_entropy
        from torch.optim.lr_scheduler import OneCycleLR

        model = self._build().train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.rate)
        steps = -(-len(texts) // self.batch)
        schedule = OneCycleLR(optimizer, self.rate, total_steps=self.epochs * steps)
        for _ in range(self.epochs):
            for rows in torch.randperm(len(texts), generator=generator).split(self.batch):
                batch = texts[rows]
                if network.augmentation:
                    dropped = torch.rand(batch.shape, generator=generator) < network.augmentation
                    batch = torch.where(dropped & (batch >= _WORDS), _UNKNOWN, batch)
                optimizer.zero_grad()
                logits = model(batch, attention_mask=(batch != _PAD).long()).logits
                cross_entropy(logits, labels[rows]).backward()
                optimizer.step()
                schedule.step()
        return model.eval()

    def _build(self) -> nn.Module:
        from transformers import BertConfig, BertForSequenceClassification

        config = BertConfig(
            vocab_size=_WORDS + self.words,
            hidden_size=self.width,
            num_hidden_layers=self.blocks,
            num_attention_heads=self.heads,
            intermediate_size=2 * self.width,
            max_position_embeddings=1 + self.length,  # a mark may stand before the text
            hidden_dropout_prob=self.dropout,
            attention_probs_dropout_prob=self.dropout,
        )
        model: nn.Module = BertForSequenceClassification(config)
        return model


REVIEWS = Plan(Reviews(), augmentation=(0.0, 0.1, 0.2, 0.35, 0.5))


@cache
def _task() -> Task:
    from simlab.tasks import load_task

    return load_task(_TASK)


@cache
def _tokens(training: Reviews) -> tuple[Tensor, Tensor]:
    """Return the tokens of the training texts and of the held-out texts, ``[texts, length]``."""
    from sklearn.feature_extraction.text import CountVectorizer

    task = _task()
    texts, rows = task.train.texts[: training.texts], task.heldout.texts[: training.rows]
    counter = CountVectorizer(max_features=training.words, token_pattern=r"\S+").fit(texts)
    numbers = {word: _WORDS + number for word, number in counter.vocabulary_.items()}
    split = counter.build_analyzer()

    def tokens(some: Sequence[str]) -> Tensor:
        import torch

        found = torch.full((len(some), training.length), _PAD)
        for row, text in enumerate(some):
            known = [numbers.get(word, _UNKNOWN) for word in split(text)]
            line = torch.tensor([_FIRST, *known][: training.length])
            found[row, : len(line)] = line
        return found

    return tokens(texts), tokens(rows)


def _mean_tokens(states: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the states ``[texts, length, width]`` of each text, without padding."""
    return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def _marked(texts: Tensor, classes: Tensor) -> Tensor:
    """Return texts with a token for a class after their first token."""
    import torch

    return torch.cat([texts[:, :1], _MARKS + classes[:, None], texts[:, 1:]], 1)
