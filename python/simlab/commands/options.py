"""The choices of papers, and messages that commands share."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from simlab.errors import UserError, argument

if TYPE_CHECKING:
    from simlab.store.jobs import Outcome

INTERRUPTED, TERMINATED = 130, 143  # 128 and the number of the signal


class _PaperDefaults(dict[str, Any]):
    """Defaults of a command's parameters, looked up in the table of a paper when they are needed.

    typer asks for the default of a parameter that the command line does not give, after it has read
    the parameters that the command line gives. Choices can therefore depend on these.
    """

    def __init__(self, context: typer.Context, paper: str) -> None:
        super().__init__()
        self.context, self.paper = context, paper

    def get(self, name: str, default: Any = None) -> Any:
        """Return what the paper chooses for parameter `name`; `default` if it chooses nothing."""
        from simlab.papers.presets import choices_of
        from simlab.representations.passes import OF_STATES

        command = self.context.info_name
        if name == RECIPE_NAME:
            return self.paper
        if command == "finetune":
            return default  # the recipe holds these choices
        if self.context.params.get("modules") and name in OF_STATES:
            return default  # which rows of modules have not
        given = {option: v for option, v in self.context.params.items() if option != name}
        choice = choices_of(self.paper, str(command), given).get(name)
        return default if choice is None else choice.value


def take_choices(context: typer.Context, paper: str | None) -> str | None:
    """Make the choices of `paper` the defaults of the command."""
    from simlab.papers.presets import find_paper, require_choices

    if paper is not None:
        find_paper(paper)
        if not any(parameter.name == RECIPE_NAME for parameter in context.command.params):
            require_choices(paper, str(context.info_name))
        context.default_map = _PaperDefaults(context, paper)
    return paper


RECIPE_NAME = "recipe"  # the parameter of --recipe, which names all choices of fine-tuning


@contextmanager
def explain_interrupt(*places: str | Path | None) -> Iterator[None]:
    """Print which `places` are kept and the command that continues, and exit.

    The code is 130 after Ctrl-C, and 143 after SIGTERM, which queues of clusters send before they
    end a job.
    """
    handler = signal.getsignal(signal.SIGTERM)
    here = threading.current_thread() is threading.main_thread()  # no other may set a handler
    try:
        if here:
            signal.signal(signal.SIGTERM, _terminate)
        yield
    except KeyboardInterrupt as stopped:
        command = " ".join(["simcore", *map(shlex.quote, sys.argv[1:])])
        kept = ", ".join(str(place) for place in places if place and _holds_work(Path(place)))
        end = (
            f"finished steps of {kept} are kept; continue with `{command}`"
            if kept
            else f"nothing was finished; start again with `{command}`"
        )
        print(f"\ninterrupted: {end}", file=sys.stderr)
        raise typer.Exit(TERMINATED if isinstance(stopped, _Terminated) else INTERRUPTED) from None
    finally:
        if here and handler is not None:
            signal.signal(signal.SIGTERM, handler)


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


def _terminate(number: int, frame: object) -> None:
    raise _Terminated


# SIGTERM ends a forked child without our handler, which would not run while the child waits for a
# lock. The signal is held back during the fork: one that came then would be lost with the handler.
_before_fork = threading.local()


def _hold() -> None:
    ours = signal.getsignal(signal.SIGTERM) is _terminate
    _before_fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}) if ours else None


def _release() -> None:
    if _before_fork.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _before_fork.mask)


def _end_as_usual() -> None:
    if _before_fork.mask is not None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _release()


os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_end_as_usual)


def _holds_work(place: Path) -> bool:
    """Return whether `place` is or has a results file, a finished job or a resumable job."""
    from simlab.store.files import real_output
    from simlab.store.jobs import PARTIAL_SUFFIX, RECORD

    if place.is_file():
        return True
    place = real_output(place)
    both = (place, place.with_name(place.name + PARTIAL_SUFFIX))
    files = (file for folder in both for file in folder.rglob("*"))
    return any(file.name == RECORD or file.suffix == ".parquet" for file in files)


def took(*outcomes: Outcome) -> str:
    """Return the time that jobs took, or ``done before`` if earlier runs did all of them."""
    if all(outcome.skipped for outcome in outcomes):
        return "done before"
    return f"{sum(outcome.seconds for outcome in outcomes):.0f} s"


def folder_of_several(values: Mapping[str, Any], option: str, what: str) -> Path:
    """Return `out`, below which `option` has a folder for each of several outputs."""
    from simlab.store.jobs import RECORD

    out = Path(values["out"])
    if (out / RECORD).exists():
        raise UserError(
            f"{argument('out', out)}: wanted a folder for a folder of each of {argument(option)}, "
            f"found {what}; choose another {argument('out')}"
        )
    return out
