"""Labels of models in results, and the name of the task in them."""

from __future__ import annotations

import re

_SEPARATORS = "-_ ./"


def without_task(label: str, task: str) -> str:
    """Return `label` without the name of the task: ``roberta-rte-FT`` becomes ``roberta-FT``.

    The name must stand alone, in upper or lower case. A label that is nothing else is kept.
    """
    bare = re.sub(rf"(?<![A-Za-z0-9]){re.escape(task)}(?![A-Za-z0-9])", "", label, flags=re.I)
    if bare == label:
        return label
    return re.sub(rf"[{_SEPARATORS}]*([{_SEPARATORS}])", r"\1", bare).strip(_SEPARATORS) or label
