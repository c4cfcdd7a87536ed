"""A plan: every job of a sweep, in the order in which one worker would do them.

A plan is data. It is made without a network and without torch, from the file alone, and the same
file gives the same keys on every machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simlab.results.results import VERSION
from simlab.store.files import hash_json

# The kinds of job, in the order of tables. The first six make folders that other jobs read.
KINDS = (
    *("fetch", "pretrain", "finetune", "extract", "import", "bases"),
    *("scores", "truncate", "skip", "grid", "complexity", "blocks"),
    *("align", "inject", "freeze", "baselines", "localize"),
)
FETCH, PRETRAIN, FINETUNE, EXTRACT, IMPORT, BASES = FOLDERS = KINDS[:6]
SCORES, TRUNCATE, SKIP, GRID, COMPLEXITY, BLOCKS = KINDS[6:12]
ALIGN, INJECT, FREEZE, BASELINES, LOCALIZE = KINDS[12:]
RESUMABLE = (FETCH, PRETRAIN, FINETUNE)  # continue where they were interrupted, in the same folder
# Raised when a step gives other values for the same parameters; its jobs are then done anew.
_SECOND = (FINETUNE, EXTRACT, SCORES, TRUNCATE, SKIP, INJECT, FREEZE)
VERSIONS: Mapping[str, int] = dict.fromkeys(KINDS, 1) | dict.fromkeys(_SECOND, 2)
# What a file keeps, and the kinds of object that then stay when nothing needs them any more.
KEEPS = KEEP_ALL, KEEP_REPRESENTATIONS, KEEP_RESULTS = ("all", "representations", "results")
KEPT: Mapping[str, tuple[str, ...]] = {
    KEEP_ALL: (PRETRAIN, FINETUNE, EXTRACT, IMPORT),
    KEEP_REPRESENTATIONS: (PRETRAIN, EXTRACT, IMPORT),
    KEEP_RESULTS: (),
}


@dataclass(frozen=True, slots=True)
class Job:
    """A job: what a step makes of its parameters and of what other jobs have made."""

    kind: str  # name of the step, in `KINDS`
    # Hash of the step, the versions of step and results, `params`, and the keys of `needs`. The
    # content of the inputs is not in it, because they are not made yet; it is in the keys that the
    # command gives the output.
    key: str
    needs: tuple[int, ...]  # numbers of the jobs whose outputs the step reads, in its order
    params: Mapping[str, Any]  # all that the output depends on besides, as JSON values
    # What the step takes besides and the output does not depend on: where a model is, the name of a
    # folder for people.
    hints: Mapping[str, Any]
    title: str  # the job in a few words

    @property
    def is_rows(self) -> bool:
        """Return whether the output is rows of the results table, and not a folder."""
        return self.kind not in FOLDERS


@dataclass
class Plan:
    """The jobs of a sweep; a job stands after the jobs that it needs."""

    jobs: list[Job] = field(default_factory=list)  # all jobs
    _numbers: dict[str, int] = field(default_factory=dict)
    # What the file asks for and nobody computes, why, and for which tasks or corpora.
    _left_out: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    # Models that jobs download before others read them, and the bytes of each.
    announced: Mapping[str, int] = field(default_factory=dict)

    def add(
        self,
        kind: str,
        params: Mapping[str, Any],
        needs: Sequence[int] = (),
        hints: Mapping[str, Any] | None = None,
        title: str = "",
        through: Sequence[int] = (),
    ) -> int:
        """Return the number of the job, which is added unless a job of this key is there.

        The step reads the outputs of `through` after those of `needs`, from which and `params` they
        are computed: the key does not contain them.
        """
        model = str((hints or {}).get("model"))
        if model in self.announced:
            size = {"bytes": self.announced[model]}
            through = (*through, self.add(FETCH, {"model": model}, (), size, model))
            hints = {**(hints or {}), "fetched": True}
        parents = [self.jobs[number].key for number in needs]
        key = hash_json([kind, VERSION, VERSIONS[kind], params, parents])
        if key not in self._numbers:
            self._numbers[key] = len(self.jobs)
            self.jobs.append(Job(kind, key, (*needs, *through), params, hints or {}, title))
        return self._numbers[key]

    def __len__(self) -> int:
        return len(self.jobs)

    def number(self, key: str) -> int | None:
        """Return the number of the job with this key; None if there is none."""
        return self._numbers.get(key)

    def leave_out(self, what: str, task: str, why: str) -> None:
        """Note that nobody computes `what` for a task or corpus, and why; once for each."""
        tasks = self._left_out.setdefault((what, why), [])
        tasks += [task] if task not in tasks else []

    def remarks(self) -> list[str]:
        """Return lines for people: what the jobs of the plan do not say."""
        return [
            f"no {what} for {', '.join(tasks)}, {why}"
            for (what, why), tasks in self._left_out.items()
        ]

    def users(self) -> list[list[int]]:
        """Return, for every job, the numbers of the jobs that read its output."""
        users: list[list[int]] = [[] for _ in self.jobs]
        for number, job in enumerate(self.jobs):
            for needed in job.needs:
                users[needed].append(number)
        return users

    def counts(self) -> dict[str, int]:
        """Return the number of jobs of every kind, in the order of `KINDS`."""
        counted = Counter(job.kind for job in self.jobs)
        return {kind: counted[kind] for kind in KINDS if counted[kind]}

    def needed(self, done: Sequence[bool], keep: str) -> list[bool]:
        """Return which jobs have to be done: for themselves, or for a job that has to be done."""
        kinds = {kind for kind in KINDS if kind not in FOLDERS or kind in KEPT[keep]}
        needed = [
            job.kind in kinds and not there for job, there in zip(self.jobs, done, strict=True)
        ]
        for number in range(len(self.jobs) - 1, -1, -1):  # a job stands after those it needs
            if needed[number]:
                for other in self.jobs[number].needs:
                    needed[other] = needed[other] or not done[other]
        return needed

    def as_json(self) -> dict[str, Any]:
        """Return the kind, key and needs of every job, as ``plan.json`` has them."""
        jobs = [[KINDS.index(job.kind), job.key, list(job.needs)] for job in self.jobs]
        return {"kinds": KINDS, "jobs": jobs}
