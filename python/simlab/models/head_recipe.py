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
    learning_rate, batch_size, weight_decay
        The (peak) learning rate, examples per step, and weight decay of AdamW.
    most_steps
        Number of steps, unless all layers stop earlier.
    steps_between
        Steps from one validation to the next.
    patience
        Validations without a lower loss before the training of a layer stops.
    validation_share
        Share of the rows that are kept for validation. With 0, heads train on all rows for all
        steps, and those of the last step are taken.
    seed
        Seed of the choice of these rows, of the order of the others, and of new heads.
    warmup
        Steps over which the learning rate rises from 0; a value below 1 is a share of all steps.
    decay
        Whether the learning rate falls linearly to 0 after the warm-up.
    scale
        Whether the vectors of each layer are brought to one scale (see `simlab.models.heads`); if
        False, heads read them as they are.
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
        """Return the fields as results store them.

        Fields that earlier versions did not have are left out where they have their defaults, so
        that the results of earlier versions stay done.
        """
        defaults, fields = asdict(HeadRecipe()), asdict(self)
        later = ("warmup", "decay", "scale")
        return {k: v for k, v in fields.items() if k not in later or v != defaults[k]}

    def rate(self, step: int) -> float:
        """Return the factor of the learning rate at `step`, which counts from 0."""
        rising = round(self.warmup if self.warmup >= 1 else self.warmup * self.most_steps)
        if step < rising:
            return step / rising
        left = self.most_steps - step
        return left / max(self.most_steps - rising, 1) if self.decay else 1.0
