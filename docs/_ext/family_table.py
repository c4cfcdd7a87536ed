"""The table of families of models as Markdown, from the statements that the tests hold.

A page has the line ``<!-- families -->`` where the table shall stand. The statements and the tiny
configurations that they are tested on are in tests/support/model_families.py.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from support.lab.tinymodels import TOKENIZERS
from support.model_families import ENCODER_DECODERS, PICTURES, SOUNDS, STEPS, TEXT

MARKER = "<!-- families -->"
HEADS = {"hidden states": "`extract`", "attention": "`extract --kind attention`"}
ENCODERS_ALONE = "`record`, and `extract --module`, of the encoder"
BLOCKS_ALONE = "`record`, and `extract --module`"


def _row(name, cells):
    return f"| {name} | {' | '.join(cells)} |"


def table():
    """Return the table: a family a line, and the reasons of all exceptions below it."""
    reasons = {}

    def cell(family, step):
        if step not in family.without:
            return "yes"
        number = reasons.setdefault(family.without[step], len(reasons) + 1)
        return f"no ({number})"

    lines = [_row("family", [HEADS.get(step, f"`{step}`") for step in STEPS])]
    lines.append(f"|---|{'---|' * len(STEPS)}")
    lines += [_row(f.name, [cell(f, step) for step in STEPS]) for f in TEXT]
    told = "\n".join(
        f"{number}. {reason[0].upper()}{reason[1:]}." for reason, number in reasons.items()
    )
    others = [
        f"* {', '.join(family.name for family in families)}: {words}."
        for families, words in (
            (ENCODER_DECODERS, ENCODERS_ALONE),
            (PICTURES, f"{BLOCKS_ALONE}, of pictures"),
            (SOUNDS, "`record`, of sounds"),
        )
    ]
    words = "; ".join(f"`{name}` ({what})" for name, what in TOKENIZERS.items())
    split = (
        f"Words (`--kind word-last`, `word-mean`, `attention`) are tried on tokenizers of {words}."
    )
    return "\n".join([*lines, "", told, "", *others, "", split])


def fill(app, docname, source):
    """Put the table in the place of its marker."""
    if MARKER in source[0]:
        source[0] = source[0].replace(MARKER, table())


def setup(app):
    """Connect to Sphinx."""
    app.connect("source-read", fill)
    return {"parallel_read_safe": True}
