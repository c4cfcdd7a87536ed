"""The ``simcore`` command: join all commands, run one, and turn its result into an exit code."""

from __future__ import annotations

import os
import sys

import typer
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
    inject,
    listing,
    localize,
    plot,
    report,
    skip,
    truncate,
)
from simlab.errors import UserError

USAGE_ERROR = 2
# In the order in which ``simcore --help`` lists the commands.
COMMANDS = (
    *(demo, finetune, freeze_study, extract, grid, localize),
    *(truncate, blocks, skip, plot, report, inject, align_study, claims, listing),
)

app = typer.Typer(
    name="simcore",
    help="How alike are neural representations? Fine-tune, extract, compare, truncate, plot.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


for command in COMMANDS:
    command.register(app)


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0, 2 for a user's mistake, 130 for Ctrl-C."""
    # OpenMP threads that spin while they wait make a two-core machine up to ten times slower as
    # soon as another process runs on it. torch reads the variable once, when it loads OpenMP.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return app(arguments, prog_name="simcore", standalone_mode=False) or 0
    except (UserError, TyperException) as error:
        message = error.format_message() if isinstance(error, TyperException) else str(error)
        print(f"error: {' '.join(message.split())}", file=sys.stderr)
        return USAGE_ERROR


if __name__ == "__main__":
    main()
