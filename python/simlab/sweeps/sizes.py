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
from typing import Any

from simlab.models.files import CONFIG, weight_files
from simlab.models.sources import OFFLINE_MODEL
from simlab.representations.kinds import ATTENTION, KINDS
from simlab.representations.options import ExtractOptions
from simlab.store.console import span
from simlab.store.files import read_json
from simlab.sweeps.plan import FOLDERS, KEPT, Plan
from simlab.sweeps.status import Times
from simlab.tasks import TASKS, TaskOptions
from simlab.tasks.corpus import load_corpus
from simlab.tasks.files import CORPUS_SUFFIXES, FILE_SUFFIXES
from simlab.training.pretraining import Pretraining

_FLOAT32 = 4
_ROWS = 5_000  # held-out rows of a task that says no number
_WORDS = 20  # of a text
# Layers with the embedding output, width, heads, and parameters of models by a word of their name.
_SIZES = (
    (re.compile("large|xxl", re.IGNORECASE), (25, 1024, 16, 335_000_000)),
    (re.compile("minilm|tiny|small", re.IGNORECASE), (7, 384, 12, 23_000_000)),
    (re.compile("medium", re.IGNORECASE), (25, 1024, 16, 355_000_000)),
)
_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
_BASE = (13, 768, 12, 110_000_000)


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


def words_of(name: str, options: TaskOptions) -> list[int] | None:
    """Return the number of words of each text of a corpus; None unless it is a file."""
    if not name.lower().endswith((*CORPUS_SUFFIXES, *FILE_SUFFIXES)):
        return None
    return [len(text.split()) for text in load_corpus(name, options).examples.texts]


def rows_bytes(
    model: str | Pretraining,
    options: ExtractOptions,
    task: Mapping[str, Any],
    words: Sequence[int] | None = None,
) -> int:
    """Return a guess of the bytes of representations.

    `task`: name of the task, and its sizes where the file has them. `words`: the number of words of
    each text, if it is known.
    """
    layers, width, heads, _ = _size_of(model)
    if words is not None:
        words = words[: options.limit]
        if options.kind == ATTENTION:
            return sum(count**2 for count in words) * heads * (layers - 1) * _FLOAT32
        each_word = KINDS[options.kind].has_words or options.kind == "token"
        return (sum(words) if each_word else len(words)) * width * layers * _FLOAT32
    spec = TASKS.get(task["name"])
    size = f"{options.split}_size"
    rows = task.get(size) or getattr(spec, size, None) or _ROWS
    rows = min(rows, options.limit or rows)
    if options.kind == ATTENTION:
        return rows * _WORDS**2 * heads * (layers - 1) * _FLOAT32
    each = _WORDS if KINDS[options.kind].has_words or options.kind == "token" else 1
    return rows * each * width * layers * _FLOAT32


def bases_bytes(model: str | Pretraining, rows: int) -> int:
    """Return a guess of the bytes of the bases of representations, which take `rows` bytes."""
    layers, width, _, _ = _size_of(model)
    return rows + layers * width**2 * _FLOAT32


def estimate(
    plan: Plan,
    needed: Sequence[bool],
    keep: str,
    times: Times,
    known_bytes: Mapping[str, int],
    workers: int = 1,
) -> Estimate:
    """Estimate what the jobs of a plan will take.

    `needed`: which jobs are to do. `times`: mean times of finished jobs. `known_bytes`: mean bytes
    of the objects that are there, by kind. `workers`: number of jobs at once, which divide the
    time.
    """
    kinds = Counter(job.kind for job, one in zip(plan.jobs, needed, strict=True) if one)
    seconds, unknown = times.work(kinds)
    sizes = [known_bytes.get(job.kind) or job.hints.get("bytes", 0) for job in plan.jobs]
    by_kind = {
        kind: sum(size for size, job in zip(sizes, plan.jobs, strict=True) if job.kind == kind)
        for kind in FOLDERS
        if kind in plan.counts()
    }
    return Estimate(by_kind, _peak(plan, sizes, keep), seconds / workers, unknown)


def _peak(plan: Plan, sizes: Sequence[int], keep: str) -> int:
    """Return the most bytes at once: an object goes after the last job that reads it."""
    kept_kinds = KEPT[keep]
    last = list(range(len(plan)))
    for number, job in enumerate(plan.jobs):
        for needed in job.needs:
            last[needed] = max(last[needed], number)
    ending: dict[int, int] = defaultdict(int)
    now = most = 0
    for number, job in enumerate(plan.jobs):
        if job.kind in FOLDERS:
            now += sizes[number]
            most = max(most, now)
            if job.kind not in kept_kinds:
                ending[last[number]] += sizes[number]
        now -= ending.pop(number, 0)
    return most


@cache
def _size_of(model: str | Pretraining) -> tuple[int, int, int, int]:
    """Return the layers, width, heads and parameters of a model, from its files or its name."""
    if isinstance(model, Pretraining):
        return model.layers + 1, model.hidden, model.heads, model.parameters()
    layers, width, heads, parameters = next(
        (size for word, size in _SIZES if word.search(model)), _BASE
    )
    folder = Path(model).expanduser()
    if model != OFFLINE_MODEL and folder.is_dir():
        parameters = sum(file.stat().st_size for file in weight_files(folder)) // _FLOAT32
        config = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
        layers = config.get("num_hidden_layers", layers - 1) + 1
        width = config.get("hidden_size", width)
        heads = config.get("num_attention_heads", heads)
    return layers, width, heads, parameters


def plan_lines(taken: Estimate, keep: str, workers: int) -> list[str]:
    """Return the disk space, peak and time of a plan."""
    sizes = ", ".join(f"{kind} {amount(size)}" for kind, size in taken.bytes_by_kind.items())
    peak = ""
    if taken.peak < sum(taken.bytes_by_kind.values()):
        peak = f", at most {amount(taken.peak)} at once (keep = {keep!r})"
    lines = [f"disk space of all objects: {sizes or 'none'}{peak}"]
    at_once = f" with {workers} at once" if workers > 1 else ""
    if taken.seconds or not taken.unknown:
        lines.append(f"time{at_once}: {span(taken.seconds)}, from jobs that are done")
    if taken.unknown:
        unknown = ", ".join(f"{count:,} {kind}" for kind, count in taken.unknown.items())
        lines.append(f"time of {unknown}: unknown, because no job of the kind is done")
    return lines


def amount(size: float) -> str:
    """Return a number of bytes in words: ``1.4 GB``."""
    for unit, one in _UNITS:
        if size >= one:
            return f"{size / one:.1f} {unit}"
    return f"{size:.0f} B"
