"""A claim of a paper, and the quantities that results have for it."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

# What a claim is about, which are its units.
RUNS = "fine-tunings"  # of one base model in one task
MODELS = "pretrained models"  # fine-tunings of one are one unit
ARCHITECTURES = "architectures"  # base models, or families where the user names them
TASKS = "tasks"  # in each of which kinds of models are compared
NETWORKS = "untrained networks"  # whose inverse is looked for
TOLERANCES = {"tolerance": 1, "minus tolerance": -1}  # least effects that the user sets

# By model, or by the models that a value is of: the value, then the same with errors [1 + draws].
Values = Mapping[Any, np.ndarray]


@dataclass(frozen=True)
class Quantity:
    """What is estimated for a claim in one task, and from which values."""

    text: str
    values: Values
    note: str = ""
    minus: Values = field(default_factory=dict)  # whose mean is subtracted from that of `values`
    # Returns a p-value, which must be significant too for the claim to hold.
    chance: Callable[[], float] | None = None
    unable: str = ""  # why these results cannot show that the claim holds, whatever the estimate
    least: float | None = None  # in place of the least effect of the claim


Rule = Callable[[Any], Iterator[Quantity]]  # takes a `rows.Task`


@dataclass(frozen=True)
class Claim:
    """A claim of a paper; `claims.toml` explains the fields."""

    name: str
    quantities: Rule = field(compare=False)
    text: str
    source: str
    rule: str
    made_by: str
    above: float | str = ""
    below: float | str = ""
    about: str = RUNS
    signs: bool = False
    over_tasks: bool = False

    @property
    def side(self) -> int:
        """1 if the claim says that the quantity is above the least effect, -1 if below."""
        return 1 if self.below == "" else -1

    def least(self, tolerance: float) -> float:
        """Return the least effect of interest."""
        least = self.above if self.below == "" else self.below
        return TOLERANCES[least] * tolerance if isinstance(least, str) else least


TEXTS = tomllib.loads(Path(__file__).with_name("claims.toml").read_text(encoding="utf-8"))


def number(value: float) -> str:
    """Return a number with two decimals, or two digits if it is small, and no leading zero."""
    value = float(value)
    if math.isnan(value):
        return "–"
    if value == round(value):
        return f"{value:.0f}"
    text = f"{value:.2f}" if abs(value) >= 0.0995 else f"{value:.2g}"
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def note(*parts: str) -> str:
    """Return the parts of a note that are not empty as one, each once."""
    return "; ".join(dict.fromkeys(part for part in parts if part))


def mean(values: np.ndarray | Sequence[np.ndarray], axis: int = 0) -> np.ndarray:
    """Return the mean of the values that are defined, or nan; some may have no errors."""
    if not isinstance(values, np.ndarray):
        values = np.stack(np.broadcast_arrays(*values)) if values else np.full((1, 1), np.nan)
    finite = np.isfinite(values)
    total, count = np.where(finite, values, 0.0).sum(axis=axis), finite.sum(axis=axis)
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def pairs_counted(values: Values) -> str:
    """Return the number of pairs of models in words."""
    return f"{len(values)} pair{'s' * (len(values) > 1)} of models"


def compared(
    text: str, sides: Mapping[str, Values], *notes: str, share: bool = False, unable: str = ""
) -> Quantity:
    """Return the first side minus the second, or as a share of it minus 1, where both have it."""
    first, second = sides.values()
    both = [key for key in first if key in second]
    values = {k: first[k] / second[k] - 1 if share else first[k] - second[k] for k in both}
    exact = {name: [value[:1] for value in side.values()] for name, side in sides.items()}
    words = ", ".join(f"{name} {number(mean(side)[0])}" for name, side in exact.items())
    return Quantity(text, values, note(words, *notes), unable=unable)


def depth_trend(layers: Sequence[float] | np.ndarray, curve: np.ndarray) -> np.ndarray:
    """Return Spearman's correlation of depth with a curve [layers, 1 + draws]."""
    from scipy.stats import rankdata

    defined = np.isfinite(curve[:, 0])
    if defined.sum() < 3:
        return np.full(curve.shape[1], np.nan)
    ranks = [rankdata(np.asarray(layers, float)[defined]), rankdata(curve[defined], axis=0)]
    depth, height = (some - some.mean(axis=0) for some in ranks)
    norm = np.sqrt((depth**2).sum() * (height**2).sum(axis=0))
    return np.divide(depth @ height, norm, out=np.full_like(norm, np.nan), where=norm > 0)
