"""Exceptions for mistakes that the user can put right."""


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


class BusyError(UserError):
    """Another process is making the same output. A later attempt may find it done."""
