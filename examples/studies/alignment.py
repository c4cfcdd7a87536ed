"""Alignment and injection on a real model, as a user runs them: MiniLM-L6 and rt, three seeds.

    python examples/studies/functional.py --task rt  # first: its fine-tuned models are aligned
    python examples/studies/alignment.py             # may be interrupted

Ren et al. 2023: alignment error of every pair of fine-tuned models, and of the pretrained one with
each of them, layer by layer, of hidden states and of attention (figures 2, 3 and 5); every method
on pairs of real models (table 4); injection at the last layer (table 5). Maps are fitted on
training sentences of the models and judged on the held-out sentences of the task. Their table 3 is
``known_inverse.py``. Results land in ``examples/studies/results/alignment-rt.csv``, figures in
``docs/figures``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from publish import MODEL, SEEDS, publish, simcore, with_options

TASK = "rt"
METHODS = ("linear", "cca", "svcca", "pwcca", "mlp", "inn")
SENTENCES = 2000  # of the training rows, which maps are fitted on
# The figures that docs/results/experiments.md shows.
FIGURES = (
    "alignment-cls-methods",
    "alignment-cls-layers-linear",
    "alignment-attention-layers-linear",
    "injection",
)
ATTENDED = 100  # sentences of a split whose attention is used: every pair of words is a row


def run(models: Path, folder: Path, seeds: Sequence[int]) -> None:
    """All steps; each continues where it was."""
    checkpoints = {f"FT[{seed}]": models / f"none-seed-{seed}" for seed in seeds}
    states, attention, results = (folder / name for name in ("states", "attention", "results"))
    for label, model in {"ORIG": MODEL, **checkpoints}.items():
        place = label.replace("[", "-").rstrip("]").lower()
        for split, limit in (("train", ("--limit", SENTENCES)), ("heldout", ())):
            common = ("extract", model, TASK, "--label", label, "--split", split)
            simcore(*common, *limit, "--out", states / split / place)
            few = ("--kind", "attention", "--limit", ATTENDED)
            simcore(*common, *few, "--out", attention / split / place)
    tuned = [f"ft-{seed}" for seed in seeds]
    for kind, source in (("states", states), ("attention", attention)):
        methods = METHODS if kind == "states" else ("linear",)
        within = ["--within"] if kind == "states" else []
        fitted, judged = source / "train", ("--judge", source / "heldout", "--directions", "one")
        simcore(
            *("align-study", *(fitted / name for name in tuned), "--name", "fine-tuned"),
            *(*judged, *with_options("--method", methods)),
            *("--out", results / f"{kind}-tuned"),
        )
        simcore(
            *("align-study", *(fitted / name for name in ("orig", *tuned)), *judged),
            *("--name", "with the pretrained one", "--method", "linear", *within),
            *("--out", results / f"{kind}-all"),
        )
    first, second = (checkpoints[f"FT[{seed}]"] for seed in seeds[:2])
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
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="two or more")
    options = parser.parse_args()
    run(options.models, options.out, options.seeds)
