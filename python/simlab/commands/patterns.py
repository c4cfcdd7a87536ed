"""Patterns of names on the command line: ``google/multiberts-seed_{0..24}`` in any command.

A command for several folders gets all names of the pattern. A command for one model runs once for
each name, with ``{seed}`` in its other arguments replaced by the number, ``{step}`` by the step of
training that ends the name (``@step{0,1,2}``), and ``{name}`` by the name without both. Commands
with the option ``--step`` get the step too.
"""

from __future__ import annotations

from simlab.errors import UserError, argument
from simlab.models.revisions import STEP, training_runs
from simlab.models.sources import SEED, Restart, expand_names

# Commands for one model. `inject` reads patterns itself, and a sweep file has its own.
ONE = ("finetune", "freeze-study", "extract", "truncate", "skip", "influence")
MANY = ("compare", "grid", "align-study", "blocks", "localize", "plot", "claims")
_NAME = "{name}"
STORED = ("extract", "influence")  # whose outputs have the step, by an option
STEP_OPTION = "--step"
REVISIONS = "--revisions"  # an option that reads its pattern itself


def expand_arguments(arguments: list[str]) -> list[list[str]]:
    """Return the arguments of every run that `arguments` stand for."""
    command = arguments[0] if arguments else ""
    if command in MANY:
        return [[command, *(name for word in arguments[1:] for name in _all(word))]]
    if command not in ONE:
        return [arguments]
    read = [place + 1 for place, word in enumerate(arguments) if word == REVISIONS]
    words = [word for place, word in enumerate(arguments) if place and place not in read]
    patterns = [word for word in words if len(_all(word)) > 1]
    if not patterns:
        return [arguments]
    if len(patterns) > 1:
        raise UserError(f"{command}: wanted one pattern of names, found {' and '.join(patterns)}")
    (pattern,) = patterns
    models = training_runs(pattern)
    others = [word for word in arguments if word != pattern]
    places = (SEED, _NAME) if models[0].step is None else (STEP,)
    if not any(place in word for place in places for word in others):
        raise UserError(
            f"{argument('out')}: wanted {' or '.join(places)} in it, because {pattern} stands for "
            f"{len(models)} models, found no such place"
        )
    stored = command in STORED and STEP_OPTION not in others
    return [
        [model.name if word == pattern else _filled(word, model) for word in arguments]
        + ([STEP_OPTION, str(model.step)] if stored and model.step is not None else [])
        for model in models
    ]


def _all(argument: str) -> list[str]:
    """Return the names that an argument stands for; an option stands for itself."""
    return [argument] if argument.startswith("-") else expand_names([argument])


def _filled(argument: str, model: Restart) -> str:
    seed, step = ("" if n is None else str(n) for n in (model.number, model.step))
    return argument.replace(SEED, seed).replace(STEP, step).replace(_NAME, model.family)
