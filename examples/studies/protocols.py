"""Which protocol of alignment makes a linear map rank last? MiniLM-L6 and rt, three seeds.

    python examples/studies/protocols.py  # may be interrupted

Ren et al. 2023 rank five kinds of map, in table 3 on a known map and in table 4 on pairs of models.
Here every kind of map is fitted on sentence means of training texts and judged on test texts: with
a map for each layer and with one map for all layers, trained as here and as in their code. Rows
land in ``examples/studies/results/protocols-rt.csv``.

The flow of their code takes most of the time. The run stops its training, and that of the other
maps trained their way, after `STEPS` of 3,000 batches: the learning rate falls by 1 % a batch.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from publish import MODEL, RESULTS, SEEDS, simcore

TASK = "rt"
METHODS = ("linear", "linear-gd", "cca", "svcca", "pwcca", "mlp", "inn")
PUBLISHED = ("linear-gd", "mlp", "inn")
FINE_TUNING = ("--max-steps", 250, "--batch-size", 16, "--train-size", 4000)
ROWS, STEPS, PAIRS = 1600, 150, 2
KNOWN = "known map"
BATCH = 64


def align_models(folder: Path) -> Path:
    """Fine-tune, extract and align; each step continues where it was. Return the results folder."""
    for seed in SEEDS:
        model = folder / "models" / f"ft-{seed}"
        heldout = ("--heldout-size", ROWS)
        simcore("finetune", MODEL, TASK, "--seed", seed, *FINE_TUNING, *heldout, "--out", model)
        for split in ("train", "heldout"):
            simcore(
                *("extract", model, TASK, "--kind", "mean", "--split", split, "--limit", ROWS),
                *("--label", f"FT[{seed}]", "--out", folder / split / f"ft-{seed}"),
            )
    results = folder / "results"
    models = [folder / "train" / f"ft-{seed}" for seed in SEEDS]
    drawn = ("--judge", folder / "heldout", "--pairs", PAIRS, "--directions", "one")
    for chosen, names in (
        (("--map", "per-layer"), METHODS),
        (("--map", "shared"), METHODS),
        (("--map", "shared", "--training", "ren2023", "--steps", STEPS), PUBLISHED),
    ):
        methods = [part for name in names for part in ("--method", name)]
        simcore("align-study", *models, *drawn, *chosen, *methods, "--out", results)
    return results


def known_map(folder: Path) -> list[dict[str, object]]:
    """Errors of every kind of map that looks for the inverse of a random flow (table 3).

    One flow f for all layers, drawn as in the authors' code, makes Y = f(X) of sentence means X. A
    map from Y to X is fitted on the training texts of all layers and judged on each layer of the
    test texts.
    """
    from simcore.align import METHODS as ALIGNERS
    from simcore.align import REN2023
    from simlab.representations.folder import load_representations

    fitted, judged = (
        [torch.from_numpy(layer) for layer in load_representations(folder / split / "ft-1").layers]
        for split in ("train", "heldout")
    )
    drawn = {**REN2023["inn"], "max_steps": 1, "learning_rate": 1e-12}
    flow = ALIGNERS["inn"](**drawn, seed=1).fit(fitted[0], fitted[0])
    rows = []
    for name, params in _kinds(len(fitted)).items():
        aligner = ALIGNERS[name.partition(",")[0]](**params)
        x, y = (_in_turn(side) for side in (fitted, [flow.transform(x) for x in fitted]))
        aligner.fit(y, x)
        for layer, states in enumerate(judged):
            errors = asdict(aligner.errors(flow.transform(states), states))
            rows.append({"method": name, "layer": layer, "n": len(states), **errors})
    return rows


def _kinds(layers: int) -> dict[str, dict[str, object]]:
    """Return the parameters of every kind of map, by its name in the table."""
    from simcore.align import REN2023

    published = {
        f"{name}, ren2023": {**REN2023[name], "max_steps": STEPS * layers, "group": layers}
        for name in PUBLISHED
    }
    return {**{name: {} for name in METHODS}, **published}


def _in_turn(layers: list[Tensor]) -> Tensor:
    """Return batches of all layers in turn: one batch of the first layer, of the second, ..."""
    return torch.cat([part.flatten(0, 1) for part in torch.stack(layers).split(BATCH, 1)])


def publish_rows(results: Path, known: list[dict[str, object]]) -> None:
    """Write the mean errors over layers, for every pair and method, as one table."""
    import pandas as pd

    from simlab.store.reading import read_results
    from simlab.store.results import ACROSS, ALIGNMENT, WITHIN

    frame = read_results(results)
    frame = frame[frame["experiment"].isin((ALIGNMENT, WITHIN, ACROSS))]
    options = [json.loads(text) for text in frame["options"]]
    for name in ("method", "rows", "map", "training"):
        frame[name] = [chosen.get(name, "") for chosen in options]
    keys = ["map", "training", "method", "rows", "label_x", "label_y", "measure"]
    pairs = frame.groupby(keys)["value"].mean().unstack("measure").reset_index()
    names = {column: column.removeprefix("alignment-").replace("-", "_") for column in pairs}
    names |= {"alignment-error": "relative", "alignment-component-error": "component_relative"}
    pairs = pairs.rename(columns=names).assign(data="pairs of models")
    inverse = pd.DataFrame(known).groupby("method", sort=False).mean(numeric_only=True)
    inverse = inverse.drop(columns="layer").reset_index()
    method, training = (inverse["method"].str.split(", ").str[k] for k in (0, 1))
    inverse = inverse.assign(
        data=KNOWN, map="shared", rows="heldout", method=method, training=training.fillna("")
    )
    table = pd.concat([pairs, inverse], ignore_index=True)
    table = table[["data", *(c for c in table if c not in ("data", "n"))]]
    table = table.replace({"map": {"": "per-layer"}, "training": {"": "ours"}})
    RESULTS.mkdir(exist_ok=True)
    table.to_csv(RESULTS / f"protocols-{TASK}.csv", index=False, float_format="%.5g")
    held = table[table["rows"] == "heldout"]
    print(held.groupby(["data", "map", "training", "method"])[["mse", "relative"]].mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/protocols"))
    options = parser.parse_args()
    publish_rows(align_models(options.out), known_map(options.out))
