"""Hold the CPU time of jobs to that of another checkout: ``python -m bench.before CHECKOUT``.

CHECKOUT is a built work tree of an earlier commit; without one, the ratios are noise. The code of
both runs in a process of its own, on one thread, in turns. Half the rows and columns is the
default: the cost of a check is a larger share of these. With ``--planted``, layers get what those
of trained networks have.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from bench.harness import RESULTS, ROOT
from bench.rows import jobs

# The same lines run in both checkouts; a line names a job of each, an empty line runs it again.
CHILD = """
import importlib, sys, time, warnings
import torch
warnings.simplefilter("ignore")
torch.set_num_threads(1)
for line in sys.stdin:
    if line.strip():
        suite, label, planted, scale = line.strip().split(":")
        job = importlib.import_module("bench." + suite).JOBS[label].scaled(float(scale))
        x, ours = job.data(), job.contestants()["ours"]
        if planted == "sink row":
            x[:, 0] = 1e4 * x[:, 0].sign()
        if planted == "massive column":
            x[:, :, 0] = 500 * x[:, :, 0] + 500
        if planted == "tight classes":
            x[:] = x[:, torch.arange(x.shape[1]) % 4] + 1e-5 * x
    start = time.process_time()
    ours.run(x)
    print("seconds", time.process_time() - start, flush=True)
"""
PLANTED = ("sink row", "massive column", "tight classes")
COLUMNS = ("job", "ratio", "quartile_1", "quartile_3", "before_s", "now_s", "repeats", "scale",
           "before", "commit", "date")  # fmt: skip


def commit_of(tree: Path) -> str:
    """Return the commit of a checkout."""
    command = ["git", "-C", str(tree), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


class Code:
    """A process that runs jobs with the code of a checkout."""

    def __init__(self, tree: Path):
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            cwd=tree, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def seconds(self, job: str = "") -> float:
        """Return the CPU seconds of a job, or of the last one again."""
        print(job, file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith("seconds"):  # suites may print other lines
                return float(line.split()[1])
        raise RuntimeError(f"{job}: its process ended with {self.process.wait()}")


def ratios(codes: tuple[Code, Code], job: str, seconds: float) -> np.ndarray:
    """Return ``[turns, 2]`` CPU seconds, 5 to 41 turns of both codes."""
    taken: list[list[float]] = []
    for code in codes:
        code.seconds(job)  # warms up
    while len(taken) < 5 or (np.sum(taken) < seconds and len(taken) < 41):
        order = codes if len(taken) % 2 else codes[::-1]
        turn = {code: code.seconds() for code in order}
        taken.append([turn[code] for code in codes])
    return np.array(taken)


def main() -> None:
    """Time jobs in both checkouts, and append rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--job", action="extend", nargs="+", choices=[*jobs()], default=[])
    parser.add_argument("--planted", nargs="+", choices=PLANTED, default=["nothing"])
    parser.add_argument("--scale", type=float, default=0.5, help="of rows and of columns")
    parser.add_argument("--seconds", type=float, default=6, help="of a job, for both together")
    options = parser.parse_args()
    codes = Code(options.checkout), Code(ROOT)
    commits = commit_of(options.checkout), commit_of(ROOT)
    path = RESULTS / "before.csv"
    for job in options.job or jobs():
        for planted in options.planted:
            named = f"{jobs()[job][0]}:{job}:{planted}:{options.scale}"
            taken = ratios(codes, named, options.seconds)
            low, middle, high = np.percentile(taken[:, 1] / taken[:, 0], [25, 50, 75])
            numbers = (middle, low, high, *np.median(taken, axis=0))
            name = job + (f", {planted}" if planted in PLANTED else "")
            row = [name, *(f"{number:.4g}" for number in numbers), len(taken), options.scale,
                   *commits, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"]  # fmt: skip
            new = not path.exists()
            with path.open("a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(([COLUMNS] if new else []) + [row])
            print(*row, flush=True)


if __name__ == "__main__":
    main()
