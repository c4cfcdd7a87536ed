"""Tables of options of commands and of keys of sweep files, from the records that declare them.

A page names the options that matter, in its order, and gets a table with their help::

    ```{options-of} grid
    joint bootstrap permutations
    ```

``<!-- sweep sections -->`` stands for the table of all sections of a sweep file.
"""

import re

from command_line import literal

TABLE = re.compile(r"^```\{options-of\} (\S+)\n([a-z0-9\s-]+)```$", re.MULTILINE)
SECTIONS = "<!-- sweep sections -->"
_BOUNDS = re.compile(r" *\[([^\]]*)\]$")  # of click: ``[default: 7; x>=0]``


def options_of(name, wanted):
    """Return the table of some options of a command, in the order of `wanted`.

    Raises
    ------
    LookupError
        The command has no such option.
    """
    from typer import Context
    from typer.main import get_command

    from simlab.cli import make_app

    group = get_command(make_app())
    root = Context(group, info_name="simcore")
    command = group.get_command(root, name)
    if command is None:
        raise LookupError(f"options-of: wanted a command of simcore, found {name}")
    context = Context(command, parent=root, info_name=name)
    known = {option.removeprefix("--"): one for one in command.params for option in one.opts}
    missing = [option for option in wanted if option not in known]
    if missing:
        raise LookupError(f"options-of {name}: wanted options of it, found {', '.join(missing)}")
    lines = ["| option | meaning |", "|---|---|"]
    for option in wanted:
        one = known[option]
        names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
        text = " ".join(one.get_help_record(context)[1].split())
        lines.append(f"| {names} | {_cell(_with_default(text, one.is_flag))} |")
    return "\n".join(lines)


def _with_default(text, is_flag):
    """Return the help of an option with its default as a sentence, and without its bounds."""
    found = _BOUNDS.search(text)
    if found is None:
        return text
    parts = [part for part in found[1].split("; ") if part.startswith("default: ")]
    hyphens = "--" if is_flag else ""
    default = f" Default: `{hyphens}{parts[0].removeprefix('default: ')}`." if parts else ""
    return text[: found.start()] + default


def _cell(text):
    """Return help or a line of a docstring, whose double backticks are single in Markdown."""
    return literal(text.replace("``", "`")).replace("|", "\\|")


def sections():
    """Return the table of the sections and keys of a sweep file."""
    from simlab.steps.record import texts_of
    from simlab.sweeps.spec import Spec

    texts = texts_of(Spec)
    lines = ["| section | meaning | keys |", "|---|---|---|"]
    for name, field in Spec.model_fields.items():
        section, repeated = _section_of(field.annotation)
        if section is None:
            lines.append(f"| `{name}` | {_cell(texts[name])} | |")
            continue
        head = f"[[{name}]]" if repeated else f"[{name}]"
        keys = ", ".join(f"`{key}`" for key in section.model_fields)
        meaning = _cell(section.__doc__.splitlines()[0])
        lines.append(f"| `{head}` | {meaning} | {keys} |")
    return "\n".join(lines)


def _section_of(annotation):
    """Return the section class that an annotation names, and whether the file may have several."""
    from typing import get_args, get_origin

    from simlab.sweeps.entries import Section

    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation, False
    repeated = get_origin(annotation) is tuple
    for one in get_args(annotation):
        section, inner = _section_of(one)
        if section is not None:
            return section, repeated or inner
    return None, False


def fill(app, page, source):
    """Put the tables in their places."""
    source[0] = TABLE.sub(lambda found: options_of(found[1], found[2].split()), source[0])
    if SECTIONS in source[0]:
        source[0] = source[0].replace(SECTIONS, sections())


def setup(app):
    """Connect to Sphinx."""
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
