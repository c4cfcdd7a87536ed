"""The ``simcore`` command: join all commands, run one, and turn its result into an exit code.

The options of a command, with types, defaults and help, are made from the parameters of its step.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperArgument
from typer.exceptions import TyperException

from simlab.commands import listing, models, results, sweeps
from simlab.commands.options import take_choices
from simlab.errors import UserError, argument, spelling
from simlab.steps import catalogue
from simlab.steps.record import REQUIRED, Parameter, Step
from simlab.steps.words import as_option

USAGE_ERROR = 2
# The step of each command, and the function that runs the command.
COMMANDS: dict[str, tuple[Step, Callable[[dict[str, Any]], None]]] = {
    step.name: (step, run)
    for step, run in (
        (catalogue.COMPARE, results.run_compare),
        (catalogue.CHECK, results.run_check),
        (sweeps.DEMO, sweeps.run_demo),
        (catalogue.PRETRAIN, models.run_pretrain),
        (catalogue.FINETUNE, models.run_finetune),
        (catalogue.FREEZE_STUDY, models.run_freeze_study),
        (catalogue.EXTRACT, models.run_extract),
        (catalogue.IMPORT, models.run_import),
        (catalogue.GRID, results.run_grid),
        (catalogue.LOCALIZE, results.run_localize),
        (catalogue.SKIP, results.run_skip),
        (catalogue.ALIGN_STUDY, results.run_align_study),
        (catalogue.INFLUENCE, models.run_influence),
        (catalogue.TRUNCATE, models.run_truncate),
        (catalogue.BLOCKS, results.run_blocks),
        (catalogue.PLOT, results.run_plot),
        (catalogue.REPORT, results.run_report),
        (catalogue.INJECT, models.run_inject),
        (catalogue.CLAIMS, results.run_claims),
        (catalogue.SWEEP, sweeps.run_sweep),
        (catalogue.STATUS, sweeps.run_status),
        (listing.MODELS, lambda values: listing.models(names=values["names"])),
        (listing.TASKS, lambda values: listing.tasks()),
        (listing.PAPERS, lambda values: listing.papers(name=values["name"])),
        (catalogue.DOCTOR, listing.run_doctor),
    )
}
_ABOUT = """How alike are neural representations? Fine-tune, extract, compare, truncate, plot.

Begin with `simcore demo`, or with two models: `simcore compare A B`. A study of models that you
have is `extract` of each, `grid` of every two, and `report`; `sweep` runs a study from a file."""
COUNT_OR_SHARE = {int, float}
# Parts of a numpydoc that concern calls from Python alone.
_IN_PYTHON = re.compile(r"; (in Python|if False,) (?:[^.;]|\.(?=\w))*")
_NAME = re.compile("(?<!`)`([a-z_]+)`(?!`)")
_NONE = re.compile(r"(?:[.;]|^) ?None (?:is|means) ")
# Read before the options that it chooses.
_PAPER = typer.Option(
    help="Take the choices of a paper (`phang2021`, `wu2020`, `ren2023`) for every option that is "
    "not given; `simcore papers` prints them.",
    is_eager=True,
    callback=take_choices,
)


@cache
def make_app(asked: str | None = None) -> typer.Typer:
    """Return the command ``simcore``.

    `asked` is the one command whose options are wanted, and None every command: the options of a
    step are read from its module, which takes a moment to load.
    """
    app = typer.Typer(
        name="simcore",
        help=_ABOUT,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # tables of rich cut the names of options at 80 columns
    )
    for name, (step, run) in COMMANDS.items():
        if asked in (None, name):
            notes = "\n\n".join(step.notes()) if step.notes_path else None
            app.command(name, epilog=notes)(_make_command(step, run))
        else:
            app.command(name, help=_help_of(step))(lambda: None)
    for registered in app.registered_commands:  # without a short help, typer cuts the sentence
        text = registered.help or inspect.getdoc(registered.callback) or ""
        registered.short_help = text.partition("\n")[0]
    app.callback()(_root)
    return app


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"simcore {importlib.metadata.version('simcore')}")
        raise typer.Exit


_VERSION = typer.Option(
    "--version", help="Print the version.", callback=_print_version, is_eager=True
)


def _root(version: Annotated[bool, _VERSION] = False) -> None:
    pass


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0, 2 for a user's mistake, 130 for Ctrl-C."""
    # OpenMP threads that spin while they wait make a two-core machine up to ten times slower as
    # soon as another process runs on it. torch reads the variable once, when it loads OpenMP.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with spelling(as_option(arguments[0] if arguments else "")):
        try:
            app = make_app(arguments[0] if arguments else "")
            how: dict[str, Any] = {"prog_name": "simcore", "standalone_mode": False}
            return app(arguments or ["--help"], **how) or 0
        except (UserError, TyperException) as error:
            message = _message(error) if isinstance(error, TyperException) else str(error)
            print(f"error: {' '.join(message.split())}", file=sys.stderr)
            return USAGE_ERROR


# The wanted value of an option, by the type of pydantic's error.
_WANTED = {
    **dict.fromkeys(("int_parsing", "int_from_float", "int_parsing_size"), "a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "a number"),
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
}


def _message(error: TyperException) -> str:
    """Return typer's message; of a value that is no number, or out of range, one of our own."""
    reasons: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    parameter = getattr(error, "param", None)
    if type(error).__name__ == "MissingParameter" and isinstance(parameter, TyperArgument):
        wanted = (parameter.help or "a value").rstrip(".")
        return f"{(parameter.name or '').upper()}: wanted {wanted}; found nothing"
    if parameter is None or not reasons or reasons[0]["type"] not in _WANTED:
        return error.format_message()
    wanted = _WANTED[reasons[0]["type"]].format(**reasons[0].get("ctx", {}))
    return f"{parameter.opts[0]}: wanted {wanted}, found {reasons[0]['input']}"


def _make_command(step: Step, run: Callable[[dict[str, Any]], None]) -> Callable[..., None]:
    """Return a function whose signature typer turns into the command of a step.

    `run` gets the parameters of the step by name, and the paper; a parameter that neither the
    command line nor the paper gives is None, and the function of the step has its default.
    """

    def command(context: typer.Context, **given: Any) -> None:
        values: dict[str, Any] = dict.fromkeys(p.name for p in step.parameters)
        values["paper"] = given.get("paper")
        for parameter in step.parameters:
            source = context.get_parameter_source(parameter.name)
            if source is not None and source.name != "DEFAULT":
                values[parameter.name] = _value(parameter, given[parameter.name])
        run(values)

    texts = {p.name: p.name if p.is_argument else p.option for p in step.parameters}
    kind = inspect.Parameter.KEYWORD_ONLY
    signature = [inspect.Parameter("context", kind, annotation=typer.Context)]
    signature += [_of_signature(parameter, texts) for parameter in step.parameters]
    if step.has_paper:
        hint = Annotated[str | None, _PAPER]
        signature.append(inspect.Parameter("paper", kind, default=None, annotation=hint))
    command.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in signature}
    command.__name__ = step.name
    command.__doc__ = _help_of(step)
    return command


def _help_of(step: Step) -> str:
    """Return the text of the command's help: the step, and its examples."""
    return "\n\n".join([step.text, *(f"Example: `simcore {words}`" for words in step.examples)])


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
    kind = list[kind] if parameter.several else kind
    given: dict[str, Any] = {}
    if parameter.default is not REQUIRED:
        plain = None if parameter.several or parameter.default == "" else parameter.default
        given = {"default": plain}
        kind = kind | None if plain is None else kind
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


if __name__ == "__main__":
    main()
