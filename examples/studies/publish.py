"""Shared parts of the studies: the model and its seeds, running a command, publishing results."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
MODEL, SEEDS = "minilm", (1, 2, 3)


def simcore(*arguments: object) -> None:
    """Run a command, which shows its progress and skips steps that it has finished before."""
    subprocess.run(["simcore", *map(str, arguments)], check=True)


def with_options(name: str, values: tuple[str, ...]) -> list[str]:
    """Give an option once for each of `values`."""
    return [part for value in values for part in (name, value)]


def publish(results: list[Path], drawn: Path, table: str, figures: dict[str, str]) -> None:
    """Put results as one table under ``examples/studies/results``, and figures of them in ``docs``.

    Parameters
    ----------
    results
        Results files, or folders of them.
    drawn
        Folder for all figures.
    table
        Name of the table.
    figures
        Names of figures, and their names in ``docs/figures``.
    """
    from simlab.results.reading import read_results
    from simlab.results.results import DRAWS

    frame = read_results(results).drop(columns=DRAWS).dropna(axis="columns", how="all")
    RESULTS.mkdir(exist_ok=True)
    frame.to_csv(RESULTS / table, index=False)
    simcore("plot", *results, "--out", drawn)
    for name, called in figures.items():
        shutil.copy(drawn / name, ROOT / "docs" / "figures" / called)
