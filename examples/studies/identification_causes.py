"""What decides how many layers a measure identifies: length of training, depth, or rows?

    python examples/studies/identification_causes.py     # may be interrupted

The ResNets of `identification.py`, of which each set differs in one thing: how many epochs they
were trained, how many blocks they have, or how many of the held-out rows are compared. The share
is of blocks, without the stem. ``difference`` is how much larger it is than the share of linear
CKA on the same models. Rows land in ``examples/studies/results/identification-causes.csv``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from judging import criteria
from model_sets import BLOCKS, EPOCHS, ModelSet, digits
from publish import RESULTS
from simcore import cca_grid, cka_grid, gulp_grid, procrustes_grid, pwcca_grid

TABLE = RESULTS / "identification-causes.csv"
CKA = "CKA"
GULP_RIDGES = (0.0001, 0.01, 0.1, 1.0)
EPOCHS_TRIED, BLOCKS_TRIED, ROWS_TRIED = (1, 3, EPOCHS, 48), (4, BLOCKS, 16), (100, 200, 400)


def grids(layers: list[np.ndarray]) -> Iterator[tuple[str, np.ndarray, bool]]:
    """Yield the measures of the published table: name, joint grid, and whether it is a distance."""
    yield CKA, np.asarray(cka_grid(layers)), False
    yield "Procrustes", np.asarray(procrustes_grid(layers)), False
    yield "mean CCA", np.asarray(cca_grid(layers, reduction="mean")), False
    yield "PWCCA", np.asarray(pwcca_grid(layers)), False
    for ridge in GULP_RIDGES:
        yield f"GULP, ridge {ridge:g}", np.asarray(gulp_grid(layers, ridge=ridge)), True


def identification_difference(s: np.ndarray, t: np.ndarray, seed: int = 0) -> Any:
    """Return how much larger the share that s identifies is than that of t, of the same models.

    The interval draws models for both at once. There is no p-value: orders of layers that are
    drawn at random would test whether either says anything, and not whether they differ.
    """
    shares = criteria.most_similar(s) - criteria.most_similar(t)

    def per_pair(labels: np.ndarray) -> np.ndarray:
        return criteria.at_labels(shares, labels).mean(2)

    return replace(criteria.over_pairs(per_pair, s, seed), pvalue=float("nan"))


def judged(models: ModelSet, rows: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the share of blocks that each measure identifies, on the first rows."""
    layers = [layer[:rows] for model in models.layers for layer in model[models.first_block :]]
    cka = None
    for measure, values, distance in grids(layers):
        s = criteria.oriented(values, len(models.layers), distance)
        cka = s if cka is None else cka
        share = criteria.identification(s)
        more = identification_difference(s, cka)
        yield {
            "measure": measure,
            **vars(share),
            "difference": more.value,
            "difference_low": more.low,
            "difference_high": more.high,
            "chance": 1 / s.shape[1],
            "n_models": len(models.layers),
            "n": len(layers[0]),
            "accuracy": models.accuracy.mean(),
        }


def study(folder: Path, count: int) -> Iterator[dict[str, Any]]:
    """Train every set of networks, and yield a row for each set and measure."""
    for epochs in EPOCHS_TRIED:
        models = digits(folder / f"epochs-{epochs}", count, epochs=epochs)
        for row in judged(models):
            yield {"epochs": epochs, "blocks": BLOCKS, **row}
        if epochs == EPOCHS:
            for rows in ROWS_TRIED:
                for row in judged(models, rows):
                    yield {"epochs": epochs, "blocks": BLOCKS, **row}
    for blocks in BLOCKS_TRIED:
        if blocks != BLOCKS:
            for row in judged(digits(folder / f"blocks-{blocks}", count, blocks=blocks)):
                yield {"epochs": EPOCHS, "blocks": blocks, **row}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=10, help="how many networks of each set")
    parser.add_argument("--out", type=Path, default=Path("runs/identification-causes"))
    options = parser.parse_args()
    table = pd.DataFrame(study(options.out, options.models))
    table.to_csv(TABLE, index=False, float_format="%.5g")
    print(table.to_string(index=False, float_format="%.3f"))
