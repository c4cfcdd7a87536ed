"""Is a tuned invertible network better than tuned least squares at the inverse of a random network?

    python examples/studies/known_inverse.py

Ren et al. 2023, table 3, in its direction: X are sentence means of MiniLM, Y = f(X) with an
untrained network f that is drawn as in the authors' code, and maps g with g(Y) near X are looked
for. They tune every method on a validation set (section 4.4): here each has the best of up to eight
settings on a fifth of the training texts, as ``simcore align-study --tune 8`` has. The networks
f are the units. The rows of each, the paired differences of errors on test texts, and their 95 % t
interval land in ``examples/studies/results/known-inverse.csv``.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

import numpy as np
import pandas as pd
import torch

from publish import MODEL, RESULTS, simcore

ROWS, LAYER, NETWORKS, SETTINGS = 1600, 6, 5, 8
METHODS = ("linear", "inn")


def sentence_means(folder: str) -> torch.Tensor:
    """Return means over the tokens of 2 x `ROWS` texts of ``rt`` at the last layer, [n, 384]."""
    from simlab.representations.folder import load_representations

    simcore(
        *("extract", MODEL, "rt", "--kind", "mean-all", "--split", "train"),
        *("--limit", 2 * ROWS, "--out", folder),
    )
    return torch.from_numpy(np.array(load_representations(folder).layers[LAYER]))


def untrained(x: torch.Tensor, seed: int) -> torch.Tensor:
    """Return f(x) of a network f that is drawn as in the authors' code."""
    from simcore.align import METHODS as ALIGNERS
    from simcore.align import REN2023

    drawn = {**REN2023["inn"], "max_steps": 1, "learning_rate": 1e-12}
    return ALIGNERS["inn"](**drawn, seed=seed).fit(x, x).transform(x)


def judged(method: str, x: torch.Tensor, y: torch.Tensor, seed: int) -> dict[str, object]:
    """Return the errors of the tuned map from `y` to `x` on the second half of the rows."""
    from simcore.align import METHODS as ALIGNERS
    from simlab.experiments.tuning import best_setting, settings_of, third_split

    parts = third_split(np.arange(ROWS), seed)
    seeded = {"seed": seed} if method == "inn" else {}

    def errors(setting: dict[str, object]) -> list[float]:
        aligner = ALIGNERS[method](**setting, **seeded).fit(y[parts.train], x[parts.train])
        return [aligner.errors(y[parts.heldout], x[parts.heldout]).relative]

    setting = best_setting(settings_of(method, SETTINGS), errors)
    aligner = ALIGNERS[method](**setting, **seeded).fit(y[:ROWS], x[:ROWS])
    found = asdict(aligner.errors(y[ROWS:], x[ROWS:]))
    names = ("mse", "relative")
    return {"method": method, "chosen": json.dumps(setting)} | {name: found[name] for name in names}


def differences(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over f of the error of inn minus the error of linear, and its interval."""
    from scipy import stats

    found = []
    for measure in ("mse", "relative"):
        table = rows.pivot_table(measure, "network", "method")
        gaps = table["inn"] - table["linear"]
        half = stats.t.ppf(0.975, len(gaps) - 1) * gaps.std() / np.sqrt(len(gaps))
        low, high = gaps.mean() - half, gaps.mean() + half
        found.append(
            {"method": f"inn minus linear, {measure}", "n": len(gaps)}
            | {
                "difference": gaps.mean(),
                "low": low,
                "high": high,
            }
        )
    return pd.DataFrame(found)


def main(folder: str, networks: int) -> None:
    """Judge both methods for every network, and write the rows as soon as each is done."""
    x, rows = sentence_means(folder), []
    for seed in range(1, networks + 1):
        y = untrained(x, seed)
        for method in METHODS:
            rows.append({"network": seed, **judged(method, x, y, seed), "n": ROWS})
            print(rows[-1], flush=True)
        table = pd.DataFrame(rows)
        if seed > 1:
            table = pd.concat([table, differences(table)], ignore_index=True)
        table.to_csv(RESULTS / "known-inverse.csv", index=False, float_format="%.4g")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="runs/known-inverse")
    parser.add_argument("--networks", type=int, default=NETWORKS)
    options = parser.parse_args()
    main(options.out, options.networks)
