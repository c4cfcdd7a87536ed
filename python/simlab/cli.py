"""The ``simcore`` command: join all commands, run one, and turn its result into an exit code."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import sys
from functools import cache
from typing import Any

import typer
from typer.core import TyperArgument
from typer.exceptions import TyperException

from simlab.commands import (
    blocks,
    claims,
    demo,
    doctor,
    finetune,
    freeze_study,
    influence,
    inject,
    listing,
    plot,
    pretrain,
    report,
    representations,
    rows,
    status,
    sweep,
    truncate,
)
from simlab.commands.options import take_choices
from simlab.commands.patterns import expand_arguments
from simlab.errors import UserError, spelling
from simlab.steps.flags import end_of_help, help_of, make_command, version_option
from simlab.steps.words import as_option

USAGE_ERROR = 2
_MODULES = (
    *(
        demo,
        pretrain,
        finetune,
        freeze_study,
        representations,
        rows,
        influence,
        truncate,
        blocks,
        plot,
    ),
    *(report, inject, claims, sweep, status, listing, doctor),
)
# The step of each command, and the function that runs the command.
COMMANDS = {step.name: (step, module.run) for module in _MODULES for step in module.STEPS}


def make_app(asked: str | None = None) -> typer.Typer:
    """Return the command ``simcore``.

    `asked` is the one command whose options are wanted, and None every command: the options of a
    step are read from its module, which takes a moment to load.
    """
    app = typer.Typer(
        name="simcore",
        help="How alike are neural representations? Fine-tune, extract, compare, truncate, plot.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # tables of rich cut the names of options at 80 columns
    )
    for name, (step, run) in COMMANDS.items():
        if asked in (None, name):
            made = make_command(step, run, take_choices)
            app.command(name, epilog=end_of_help(step))(made)
        else:
            app.command(name, help=help_of(step))(lambda: None)
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


def _root(version: version_option(_print_version) = False) -> None:  # type: ignore[valid-type]
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


if __name__ == "__main__":
    main()
