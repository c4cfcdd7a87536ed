"""The functional experiments on a real model, as a user runs them: MiniLM-L6, rt and stsb, 3 seeds.

    python examples/studies/functional.py             # 30 fine-tunes; may be interrupted
    python examples/studies/functional.py --task rt

Freezing, FT-FT and FT[1]-FT[2] grids with their blocks, truncation in three modes, and skipping,
by the commands of docs/experiments into ``runs/functional/TASK``. The results land in
``examples/studies/results/functional-TASK.csv``, the figures in ``docs/figures``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from publish import MODEL, SEEDS, publish, simcore

TASKS = ("rt", "stsb")
# The figures that docs/results/experiments.md shows.
FIGURES = ("truncation", "skipping", "freezing", "cka-biased")
FREEZING = ("--bottom", 2, "--bottom", 4, "--top", 2, "--top", 4)
MODES = ("--mode", "untuned", "--mode", "tuned", "--mode", "tuned-orig")


def run(task: str, folder: Path) -> None:
    """All steps of one task; each continues where it was."""
    study, results = folder / "freezing", folder / "results"
    seeds = f"{SEEDS[0]}..{SEEDS[-1]}"
    simcore("freeze-study", MODEL, task, *FREEZING, "--seeds", seeds, "--out", study)
    layers = {}
    for seed in SEEDS:
        tuned = study / "checkpoints" / f"none-seed-{seed}"
        label, layers[seed] = f"FT[{seed}]", folder / "representations" / f"ft-{seed}"
        note = ("--label", label, "--seed", seed)
        simcore("extract", tuned, task, *note, "--out", layers[seed])
        simcore(
            *("grid", layers[seed], "--comparison", f"{label}-{label}"),
            *("--out", results / f"within-{seed}.parquet"),
        )
        simcore("skip", tuned, task, *note, "--out", results / f"skipping-{seed}.parquet")
        simcore(
            *("truncate", tuned, task, *MODES, *note),
            *("--out", results / f"truncation-{seed}.parquet"),
        )
    simcore(
        *("grid", layers[1], layers[2], "--comparison", "FT[1]-FT[2]"),
        *("--out", results / "ft-1-ft-2.parquet"),
    )
    blocks = folder / "blocks.parquet"
    simcore("blocks", results, "--out", blocks, "--overwrite")
    figures = {f"{task}-{name}.png": f"functional-{task}-{name}.png" for name in FIGURES}
    publish(
        [results, blocks, folder / "freezing" / "results"],
        folder / "figures",
        f"functional-{task}.csv",
        figures,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", action="append", choices=TASKS, help="default: both")
    parser.add_argument("--out", type=Path, default=Path("runs/functional"))
    options = parser.parse_args()
    for name in options.task or TASKS:
        run(name, options.out / name)
