"""The log: a line for every finished job, which its owner writes when it publishes the output.

``log/MACHINE.jsonl`` has the lines of all processes of a machine: lines that two machines add to
one file of a network file system may overwrite each other.
"""

from __future__ import annotations

import json
import os
import time

from simlab.store.files import writing
from simlab.sweeps.folder import DamagedError, SweepFolder
from simlab.sweeps.parts import read_made
from simlab.sweeps.plan import FOLDERS
from simlab.sweeps.processes import machine


def note_finished(folder: SweepFolder, kind: str, key: str, seconds: float) -> None:
    """Add the line of a job."""
    line = {"key": key, "kind": kind, "seconds": round(seconds, 4), "at": round(time.time(), 2)}
    path = folder.log / f"{machine()}.jsonl"
    with writing(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        with os.fdopen(descriptor, "ab") as stream:
            stream.write(json.dumps(line).encode() + b"\n")


def note_if_missing(folder: SweepFolder, kind: str, key: str) -> None:
    """Add the line of a job whose owner ended after it published and before it wrote the line."""
    if any(line.get("key") == key for line in folder.finished()):
        return
    note_finished(folder, kind, key, _seconds(folder, kind, key))


def _seconds(folder: SweepFolder, kind: str, key: str) -> float:
    """Return the time of a finished job, as its output says."""
    if kind not in FOLDERS:
        made = read_made(folder.place(kind, key)).get(key) or folder.data.made().get(key)
        return made.seconds if made else 0.0
    try:
        return float(folder.record(kind, key)["seconds"])
    except DamagedError:
        return 0.0
