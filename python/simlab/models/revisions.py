"""The revisions of a training run: of a model of the hub, or folders of a local run.

A step stands at the end of a name: ``pythia-70m@step1000``, ``runs/bert/checkpoint-500``,
``multiberts-seed_0-step_20k``. Its number is read there; ``k`` is a thousand and ``m`` a million.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from glob import escape, glob

from simlab.errors import UserError
from simlab.models.sources import Restart, expand_names, is_hub_name, restarts

STEP = "{step}"
_WORD = r"(?<![a-z])(?:step|checkpoint)[-_]?"
_NUMBER = re.compile(_WORD + r"(?P<number>\d+)(?P<unit>[km]?)(?![a-z0-9])", re.IGNORECASE)
_PATTERN = re.compile(rf"[-_./@]?{_WORD}(?:\{{[^{{}}]*\}}|\*)[km]?$", re.IGNORECASE)
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}


def step_of(name: str, run: str = "") -> int:
    """Return the step of training that a name of a revision or folder says.

    Parameters
    ----------
    run
        Name of the run before `name`, where no step is looked for; errors give both.

    Raises
    ------
    UserError
        The name says no step, or several.

    >>> step_of("step1000"), step_of("checkpoint-50"), step_of("multiberts-seed_0-step_20k")
    (1000, 50, 20000)
    """
    numbers = list(_NUMBER.finditer(name))
    if len(numbers) != 1:
        words = ", ".join(one[0] for one in numbers) or "none"
        raise UserError(
            f"model {run}{name}: wanted one step in the name of a revision or folder (step1000, "
            f"checkpoint-500, step_20k), found {words}"
        )
    return int(numbers[0]["number"]) * _UNITS[numbers[0]["unit"].lower()]


def step_name(step: int) -> str:
    """Return the name that a Trainer gives the folder of a step.

    >>> step_of(step_name(500))
    500
    """
    return f"checkpoint-{step}"


def training_runs(
    pattern: str, seeds: Sequence[int] = (), revisions: Sequence[str] = ()
) -> list[Restart]:
    """Return the models of a pattern of names, each at every step of its training.

    Parameters
    ----------
    pattern, seeds
        As `restarts` takes them. A pattern may end with a pattern of steps: ``@step{0,1,2,4}``,
        ``-step_{0..2000..20}k``, ``/checkpoint-*``.
    revisions
        Patterns of revisions of every model of the hub, or of folders in every local folder.

    Raises
    ------
    UserError
        A name says no step, or two names say the same one; `revisions` stand beside a pattern of
        steps; or no folder has a name of the pattern.

    >>> [(one.number, one.step) for one in training_runs("a/b-seed_{0..1}", (), ["step{0,8}"])]
    [(0, 0), (0, 8), (1, 0), (1, 8)]
    """
    steps = _PATTERN.search(pattern)
    if steps is not None and revisions:
        raise UserError(
            f"model {pattern}: wanted steps in the name or in 'revisions', found them in both"
        )
    if steps is not None:
        runs = restarts(pattern[: steps.start()], seeds)
        return [one for run in runs for one in _at_steps(run, expand_names([steps[0]]))]
    runs = restarts(pattern, seeds)
    names = expand_names(revisions)
    if not names:
        return runs
    return [one for run in runs for one in _at_steps(run, _ends(run.name, names))]


def _ends(name: str, revisions: Iterable[str]) -> list[str]:
    """Return what stands behind the name of a run in the names of its revisions."""
    if "@" in name:
        raise UserError(f"model {name}: wanted no revision beside 'revisions', found one")
    mark = "@" if is_hub_name(name) else "/"
    return [f"{mark}{revision}" for revision in revisions]


def _at_steps(run: Restart, ends: Iterable[str]) -> list[Restart]:
    """Return a run at its steps, in rising order."""
    found: dict[int, Restart] = {}
    every = dict.fromkeys(end for pattern in ends for end in _matching(run.name, pattern))
    for end in every:
        step, name = step_of(end, run.name), f"{run.name}{end}"
        if step in found:
            raise UserError(
                f"model {run.name}: wanted another step for each revision, found {step:,} for "
                f"{found[step].name} and {name}"
            )
        found[step] = replace(run, name=name, step=step, run=run.name)
    return [found[step] for step in sorted(found)]


def _matching(name: str, end: str) -> list[str]:
    """Return the ends of names that a pattern with an asterisk stands for."""
    if "*" not in end:
        return [end]
    if end.startswith("@"):
        raise UserError(f"model {name}{end}: wanted the numbers of revisions of the hub, found *")
    places = [place.rstrip("/") for place in glob(f"{escape(name)}{end}/")]
    if not places:
        raise UserError(f"model {name}{end}: wanted folders with such names, found none")
    return [place[len(name) :] for place in places]
