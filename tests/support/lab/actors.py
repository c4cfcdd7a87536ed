"""Actors: threads that pass for processes, and stop before each operation on files.

Python tells a hook of every operation before it does it (`sys.addaudithook`). In the thread of an
actor the hook waits until the test lets the actor go on. An actor that is killed gets `Killed` from
every later operation, so that no handler of an exception changes a file; what it had open closes,
as the kernel would do.
"""

from __future__ import annotations

import fcntl
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_OPERATIONS = {
    "fcntl.flock",
    "open",
    "os.listdir",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.scandir",
    "os.utime",
    "time.sleep",
}
_PATIENCE_SECONDS = 60.0
_MANY = 10_000  # more operations than any actor has
_own = threading.local()


class Killed(BaseException):
    """The actor was killed: none of its operations happens any more."""


class Actor:
    """A thread that goes on by single operations.

    Parameters
    ----------
    run
        The function of the thread.
    root
        Operations on files below this folder are those that count.
    before
        Function that is called in the actor's thread when an operation is about to happen, with
        its name and arguments.

    Attributes
    ----------
    quiet
        While it is true, the actor does not stop.
    upcoming
        The operation that the actor stopped before: its name and its arguments.
    """

    def __init__(
        self,
        run: Callable[[], None],
        root: str,
        before: Callable[[str, tuple[Any, ...]], None] = lambda event, args: None,
    ) -> None:
        _install()
        self.root, self._before = root, before
        self.killed = self.ended = self.quiet = False
        self.error: BaseException | None = None
        self.upcoming: tuple[str, tuple[Any, ...]] = ("", ())
        self._left = 0
        self._until: Callable[[], bool] = bool
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(run,), daemon=True)
        self._thread.start()
        self._wait()

    def step(self, count: int = 1, until: Callable[[], bool] = lambda: False) -> None:
        """Let the actor do some operations, unless it has ended.

        Parameters
        ----------
        until
            Function that is called before each operation; if it is true, the actor stops.
        """
        if self.ended or not count:
            return
        self._left, self._until = count, until
        self._go.release()
        self._wait()

    def stop_before(self, event: str, path: Path | None = None) -> None:
        """Let the actor go on to its next operation of a name, on a file."""

        def is_next() -> bool:
            name, args = self.upcoming
            return name == event and (path is None or str(args[0]) == str(path))

        self.step(_MANY, is_next)
        assert not self.ended, f"the actor never came to {event} of {path}"
        assert is_next()

    def kill(self) -> None:
        """End the actor between two operations."""
        self.killed = True
        while not self.ended:
            self.step()

    def pause(self, event: str = "", args: tuple[Any, ...] = ()) -> None:
        """Stop until the test lets the actor go on; called by the actor itself."""
        self.upcoming = event, args
        self._left -= 1
        if self._left <= 0 or self._until():
            self._stopped.release()
            self._go.acquire()
        if self.killed:
            raise Killed

    def operate(self, event: str, args: tuple[Any, ...]) -> None:
        """Stop before an operation."""
        if self.quiet:
            return
        if event == "fcntl.flock" and args[1] == fcntl.LOCK_UN:  # the kernel does it for the dead
            return
        if self.killed:
            raise Killed
        names = [arg for arg in map(str, args[:2]) if arg.startswith(self.root)]
        if names or event in ("fcntl.flock", "time.sleep"):
            self.pause(event, args)
            self._before(event, args)

    def _wait(self) -> None:
        assert self._stopped.acquire(timeout=_PATIENCE_SECONDS), "an actor does not stop"

    def _run(self, run: Callable[[], None]) -> None:
        _own.actor = self
        try:
            self.pause()
            run()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        finally:
            _own.actor = None
            self.ended = True
            self._stopped.release()


def this_actor() -> Actor | None:
    """Return the actor whose thread this is."""
    return getattr(_own, "actor", None)


_installed = False


def _install() -> None:
    """Add the hook, which nothing can remove again; without actors it returns at once."""
    global _installed
    if not _installed:
        _installed = True
        sys.addaudithook(_hook)


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event in _OPERATIONS:
        actor = this_actor()
        if actor is not None:
            actor.operate(event, args)
