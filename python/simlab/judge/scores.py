"""The tests of the benchmark, and what a measure scores in each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simlab.errors import UserError, argument
from simlab.judge import criteria
from simlab.judge.candidates import Candidate
from simlab.judge.criteria import Estimate
from simlab.judge.dependence import PAIRS, changes
from simlab.judge.domain import Network
from simlab.judge.groups import separation
from simlab.judge.networks import Plan, Recorded

SPEARMAN, AUPRC, VIOLATIONS, SHARE = "Spearman", "AUPRC", "violation rate", "share"
CHANGE, VALUE, SECONDS = "change", "value", "seconds a pair"
ACCURACY, DISAGREEMENT, DIVERGENCE = "accuracy", "disagreement", "divergence"
LAYERS, IDENTIFICATION, COST = "layers", "identification", "cost"
SMALL_IS_GOOD = (VIOLATIONS, CHANGE, SECONDS)
# The score by which measures are ranked in each test.
RANKED = {
    **dict.fromkeys((ACCURACY, DISAGREEMENT, DIVERGENCE), SPEARMAN),
    **dict.fromkeys(("random labels", "shortcut", "augmentation"), AUPRC),
    LAYERS: VIOLATIONS,
    IDENTIFICATION: SHARE,
}


@dataclass(frozen=True)
class Score:
    """What a measure scores in a test.

    Attributes
    ----------
    domain, measure, test, score
        Which networks, the label of the measure, the test, and the name of the score.
    value, low, high, pvalue
        The score, its 95 % interval over networks, and the p-value against chance; nan where there
        is none.
    chance
        The score of a measure that says nothing.
    undefined
        How many of the values that the test asks for are not numbers.
    pairs
        How many values the test asks for.
    """

    domain: str
    measure: str
    test: str
    score: str
    value: float
    low: float = np.nan
    high: float = np.nan
    chance: float = np.nan
    pvalue: float = np.nan
    undefined: int = 0
    pairs: int = 0


@dataclass(frozen=True)
class Material:
    """The networks that measures are judged on."""

    plan: Plan
    networks: dict[Network, Recorded]

    @property
    def domain(self) -> str:
        """What the networks are trained on."""
        return self.plan.training.domain

    @property
    def plain(self) -> list[Recorded]:
        """The networks that differ in their seed alone."""
        return [self.networks[one] for one in self.plan.plain]

    @cached_property
    def differences(self) -> dict[str, np.ndarray]:
        """How far the answers of every two plain networks are apart, ``[m, m]``."""
        from simcore import disagreement_grid, output_divergence_grid

        accuracies = np.array([one.accuracy for one in self.plain])
        logits = [one.logits for one in self.plain]
        return {
            ACCURACY: np.abs(accuracies[:, None] - accuracies),
            DISAGREEMENT: np.asarray(disagreement_grid(logits)),
            DIVERGENCE: np.asarray(output_divergence_grid(logits)),
        }


def score(candidate: Candidate, material: Material) -> list[Score]:
    """Return the scores of a measure in all tests."""
    return list(_scores(candidate, material))


def _scores(candidate: Candidate, material: Material) -> Iterator[Score]:
    plain = [one.layers for one in material.plain]
    layers = [layer for model in plain for layer in model]
    begun = time.perf_counter()
    joint = candidate.grid(layers, None)
    seconds = time.perf_counter() - begun
    _require_direction(candidate, joint)
    s = criteria.oriented(joint, len(plain), candidate.is_distance)
    last = s[:, -1, :, -1]

    def row(test: str, name: str, found: Estimate, chance: float, asked: np.ndarray) -> Score:
        undefined = int((~np.isfinite(asked)).sum())
        numbers = (found.value, found.low, found.high, chance, found.pvalue)
        return Score(material.domain, candidate.label, test, name, *numbers, undefined, asked.size)

    for test, differences in material.differences.items():
        found = criteria.agreement(s, differences)
        yield row(test, SPEARMAN, found, 0.0, last[~np.eye(len(last), dtype=bool)])
    for test, groups in material.plan.groups.items():
        yield from _of_groups(candidate, material, test, groups)
    within = s[np.arange(len(s)), :, np.arange(len(s))]
    yield row(LAYERS, VIOLATIONS, _violations(criteria.order(s)), 0.5, within)
    yield row(LAYERS, SPEARMAN, criteria.depth_correlation(s), 0.0, within)
    across = s.transpose(0, 2, 1, 3)[~np.eye(len(s), dtype=bool)]
    yield row(IDENTIFICATION, SHARE, criteria.identification(s), 1 / s.shape[1], across)
    spread = float(np.std(across[np.isfinite(across)])) if np.isfinite(across).any() else np.nan
    asked_pairs = len(PAIRS) * s.shape[1] ** 2
    for test, name, value, undefined in changes(candidate, plain, spread):
        about = (material.domain, candidate.label, test, name, value)
        yield Score(*about, undefined=undefined, pairs=asked_pairs)
    count = len(layers) * (len(layers) + 1) // 2
    yield Score(material.domain, candidate.label, COST, SECONDS, seconds / count, pairs=count)


def _of_groups(
    candidate: Candidate, material: Material, test: str, groups: list[list[Network]]
) -> Iterator[Score]:
    layers = [material.networks[one].layers[-1] for group in groups for one in group]
    numbers = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    values = candidate.grid(layers, None)
    s = criteria.oriented(values, len(values), candidate.is_distance)[:, 0, :, 0]
    found = separation(s, numbers)
    asked = s[~np.eye(len(s), dtype=bool)]
    undefined = int((~np.isfinite(asked)).sum())
    for name, one, chance in (
        (AUPRC, found.auprc, found.chance),
        (VIOLATIONS, found.violations, 0.5),
    ):
        numbers_of = (one.value, one.low, one.high, chance, one.pvalue)
        yield Score(
            material.domain, candidate.label, test, name, *numbers_of, undefined, asked.size
        )


def _violations(order: Estimate) -> Estimate:
    """Return the share of comparisons that are not in order; ties count half."""
    return Estimate(1 - order.value, 1 - order.high, 1 - order.low, order.pvalue)


def _require_direction(candidate: Candidate, joint: np.ndarray) -> None:
    """Refuse a measure of a file whose values say that small ones, or large ones, mean alike."""
    if candidate.inputs is not None:
        return
    diagonal = np.eye(len(joint), dtype=bool)
    own, others = joint[diagonal], joint[~diagonal]
    if not (np.isfinite(own).all() and np.isfinite(others).any()):
        return
    least, greatest = np.nanmin(others), np.nanmax(others)
    found = (
        f"found {own.min():.4g} to {own.max():.4g} for a layer with itself and {least:.4g} to "
        f"{greatest:.4g} for others"
    )
    if not candidate.is_distance and own.max() < least:
        wanted = f"a similarity, or {argument('distance', True)}"
        raise UserError(f"{candidate.label}: wanted {wanted}, {found}")
    if candidate.is_distance and own.min() > greatest:
        wanted = f"a distance, because of {argument('distance', True)}"
        raise UserError(f"{candidate.label}: wanted {wanted}, {found}")
