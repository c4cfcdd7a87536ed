"""Steps of one training run: each with the last, the previous or the first, or all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from simlab.errors import UserError
from simlab.store.labels import split_step
from simlab.sweeps.members import Member
from simlab.sweeps.spec import FIRST, LAST, PREVIOUS

DEFAULT = (LAST, PREVIOUS)  # two grids for each step, where all pairs would be thousands


def step_pairs(
    members: Sequence[Member], references: Sequence[str] = DEFAULT
) -> Iterator[tuple[str, Member, Member]]:
    """Yield pairs of steps of one run: the same model and restart, stage and fine-tuning.

    Parameters
    ----------
    references
        The steps that every other step is compared with, among `spec.REFERENCES`.

    Yields
    ------
    comparison, x, y
        The name of the comparison, a step, and the step that it is compared with.

    Raises
    ------
    UserError
        No member has another step.
    """
    for _, run in runs_of(members):
        stage = run[0].stage.upper()
        for reference in references:
            for x, y in _PAIRS[reference](run):
                yield f"{stage}-{reference} step", x, y


_PAIRS: Mapping[str, Callable[[list[Member]], list[tuple[Member, Member]]]] = {
    LAST: lambda run: [(one, run[-1]) for one in run[:-1]],
    PREVIOUS: lambda run: list(zip(run[1:], run[:-1], strict=True)),
    FIRST: lambda run: [(one, run[0]) for one in run[1:]],
}


def runs_of(members: Sequence[Member]) -> list[tuple[str, list[Member]]]:
    """Return the members of every run of several steps, in the order of the steps, and its name.

    Raises
    ------
    UserError
        No member has another step.
    """
    runs: dict[tuple[object, ...], list[tuple[int, Member]]] = {}
    for member in members:
        model = member.model
        if model.step is not None:
            run = (model.family, model.restart, member.stage, member.seed, member.task)
            runs.setdefault(run, []).append((model.step, member))
    ordered = [
        [one for _, one in sorted(run, key=lambda both: both[0])]
        for run in runs.values()
        if len(run) > 1
    ]
    if not ordered:
        raise UserError(
            "sweep, key grids.between: wanted models with several steps of training "
            "(the key 'revisions' of a model) for 'steps', found none"
        )
    return [(split_step(run[0].label)[0], run) for run in ordered]
