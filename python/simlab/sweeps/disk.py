"""The disk space of objects: what may start, and what may go.

An object goes when no job needs it any more, unless the file of the sweep keeps its kind. With
`max_disk`, a job that makes an object starts only if all jobs before it could still be done one
after the other, in the order of the plan, beside what it makes. So the jobs never fill the disk
with objects that wait for each other. The bytes of an object that is not there are the mean over
objects of its kind; if there are none, they are guessed from the model's own files, or its name.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from simlab.errors import UserError
from simlab.models.hub import CONFIG, weight_files
from simlab.models.sources import OFFLINE_MODEL
from simlab.representations.kinds import ATTENTION, KINDS
from simlab.representations.passes import ExtractOptions
from simlab.store.files import read_json
from simlab.sweeps.outputs import DamagedError, SweepFolder
from simlab.sweeps.plan import FOLDERS, KEPT, Plan
from simlab.sweeps.status import Times
from simlab.tasks import TASKS
from simlab.training.recipes import Pretraining

if TYPE_CHECKING:
    from simlab.sweeps.entries import TaskEntry


class DiskUse:
    """The disk space of the objects of a sweep, at most `most` bytes; lists are the driver's."""

    def __init__(
        self,
        folder: SweepFolder,
        plan: Plan,
        keep: str,
        most: int | None,
        done: list[bool],
        needed: list[bool],
        failed: Collection[int],
        drop: Callable[[int], None],
    ) -> None:
        self.folder, self.plan, self.keep, self.most = folder, plan, keep, most
        self.done, self.needed, self.users = done, needed, plan.users()
        self.failed, self.drop = failed, drop
        self.bytes: dict[int, int] = {}
        self._shares: dict[str, float] = {}  # largest share of a guess that an object took, by kind
        self._largest: dict[str, int] = {}

    def measure(self, number: int) -> None:
        """Count an object; raise UserError if one that was made is larger than ``max_disk``."""
        job = self.plan.jobs[number]
        if job.kind not in FOLDERS or self.most is None:
            return
        try:
            size = self.bytes[number] = self.folder.record(job.kind, job.key)["bytes"]
        except DamagedError:
            return
        if size > self.most and self.needed[number]:
            raise UserError(
                f"sweep, key max_disk: wanted at least {size:,} bytes, which {job.kind} "
                f"{job.title} takes alone, found {self.most:,}"
            )
        if guess := job.hints.get("bytes", 0):
            self._shares[job.kind] = max(size / guess, self._shares.get(job.kind, 0.0))
        self._largest[job.kind] = max(size, self._largest.get(job.kind, 0))

    def drop_unneeded(self, numbers: Collection[int] | None = None) -> int:
        """Drop objects that nothing needs and nobody keeps; return how many went."""
        unneeded = []
        for number in range(len(self.plan)) if numbers is None else numbers:
            kind = self.plan.jobs[number].kind
            may_go = self.done[number] and kind in FOLDERS and kind not in KEPT[self.keep]
            if may_go and not any(self.needed[user] for user in self.users[number]):
                unneeded.append(number)
        for number in unneeded:
            self.drop(number)
        return len(unneeded)

    def admits(self, number: int, running: Collection[int]) -> bool:
        """Return whether there is room for a job beside all that can be done before it."""
        if self.most is None or self.plan.jobs[number].is_rows:
            return True
        held = {n: self._size(n) for n in (*self.bytes, *running, number)}
        used = sum(held.values())
        if used > self.most:  # nothing can go, and a guess may be too large
            return not self.bytes and not running
        lost: set[int] = set()  # jobs that failed, or wait for one that did
        for one in range(number):
            if not self.needed[one] or one in running:
                continue
            if one in self.failed or not lost.isdisjoint(self.plan.jobs[one].needs):
                lost.add(one)
                continue
            held[one] = self._size(one)
            used += held[one]
            if used > self.most:
                return False
            for other in (*self.plan.jobs[one].needs, one):
                if not self._stays(other, one, running):
                    used -= held.pop(other, 0)
        return True

    def _stays(self, number: int, after: int, running: Collection[int]) -> bool:
        """Return whether an object stays when the jobs up to `after` are done."""
        if self.plan.jobs[number].kind in KEPT[self.keep]:
            return True
        return any(self.needed[u] and (u > after or u in running) for u in self.users[number])

    def refuse(self, number: int) -> NoReturn:
        """Raise UserError because a job does not fit, and no other job runs."""
        job = self.plan.jobs[number]
        raise UserError(
            f"sweep, key max_disk: wanted room for {self._size(number):,} bytes of {job.kind} "
            f"{job.title}, found {sum(self.bytes.values()):,} of {self.most:,} bytes in use by "
            f"objects that jobs still need, or that keep = {self.keep!r} keeps"
        )

    def _size(self, number: int) -> int:
        """Return the bytes of an object, or a guess: of the plan, or the largest of the kind."""
        job = self.plan.jobs[number]
        if number in self.bytes or job.is_rows:
            return self.bytes.get(number, 0)
        guess = math.ceil(job.hints.get("bytes", 0) * self._shares.get(job.kind, 1.0))
        return guess or self._largest.get(job.kind, 0)


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
