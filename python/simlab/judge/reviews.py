"""Small BERTs, trained on the reviews of task ``rt``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from simlab.judge.domain import Training
from simlab.judge.networks import Plan

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from simlab.tasks import Task

_TASK = "rt"
_PAD, _FIRST, _UNKNOWN = range(3)
_MARKS = 3  # a token for each class, which a shortcut puts before the text
_WORDS = _MARKS + 2  # the first token of a word


@dataclass(frozen=True, kw_only=True)
class Reviews(Training):
    """How the BERTs are built, trained and read."""

    domain: ClassVar[str] = "reviews"
    classes: ClassVar[int] = 2
    epochs: int = 4
    rate: float = 1e-3
    width: int = 64  # of the states
    blocks: int = 2
    heads: int = 2  # of each block
    words: int = 4000  # number of the most frequent words that are tokens
    length: int = 32  # tokens of a text at most
    texts: int = 3000  # for training
    dropout: float = 0.1

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

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the tokens of training texts, their classes, and the tokens of held-out texts."""
        import torch

        texts, rows = _tokens(self)
        return texts, torch.tensor(_task().train.labels[: self.texts]), rows

    def marked(self, inputs: Tensor, classes: Tensor) -> Tensor:
        """Return texts with a token for a class after their first token."""
        import torch

        return torch.cat([inputs[:, :1], _MARKS + classes[:, None], inputs[:, 1:]], 1)

    def disturbed(self, batch: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        """Return texts some of whose words are unknown."""
        import torch

        dropped = torch.rand(batch.shape, generator=generator) < strength
        return torch.where(dropped & (batch >= _WORDS), _UNKNOWN, batch)

    def build(self) -> nn.Module:
        """Return a BERT with new weights."""
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

    def answer(self, model: nn.Module, batch: Tensor) -> Tensor:
        """Return the logits of texts."""
        logits: Tensor = model(batch, attention_mask=(batch != _PAD).long()).logits
        return logits

    def read(self, model: nn.Module, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the logits of texts, and the mean tokens of the layers."""
        mask = inputs != _PAD
        outputs = model(inputs, attention_mask=mask.long(), output_hidden_states=True)
        return outputs.logits, [_mean_tokens(states, mask) for states in outputs.hidden_states]


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
