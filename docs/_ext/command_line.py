"""The help of `simcore` and of its commands as Markdown, from the objects that ``--help`` prints.

A page has the line ``<!-- commands -->`` where the commands shall stand. Each command is a section,
and each option has an address and stands in the index of the search.
"""

import re

MARKER = "<!-- commands -->"
EXAMPLE = re.compile(r"Example: `([^`]+)`")


def literal(text):
    """Return text in which Markdown finds nothing but what stands between backticks."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*_$<>\[\]{}])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def described(text):
    """Return the paragraphs of a command's help; its examples are blocks that can be copied."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        if example := EXAMPLE.fullmatch(paragraph.strip()):
            lines = [line.strip() for line in example[1].splitlines()]
            paragraphs.append("```sh\n" + " \\\n    ".join(lines) + "\n```")
        else:
            paragraphs.append(literal(paragraph))
    return "\n\n".join(paragraphs)


def parameter(record, is_option):
    """Return an argument or an option, with what ``--help`` says of it."""
    name, help_text = record
    help_text = literal(" ".join(help_text.split())) or "No description."
    if is_option:
        return f":::{{option}} {name.replace(' / ', ', ').strip()}\n{help_text}\n:::"
    return f"`{name.strip()}`\n: {help_text}"


def section(command, context):
    """Return the section of a command."""
    program = context.command_path
    usage = " ".join([program, *command.collect_usage_pieces(context)])
    parts = [f"## {program}", f"```text\n{usage}\n```", described(command.help or "")]
    parts.append(f"```{{program}} {program}\n```")
    for kind, title in (("argument", "Arguments"), ("option", "Options")):
        records = [
            record
            for one in command.params
            if one.param_type_name == kind and (record := one.get_help_record(context))
        ]
        if records:
            parts.append(f"**{title}**")
            parts += [parameter(record, kind == "option") for record in records]
    return "\n\n".join(parts)


def command_line():
    """Return the list of all commands, and a section for each."""
    from typer import Context
    from typer.main import get_command

    from simlab.cli import make_app

    group = get_command(make_app())
    root = Context(group, info_name="simcore")
    names = group.list_commands(root)
    short = {name: group.get_command(root, name).get_short_help_str(limit=1000) for name in names}
    listed = [f"[`simcore {n}`](#simcore-{n})\n: {literal(short[n])}" for n in names]
    sections = []
    for name in names:
        command = group.get_command(root, name)
        sections.append(section(command, Context(command, parent=root, info_name=name)))
    return "\n\n".join([*listed, *sections])


def insert(app, page, source):
    """Put the commands in place of the marker."""
    if MARKER in source[0]:
        source[0] = source[0].replace(MARKER, command_line())


def setup(app):
    """Connect to Sphinx."""
    app.connect("source-read", insert)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
