"""Does a tuned invertible network invert a random network better than tuned linear maps?

    python examples/studies/known_inverse.py

Ren et al. 2023, table 3, in its direction: X are sentence means of MiniLM, Y = f(X) with an
untrained network f that is drawn as in the authors' code, and maps g with g(Y) near X are looked
for. They tune every method on a validation set (section 4.4): here each has the best of up to eight
settings on a fifth of the training texts, as ``simcore align-study --tune 8`` has. The errors on
test texts land in ``examples/studies/results/known-inverse.csv``, a results file with the networks
f as models; ``simcore claims`` judges it (`inn-finds-known-map`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from publish import MODEL, RESULTS, simcore
from simlab.results.results import (
    CHOSEN,
    HELDOUT,
    KNOWN_MAP,
    MSE,
    ORIG,
    RELATIVE,
    ResultRow,
    Side,
    to_frame,
)

ROWS, LAYER, NETWORKS, SETTINGS = 1600, 6, 5, 8
METHODS = ("linear", "cca", "svcca", "pwcca", "inn")
KIND, TASK = "mean-all", "rt"


def sentence_means(folder: str) -> torch.Tensor:
    """Return means over the tokens of 2 x `ROWS` texts of ``rt`` at the last layer, [n, 384]."""
    from simlab.representations.folder import load_representations

    simcore(
        *("extract", MODEL, TASK, "--kind", KIND, "--split", "train"),
        *("--limit", 2 * ROWS, "--out", folder),
    )
    return torch.from_numpy(np.array(load_representations(folder).layers[LAYER]))


def untrained(x: torch.Tensor, seed: int) -> torch.Tensor:
    """Return f(x) of a network f that is drawn as in the authors' code."""
    from simcore.align import METHODS as ALIGNERS
    from simcore.align import REN2023

    published = REN2023["inn"]
    drawn = replace(published["training"], max_steps=1, learning_rate=1e-12, seed=seed)
    return ALIGNERS["inn"](**{**published, "training": drawn}).fit(x, x).transform(x)


def judged(method: str, x: torch.Tensor, y: torch.Tensor, seed: int) -> Iterator[ResultRow]:
    """Yield the errors of the tuned map from `y` to `x` on the second half of the rows."""
    from simcore.align import METHODS as ALIGNERS
    from simcore.align import Aligner
    from simlab.experiments.options import SETTINGS as LISTS
    from simlab.experiments.options import aligner_params, best_setting, third_split

    rows, validation = third_split(np.arange(ROWS), seed)
    seeded = {"seed": seed} if method == "inn" else {}

    def made(setting: dict[str, object]) -> Aligner:
        return ALIGNERS[method](**aligner_params(method, {**setting, **seeded}))

    def errors(setting: dict[str, object]) -> list[float]:
        aligner = made(setting).fit(y[rows], x[rows])
        return [aligner.errors(y[validation], x[validation]).relative]

    setting = best_setting(LISTS[method][:SETTINGS], errors)
    aligner = made(setting).fit(y[:ROWS], x[:ROWS])
    found = aligner.errors(y[ROWS:], x[ROWS:])
    options = {"method": method, "rows": HELDOUT, "tune": SETTINGS, CHOSEN: setting}
    for measure, value in ((MSE, found.mse), (RELATIVE, found.relative)):
        yield ResultRow(
            experiment=KNOWN_MAP,
            comparison="table 3",
            measure=measure,
            kind=KIND,
            options=json.dumps(options),
            **Side(f"f[{seed}]", seed).columns("x"),
            **Side("ORIG", base=MODEL, stage=ORIG).columns("y"),
            layer_x=LAYER,
            layer_y=LAYER,
            value=value,
            n=ROWS,
            task=TASK,
        )


def main(folder: str, networks: int) -> None:
    """Judge all methods for every network, and write the rows as soon as each is done."""
    x, rows = sentence_means(folder), []
    for seed in range(1, networks + 1):
        y = untrained(x, seed)
        for method in METHODS:
            rows += judged(method, x, y, seed)
            print(method, f"{rows[-1].value:.4f}", rows[-1].options, flush=True)
        table = to_frame(rows).dropna(axis="columns", how="all")
        table.to_csv(RESULTS / "known-inverse.csv", index=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="runs/known-inverse")
    parser.add_argument("--networks", type=int, default=NETWORKS)
    options = parser.parse_args()
    main(options.out, options.networks)
