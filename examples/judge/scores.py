"""The tests of the benchmark, what a measure scores in each, and its rank among all measures.

A score has its 95 % interval over networks, its p-value against chance, `chance` (the score of a
measure that says nothing), and how many of the values that the test asks for (`pairs`) are not
numbers (`undefined`). Some tests rank no measure: they ask by how much values *change* with things
that they should not depend on, in standard deviations of the measure over layers of different
networks. At 1, the change is as large as the differences that the measure is there for.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

import criteria
from criteria import Estimate
from measures import OfFile, Variant
from networks import Domain, Network, Recorded
from simcore import disagreement_grid, output_divergence_grid

SPEARMAN, AUPRC, VIOLATIONS, SHARE = "Spearman", "AUPRC", "violation rate", "share"
# The score by which measures are ranked in each test; small violation rates are good.
RANKED = {
    **dict.fromkeys(("accuracy", "disagreement", "divergence"), SPEARMAN),
    **dict.fromkeys(("random labels", "shortcut", "augmentation"), AUPRC),
    "layers": VIOLATIONS,
    "identification": SHARE,
}
Row = dict[str, Any]


def score(
    measure: Variant | OfFile, domain: Domain, networks: Mapping[Network, Recorded]
) -> list[Row]:
    """Return the scores of a measure in all tests."""
    rows: list[Row] = []

    def add(test: str, name: str, found: Estimate, asked: np.ndarray, chance: float = np.nan):
        about = {"domain": domain.name, "measure": measure.label, "test": test}
        numbers = {"value": found.value, "low": found.low, "high": found.high, "chance": chance}
        undefined = {"undefined": int((~np.isfinite(asked)).sum()), "pairs": asked.size}
        rows.append({**about, "score": name, **numbers, "pvalue": found.pvalue, **undefined})

    plain = [networks[one] for one in domain.plain]
    layers = [layer for one in plain for layer in one.layers]
    begun = time.perf_counter()
    joint = measure.grid(layers)
    seconds = time.perf_counter() - begun
    require_direction(measure, joint)
    s = criteria.oriented(joint, len(plain), measure.is_distance)  # [a, l, b, m]
    others, inner = ~np.eye(len(s), dtype=bool), criteria.within(s)
    accuracies, logits = np.array([x.accuracy for x in plain]), [x.logits for x in plain]
    apart = {
        "accuracy": np.abs(accuracies[:, None] - accuracies),
        "disagreement": np.asarray(disagreement_grid(logits)),
        "divergence": np.asarray(output_divergence_grid(logits)),
    }
    for test, differences in apart.items():
        add(test, SPEARMAN, criteria.agreement(s, differences), s[:, -1, :, -1][others], 0.0)
    for test, groups in domain.groups.items():
        values = measure.grid([networks[one].layers[-1] for group in groups for one in group])
        t = criteria.oriented(values, len(values), measure.is_distance)[:, 0, :, 0]
        asked = t[~np.eye(len(t), dtype=bool)]
        numbers = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        auprc, violations = criteria.separation(t, numbers)
        add(test, AUPRC, auprc, asked, float(((np.bincount(numbers) - 1) / (len(t) - 1)).mean()))
        add(test, VIOLATIONS, violations, asked, 0.5)
    right = criteria.order(s)
    wrong = Estimate(1 - right.value, 1 - right.high, 1 - right.low, right.pvalue)
    add("layers", VIOLATIONS, wrong, inner, 0.5)
    add("layers", SPEARMAN, criteria.depth_correlation(s), inner, 0.0)
    across = s.transpose(0, 2, 1, 3)[others]
    add("identification", SHARE, criteria.identification(s), across, 1 / s.shape[1])
    known = across[np.isfinite(across)]
    spread = float(np.std(known)) if known.size else np.nan
    for test, name, value, asked in changes(measure, [one.layers for one in plain], spread):
        add(test, name, Estimate(value), asked)
    count = len(layers) * (len(layers) + 1) // 2
    add("cost", "seconds a pair", Estimate(seconds / count), np.zeros(count))
    return rows


def require_direction(measure: Variant | OfFile, joint: np.ndarray) -> None:
    """Refuse a measure of a file whose values say that small ones, or large ones, mean alike."""
    diagonal = np.eye(len(joint), dtype=bool)
    itself, others = joint[diagonal], joint[~diagonal][np.isfinite(joint[~diagonal])]
    if isinstance(measure, Variant) or not (np.isfinite(itself).all() and len(others)):
        return
    wanted, wrong = "a similarity, or --distance", itself.max() < others.min()
    if measure.is_distance:
        wanted, wrong = "a distance, because of --distance", itself.min() > others.max()
    if wrong:
        raise SystemExit(
            f"{measure.label}: wanted {wanted}, found {itself.min():.4g} to {itself.max():.4g} for "
            f"a layer with itself and {others.min():.4g} to {others.max():.4g} for others"
        )


def changes(
    measure: Variant | OfFile, networks: Sequence[Sequence[np.ndarray]], spread: float
) -> Iterator[tuple[str, str, float, np.ndarray]]:
    """Yield test, score and value of each dependence, and the values that it is made of.

    Layers of two networks are compared as they are, and changed: a quarter of the rows, half of the
    neurons, a neuron of large values, one number added to all neurons. The rows of the second
    network are permuted too, so that nothing is left in common.
    """
    rng, rows = np.random.default_rng(0), len(networks[0][0])
    few = np.sort(rng.permutation(rows)[: rows // 4])
    pairs = [(networks[a], networks[a + 1]) for a in (0, 2) if a + 1 < len(networks)]
    permuted = [(x, [layer[rng.permutation(rows)] for layer in y]) for x, y in pairs]

    def half(layer: np.ndarray) -> np.ndarray:
        return layer[:, np.sort(rng.permutation(layer.shape[1])[: layer.shape[1] // 2])]

    def with_outlier(layer: np.ndarray) -> np.ndarray:
        """Return a layer one of whose neurons varies 30 times as much as any other."""
        spreads, changed, place = layer.std(0), layer.copy(), int(rng.integers(layer.shape[1]))
        centred = layer[:, place] - layer[:, place].mean()
        changed[:, place] = 30.0 * spreads.max() * centred / (spreads[place] or 1.0)
        return changed

    def values_of(way, pairs) -> np.ndarray:
        changed = [[[way(layer) for layer in side] for side in pair] for pair in pairs]
        return np.stack([measure.grid(x, y) for x, y in changed])

    def change(values: np.ndarray, before: np.ndarray) -> tuple[float, np.ndarray]:
        both, moved = values + before, float(np.abs(values - before).mean())
        if not np.isfinite(both).all():
            return np.nan, both
        return (moved / spread if spread else np.inf if moved else 0.0), both

    ways = {
        "rows": lambda layer: layer[few],
        "neurons": half,
        "outlier": with_outlier,
        "offset": lambda layer: layer + 10.0 * layer.std(0).max(),
    }
    whole = values_of(np.asarray, pairs)
    for name, way in ways.items():
        yield name, "change", *change(values_of(way, pairs), whole)
    unrelated = values_of(np.asarray, permuted)
    mean = float(unrelated.mean()) if np.isfinite(unrelated).all() else np.nan
    yield "independent rows", "value", mean, unrelated
    yield "independent rows", "change", *change(values_of(ways["rows"], permuted), unrelated)


def ranked(rows: Iterable[Row], asked: Collection[str]) -> pd.DataFrame:
    """Return the scores, and a rank for each that ranks its test; one without a value is last."""
    frame = pd.DataFrame(rows)
    frame.insert(2, "asked", frame["measure"].isin(asked))
    frame["ranked"] = frame["score"] == frame["test"].map(RANKED)
    good = frame["value"].where(frame["score"] != VIOLATIONS, -frame["value"])
    groups = good.groupby([frame["domain"], frame["test"], frame["score"]])
    frame["rank"] = groups.rank(ascending=False, na_option="bottom").where(frame["ranked"])
    return frame


def mean_ranks(frame: pd.DataFrame) -> pd.Series:
    """Return the mean rank of each measure over tests and domains, the best first."""
    means = frame[frame["ranked"]].groupby("measure", sort=False)["rank"].mean()
    return means.sort_values(kind="stable")
