"""Which measure finds the layers that correspond? Every measure, on models that differ in a seed.

    python examples/studies/identification.py                     # may be interrupted
    python examples/studies/identification.py --pretrained RUN    # the folder of a sweep
    python examples/studies/identification.py --timings           # afterwards, on an idle machine

The test of Kornblith et al. 2019 (table 2), and two of Klabunde et al. 2024:
`examples/judge/criteria.py` says what they are and what their p-values and intervals mean,
`model_sets.py` says which models.
Measures are those of the catalogue of `simcore grid`. Rows land in
``examples/studies/results/identification.csv``, the figure in ``docs/figures``.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from judging import criteria, measures
from model_sets import ModelSet, digits, fine_tuned, pretrained
from publish import RESULTS
from simlab.similarity.catalogue import MEASURES

if TYPE_CHECKING:
    import pandas as pd

Estimate, Variant, variants = criteria.Estimate, measures.Variant, measures.variants
TABLE = RESULTS / "identification.csv"
IDENTIFIED, BLOCKS, ORDERED = "identification", "identification of blocks", "order"
SAME = "same layer"
SETS = ("digits", "rt", "pretrained", "pretrained-rt")
ACCURACY, DISAGREEMENT, DIVERGENCE = "accuracy", "disagreement", "divergence"
# Chance is the mean of permuted grids of the first model with the next ones.
CHANCE_MODELS, PERMUTATIONS = 2, 5
REPEATS = 3  # of a timing


@dataclass(frozen=True)
class Grid:
    """The values of a measure for all layers of all models, ``[models * L, models * L]``.

    Attributes
    ----------
    chance
        Mean values ``[L, L]`` for layers whose rows are permuted; nan for a measure that ignores
        which rows belong together, and for attention.
    seconds
        Time that the values took, in one thread.
    """

    values: np.ndarray
    chance: np.ndarray
    seconds: float


def measured(variant: Variant, models: list[list[Any]]) -> Grid:
    """Compute a grid and its chance level."""
    values, seconds = timed(variant, models)
    return Grid(values, chance_level(variant, models), seconds)


def timed(variant: Variant, models: list[list[Any]]) -> tuple[np.ndarray, float]:
    """Return the grid of all layers of all models, and how long it took."""
    function, layers = variant.function(), [layer for model in models for layer in model]
    start = time.perf_counter()
    values = function(layers)
    return values, time.perf_counter() - start


def chance_level(variant: Variant, models: list[list[Any]]) -> np.ndarray:
    """Return the mean value for every two depths where the rows of one model are permuted."""
    from simcore import stats

    first, others = models[0], models[1 : 1 + CHANCE_MODELS]
    if variant.takes_attention or not MEASURES[variant.measure].paired:
        return np.full((len(first), len(first)), np.nan)
    layers = [layer for model in others for layer in model]
    found = stats.permutation_test(
        first, layers, measure=variant.function(), permutations=PERMUTATIONS
    )
    return np.asarray(found.null_mean).reshape(len(first), len(others), -1).mean(1)


def judge(
    grid: Grid, models: ModelSet, distance: bool, first: int = 0
) -> Iterator[tuple[str, Estimate, float]]:
    """Yield every criterion, its estimate, and its value for calibrated similarities.

    Parameters
    ----------
    first
        The first layer that is a block, and not a stem or an embedding output.
    """
    count = len(models.layers)
    s = criteria.oriented(grid.values, count, distance)
    calibrated = _calibrated(s, grid.chance, distance)
    blocks = (slice(None), slice(first, None)) * 2
    for name, part, criterion in (
        (IDENTIFIED, ..., criteria.identification),
        (BLOCKS, blocks, criteria.identification),
        (ORDERED, ..., criteria.order),
    ):
        after = criterion(calibrated[part]).value if known(calibrated) else np.nan
        yield name, criterion(s[part]), after
    same, after = likeness(s), np.nan
    if known(calibrated):
        after = likeness(calibrated).value
    if distance:
        same = Estimate(-same.value, -same.high, -same.low, same.pvalue)
    yield SAME, same, after
    for name, differences in output_differences(models).items():
        yield name, criteria.agreement(s, differences), np.nan


def likeness(s: np.ndarray, seed: int = 0) -> Estimate:
    """Return the mean similarity of equal layers of different models."""
    values = s.transpose(0, 2, 1, 3)

    def per_pair(labels: np.ndarray) -> np.ndarray:
        return np.nanmean(criteria.at_labels(values, labels), axis=2)

    return criteria.over_pairs(per_pair, s, seed)


def slug(variant: Variant) -> str:
    """Return a name of a measure for a file."""
    return re.sub(r"[^\w.]+", "-", "-".join(map(str, (variant.measure, *variant.options.values()))))


def chance_of(criterion: str, layers: int, first: int) -> float:
    """Return what a criterion is on average where similarities say nothing."""
    shares = {IDENTIFIED: 1 / layers, BLOCKS: 1 / (layers - first), ORDERED: 0.5, SAME: np.nan}
    return shares.get(criterion, 0.0)


def known(s: np.ndarray) -> bool:
    """Return whether any value is defined."""
    return bool(np.isfinite(s).any())


def _calibrated(s: np.ndarray, chance: np.ndarray, distance: bool) -> np.ndarray:
    """Return similarities of which 0 is the chance level of two depths, and 1 is equality."""
    level = chance[:, None, :]
    return 1 + s / level if distance else (s - level) / (1 - level)


def output_differences(models: ModelSet) -> dict[str, np.ndarray]:
    """Return how far the outputs of every two models are apart, ``[models, models]`` each."""
    from simcore import disagreement_grid, output_divergence_grid

    found = {}
    if models.accuracy is not None:
        found[ACCURACY] = np.abs(models.accuracy[:, None] - models.accuracy)
    if models.logits is not None:
        logits = list(models.logits)
        found[DISAGREEMENT] = disagreement_grid(logits)
        found[DIVERGENCE] = output_divergence_grid(logits)
    return found


def stored_grid(variant: Variant, models: ModelSet, name: str, folder: Path, again: bool) -> Grid:
    """Return a grid that was computed once; its seconds are measured again if `again`."""
    from simlab.store.files import read_json, write_json
    from simlab.store.jobs import run_job

    layers = models.attention if variant.takes_attention else models.layers
    inputs = {
        "step": "identification",
        "layers": fingerprint(layers),
        "measure": variant.measure,
        "options": variant.options,
        "chance": [CHANCE_MODELS, PERMUTATIONS],
    }
    place = folder / name / "grids" / slug(variant)
    clock = folder / name / "seconds" / f"{slug(variant)}.json"

    def make(made: Path) -> None:
        grid = measured(variant, layers)
        np.savez(made / "grid.npz", values=grid.values, chance=grid.chance)
        write_json(clock, grid.seconds)

    clock.parent.mkdir(parents=True, exist_ok=True)
    run_job(place, inputs, make, replace=True)
    if again:
        write_json(clock, min(timed(variant, layers)[1] for _ in range(REPEATS)))
    with np.load(place / "grid.npz") as stored:
        return Grid(stored["values"], stored["chance"], read_json(clock))


def fingerprint(models: list[list[Any]]) -> str:
    """Return a hash of all layers; a layer of attention has an array for each text."""
    import hashlib

    found = hashlib.sha256()
    for layer in (layer for model in models for layer in model):
        for rows in layer if isinstance(layer, list) else [layer]:
            found.update(str(rows.shape).encode() + np.ascontiguousarray(rows).tobytes())
    return found.hexdigest()


def run(name: str, models: ModelSet, folder: Path, again: bool = False) -> pd.DataFrame:
    """Return the rows of all measures on one set of models."""
    import pandas as pd

    rows = []
    for variant in variants():
        if variant.takes_attention and models.attention is None:
            continue
        try:
            grid = stored_grid(variant, models, name, folder, again)
        except ImportError as error:  # a library that one measure needs
            print(f"{name}: {slug(variant)} is left out: {error}")
            continue
        print(f"{name}: {slug(variant)}, {grid.seconds:.2f} s", flush=True)
        first = 0 if variant.takes_attention else models.first_block
        for criterion, found, calibrated in judge(grid, models, variant.is_distance, first):
            rows.append(
                {
                    "models": name,
                    "measure": variant.measure,
                    "options": json.dumps(variant.options) if variant.options else "",
                    "criterion": criterion,
                    "estimate": found.value,
                    "low": found.low,
                    "high": found.high,
                    "pvalue": found.pvalue,
                    "chance": chance_of(criterion, len(grid.chance), first),
                    "calibrated": calibrated,
                    "seconds": grid.seconds,
                    "n_models": len(models.layers),
                    "layers": len(grid.chance),
                    "n": len(
                        (models.attention if variant.takes_attention else models.layers)[0][0]
                    ),
                }
            )
    return pd.DataFrame(rows)


def publish_rows(name: str, rows: pd.DataFrame) -> None:
    """Put the rows of one set of models in their place of the table."""
    import pandas as pd

    from simlab.store.files import write_bytes

    others = (
        pd.read_csv(TABLE, keep_default_na=False, na_values=["nan"]) if TABLE.exists() else None
    )
    parts = [rows.round(5)]
    if others is not None:
        parts.insert(0, others[others["models"] != name])
    whole = pd.concat(parts).sort_values("models", kind="stable")
    write_bytes(TABLE, whole.to_csv(index=False, na_rep="nan", float_format="%.5g").encode())


def compute(name: str, models: ModelSet, measures: list[str], folder: Path) -> None:
    """Compute the grids of some measures, so that several processes can share the work."""
    for variant in variants():
        if variant.measure in measures:
            grid = stored_grid(variant, models, name, folder, again=False)
            print(f"{name}: {slug(variant)}, {grid.seconds:.2f} s", flush=True)


def main(sets: dict[str, Callable[[], ModelSet]], options: argparse.Namespace) -> None:
    """Run or continue the study on these sets of models, and publish what it found."""
    import torch

    import identification_figure as figure

    torch.set_num_threads(1)
    for name, load in sets.items():
        if options.measure:
            compute(name, load(), options.measure, options.out)
        else:
            publish_rows(name, run(name, load(), options.out, options.timings))
    if not options.measure:
        figure.draw(figure.read_rows(TABLE), figure.FIGURE)


def chosen_sets(options: argparse.Namespace) -> dict[str, Callable[[], ModelSet]]:
    """Return the functions that give the models of the sets that were asked for."""
    trained, stages = {"digits": digits, "rt": fine_tuned}, {"pretrained": "ORIG"}
    stages["pretrained-rt"] = "FT"
    found: dict[str, Callable[[], ModelSet]] = {
        name: partial(load, options.out / name, options.models) for name, load in trained.items()
    }
    if options.pretrained:
        for name, stage in stages.items():
            found[name] = partial(pretrained, options.pretrained, options.models, stage)
    return {name: load for name, load in found.items() if name in (options.set or found)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", action="append", choices=SETS, help="default: all that there are")
    parser.add_argument("--pretrained", type=Path, help="the folder of a sweep of ren2023")
    parser.add_argument("--models", type=int, default=10, help="how many, at most, of each set")
    parser.add_argument("--measure", action="append", help="only compute this; publish nothing")
    parser.add_argument("--timings", action="store_true", help="measure all seconds again")
    parser.add_argument("--out", type=Path, default=Path("runs/identification"))
    options = parser.parse_args()
    main(chosen_sets(options), options)
