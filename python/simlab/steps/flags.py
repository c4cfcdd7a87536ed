"""The command of a step: options with types, defaults and help, made from its parameters.

A library that makes commands of dataclasses (cyclopts, tyro, jsonargparse) would take the place of
typer, of our wording of its errors, and of the defaults of ``--paper``, which depend on the options
that are given; this module makes what typer needs from the record of a step.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from simlab.errors import UserError, argument
from simlab.steps.record import REQUIRED, Parameter, Step

COUNT_OR_SHARE = {int, float}
# Parts of a numpydoc that concern calls from Python alone.
_IN_PYTHON = re.compile("; (in Python|if False,) [^.;]*")
_NAME = re.compile("(?<!`)`([a-z_]+)`(?!`)")
_NONE = re.compile(r"(?:[.;]|^) ?None (?:is|means) ")


def make_command(step: Step, run: Callable[..., None], paper: Any = None) -> Callable[..., None]:
    """Return a function whose signature typer turns into the command of a step.

    `run` gets the parameters of the step by name, and the paper; a parameter that neither the
    command line nor the paper gives is None, and the function of the step has its default. `paper`
    is the callback of ``--paper``, for steps of which papers choose parameters.
    """

    def command(context: typer.Context, **given: Any) -> None:
        chosen = given.pop("paper", None)
        values: dict[str, Any] = dict.fromkeys(p.name for p in step.parameters)
        for parameter in step.parameters:
            source = context.get_parameter_source(parameter.name)
            if source is not None and source.name != "DEFAULT":
                values[parameter.name] = _value(parameter, given[parameter.name])
        run(step, values, chosen)

    texts = {p.name: p.name if p.is_argument else p.option for p in step.parameters}
    kind = inspect.Parameter.KEYWORD_ONLY
    signature = [inspect.Parameter("context", kind, annotation=typer.Context)]
    signature += [_of_signature(parameter, texts) for parameter in step.parameters]
    if step.has_paper and paper is not None:
        hint = paper_option(paper)
        signature.append(inspect.Parameter("paper", kind, default=None, annotation=hint))
    command.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in signature}
    command.__name__ = step.name
    command.__doc__ = help_of(step)
    return command


def help_of(step: Step) -> str:
    """Return the text of the command's help: the step, and its examples."""
    return "\n\n".join([step.text, *(f"Example: `simcore {one}`" for one in step.examples)])


def end_of_help(step: Step) -> str | None:
    """Return the text below the options of the command's help, if there is one."""
    return "\n\n".join(step.notes()) if step.notes_place else None


def paper_option(callback: Callable[..., Any]) -> Any:
    """Return the annotation of ``--paper``, which is read before the options that it chooses."""
    text = (
        "Take the choices of a paper (`phang2021`, `wu2020`, `ren2023`) for every option that is "
        "not given; `simcore papers` prints them."
    )
    return Annotated[str | None, typer.Option(help=text, is_eager=True, callback=callback)]


def version_option(callback: Callable[..., Any]) -> Any:
    """Return the annotation of ``--version``."""
    how = typer.Option("--version", help="Print the version.", callback=callback, is_eager=True)
    return Annotated[bool, how]


def _value(parameter: Parameter, given: Any) -> Any:
    """Return a value as the function of the step takes it."""
    if not parameter.several or given is None:
        return given
    if parameter.kinds != (Mapping,):
        return tuple(given)
    values: dict[str, str] = {}
    for pair in given:
        name, _, value = pair.partition("=")
        if not (name and value):
            raise UserError(f"{argument(parameter.name, pair)}: wanted {parameter.metavar}")
        if name in values:
            raise UserError(f"{argument(parameter.name, pair)}: wanted a value for {name}, found 2")
        values[name] = value
    return values


def _of_signature(parameter: Parameter, texts: Mapping[str, str]) -> inspect.Parameter:
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
    annotated = Annotated[kind, _typer_parameter(parameter, texts)]
    return inspect.Parameter(
        parameter.name, inspect.Parameter.KEYWORD_ONLY, annotation=annotated, **given
    )


def _typer_parameter(parameter: Parameter, texts: Mapping[str, str]) -> Any:
    how: dict[str, Any] = {"help": help_text(parameter, texts)}
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
    if parameter.kinds == (Mapping,):
        return str
    if parameter.metavar and len(parameter.kinds) > 1:
        return tuple[parameter.kinds]  # type: ignore[name-defined]
    for kind in (bool, str, float, int):
        if kind in parameter.kinds:
            return kind
    raise TypeError(f"{parameter.name}: wanted a type that can be typed, found {parameter.kinds}")


def help_text(parameter: Parameter, texts: Mapping[str, str]) -> str:
    """Return the help of a parameter, and its default where it is a sequence.

    A name between single backticks gets its spelling in `texts`.
    """
    text = _NAME.sub(lambda match: f"`{texts.get(match[1], match[1])}`", parameter.text)
    text = _IN_PYTHON.sub("", text.replace("``", "`"))
    text = _NONE.sub("; default: ", text).strip("; .")
    if parameter.several and parameter.default not in (None, REQUIRED, ()):
        text += f"; default: {', '.join(map(str, parameter.default))}"
    if parameter.several and not parameter.is_argument:
        text += "; repeatable"
    return f"{text[:1].upper()}{text[1:]}."


def count_or_share(text: str | float) -> int | float | str:
    """Return an int (a count) or a float (a share); the step refuses any other text.

    A number is the choice of a paper.
    """
    if not isinstance(text, str):
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
