"""The revisions of a training run: of a model of the hub, or folders of a local run.

A step stands at the end of a name: ``pythia-70m@step1000``, ``runs/bert/checkpoint-500``,
``multiberts-seed_0-step_20k``. Its number is read there; ``k`` is a thousand and ``m`` a million.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from glob import escape, glob
from pathlib import Path

from simlab.errors import UserError
from simlab.models.hub import INDICES, needed_files, split_revision
from simlab.models.sources import Restart, expand_names, is_hub_name, restarts
from simlab.results.results import at_step
from simlab.store.hub import hub_errors

_MOST_STEPS = 6  # in a note
_WORD = r"(?<![a-z])(?:step|checkpoint)[-_]?"
_NUMBER = re.compile(_WORD + r"(?P<number>\d+)(?P<unit>[km]?)(?![a-z0-9])", re.IGNORECASE)
_PATTERN = re.compile(rf"[-_./@]?{_WORD}(?:\{{[^{{}}]*\}}|\*)[km]?$", re.IGNORECASE)
_STEP_END = re.compile(rf"[-_./@]?{_WORD}\d+[km]?$", re.IGNORECASE)
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}


def step_of(name: str, run: str = "") -> int:
    """Return the step of training in a name of a revision or folder, which stands behind `run`.

    >>> step_of("step1000"), step_of("checkpoint-50"), step_of("multiberts-seed_0-step_20k")
    (1000, 50, 20000)
    """
    numbers = list(_NUMBER.finditer(name))
    if len(numbers) != 1:
        words = ", ".join(number[0] for number in numbers) or "none"
        raise UserError(
            f"model {run}{name}: wanted one step in the name of a revision or folder (step1000, "
            f"checkpoint-500, step_20k), found {words}"
        )
    return int(numbers[0]["number"]) * _UNITS[numbers[0]["unit"].lower()]


def run_name(name: str) -> str:
    """Return the name of a model without the step at its end.

    >>> run_name("a/b@step1000"), run_name("runs/mini/checkpoint-50"), run_name("a/b")
    ('a/b', 'runs/mini', 'a/b')
    """
    return _STEP_END.sub("", name) or name


def step_label(name: str, step: int) -> str:
    """Return the label of a model at a step, which has no other label.

    >>> step_label("a/b@step1000", 1000)
    'b @ 1000'
    """
    return at_step(Path(run_name(name)).name, step)


def equal_steps(steps: Sequence[int]) -> str:
    """Return steps in words, cut where there are many."""
    shown = [str(step) for step in sorted(steps)[:_MOST_STEPS]]
    return ", ".join([*shown, "..."] if len(steps) > _MOST_STEPS else shown)


def step_name(step: int) -> str:
    """Return the name that a Trainer gives the folder of a step."""
    return f"checkpoint-{step}"


def training_runs(
    pattern: str, seeds: Sequence[int] = (), revisions: Sequence[str] = ()
) -> list[Restart]:
    """Return the models of a pattern of names, each at every step of its training.

    The pattern may end with a pattern of steps: ``@step{0,1,2,4}``, ``-step_{0..2000..20}k``,
    ``/checkpoint-*``; else, `revisions` are patterns of revisions of every model of the hub, or of
    folders in every local folder.

    >>> runs = training_runs("a/b-seed_{0..1}", (), ["step{0,8}"])
    >>> [(run.number, run.step) for run in runs]
    [(0, 0), (0, 8), (1, 0), (1, 8)]
    """
    steps, names = _PATTERN.search(pattern), expand_names(revisions)
    if steps is not None:
        if names:
            raise UserError(
                f"model {pattern}: wanted steps in the name or in 'revisions', found them in both"
            )
        runs, ends = restarts(pattern[: steps.start()], seeds), expand_names([steps[0]])
        return [step for run in runs for step in _at_steps(run, ends)]
    runs = restarts(pattern, seeds)
    if not names:
        return runs
    taken = next((run.name for run in runs if "@" in run.name), None)
    if taken is not None:
        raise UserError(f"model {taken}: wanted no revision beside 'revisions', found one")
    marks = ["@" if is_hub_name(run.name) else "/" for run in runs]
    return [
        step
        for run, mark in zip(runs, marks, strict=True)
        for step in _at_steps(run, [f"{mark}{name}" for name in names])
    ]


def _at_steps(run: Restart, ends: Iterable[str]) -> list[Restart]:
    """Return a run at its steps, in rising order."""
    restarts: dict[int, Restart] = {}
    every = dict.fromkeys(end for pattern in ends for end in _matching(run.name, pattern))
    for end in every:
        step, name = step_of(end, run.name), f"{run.name}{end}"
        if step in restarts:
            raise UserError(
                f"model {run.name}: wanted another step for each revision, found {step:,} for "
                f"{restarts[step].name} and {name}"
            )
        restarts[step] = replace(run, name=name, step=step, run=run.name)
    return [restarts[step] for step in sorted(restarts)]


def _matching(name: str, end: str) -> list[str]:
    """Return the ends of names that a pattern with an asterisk stands for."""
    if "*" not in end:
        return [end]
    if end.startswith("@"):
        raise UserError(f"model {name}{end}: wanted the numbers of revisions of the hub, found *")
    folders = [folder.rstrip("/") for folder in glob(f"{escape(name)}{end}/")]
    if not folders:
        raise UserError(f"model {name}{end}: wanted folders with such names, found none")
    return [folder[len(name) :] for folder in folders]


@dataclass(frozen=True)
class Announced:
    """A revision of a model as the hub lists it."""

    commit: str
    bytes: int  # of the files that a download fetches


def announce(name: str) -> Announced:
    """Ask the hub for a revision ``name@revision``, and download no weights."""
    from huggingface_hub import HfApi, hf_hub_download

    named, revision = split_revision(name)
    with hub_errors(f"model {name}", "a list of files"):
        info = HfApi().model_info(named, revision=revision, files_metadata=True)
        commit, folder = str(info.sha), Path()
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        for index in sizes.keys() & {*INDICES}:
            folder = Path(hf_hub_download(named, index, revision=commit)).parent
        files = {file.name for file in needed_files(sizes, folder)}
        return Announced(commit, sum(sizes.get(file, 0) for file in files))
