"""How heads on cached vectors are trained."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from simlab.errors import UserError, argument
from simlab.store.console import note


@dataclass(frozen=True)
class HeadRecipe:
    """How heads are trained: by AdamW, without dropout, with early stopping for each layer.

    Attributes
    ----------
    learning_rate
        Peak learning rate of heads.
    batch_size
        Examples per training step of heads.
    weight_decay
        Weight decay of AdamW for heads.
    most_steps
        Most training steps of heads; fewer if all layers stop earlier.
    steps_between
        Steps between two validations of heads.
    patience
        Validations without a lower loss before the head of a layer stops.
    validation_share
        Share of the training rows on which the best head of each layer is chosen; 0 trains heads on
        all rows, and takes the heads of the last step.
    seed
        Seed of new heads, of the rows for validation and of the order of the others.
    warmup
        Warm-up steps of heads, in which the learning rate rises from 0; a value below 1 is a share
        of the steps.
    decay
        Let the learning rate of heads fall linearly to 0 after the warm-up.
    scale
        Bring the vectors of each layer to one scale before heads read them
        (`simlab.models.heads`).
    """

    learning_rate: float = 1e-3
    batch_size: int = 64
    weight_decay: float = 0.01
    most_steps: int = 2000
    steps_between: int = 50
    patience: int = 5
    validation_share: float = 0.1
    seed: int = 0
    warmup: float = 0.0
    decay: bool = False
    scale: bool = True

    def check(self) -> None:
        """Raise UserError if a value is out of range."""
        for name in ("batch_size", "most_steps", "steps_between", "patience"):
            self._check(name, "more than 0", getattr(self, name) > 0)
        for name in ("learning_rate", "weight_decay", "seed", "warmup"):
            self._check(name, "0 or more", getattr(self, name) >= 0)
        self._check("validation_share", "0 or more, and below 1", 0 <= self.validation_share < 1)

    def _check(self, name: str, wanted: str, holds: bool) -> None:
        value = getattr(self, name)
        if not (holds and math.isfinite(value)):
            raise UserError(f"{argument(f'head_{name}')}: wanted {wanted}, found {value}")

    def note_long_warmup(self) -> None:
        """Say so if training ends before the warm-up does."""
        if self.warmup > self.most_steps:
            note(
                f"{argument('head_warmup', self.warmup)}: heads are trained for {self.most_steps} "
                f"steps, up to {self.most_steps / self.warmup:.1%} of the learning rate"
            )

    def record(self) -> dict[str, Any]:
        """Return the fields as results store them."""
        return asdict(self)

    @property
    def most_rows(self) -> int:
        """Return how many rows the steps read and validate on at most."""
        return math.ceil(self.most_steps * self.batch_size / (1 - self.validation_share))

    def rate(self, step: int) -> float:
        """Return the factor of the learning rate at `step`, which counts from 0."""
        rising = round(self.warmup if self.warmup >= 1 else self.warmup * self.most_steps)
        if step < rising:
            return step / rising
        left = self.most_steps - step
        return left / max(self.most_steps - rising, 1) if self.decay else 1.0
