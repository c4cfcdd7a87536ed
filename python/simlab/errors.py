"""The exceptions that stand for what the user can put right."""


class UserError(Exception):
    """Something the user can put right: a name, a file, a column, a missing connection.

    The message is a single line that names the option or file, what was wanted and what was
    found. The command line prints it and exits with code 2; any other exception is a bug and is
    shown as one.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class WriteError(UserError):
    """The system refused to write: no room, no permission. A resumable step keeps what it has."""


class BusyError(UserError):
    """Another process is making the same output. A later attempt may find it done."""
