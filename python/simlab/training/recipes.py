"""How models are trained: schedules, recipes for fine-tuning by name, and lists of seeds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from simlab.bounds import Count, FromZero, Length, check_fields, replaced
from simlab.errors import UserError, argument, require_known
from simlab.models.classes import HEADS, TRANSFORMERS
from simlab.papers.presets import PAPERS, paper_options
from simlab.training.freezing import parse_freeze

_SEEDS = re.compile(r"(\d+)(?:\.\.(\d+))?")
_POSITIVE = ("epochs", "learning_rate", "adam_epsilon")
_NOT_NEGATIVE = ("warmup", "weight_decay")


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


S = TypeVar("S", bound=Schedule)


def changed(schedule: S, given: Mapping[str, Any]) -> S:
    """Return a schedule with the fields in `given` that are not None replaced.

    A new `epochs` or `max_steps` takes the place of both.
    """
    changes = {field: value for field, value in given.items() if value is not None}
    if changes.keys() & {"epochs", "max_steps"}:
        changes = {"epochs": None, "max_steps": None} | changes
    return replaced(schedule, changes)


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
    recipe = changed(recipe, given)
    recipe.check()
    return recipe


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
