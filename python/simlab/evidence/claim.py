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
    """The finding of one task about a claim.

    Attributes
    ----------
    quantity
        What is estimated.
    values
        The values of models or pairs of models.
    least
        The least effect of interest: the claim says that the quantity is beyond it.
    side
        `ABOVE` if the claim says that the quantity is larger, `BELOW` if smaller.
    note
        What else the reader should know.
    statistic
        Function that estimates the quantity from the values.
    chance
        Function that returns a p-value, which must be at most `ALPHA` too for a claim to hold.
    unable
        Why these results cannot show that the claim holds, whatever the estimate; empty if they
        can.
    signs
        Whether the p-value of the test of signs (`intervals.sign_pvalue`) must be so too.
    """

    quantity: str
    values: Sequence[Value]
    least: float
    side: int = ABOVE
    note: str = ""
    statistic: Statistic = mean_value
    chance: Callable[[], float] | None = None
    unable: str = ""
    signs: bool = False


@dataclass(frozen=True)
class Finding:
    """A row of the table of claims: a verdict on one quantity.

    Attributes
    ----------
    task, base
        Where it was found; `ALL` for all tasks, and an empty base for all base models.
    quantity
        What is estimated.
    unit
        What the estimate is a mean over: one of the kinds of units above.
    interval
        Estimate, bounds, number of units and p-value.
    least, side
        See `Evidence`.
    adjusted
        The p-value after Holm's correction over the table.
    met
        Whether the conditions are met that a claim has beside the t test.
    verdict, note
        The verdict, and what else the reader should know.
    """

    task: str
    base: str
    quantity: str
    unit: str
    interval: Interval
    least: float
    side: int
    verdict: str
    note: str = ""
    adjusted: float = float("nan")
    met: bool = True


@dataclass(frozen=True)
class Claim:
    """A claim of a paper.

    Attributes
    ----------
    name
        A short name.
    text
        The claim in one sentence.
    source
        The paper and the place in the paper.
    rule
        What is estimated, and the least effect of interest.
    made_by
        The commands that write the rows that the claim is judged on.
    judge
        Function that yields the evidence in the results of one task.
    about
        `RUNS` if the claim is judged for the fine-tunings of one base model in one task, and over
        tasks; `MODELS` if it is one about pretrained models, whose rows are judged together;
        `ARCHITECTURES` if it is one about architectures, of which pretraining seeds are no units;
        `TASKS` if it compares kinds of models in each task, and is judged over tasks alone;
        `NETWORKS` if its rows are of maps that invert a network, each of which is a unit.
    over_tasks
        Whether results of several tasks are judged with the tasks as units too.
    pooled
        Whether the tasks of all base models together are judged too.
    """

    name: str
    text: str
    source: str
    rule: str
    made_by: str
    judge: Callable[[TaskRows], Iterator[Evidence]]
    about: str = RUNS
    over_tasks: bool = True
    pooled: bool = False
