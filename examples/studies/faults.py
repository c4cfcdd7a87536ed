"""A hundred faults: what a sweep loses when processes die, freeze, or find damaged files.

    python examples/studies/faults.py --faults 100

A sweep of small models that it pretrains itself (fine-tuning, representations, grids, truncation,
skipping, injection) runs once without interruption. Then faults befall it, in rounds:

* While jobs are at work, the driver, a worker or all of them are killed (SIGKILL, SIGTERM) or
  frozen for seconds (SIGSTOP, SIGCONT), up to ten times until the sweep has ended.
* A byte of a file is changed, or a file is cut short: rows of a finished folder, or weights,
  representations and records of one that has no rows yet. One file a run.
* The disk is full (a small file system in memory), which grows before the command is repeated.
* A driver and its workers may open no more files, until the command is repeated.
* Of two machines (namespaces of processes and host names) that share a folder, the second is
  refused in one line; it continues when the first has died.

The same command continues each time. Each fault is a row of
``examples/studies/results/faults.csv``: its kind, how many jobs were done then, the exit code of
the command that met it and how many lines of errors and notes that printed; and how the run ended:
whether the folder has the bits of the uninterrupted run, how many jobs were made again because
their outputs were damaged, how many were done twice besides, and how many are not done. The exit
code of this script is 1 if a row is not as it should be.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path

from fault_runs import FAR, OUT, Fault, Run, Study, logged, namespaces
from simlab.sweeps.rows import jobs_in

INTERRUPTIONS = (
    *("kill driver", "kill worker", "kill all", "terminate driver"),
    *("freeze driver", "freeze worker", "freeze all"),
)
MOST_INTERRUPTIONS = 10  # of one run
DAMAGES = 2  # of a round
ON_FAR = 'hostname far; exec "$@"'
# A command on a disk of its own, which grows when the command has ended; then the folder is copied.
ON_SMALL_DISK = """\
size=$1 disk=$2 code=$3 copy=$4; shift 4
mount -t tmpfs -o "size=$size" tmpfs "$disk" || exit 3
"$@"; echo $? >"$code"
mount -o remount,size=1g "$disk" && cp -a "$disk" "$copy"
"""


def wait_for_work(study: Study, run: Run, folder: Path, most: int) -> list[int]:
    """Wait until up to `most` more jobs are done, and one is at work; return who works then."""
    # Some jobs are done between two faults, so that the faults fall on all kinds of job.
    wanted = len(logged(folder)) + study.draw.randint(0, most)
    while run.process.poll() is None and (len(logged(folder)) < wanted or not run.workers()):
        time.sleep(0.02)
    time.sleep(study.draw.uniform(0, 0.5))
    return run.workers() if run.process.poll() is None else []


def send(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to processes, some of which may be gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def interrupt(study: Study, name: str) -> None:
    """Kill and freeze processes while they work, until the sweep has ended."""
    folder, faults = OUT / f"round-{name}", []
    run = Run(study, folder)
    while len(faults) < MOST_INTERRUPTIONS and (code := run.process.poll()) != 0:
        if code is not None:
            run = Run(study, folder)
        at_work = wait_for_work(study, run, folder, most=3)
        fault = one_interruption(study, run, at_work, len(logged(folder))) if at_work else None
        if fault is not None and fault.code != 0:  # else the command had ended just before
            faults.append(fault)
            print(f"  {fault.kind} after {fault.done} jobs", flush=True)
    code = run.end()
    for fault in faults:  # of a worker, or a freeze: the command went on
        if fault.code is None:
            fault.code, fault.lines = code, run.lines()
    study.finish(folder, code, faults)


def one_interruption(study: Study, run: Run, at_work: list[int], done: int) -> Fault:
    """Kill or freeze the driver, a worker, or all of them."""
    kind = study.draw.choice(INTERRUPTIONS)
    act, _, who = kind.partition(" ")
    victims = {"driver": [run.process.pid], "worker": [study.draw.choice(at_work)]}
    pids = victims.get(who, run.processes())
    fault = Fault(kind, done)
    if act == "freeze":
        send(pids, signal.SIGSTOP)
        time.sleep(study.draw.uniform(0.5, 3))
        send(pids, signal.SIGCONT)
    else:
        send(pids, signal.SIGTERM if act == "terminate" else signal.SIGKILL)
        if who != "worker":
            fault.bites = True
            fault.code, fault.lines = run.end(), run.lines()
    return fault


def flip(file: Path, place: float) -> None:
    """Change bits of one byte, at a share of the length of a file."""
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 0x55
    file.write_bytes(content)


def damages(folder: Path, draw: random.Random) -> Iterator[tuple[str, Callable[[], object], Path]]:
    """Yield the ways in which a folder without rows is damaged: a name, an act, and an object."""
    extracted = sorted((folder / "objects/extract").glob("*/*"))
    tuned = sorted((folder / "objects/finetune").glob("*/*"))
    one, other = draw.choice(extracted), draw.choice(tuned)
    states, weights = next(one.glob("*.safetensors")), other / "model.safetensors"
    yield "byte of weights", lambda: flip(weights, draw.random()), other
    yield "byte of representations", lambda: flip(states, draw.random()), one
    yield "weights cut short", lambda: os.truncate(weights, 1000), other
    yield "representations deleted", states.unlink, one
    yield "record of an object: {}", lambda: (one / "object.json").write_text("{}"), one
    yield "record of an object: cut", lambda: os.truncate(other / "object.json", 30), other
    none = folder / "none"
    other_json = {
        "status": (folder / "status.json", '"abc"'),
        "failure": (folder / f"failures/{'0' * 64}.json", "[]"),
        "log": (folder / "log" / "other.jsonl", '{"a": 1}\n'),
        "plan": (folder / "plan.json", "[]"),
        "fingerprints": (folder / "fingerprints.json", "[]"),
        "sweep.json": (folder / "sweep.json", '{"models": '),
    }
    for name, (file, text) in other_json.items():
        yield f"{name}: other JSON", partial(file.write_text, text), none


def damage(study: Study, name: str, number: int) -> None:
    """Damage one file of a copy of a folder, and continue the sweep there."""
    folder = OUT / f"damage-{name}"
    ways = list(damages(shutil.copytree(OUT / "half", folder, symlinks=True), study.draw))
    number %= len(ways) + 2
    if number < len(ways):
        kind, act, place = ways[number]
        damaged = [place.name] if place.exists() else []
        done = len(logged(folder))
        act()
    else:  # rows of a folder in which all is done
        shutil.rmtree(folder)
        shutil.copytree(OUT / "whole", folder, symlinks=True)
        file = sorted((folder / "results").glob("*.parquet"))[-1]
        damaged, done = list(jobs_in(file)), len(study.jobs)
        if number == len(ways):
            kind = "byte of rows"
            flip(file, study.draw.random())
        else:
            kind = "rows cut short"
            os.truncate(file, file.stat().st_size // 2)
    run = Run(study, folder)
    fault = Fault(kind, done, run.end(), run.lines(), wanted=len(damaged))
    study.finish(folder, fault.code, [fault], damaged)


def full_disk(study: Study, name: str) -> None:
    """Run the command on a disk that is too small, and then on one that is large enough."""
    folder, disk, told = OUT / f"disk-{name}", OUT / f"mount-{name}", OUT / f"code-{name}.txt"
    disk.mkdir()
    needed = sum(file.stat().st_size for file in (OUT / "whole").rglob("*") if file.is_file())
    size = int(needed * study.draw.uniform(0.05, 0.8))
    small = ("sh", "-c", ON_SMALL_DISK, "sh", str(size), str(disk), str(told), str(folder))
    run = Run(study, disk, before=namespaces("--mount", *small))
    run.end()
    fault = Fault(f"full disk of {size // 1000} kB", 0, bites=True)
    fault.code, fault.lines = int(told.read_text()), run.lines()
    fault.done = len(logged(folder))
    study.finish(folder, fault.code, [fault])


def too_few_files(study: Study, name: str, who: str) -> None:
    """Let a driver or all processes open no more files while a job is at work."""
    folder = OUT / f"files-{name}"
    run = Run(study, folder)
    wait_for_work(study, run, folder, most=len(study.jobs) // 2)
    fault = Fault(f"no more files: {who}", len(logged(folder)), bites=True)
    for pid in [run.process.pid] if who == "driver" else run.processes():
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            number = max(map(int, os.listdir(f"/proc/{pid}/fd"))) + 1
            _, most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (number, most))
    fault.code, fault.lines = run.end(), run.lines()
    study.finish(folder, fault.code, [fault])


def two_machines(study: Study, name: str) -> None:
    """Let a second machine ask for the folder of one at work, and continue after its death."""
    folder = OUT / f"machines-{name}"
    near = Run(study, folder)
    wait_for_work(study, near, folder, most=12)
    far = partial(Run, study, folder, before=namespaces(*FAR, "sh", "-c", ON_FAR, "sh"))
    refused = far()
    fault = Fault("second machine", len(logged(folder)), refused.end(), refused.lines(), bites=True)
    send(near.processes(), signal.SIGKILL)
    near.end()
    died = Fault("first machine of two dies", len(logged(folder)))
    second = far()
    died.code, died.lines = second.end(), second.lines()
    study.finish(folder, died.code, [fault, died])


def main() -> None:
    """Run the study, and write its rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=100, help="at least so many")
    parser.add_argument("--minutes", type=float, default=120.0, help="no new fault after these")
    parser.add_argument("--lanes", type=int, default=2, help="sweeps that run beside each other")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    command = namespaces(*FAR, "true")
    if subprocess.run(command, capture_output=True, check=False).returncode:
        raise SystemExit("wanted a system that gives namespaces of processes and mounts")
    began = time.monotonic()
    study, plan = Study(random.Random(options.seed)), schedule()
    taking = threading.Lock()

    def work() -> None:
        while True:
            with taking:
                minutes = (time.monotonic() - began) / 60
                if len(study.faults) >= options.faults or minutes > options.minutes:
                    return
                name, act = next(plan)
            act(study, name)

    with ThreadPoolExecutor(options.lanes) as lanes:
        for ended in [lanes.submit(work) for _ in range(options.lanes)]:
            ended.result()
    print(Counter(fault.kind for fault in study.faults))
    wrong = [fault for fault in study.faults if not fault.is_right()]
    minutes = (time.monotonic() - began) / 60
    print(
        f"{len(study.faults)} faults in {minutes:.0f} minutes, {len(wrong)} of them not as wanted"
    )
    for fault in wrong:
        print(fault)
    sys.exit(1 if wrong else 0)


def schedule() -> Iterator[tuple[str, Callable[[Study, str], None]]]:
    """Yield faults without end: a name for the folder, and a function to call with it."""
    for number in count():
        who = "driver" if number % 2 else "all"
        yield f"{number}", interrupt
        yield f"{number}", two_machines
        for part in range(DAMAGES):
            yield f"{number}-{part}", partial(damage, number=DAMAGES * number + part)
        yield f"{number}", full_disk
        yield f"{number}", partial(too_few_files, who=who)


if __name__ == "__main__":
    main()
