"""Labels of models in results: the name of the task in them, and their natural order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_AT = " @ "  # between the label of a model and the step of its training
_SEPARATORS = "-_ ./"


def without_task(label: str, task: str) -> str:
    """Return `label` without the name of the task: ``roberta-rte-FT`` becomes ``roberta-FT``."""
    bare = re.sub(rf"(?<![A-Za-z0-9]){re.escape(task)}(?![A-Za-z0-9])", "", label, flags=re.I)
    if bare == label:
        return label
    return re.sub(rf"[{_SEPARATORS}]*([{_SEPARATORS}])", r"\1", bare).strip(_SEPARATORS) or label


def natural_key(name: str) -> list[Any]:
    """Return a key that sorts names with numbers as numbers: M2 before M10."""
    parts = re.split("([0-9]+)", name)  # text and numbers alternate
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def run_names(labels: pd.Series) -> pd.Series:
    """Return labels without the step at their end."""
    return labels.str.replace(rf"{_AT}\d+$", "", regex=True)


def split_step(label: str) -> tuple[str, int | None]:
    """Return the label of a model without its step, and the step, if `at_step` added one.

    >>> split_step("mini-ORIG[0] @ 500"), split_step("mini-ORIG[0]")
    (('mini-ORIG[0]', 500), ('mini-ORIG[0]', None))
    """
    run, _, step = label.rpartition(_AT)
    return (run, int(step)) if step.isdecimal() and run else (label, None)


def at_step(label: str, step: int | None) -> str:
    """Return the label of a model at a step of its training, which stands at the end.

    >>> at_step("mini-ORIG[0]", 500), at_step("mini-ORIG[0]", None)
    ('mini-ORIG[0] @ 500', 'mini-ORIG[0]')
    """
    return label if step is None else f"{label}{_AT}{step}"
