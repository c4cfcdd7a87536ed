"""A claim, and its finding in the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simlab.evidence.intervals import Interval, Statistic, Value, mean_value

if TYPE_CHECKING:
    from simlab.evidence.rows import TaskRows

# The units that a claim is about.
RUNS, MODELS, TASKS = "fine-tunings", "pretrained models", "tasks"
ARCHITECTURES = "architectures"  # base models, or families where the user names them
BOTH = "tasks of models"  # each task of each base model is a unit
NETWORKS = "untrained networks"  # whose inverse is looked for
ABOVE, BELOW = 1, -1


@dataclass(frozen=True)
class Evidence:
    """The finding of one task about a claim."""

    quantity: str
    values: Sequence[Value]  # of models or pairs of models
    least: float  # the least effect of interest: the claim says that the quantity is beyond it
    side: int = ABOVE  # `ABOVE` if the claim says that the quantity is larger, `BELOW` if smaller
    note: str = ""
    statistic: Statistic = mean_value  # estimates the quantity from the values
    # Returns a p-value, which must be at most `ALPHA` too for a claim to hold.
    chance: Callable[[], float] | None = None
    # Why these results cannot show that the claim holds, whatever the estimate; or empty.
    unable: str = ""
    # Whether the p-value of the test of signs (`intervals.sign_pvalue`) must be at most `ALPHA`.
    signs: bool = False


@dataclass(frozen=True)
class Finding:
    """A row of the table of claims: a verdict on one quantity."""

    task: str  # `ALL` for all tasks
    base: str  # empty for all base models
    quantity: str
    unit: str  # what the estimate is a mean over: one of the kinds of units above
    interval: Interval
    least: float  # as in `Evidence`, and so is `side`
    side: int
    verdict: str
    note: str = ""
    adjusted: float = float("nan")  # the p-value after Holm's correction over the table
    met: bool = True  # whether the conditions are met that a claim has beside the t test


@dataclass(frozen=True)
class Claim:
    """A claim of a paper."""

    name: str
    text: str  # in one sentence
    source: str  # the paper and the place in the paper
    rule: str  # what is estimated, and the least effect of interest
    made_by: str  # the commands that write the rows that the claim is judged on
    # Yields the evidence in the results of one task.
    judge: Callable[[TaskRows], Iterator[Evidence]]
    # `RUNS`: the fine-tunings of one base model in one task, and over tasks. `MODELS`: pretrained
    # models, whose rows are judged together. `ARCHITECTURES`: pretraining seeds are no units.
    # `TASKS`: kinds of models compared in each task, judged over tasks alone. `NETWORKS`: maps that
    # invert a network, each of which is a unit.
    about: str = RUNS
    # Whether results of several tasks are judged with the tasks as units too.
    over_tasks: bool = True
    pooled: bool = False  # whether the tasks of all base models together are judged too
