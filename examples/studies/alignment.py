"""Alignment and injection on a real model, as a user runs them: MiniLM-L6 and rt, three seeds.

    python examples/studies/functional.py --task rt  # first: its fine-tuned models are aligned
    python examples/studies/alignment.py             # may be interrupted

Ren et al. 2023: held-out alignment error of every pair of fine-tuned models, and of the pretrained
one with each of them, layer by layer, of hidden states and of attention (figures 2, 3 and 5); every
method on pairs of real models (table 4); injection at the last layer (table 5). Their table 3 is
``known_map.py``. Results land in ``examples/studies/results/alignment-rt.csv``, figures in
``docs/figures``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from publish import MODEL, SEEDS, publish, simcore, with_options

TASK = "rt"
METHODS = ("linear", "cca", "svcca", "pwcca", "mlp", "inn")
SENTENCES = 4000  # of the training rows, half of which the maps are judged on
# The figures that docs/results/experiments.md shows.
FIGURES = (
    "alignment-cls-methods",
    "alignment-cls-layers-linear",
    "alignment-attention-layers-linear",
    "injection",
)
ATTENDED = 200  # sentences whose attention is used: every pair of words is a row


def run(models: Path, folder: Path) -> None:
    """All steps; each continues where it was."""
    checkpoints = {f"FT[{seed}]": models / f"none-seed-{seed}" for seed in SEEDS}
    states, attention, results = (folder / name for name in ("states", "attention", "results"))
    for label, model in {"ORIG": MODEL, **checkpoints}.items():
        place = label.replace("[", "-").rstrip("]").lower()
        common = ("extract", model, TASK, "--label", label, "--split", "train")
        simcore(*common, "--limit", SENTENCES, "--out", states / place)
        simcore(*common, "--kind", "attention", "--limit", ATTENDED, "--out", attention / place)
    tuned = [f"ft-{seed}" for seed in SEEDS]
    for kind, source in (("states", states), ("attention", attention)):
        methods = METHODS if kind == "states" else ("linear", "inn")
        within = ["--within"] if kind == "states" else []
        simcore(
            *("align-study", *(source / name for name in tuned), "--name", "fine-tuned"),
            *with_options("--method", methods),
            *("--out", results / f"{kind}-tuned"),
        )
        simcore(
            *("align-study", *(source / name for name in ("orig", *tuned))),
            *("--name", "with the pretrained one", "--method", "linear", *within),
            *("--out", results / f"{kind}-all"),
        )
    first, second = (checkpoints[f"FT[{seed}]"] for seed in SEEDS[:2])
    simcore(
        *("inject", first, second, TASK, "--label", "FT[1]", "--label", "FT[2]"),
        *("--out", results / "injection.parquet"),
    )
    figures = {name: name for name in (f"{TASK}-{figure}.png" for figure in FIGURES)}
    publish([results], folder / "figures", f"alignment-{TASK}.csv", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--models", type=Path, default=Path("runs/functional/rt/freezing/checkpoints")
    )
    parser.add_argument("--out", type=Path, default=Path("runs/alignment"))
    options = parser.parse_args()
    run(options.models, options.out)
