"""Parameters of aligners, of which those of the training make a `Training`."""

from dataclasses import fields, replace
from typing import Any

from simcore.align import Training

NAMES = {field.name for field in fields(Training)}


def trained(**params: Any) -> dict[str, Any]:
    """Return parameters of an aligner; those of its training may be given beside the others."""
    own = {name: value for name, value in params.items() if name not in NAMES}
    changed = {name: value for name, value in params.items() if name in NAMES}
    if changed:
        own["training"] = replace(own.get("training", Training()), **changed)
    return own
