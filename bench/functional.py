"""The functional experiments on a real model, as a user runs them: MiniLM-L6, rt and stsb, 3 seeds.

    python -m bench.functional                 # 30 fine-tunes; interrupt it and run it again
    python -m bench.functional --task rt

Freezing, FT-FT and FT[1]-FT[2] grids with their blocks, truncation in three modes, and skipping,
by the commands of docs/commands.md into ``runs/functional/TASK``. What came out lands in
``bench/results/functional-TASK.csv``, the figures in ``docs/figures``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

from bench.peak import ROOT

MODEL, TASKS, SEEDS = "minilm", ("rt", "stsb"), (1, 2, 3)
# Of all figures, those that docs/experiments.md shows.
FIGURES = ("truncation", "skipping", "freezing", "cka-biased")
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
    blocks = folder / "blocks.parquet"
    simcore("blocks", results, "--out", blocks, "--overwrite")
    figures = {f"{task}-{name}.png": f"functional-{task}-{name}.png" for name in FIGURES}
    publish(
        [results, blocks, folder / "freezing" / "results"],
        folder / "figures",
        f"functional-{task}.csv",
        figures,
    )


def publish(results: list[Path], drawn: Path, table: str, figures: dict[str, str]) -> None:
    """Put results as one table under ``bench/results``, and figures of them under ``docs``.

    Parameters
    ----------
    results
        Results files, or folders of them.
    drawn
        Folder for all figures.
    table
        Name of the table.
    figures
        Names of figures, and what they are to be called in ``docs/figures``.
    """
    from simlab.store.results import read_results

    frame = read_results(results).dropna(axis="columns", how="all")
    frame.to_csv(ROOT / "bench" / "results" / table, index=False)
    simcore("plot", *results, "--out", drawn)
    for name, called in figures.items():
        shutil.copy(drawn / name, ROOT / "docs" / "figures" / called)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", action="append", choices=TASKS, help="default: both")
    parser.add_argument("--out", type=Path, default=Path("runs/functional"))
    options = parser.parse_args()
    for name in options.task or TASKS:
        run(name, options.out / name)
