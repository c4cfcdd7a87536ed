"""Hold the CPU time of jobs to that of another checkout: ``python -m bench.before CHECKOUT``.

CHECKOUT is a built work tree of an earlier commit; without one, the ratios are noise. The code of
both runs in a process of its own, on one thread, in turns. Half the rows and columns is the
default: the cost of a check is a larger share of these. With ``--planted``, layers get what those
of trained networks have.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np

from bench.harness import RESULTS, ROOT, append_row, machine
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
    command = ["git", "-C", str(options.checkout), "rev-parse", "--short=12", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    before_commit = found.stdout.strip()
    for job in options.job or jobs():
        for planted in options.planted:
            named = f"{jobs()[job][0]}:{job}:{planted}:{options.scale}"
            taken = ratios(codes, named, options.seconds)
            low, middle, high = np.percentile(taken[:, 1] / taken[:, 0], [25, 50, 75])
            before, now = np.median(taken, axis=0)
            row = {
                "job": job + (f", {planted}" if planted in PLANTED else ""),
                "ratio": float(middle),
                "quartile_1": float(low),
                "quartile_3": float(high),
                "before_s": float(before),
                "now_s": float(now),
                "repeats": len(taken),
                "scale": str(options.scale),
                "before": before_commit,
                **machine(),
                "threads": 1,
            }
            append_row(RESULTS / "before.csv", row)


if __name__ == "__main__":
    main()
