"""The spelling of arguments in messages: as options of a command, and as keys of a sweep file.

`simlab.errors.in_python` is the third spelling, and the default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from simlab.errors import Argument, UserError, option_name, spelled
from simlab.steps.catalogue import STEPS


def as_option(command: str) -> Callable[[Argument], str]:
    """Return a function that spells an argument as an option of `command`, with its value."""

    def spell(argument: Argument) -> str:
        if argument.step:
            return _of_another(argument)
        # Read here: the parameters come from the module of the step, which takes a moment to load.
        parameters = STEPS[command].parameters if command in STEPS else ()
        options = {parameter.name: parameter.option for parameter in parameters}
        if command == "sweep" and argument.name not in options:
            return as_key(argument)
        option = options.get(argument.name) or option_name(argument.name)
        if not argument.has_value or argument.value is True:
            return option
        if argument.value is False:
            return f"--no-{option.removeprefix('--')}"
        return f"{option} {argument.value}"

    return spell


def _of_another(argument: Argument) -> str:
    """Spell an argument of another step: ```simcore grid --joint```."""
    return f"`simcore {argument.step} {as_option(argument.step)(replace(argument, step=''))}`"


def as_key(argument: Argument) -> str:
    """Spell an argument as a key of a sweep file, with its value: ``head_warmup = 0.5``."""
    if argument.step:
        return _of_another(argument)
    if not argument.has_value:
        return argument.name
    value = argument.value
    return f"{argument.name} = {str(value).lower() if isinstance(value, bool) else repr(value)}"


def key_and_rest(error: UserError) -> tuple[str, str]:
    """Split a message that begins with an argument into its key and the text after the colon.

    The key is empty if the message begins with something else.

    >>> from simlab.errors import argument
    >>> key_and_rest(UserError(f"{argument('pairs', 9)}: wanted 1 to 3"))
    ('pairs = 9', 'wanted 1 to 3')
    """
    text = spelled(error.message, as_key)
    first = error.parts[0] if error.parts else ""
    if not isinstance(first, Argument):
        return "", text
    end = text.find(": ", len(as_key(first)))
    return ("", text) if end < 0 else (text[:end], text[end + 2 :])
