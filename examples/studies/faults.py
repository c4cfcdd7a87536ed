"""A hundred kills: what a killed sweep loses, and whether it ends with the same bits.

    python examples/studies/faults.py --kills 100

A sweep of fine-tuned MiniLM models (a few steps each, then representations, grids, truncation and
skipping) runs once without interruption. Then it runs again and again with two workers, and after
random times either the driver or a worker is killed by SIGKILL, until there were enough kills; the
same command continues it each time. Rows land in ``examples/studies/results/faults.csv``: the
kills, the jobs that they interrupted, the jobs that were done twice, and whether rows and
checkpoints are equal bit for bit.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

from simlab import Sweep
from simlab.store.files import hash_file

TOML = """\
models = ["minilm"]
tasks = [{ name = "rt", train_size = 64, heldout_size = 48 }]

[finetune]
seeds = "1..6"
max_steps = 6
batch_size = 8
max_length = 24

[[grids]]
measure = ["cka", "svcca"]
between = ["within", "tuning"]

[truncate]
[skip]
"""
OUT = Path("runs/faults")
RESULTS = Path(__file__).parent / "results" / "faults.csv"


def start(file: Path, folder: Path) -> subprocess.Popen[bytes]:
    """Start or continue the sweep in `folder`."""
    command = ["simcore", "sweep", str(file), "--out", str(folder), "--workers", "2"]
    command += ["--threads", "1", "--no-figures", "--retry-failed"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)


def owners(folder: Path) -> list[int]:
    """Return the processes of all claims."""
    found = []
    for claim in (folder / "claims").glob("[!.]*"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            found.append(json.loads(claim.read_text())["pid"])
    return found


def kill(driver: subprocess.Popen[bytes], folder: Path, draw: random.Random) -> tuple[str, int]:
    """Kill the driver or a worker; return which, and how many jobs it was doing."""
    working = [pid for pid in owners(folder) if Path(f"/proc/{pid}").exists()]
    if working and draw.random() < 0.5:
        with contextlib.suppress(ProcessLookupError):
            os.kill(draw.choice(working), signal.SIGKILL)
        return "worker", 1
    driver.kill()
    driver.wait()
    return "driver", len(working)


def contents(sweep: Sweep, folder: Path) -> tuple[object, dict[str, str]]:
    """Return all rows, and the hashes of all weights and representations."""
    files = sorted((folder / "objects").rglob("*.safetensors"))
    return sweep.results(folder), {str(f.relative_to(folder)): hash_file(f) for f in files}


def study(kills: int, seed: int) -> dict[str, object]:
    """Kill processes until there were enough kills; return the row."""
    OUT.mkdir(parents=True, exist_ok=True)
    file = OUT / "sweep.toml"
    file.write_text(TOML)
    sweep, draw = Sweep.from_file(file), random.Random(seed)
    if start(file, OUT / "whole").wait() != 0:
        raise SystemExit("the sweep without interruption failed")
    wanted = contents(sweep, OUT / "whole")
    killed: Counter[str] = Counter()
    lost = twice = done = rounds = equal = 0
    while sum(killed.values()) < kills:
        folder = OUT / f"round-{rounds}"
        shutil.rmtree(folder, ignore_errors=True)
        driver = start(file, folder)
        while driver.poll() != 0:
            if driver.poll() is not None:
                driver = start(file, folder)
            until = time.monotonic() + draw.uniform(0, 20)
            while time.monotonic() < until and driver.poll() is None:
                time.sleep(0.02)
            if driver.poll() is None and sum(killed.values()) < kills:
                who, jobs = kill(driver, folder, draw)
                killed[who] += 1
                lost += jobs
                print(f"{sum(killed.values())} kills: {who}, {jobs} jobs", flush=True)
        lines = [json.loads(x) for log in folder.glob("log/*.jsonl") for x in log.open()]
        counted = Counter(line["key"] for line in lines)
        twice += sum(count - 1 for count in counted.values())
        done += len(sweep.plan())
        rows, files = contents(sweep, folder)
        equal += rows.equals(wanted[0]) and files == wanted[1]
        rounds += 1
        print(f"round {rounds}: {equal} of {rounds} equal", flush=True)
    return {
        "kills": sum(killed.values()),
        "of drivers": killed["driver"],
        "of workers": killed["worker"],
        "sweeps": rounds,
        "jobs": done,
        "jobs interrupted": lost,
        "jobs done twice": twice,
        "sweeps with equal bits": equal,
    }


def main() -> None:
    """Run the study, and write its row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    row = study(options.kills, options.seed)
    with RESULTS.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(row), lineterminator="\n")
        writer.writeheader()
        writer.writerow(row)
    print(row)


if __name__ == "__main__":
    main()
