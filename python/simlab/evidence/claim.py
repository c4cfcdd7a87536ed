"""What a claim is, and what it finds in the results of one task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simlab.evidence.intervals import Decide, Interval, Statistic, Unit, mean_value

if TYPE_CHECKING:
    from simlab.evidence.rows import TaskRows


@dataclass(frozen=True)
class Evidence:
    """What one task has to say about a claim.

    Attributes
    ----------
    quantity
        What is estimated.
    units
        The values of models or pairs of models.
    decide
        Function that gives the verdict for an interval.
    note
        What else the reader should know.
    statistic
        Function that estimates the quantity from the units.
    """

    quantity: str
    units: Sequence[Unit]
    decide: Decide
    note: str = ""
    statistic: Statistic = mean_value


@dataclass(frozen=True)
class Finding:
    """A row of the table of claims: a verdict on one quantity in one task, for one base model."""

    task: str
    base: str
    quantity: str
    interval: Interval
    verdict: str
    note: str = ""


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
        What is estimated, and when the claim holds, fails or is undecided.
    made_by
        The commands that write the rows that the claim is judged on.
    judge
        Function that yields the evidence in the results of one task.
    summarise
        Function that makes one more finding of the findings in all tasks; None makes none.
    across
        Whether the claim compares models of different base models, and gets all rows of a task. If
        not, base models are judged apart.
    """

    name: str
    text: str
    source: str
    rule: str
    made_by: str
    judge: Callable[[TaskRows], Iterator[Evidence]]
    summarise: Callable[[Sequence[Finding]], Finding] | None = None
    across: bool = False
