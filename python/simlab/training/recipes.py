"""How models are trained: schedules, recipes of fine-tuning and pretraining, lists of seeds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from simlab.bounds import Count, FromZero, Length, Steps, check_fields, replaced
from simlab.errors import UserError, argument, require_known
from simlab.models.classes import HEADS, TRANSFORMERS
from simlab.models.sources import OFFLINE_MODEL
from simlab.papers.presets import PAPERS, paper_options

NONE, BOTTOM, TOP = "none", "bottom", "top"
MASKED, CAUSAL = OBJECTIVES = ("masked", "causal")
_SEEDS = re.compile(r"(\d+)(?:\.\.(\d+))?")
_POSITIVE = ("epochs", "learning_rate", "adam_epsilon")
_NOT_NEGATIVE = ("warmup", "weight_decay")


@dataclass(frozen=True)
class Freeze:
    """The layers not to train: `count` layers from `side`, ``bottom`` or ``top``."""

    side: str
    count: int


def parse_freeze(text: str) -> Freeze | None:
    """Parse ``bottom:K`` or ``top:K``, K >= 1; return None for ``none``."""
    if text == NONE:
        return None
    side, _, count = text.partition(":")
    if side not in (BOTTOM, TOP) or not count.isdecimal() or int(count) < 1:
        raise UserError(
            f"{argument('freeze', text)}: wanted none, bottom:K or top:K with K at least 1"
        )
    return Freeze(side, int(count))


@dataclass(frozen=True)
class Schedule:
    """How a model is trained: for how long, how fast, on which batches.

    The optimiser is AdamW (with a `weight_decay` of 0, Adam). After `warmup`, the learning rate
    falls linearly to 0.

    Attributes
    ----------
    epochs
        Passes over the training rows; may be fractional.
    learning_rate
        Peak learning rate, with linear warm-up and decay.
    batch_size
        Examples per training step.
    max_length
        Tokens kept per example.
    warmup
        Warm-up steps, in which the learning rate rises from 0; a value below 1 is a share of all
        steps.
    weight_decay
        Weight decay of AdamW; with 0, AdamW is Adam.
    adam_epsilon
        Epsilon of AdamW.
    max_steps
        Training steps, in place of the epochs; with both, the first end counts. With neither,
        training takes one epoch.
    group_by_length
        Make batches of examples of similar length, which saves padding, or of random examples.
    seed
        Seed of new weights, row order and dropout.
    """

    epochs: float | None = None
    learning_rate: float = 1e-4
    batch_size: Count = 32
    max_length: Length = 64
    warmup: float = 0.1
    weight_decay: float = 0.01
    adam_epsilon: float = 1e-8
    max_steps: Count | None = None
    group_by_length: bool = True
    seed: FromZero = 1

    def __post_init__(self) -> None:
        """Train for one epoch if nothing else is given."""
        if self.epochs is None and self.max_steps is None:
            object.__setattr__(self, "epochs", 1.0)

    def check(self) -> None:
        """Raise UserError if a value is out of range."""
        check_fields(self)
        for field in (*_POSITIVE, *_NOT_NEGATIVE):
            value, zero = getattr(self, field), field in _NOT_NEGATIVE
            if value is None or (math.isfinite(value) and (value > 0 or (zero and value == 0))):
                continue
            wanted = "0 or more" if zero else "more than 0"
            raise UserError(f"{argument(field)}: wanted {wanted}, found {value}")

    def changed(self, given: Mapping[str, Any]) -> Self:
        """Return a checked schedule with the fields in `given` that are not None replaced.

        A new `epochs` or `max_steps` takes the place of both.
        """
        changes = {field: value for field, value in given.items() if value is not None}
        if changes.keys() & {"epochs", "max_steps"}:
            changes = {"epochs": None, "max_steps": None} | changes
        schedule = replaced(self, changes)
        schedule.check()
        return schedule

    def steps(self, rows: int) -> int:
        """Return the number of training steps for `rows` training rows."""
        ends = [] if self.max_steps is None else [self.max_steps]
        if self.epochs is not None:
            ends.append(max(1, round(self.epochs * math.ceil(rows / self.batch_size))))
        return min(ends)

    def warmup_steps(self, steps: int) -> int:
        """Return the number of warm-up steps of a training of `steps` steps."""
        return round(self.warmup if self.warmup >= 1 else self.warmup * steps)


@dataclass(frozen=True)
class Recipe(Schedule):
    """Settings of fine-tuning; the defaults suit a small encoder and a few thousand sentences.

    Attributes
    ----------
    freeze
        Layers not to train: ``bottom:K`` (with the embeddings), ``top:K`` or ``none``.
    random_init
        Start from random weights.
    head
        ``transformers``, the head that transformers gives this architecture, or ``jiant``, the head
        that jiant gives all encoders: dense layer, tanh and linear layer on the pooler, or on the
        first token of an encoder without one.
    """

    freeze: str = "none"
    random_init: bool = False
    head: str = TRANSFORMERS

    def check(self) -> None:
        """Raise UserError if a value is out of range."""
        super().check()
        parse_freeze(self.freeze)
        if self.head not in HEADS:
            raise UserError(f"{argument('head', self.head)}: wanted one of {', '.join(HEADS)}")


@dataclass(frozen=True)
class Pretraining(Schedule):
    """Settings of a pretraining by language modelling; the defaults take minutes on a CPU.

    Attributes
    ----------
    max_length
        Tokens of a row, and positions of the model. Longer texts become several rows.
    seed
        Seed of the weights, the order of the rows, the masks and dropout.
    batch_size
        Rows of tokens per training step.
    epochs
        Passes over the texts, in place of `max_steps`; with both, the first end counts.
    max_steps
        Training steps, in place of `epochs`; with both, the first end counts.
    layers
        Number of layers.
    hidden
        Width of the layers.
    heads
        Attention heads of a layer.
    intermediate
        Width of the feed-forward network; None is 4 times `hidden`.
    tokenizer
        Model whose tokenizer is used: ``minilm``, a folder, or a hub name.
    vocabulary
        Words kept: the special tokens, the letters, and the most frequent words of the texts; 0
        keeps all words of the tokenizer.
    objective
        ``masked``: a BERT that predicts masked tokens; or ``causal``: a decoder, a GPT-2, that
        predicts the next token.
    masked
        Share of the tokens that a BERT predicts.
    dropout
        Probability of dropout, in training and in later fine-tuning.
    keep_steps
        Number of steps of the training to keep, spaced evenly in their logarithm from step 0 to the
        last, each as a model folder ``checkpoint-STEP``. Needs `max_steps` without `epochs`.
    """

    learning_rate: float = 1e-3
    max_length: Length = 128
    max_steps: Count | None = 2000
    seed: FromZero = 0
    layers: Count = 4
    hidden: Count = 128
    heads: Count = 4
    intermediate: Count | None = None
    tokenizer: str = OFFLINE_MODEL
    vocabulary: FromZero = 8192
    objective: str = MASKED
    masked: float = 0.15
    dropout: float = 0.1
    keep_steps: Steps | None = None

    @property
    def width(self) -> int:
        """Return the width of the feed-forward network."""
        return 4 * self.hidden if self.intermediate is None else self.intermediate

    @property
    def kept(self) -> tuple[int, ...]:
        """Return the steps that are kept, in rising order."""
        if self.keep_steps is None or self.max_steps is None:
            return ()
        return log_steps(self.keep_steps, self.max_steps)

    def check(self) -> None:
        """Raise UserError if a value is out of range."""
        super().check()
        require_known("objective", self.objective, OBJECTIVES)
        if self.hidden % self.heads:
            raise UserError(
                f"{argument('hidden', self.hidden)}: wanted a multiple of "
                f"{argument('heads', self.heads)}, found a rest of {self.hidden % self.heads}"
            )
        for name, least in (("masked", "more than"), ("dropout", "at least")):
            value = getattr(self, name)
            if not 0 <= value < 1 or (name == "masked" and not value):
                raise UserError(
                    f"{argument(name)}: wanted {least} 0 and less than 1, found {value}"
                )
        if self.keep_steps is None:
            return
        if self.epochs is not None or self.max_steps is None:
            raise UserError(
                f"{argument('keep_steps')}: wanted {argument('max_steps')} without "
                f"{argument('epochs')}, because the last step is then known, found "
                f"{argument('epochs', self.epochs)}"
            )
        if self.keep_steps > self.max_steps + 1:
            raise UserError(
                f"{argument('keep_steps')}: wanted at most {self.max_steps + 1:,}, steps 0 to "
                f"{self.max_steps:,}, found {self.keep_steps:,}"
            )

    def without_tokenizer(self) -> dict[str, Any]:
        """Return the fields for a key, where the content of the tokenizer stands for its name."""
        return {name: value for name, value in asdict(self).items() if name != "tokenizer"}

    def parameters(self) -> int:
        """Return the number of parameters, if the tokenizer has as many words as are kept."""
        of_layer = 4 * self.hidden**2 + 2 * self.hidden * self.width + 9 * self.hidden + self.width
        return self.layers * of_layer + self.hidden * (self.vocabulary + self.max_length + 4)


def log_steps(count: int, last: int) -> tuple[int, ...]:
    """Return `count` different steps from 0 to `last`, even in their logarithm from step 1.

    Where the logarithm would give a step twice, the steps rise by one.

    >>> log_steps(6, 1000)
    (0, 1, 6, 33, 182, 1000)
    >>> log_steps(8, 30)
    (0, 1, 2, 3, 5, 9, 16, 30)
    """
    steps = [0, 1] if count > 2 else [0]
    while len(steps) < count:
        rest = count - len(steps)
        even = max(steps[-1], 1) * (last / max(steps[-1], 1)) ** (1 / rest)
        steps.append(max(steps[-1] + 1, round(even)))
    return tuple(steps)


QUICK = "quick"
RECIPES = (*PAPERS, QUICK)


def make_recipe(recipe: str | Recipe, task: str, given: Mapping[str, Any]) -> Recipe:
    """Return the recipe for `task`, with the fields in `given` that are not None replaced.

    `recipe` is a name in `RECIPES` (``quick`` or a paper), or a `Recipe`, which is the same for
    every task.
    """
    if isinstance(recipe, str):
        require_known("recipe", recipe, RECIPES)
        choices = {} if recipe == QUICK else paper_options(recipe, "finetune", task=task)
        recipe = Recipe(**choices)
    return recipe.changed(given)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parse a list of seeds such as ``0..4``, ``0,3,7`` or ``0..2,7``; keep their order.

    A range that falls and a seed that comes twice are errors.
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = _SEEDS.fullmatch(part.strip())
        if match is None:
            raise UserError(
                f"{argument('seeds', text)}: wanted e.g. 0..4 or 0,3,7, found {part.strip()!r}"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UserError(
                f"{argument('seeds', text)}: wanted a range that rises, found {part.strip()!r}"
            )
        seeds += range(first, last + 1)
    twice = next((seed for seed in seeds if seeds.count(seed) > 1), None)
    if twice is not None:
        raise UserError(f"{argument('seeds', text)}: wanted each seed once, found {twice} twice")
    return tuple(seeds)
