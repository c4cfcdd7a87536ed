"""Steps that need no model: real processes do real files in milliseconds.

A checkpoint is a file of numbers drawn from the seed, in five parts that a killed step continues.
Representations are its numbers times two, and a grid is their mean. Every step adds a line to
``runs.txt`` when it begins and when it ends, so that tests count what ran.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from io import BytesIO
from pathlib import Path

import numpy as np

from simlab.results.results import ResultRow

PARTS = 5


def _line(work, word: str) -> None:
    line = f"{word} {work.params['name']} {os.getpid()}\n"
    descriptor = os.open(work.hints["runs"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def _begin(work) -> None:
    _line(work, "begin")
    fate = work.hints.get("fate", {}).get(work.params["name"])
    if fate == "raise":
        raise RuntimeError("this step fails")
    if fate == "no more files":  # at the first attempt
        begun = Path(work.hints["runs"]).read_text().count(f"begin {work.params['name']} ")
        if begun == 1:
            raise RuntimeError(f"a library's file: {os.strerror(errno.EMFILE)} (os error 24)")
    if fate == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if isinstance(fate, list):  # names of signals, each of which ends one attempt
        begun = Path(work.hints["runs"]).read_text().count(f"begin {work.params['name']} ")
        if begun <= len(fate):
            number = signal.Signals[fate[begun - 1]]
            if number != signal.SIGKILL:
                signal.signal(number, signal.SIG_DFL)  # `nohup` and shells have some ignored
            os.kill(os.getpid(), number)
    wait = work.hints.get("wait")
    while wait and not Path(wait).exists():
        time.sleep(0.01)
    time.sleep(work.hints.get("seconds", 0))


def _save(file: Path, numbers: np.ndarray) -> None:
    """Write an array; `np.save` to a file does not notice that the disk is full."""
    content = BytesIO()
    np.save(content, numbers)
    file.write_bytes(content.getvalue())


def finetune(work) -> None:
    _begin(work)
    if work.out.exists():  # the disk was full when it was published
        return
    partial = work.out.with_name("partial")
    partial.mkdir(exist_ok=True)
    for part in range(PARTS):
        file = partial / f"{part}.npy"
        if not file.exists():
            numbers = np.random.default_rng([work.params["seed"], part]).normal(size=500)
            _save(partial / "new", numbers)
            (partial / "new").rename(file)
        time.sleep(work.hints.get("seconds", 0))
    partial.rename(work.out)
    _line(work, "end")


def extract(work) -> None:
    _begin(work)
    numbers = [np.load(file) for file in sorted(work.inputs[0].glob("*.npy"))]
    work.out.mkdir()
    _save(work.out / "rows.npy", 2 * np.concatenate(numbers))
    _line(work, "end")


def grid(work):
    _begin(work)
    values = [np.load(folder / "rows.npy").mean() for folder in work.inputs]
    _line(work, "end")
    return [_row(work, layer, float(np.mean(values)) + layer) for layer in range(3)]


def blocks(work):
    _begin(work)
    _line(work, "end")
    return [_row(work, 0, float(frame["value"].sum())) for frame in work.inputs]


def _row(work, layer: int, value: float) -> ResultRow:
    name = work.params["name"]
    return ResultRow(
        experiment=name, measure="toy", label_x=name, layer_x=layer, value=value, n=1, task="toy"
    )


STEPS = {"finetune": finetune, "extract": extract, "grid": grid, "blocks": blocks}
