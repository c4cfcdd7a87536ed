"""Exceptions for mistakes that the user can put right, and words that their messages share."""

import difflib
from collections.abc import Iterable


def did_you_mean(found: str, known: Iterable[str]) -> str:
    """Return a question that names the known name nearest to a misspelt one; "" if none is near.

    >>> did_you_mean("meen", ("cls", "mean"))
    " (did you mean 'mean'?)"
    """
    near = difflib.get_close_matches(found, list(known), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


class UserError(Exception):
    """A mistake that the user can put right: a name, a file, a column, a missing connection.

    The message is a single line that names the option or file, the wanted and the found. The
    command line prints the message and exits with code 2. Any other exception is a bug and shows
    its traceback.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class WriteError(UserError):
    """The system refused to write: no room, no permission. A resumable job keeps its progress."""


class ReadError(UserError):
    """The system refused to read: no permission, too many open files, a server that is away.

    The content of the file is unknown, and nothing may be concluded from it.
    """


class BusyError(UserError):
    """Another process is making the same output. A later attempt may find it done."""
