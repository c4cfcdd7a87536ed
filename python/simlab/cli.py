"""The ``simcore`` command: join all commands, run one, and turn its result into an exit code."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import sys
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperArgument
from typer.exceptions import TyperException

from simlab.commands import (
    align_study,
    blocks,
    claims,
    demo,
    extract,
    finetune,
    freeze_study,
    grid,
    importing,
    influence,
    inject,
    listing,
    localize,
    plot,
    pretrain,
    report,
    skip,
    status,
    sweep,
    truncate,
)
from simlab.commands.options import Paper
from simlab.commands.patterns import expand_arguments
from simlab.errors import UserError, spelling
from simlab.steps.flags import help_of, make_command
from simlab.steps.words import as_option

USAGE_ERROR = 2
# In the order in which ``simcore --help`` lists the commands.
COMMANDS = (
    *(demo, pretrain, finetune, freeze_study, extract, importing, grid, localize),
    *(truncate, blocks, skip, influence, plot, report, inject, align_study),
    *(claims, sweep, status, listing),
)


def make_app(asked: str | None = None) -> typer.Typer:
    """Return the command ``simcore``.

    Parameters
    ----------
    asked
        The one command whose options are wanted; None is every command. The options of a step are
        read from its module, which takes a moment to load.
    """
    app = typer.Typer(
        name="simcore",
        help="How alike are neural representations? Fine-tune, extract, compare, truncate, plot.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # tables of rich cut the names of options at 80 columns
    )
    for command in COMMANDS:
        step = getattr(command, "STEP", None)
        if step is None:
            command.register(app)
        elif asked in (None, step.name):
            app.command(step.name)(make_command(step, command.run, Paper))
        else:
            app.command(step.name, help=help_of(step))(lambda: None)
    for registered in app.registered_commands:  # without a short help, typer cuts the sentence
        text = registered.help or inspect.getdoc(registered.callback) or ""
        registered.short_help = text.partition("\n")[0]
    app.callback()(_root)
    return app


@cache
def _whole_app() -> typer.Typer:
    return make_app()


def __getattr__(name: str) -> typer.Typer:
    """Return `app`, the command with the options of every step."""
    if name == "app":
        return _whole_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"simcore {importlib.metadata.version('simcore')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0, 2 for a user's mistake, 130 for Ctrl-C."""
    # OpenMP threads that spin while they wait make a two-core machine up to ten times slower as
    # soon as another process runs on it. torch reads the variable once, when it loads OpenMP.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with spelling(as_option(arguments[0] if arguments else "")):
        try:
            app = make_app(arguments[0] if arguments else "")
            for one in expand_arguments(arguments or ["--help"]):
                code = app(one, prog_name="simcore", standalone_mode=False)
                if code:
                    return code
            return 0
        except (UserError, TyperException) as error:
            message = _message(error) if isinstance(error, TyperException) else str(error)
            print(f"error: {' '.join(message.split())}", file=sys.stderr)
            return USAGE_ERROR


# What an option wanted, by the type of pydantic's error.
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


if __name__ == "__main__":
    main()
