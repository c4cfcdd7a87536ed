"""The command of a step: options with types, defaults and help, made from its parameters.

A library that makes commands of dataclasses (cyclopts, tyro, jsonargparse) would take the place of
typer, of our wording of its errors, and of the defaults of ``--paper``, which depend on the options
that are given; this module makes what typer needs from the record of a step.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any

import typer

from simlab.steps.record import REQUIRED, Parameter, Step

COUNT_OR_SHARE = {int, float}
_IN_PYTHON = re.compile("; in Python [^.;]*")
_NONE = re.compile(r"(?:[.;]|^) ?None (?:is|means) ")


def make_command(step: Step, run: Callable[..., None], paper: Any = None) -> Callable[..., None]:
    """Return a function whose signature typer turns into the command of a step.

    Parameters
    ----------
    run
        Function of the step and of its parameters by name; a parameter that is not given and has no
        default of its own is None.
    paper
        The annotation of ``--paper``, for steps of which papers choose parameters.
    """

    def command(**given: Any) -> None:
        chosen = given.pop("paper", None)
        several = {p.name for p in step.parameters if p.several}
        values = {n: tuple(v) if n in several and v is not None else v for n, v in given.items()}
        run(step, values, chosen)

    signature = [_of_signature(parameter) for parameter in step.parameters]
    if step.has_paper:
        kind = inspect.Parameter.KEYWORD_ONLY
        signature.append(inspect.Parameter("paper", kind, default=None, annotation=paper))
    command.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in signature}
    command.__name__ = step.name
    command.__doc__ = help_of(step)
    return command


def help_of(step: Step) -> str:
    """Return the text of the command's help: the step, and its examples."""
    return "\n\n".join([step.text, *(f"Example: `simcore {one}`" for one in step.examples)])


def _of_signature(parameter: Parameter) -> inspect.Parameter:
    """Return the parameter as typer reads it from a signature."""
    kind: Any = _type_of(parameter)
    several = parameter.several
    default = parameter.default
    if default is REQUIRED:
        given: dict[str, Any] = {}
    else:
        plain = None if several or default in (None, "") else default
        given = {"default": plain}
        kind = list[kind] | None if several else (kind | None if plain is None else kind)
    if several and default is REQUIRED:
        kind = list[kind]
    annotated = Annotated[kind, _typer_parameter(parameter)]
    return inspect.Parameter(
        parameter.name, inspect.Parameter.KEYWORD_ONLY, annotation=annotated, **given
    )


def _typer_parameter(parameter: Parameter) -> Any:
    how: dict[str, Any] = {"help": help_text(parameter)}
    if parameter.least is not None:
        how["min"] = parameter.least
    if {*parameter.kinds} == COUNT_OR_SHARE:
        how |= {"parser": count_or_share, "metavar": "NUMBER"}
    if parameter.metavar:
        how["metavar"] = parameter.metavar
    if parameter.is_argument:
        return typer.Argument(**how)
    names = parameter.option
    if parameter.kinds == (bool,) and parameter.default is not False:
        names += f"/--no-{parameter.option.removeprefix('--')}"
    return typer.Option(names, **how)


def _type_of(parameter: Parameter) -> Any:
    """Return the type that typer reads a value as; a path stays the text that was typed."""
    if parameter.metavar and len(parameter.kinds) > 1:
        return tuple[parameter.kinds]  # type: ignore[name-defined]
    for kind in (bool, str, float, int):
        if kind in parameter.kinds:
            return kind
    raise TypeError(f"{parameter.name}: wanted a type that can be typed, found {parameter.kinds}")


def help_text(parameter: Parameter) -> str:
    """Return the help of a parameter, and its default where it is a sequence."""
    text = _IN_PYTHON.sub("", parameter.text.replace("``", "`"))
    text = _NONE.sub("; default: ", text).strip("; .")
    if parameter.several and parameter.default not in (None, REQUIRED, ()):
        text += f"; default: {', '.join(map(str, parameter.default))}"
    if parameter.several and not parameter.is_argument:
        text += "; repeatable"
    return f"{text[:1].upper()}{text[1:]}."


def count_or_share(text: str) -> int | float | str:
    """Return an int (a count) or a float (a share); the step refuses any other text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
