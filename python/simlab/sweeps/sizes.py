"""Estimates for a plan: bytes of objects, and the peak of bytes on disk.

The bytes of an object that is not there are the mean over objects of its kind; if there are none,
they are guessed from the model's own files, or from its name.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from simlab.models.hub import CONFIG, weight_files
from simlab.models.sources import OFFLINE_MODEL
from simlab.representations.kinds import ATTENTION, KINDS
from simlab.representations.passes import ExtractOptions
from simlab.store.files import read_json
from simlab.sweeps.entries import TaskEntry
from simlab.sweeps.plan import FOLDERS, KEPT, Plan
from simlab.sweeps.status import Times
from simlab.tasks import TASKS
from simlab.training.recipes import Pretraining

_FLOAT32 = 4
_ROWS = 5_000  # of a task that says no number
_WORDS = 20  # of a text
# Layers with the embedding output, width, heads, and parameters of models by a word of their name.
_SIZES = (
    (re.compile("large|xxl", re.IGNORECASE), (25, 1024, 16, 335_000_000)),
    (re.compile("minilm|tiny|small", re.IGNORECASE), (7, 384, 12, 23_000_000)),
    (re.compile("medium", re.IGNORECASE), (25, 1024, 16, 355_000_000)),
    (re.compile(""), (13, 768, 12, 110_000_000)),
)


@dataclass(frozen=True)
class Estimate:
    """The estimates for the jobs of a plan that are still to do."""

    bytes_by_kind: Mapping[str, int]  # bytes of all objects of the plan, by kind
    peak: int  # the most bytes of objects at once, if jobs run in the order of the plan
    seconds: float  # seconds of work, over all jobs whose kind has finished jobs
    unknown: Mapping[str, int]  # the number of jobs of each kind that has none


def checkpoint_bytes(model: str | Pretraining) -> int:
    """Return a guess of the bytes of a model, known by its name or by the recipe that makes it."""
    return _size_of(model)[3] * _FLOAT32


def rows_bytes(model: str | Pretraining, options: ExtractOptions, task: TaskEntry) -> int:
    """Return a guess of the bytes of representations of a task, or of a file of texts."""
    layers, width, heads, _ = _size_of(model)
    size = f"{options.split}_size"
    rows = getattr(task, size, None) or getattr(TASKS.get(task.called), size, None)
    rows = rows or _lines_in(task.name) or _ROWS
    rows = min(rows, options.limit or rows)
    if options.kind == ATTENTION:
        return rows * _WORDS**2 * heads * (layers - 1) * _FLOAT32
    each = _WORDS if KINDS[options.kind].has_words or options.kind == "token" else 1
    return rows * each * width * layers * _FLOAT32


@cache
def _lines_in(name: str) -> int:
    file = Path(name).expanduser()
    return file.read_bytes().count(b"\n") if file.is_file() else 0


def bases_bytes(model: str | Pretraining, rows: int) -> int:
    """Return a guess of the bytes of the bases of representations, which take `rows` bytes."""
    layers, width, _, _ = _size_of(model)
    return rows + layers * width**2 * _FLOAT32


def estimate(
    plan: Plan, needed: Sequence[bool], keep: str, times: Times, known_bytes: Mapping[str, int]
) -> Estimate:
    """Estimate what the needed jobs of a plan will take, from jobs that are done."""
    kinds = Counter(job.kind for job, one in zip(plan.jobs, needed, strict=True) if one)
    by_kind = dict.fromkeys((kind for kind in plan.counts() if kind in FOLDERS), 0)
    last = [max([number, *users]) for number, users in enumerate(plan.users())]
    ending: dict[int, int] = defaultdict(int)  # bytes that go with the last job that reads them
    now = peak = 0
    for number, job in enumerate(plan.jobs):
        if job.kind in FOLDERS:
            size = known_bytes.get(job.kind) or job.hints.get("bytes", 0)
            by_kind[job.kind] += size
            now += size
            peak = max(peak, now)
            if job.kind not in KEPT[keep]:
                ending[last[number]] += size
        now -= ending.pop(number, 0)
    return Estimate(by_kind, peak, *times.work(kinds))


@cache
def _size_of(model: str | Pretraining) -> tuple[int, int, int, int]:
    """Return the layers, width, heads and parameters of a model, from its files or its name."""
    if isinstance(model, Pretraining):
        return model.layers + 1, model.hidden, model.heads, model.parameters()
    layers, width, heads, parameters = next(size for word, size in _SIZES if word.search(model))
    folder = Path(model).expanduser()
    if model != OFFLINE_MODEL and folder.is_dir():
        parameters = sum(file.stat().st_size for file in weight_files(folder)) // _FLOAT32
        config = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
        layers = config.get("num_hidden_layers", layers - 1) + 1
        width = config.get("hidden_size", width)
        heads = config.get("num_attention_heads", heads)
    return layers, width, heads, parameters
