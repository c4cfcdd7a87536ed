"""The recipe of a pretraining: the size of a model, its words, and how it is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from simlab.bounds import Count, FromZero, Length, Steps
from simlab.errors import UserError, argument, require_known
from simlab.models.sources import OFFLINE_MODEL
from simlab.training.recipes import Schedule, changed

MASKED, CAUSAL = OBJECTIVES = ("masked", "causal")


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


def make_pretraining(recipe: Pretraining | None, given: Mapping[str, Any]) -> Pretraining:
    """Return a recipe with the fields in `given` that are not None replaced."""
    pretraining = changed(recipe or Pretraining(), given)
    pretraining.check()
    return pretraining
