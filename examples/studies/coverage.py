"""Coverage of intervals of similarity: how often they hold the value that many samples have.

    python examples/studies/coverage.py

Two layers share a part of their variance, none, half or most of it. Rows are independent, or are
the words of sentences that share most of their variance. The expected value of a measure comes from
many samples of the same size; an interval covers it or not. The rows land in
``examples/studies/results/coverage.csv``.
"""

from __future__ import annotations

import subprocess
import warnings
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np
import pandas as pd
import torch

import simcore
from publish import RESULTS, ROOT
from simcore import stats

SAMPLES, TRIALS, DRAWS = 400, 100, 40
LATENT, WIDTH = 8, 20
SIZES = {"independent rows": (1,) * 100, "words of sentences": (3, 4, 5, 6, 7, 8) * 6}
SHARED = {"none": 0.0, "half": 0.5, "most": 0.9}
MEASURES = {
    "cka, biased": ("cka", {"estimator": "biased"}),
    "cka, unbiased": ("cka", {"estimator": "unbiased"}),
    "svcca": ("svcca", {"truncation": 0.99}),
    "linreg": ("linreg", {}),
    "neuronsim": ("neuronsim", {}),
    "rsa": ("rsa", {}),
}


@dataclass(frozen=True)
class Row:
    """One measure, kind of rows and method of resampling."""

    measure: str
    rows: str
    shared: str
    method: str
    expected: float  # mean of the samples
    covered: float  # share of the trials
    width: float  # mean width of the intervals
    holds_value: float  # share of the trials whose interval holds the value of the sample itself
    trials: int
    draws: int
    n: int


def sample(seed: int, sizes: tuple[int, ...], shared: float) -> tuple[np.ndarray, np.ndarray]:
    """Return two layers ``[n, WIDTH]`` float32."""
    rng = np.random.default_rng(seed)
    sentences = np.repeat(np.arange(len(sizes)), sizes)
    together = np.sqrt(0.6) if max(sizes) > 1 else 0.0

    def latent() -> np.ndarray:
        whole = rng.standard_normal((len(sizes), LATENT))[sentences]
        own = rng.standard_normal((len(sentences), LATENT))
        return together * whole + np.sqrt(1 - together**2) * own

    common, x, y = latent(), latent(), latent()
    scales = np.linspace(2, 0.3, LATENT)[:, None]
    maps = np.random.default_rng(0).standard_normal((2, LATENT, WIDTH)) * scales

    def layer(own: np.ndarray, to: np.ndarray) -> np.ndarray:
        side = (shared * common + (1 - shared) * own) @ to
        return (side + rng.standard_normal(side.shape)).astype(np.float32)

    return layer(x, maps[0]), layer(y, maps[1])


def run(name: str, rows: str, shared: str) -> list[Row]:
    """Count how often the intervals of both methods cover."""
    measure, options = MEASURES[name]
    sizes = SIZES[rows]
    samples = [sample(seed, sizes, SHARED[shared]) for seed in range(SAMPLES)]
    grid = getattr(simcore, f"{measure}_grid")
    expected = float(np.mean([grid([x], [y], **options).item() for x, y in samples]))
    groups = np.repeat(np.arange(len(sizes)), sizes)
    found = []
    for method in ("half", "bootstrap"):
        how = {"measure": measure, "method": method, "groups": groups, "resamples": DRAWS}
        intervals = [
            stats.bootstrap_ci([x], [y], seed=seed, **how, **options)
            for seed, (x, y) in enumerate(samples[:TRIALS])
        ]
        low, high, value = (
            np.array([getattr(i, part).item() for i in intervals])
            for part in ("low", "high", "observed")
        )
        found.append(
            Row(
                measure=name,
                rows=rows,
                shared=shared,
                method=method,
                expected=expected,
                covered=float(np.mean((low <= expected) & (expected <= high))),
                width=float(np.mean(high - low)),
                holds_value=float(np.mean((low <= value) & (value <= high))),
                trials=TRIALS,
                draws=DRAWS,
                n=len(groups),
            )
        )
    return found


def main() -> None:
    """Run all conditions, print the rows and write them."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    found: list[Row] = []
    for condition in product(MEASURES, SIZES, SHARED):
        found += run(*condition)
        print(*found[-2:], sep="\n", flush=True)
        frame = pd.DataFrame([asdict(row) for row in found]).assign(commit=commit)
        RESULTS.mkdir(exist_ok=True)
        frame.to_csv(RESULTS / "coverage.csv", index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
