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
from collections.abc import Iterator
from dataclasses import asdict, replace
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

Sides = tuple[list[Tensor], list[Tensor]]


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
    methods = [part for name in METHODS for part in ("--method", name)]
    simcore("align-study", *models, *drawn, *methods, "--out", results)
    return results


def shared_maps(folder: Path) -> list[dict[str, object]]:
    """Errors of one map for all layers, between the pairs of models that `align-study` draws."""
    from simlab.experiments.options import drawn_pairs

    rows = []
    for pair in drawn_pairs(len(SEEDS), PAIRS, 0, "one"):
        fitted, judged = (
            tuple(_layers(folder / split / f"ft-{SEEDS[k]}") for k in pair)
            for split in ("train", "heldout")
        )
        labels = dict(zip(("label_x", "label_y"), (f"FT[{SEEDS[k]}]" for k in pair), strict=True))
        rows += [labels | row for row in _errors(fitted, {"train": fitted, "heldout": judged})]
    return rows


def known_map(folder: Path) -> list[dict[str, object]]:
    """Errors of every kind of map that looks for the inverse of a random flow (table 3).

    One flow f for all layers, drawn as in the authors' code, makes Y = f(X) of sentence means X. A
    map from Y to X is fitted on the training texts of all layers and judged on each layer of the
    test texts.
    """
    from simcore.align import METHODS as ALIGNERS
    from simcore.align import REN2023

    fitted, judged = (_layers(folder / split / "ft-1") for split in ("train", "heldout"))
    published = REN2023["inn"]
    drawn = replace(published["training"], max_steps=1, learning_rate=1e-12, seed=1)
    flow = ALIGNERS["inn"](**{**published, "training": drawn}).fit(fitted[0], fitted[0])
    back, back_judged = (([flow.transform(x) for x in side], side) for side in (fitted, judged))
    return list(_errors(back, {"heldout": back_judged}))


def _layers(folder: Path) -> list[Tensor]:
    from simlab.representations.folder import load_representations

    return [torch.from_numpy(layer) for layer in load_representations(folder).layers]


def _errors(fitted: Sides, judged: dict[str, Sides]) -> Iterator[dict[str, object]]:
    """Yield the errors, on each layer of `judged`, of maps fitted on all layers of `fitted`."""
    from simcore.align import METHODS as ALIGNERS

    for name, params in _kinds(len(fitted[0])).items():
        method, _, training = name.partition(", ")
        aligner = ALIGNERS[method](**params).fit(*map(_in_turn, fitted))
        for rows, sides in judged.items():
            for layer, (x, y) in enumerate(zip(*sides, strict=True)):
                facts = {"map": "shared", "method": method, "training": training, "rows": rows}
                yield {**facts, "layer": layer, **asdict(aligner.errors(x, y))}


def _kinds(layers: int) -> dict[str, dict[str, object]]:
    """Return the parameters of every kind of map, by its name in the table."""
    from simcore.align import REN2023

    published = {
        f"{name}, ren2023": {
            **REN2023[name],
            "training": replace(REN2023[name]["training"], max_steps=STEPS * layers, group=layers),
        }
        for name in PUBLISHED
    }
    return {**{name: {} for name in METHODS}, **published}


def _in_turn(layers: list[Tensor]) -> Tensor:
    """Return batches of all layers in turn: one batch of the first layer, of the second, ..."""
    return torch.cat([part.flatten(0, 1) for part in torch.stack(layers).split(BATCH, 1)])


def publish_rows(
    results: Path, shared: list[dict[str, object]], known: list[dict[str, object]]
) -> None:
    """Write the mean errors over layers, for every pair and method, as one table."""
    import pandas as pd

    from simlab.results.reading import read_results
    from simlab.results.results import ALIGNMENT

    frame = read_results(results)
    frame = frame[frame["experiment"] == ALIGNMENT]
    options = [json.loads(text) for text in frame["options"]]
    for name in ("method", "rows"):
        frame[name] = [chosen[name] for chosen in options]
    keys = ["map", "training", "method", "rows", "label_x", "label_y"]
    frame = frame.assign(map="", training="")
    pairs = frame.groupby([*keys, "measure"])["value"].mean().unstack("measure").reset_index()
    names = {column: column.removeprefix("alignment-").replace("-", "_") for column in pairs}
    names |= {"alignment-error": "relative", "alignment-component-error": "component_relative"}
    of_all = pd.DataFrame(shared).groupby(keys).mean(numeric_only=True).reset_index()
    pairs = pd.concat([pairs.rename(columns=names), of_all.drop(columns="layer")])
    pairs = pairs.assign(data="pairs of models")
    keys = ["map", "training", "method", "rows"]
    inverse = pd.DataFrame(known).groupby(keys, sort=False).mean(numeric_only=True)
    inverse = inverse.drop(columns="layer").reset_index().assign(data=KNOWN)
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
    aligned = align_models(options.out)
    publish_rows(aligned, shared_maps(options.out), known_map(options.out))
