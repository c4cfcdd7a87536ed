"""The domains: small ResNets on scikit-learn's digits, and small BERTs on the reviews of ``rt``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import CountVectorizer
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d
from transformers import BertConfig, BertForSequenceClassification

import simcore
from networks import Block, Domain
from simlab import load_task

PAD, FIRST, UNKNOWN, MARKS = range(4)  # tokens of texts; each class has a mark
WORDS = MARKS + 2  # the first token of a word


# The groups of a domain differ in their accuracy, or in how often they follow the marks.
@dataclass(frozen=True, kw_only=True)
class Digits(Domain):
    """ResNets on images."""

    name: ClassVar[str] = "digits"
    classes: ClassVar[int] = 10
    epochs: int = 15
    rate: float = 3e-3
    shortcut: tuple[float, ...] = (0.0, 0.75, 0.9, 0.97, 1.0)
    augmentation: tuple[float, ...] = (0.0, 0.15, 0.3, 0.6, 1.0)
    width: int = 16  # channels of all layers
    strides: tuple[int, ...] = (1, 2, 1, 2, 1)  # of each block
    images: int = 1000  # for training
    # Positions that an image is pooled to, along each axis: layers have `width * side * side`
    # neurons, so that no measure can tell layers apart by their width.
    side: int = 2

    @cache  # noqa: B019
    def tensors(self) -> tuple[Tensor, ...]:
        """Return images ``[n, 1, 8, 8]`` and their digits, for training and held out."""
        data = load_digits()
        images = torch.tensor(data.images, dtype=torch.float32)[:, None] / data.images.max()
        labels = torch.tensor(data.target)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        chosen, held_out = order[: self.images], order[self.images : self.images + self.rows]
        return images[chosen], labels[chosen], images[held_out], labels[held_out]

    def marked(self, inputs: Tensor, classes: Tensor) -> Tensor:
        """Return images whose first line has two dots, which stand for a class."""
        dotted, each = inputs.clone(), torch.arange(len(inputs))
        dotted[:, 0, 0] = 0.0
        dotted[each, 0, 0, classes % 5] = 1.0
        dotted[each, 0, 0, 5 + classes // 5] = 1.0
        return dotted

    def disturbed(self, batch: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        """Return images with normal noise."""
        return batch + strength * torch.randn(batch.shape, generator=generator)

    def build(self) -> nn.Module:
        """Return a ResNet with new weights."""
        model = nn.Sequential()
        model.add_module("stem", nn.Conv2d(1, self.width, 3, padding=1))
        for number, stride in enumerate(self.strides):
            model.add_module(f"block-{number}", Block(self.width, self.width, stride))
        pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(self.width, self.classes))
        return model.extend(pooled)

    def answer(self, model: nn.Module, batch: Tensor) -> Tensor:
        """Return the logits of images."""
        return model(batch)

    def read(self, model: nn.Module, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the logits of images, and the pooled layers."""
        pooled = {"pool": lambda output: adaptive_avg_pool2d(output, self.side).flatten(1)}
        with simcore.record(model, ["stem", "block-*"], **pooled) as tape:
            logits = model(inputs)
        return logits, list(tape.layers().values())


@dataclass(frozen=True, kw_only=True)
class Reviews(Domain):
    """BERTs on texts."""

    name: ClassVar[str] = "reviews"
    classes: ClassVar[int] = 2
    epochs: int = 4
    rate: float = 1e-3
    augmentation: tuple[float, ...] = (0.0, 0.1, 0.2, 0.35, 0.5)
    width: int = 64  # of the states
    blocks: int = 2
    heads: int = 2  # of each block
    words: int = 4000  # number of the most frequent words that are tokens
    length: int = 32  # tokens of a text at most
    texts: int = 3000  # for training
    dropout: float = 0.1

    @cache  # noqa: B019
    def tensors(self) -> tuple[Tensor, ...]:
        """Return tokens of texts ``[n, length]`` and their classes, for training and held out."""
        task = load_task("rt")
        counter = CountVectorizer(max_features=self.words, token_pattern=r"\S+")
        counter.fit(task.train.texts[: self.texts])
        numbers = {word: WORDS + number for word, number in counter.vocabulary_.items()}
        split, found = counter.build_analyzer(), []
        for part, count in ((task.train, self.texts), (task.heldout, self.rows)):
            tokens = torch.full((count, self.length), PAD)
            for row, text in enumerate(part.texts[:count]):
                line = [FIRST, *(numbers.get(word, UNKNOWN) for word in split(text))]
                line = torch.tensor(line[: self.length])
                tokens[row, : len(line)] = line
            found += [tokens, torch.tensor(part.labels[:count])]
        return tuple(found)

    def marked(self, inputs: Tensor, classes: Tensor) -> Tensor:
        """Return texts with a token for a class after their first token."""
        return torch.cat([inputs[:, :1], MARKS + classes[:, None], inputs[:, 1:]], 1)

    def disturbed(self, batch: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        """Return texts some of whose words are unknown."""
        dropped = torch.rand(batch.shape, generator=generator) < strength
        return torch.where(dropped & (batch >= WORDS), UNKNOWN, batch)

    def build(self) -> nn.Module:
        """Return a BERT with new weights."""
        config = BertConfig(
            vocab_size=WORDS + self.words,
            hidden_size=self.width,
            num_hidden_layers=self.blocks,
            num_attention_heads=self.heads,
            intermediate_size=2 * self.width,
            max_position_embeddings=1 + self.length,  # a mark may stand before the text
            hidden_dropout_prob=self.dropout,
            attention_probs_dropout_prob=self.dropout,
        )
        return BertForSequenceClassification(config)

    def answer(self, model: nn.Module, batch: Tensor) -> Tensor:
        """Return the logits of texts."""
        return model(batch, attention_mask=(batch != PAD).long()).logits

    def read(self, model: nn.Module, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the logits of texts, and the mean tokens of the layers, without padding."""
        mask = inputs != PAD
        outputs = model(inputs, attention_mask=mask.long(), output_hidden_states=True)
        counts = mask.sum(1, keepdim=True)
        means = [(states * mask[..., None]).sum(1) / counts for states in outputs.hidden_states]
        return outputs.logits, means


DOMAINS = {domain.name: domain for domain in (Digits(), Reviews())}
