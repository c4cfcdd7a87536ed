"""The functional experiments on a real model, as a user runs them: MiniLM-L6, rt and stsb, 3 seeds.

    python -m bench.functional                 # 30 fine-tunes; interrupt it and run it again
    python -m bench.functional --task rt

Freezing, FT-FT and FT[1]-FT[2] grids with their blocks, truncation in three modes, and skipping,
by the commands of the README into ``runs/functional/TASK``. What came out lands in
``bench/results/functional-TASK.csv``, the figures in ``docs/figures``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

from bench.peak import ROOT

MODEL, TASKS, SEEDS = "minilm", ("rt", "stsb"), (1, 2, 3)
FREEZING = ("--bottom", 2, "--bottom", 4, "--top", 2, "--top", 4)
MODES = ("--mode", "untuned", "--mode", "tuned", "--mode", "tuned-orig")


def simcore(*arguments: object) -> None:
    """Run a command; it shows its own progress and does nothing that it has done before."""
    subprocess.run(["simcore", *map(str, arguments)], check=True)


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
    simcore("blocks", results, "--out", folder / "blocks.parquet", "--overwrite")
    collect(task, folder)


def collect(task: str, folder: Path) -> None:
    """One table of all results, and the figures of it."""
    import pandas as pd

    from simlab.results import read_results

    everything = folder / "all"
    shutil.rmtree(everything, ignore_errors=True)
    everything.mkdir()
    found = [*(folder / "results").glob("*.parquet"), folder / "blocks.parquet"]
    found += (folder / "freezing" / "results").glob("*.parquet")
    for path in found:
        shutil.copy(path, everything)
    table = pd.concat([read_results(path) for path in sorted(everything.glob("*.parquet"))])
    table = table.dropna(axis="columns", how="all")
    table.to_csv(ROOT / "bench" / "results" / f"functional-{task}.csv", index=False)
    simcore("plot", everything, "--out", folder / "figures")
    for figure in sorted((folder / "figures").glob("*.png")):
        shutil.copy(figure, ROOT / "docs" / "figures" / f"functional-{figure.name}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", action="append", choices=TASKS, help="default: both")
    parser.add_argument("--out", type=Path, default=Path("runs/functional"))
    options = parser.parse_args()
    for name in options.task or TASKS:
        run(name, options.out / name)
