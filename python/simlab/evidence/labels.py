"""Which models are fine-tuned, and from which base model: as rows say, or as the user does.

Rows say the stage and the base of each model. Patterns of labels that the user gives count more; if
families are given, the family of a model is its base. Models whose base nobody says share one.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from simlab.evidence.options import ClaimOptions
from simlab.store.results import FT, ORIG

if TYPE_CHECKING:
    import pandas as pd

TUNED, PRETRAINED = "fine-tuned", "pretrained"
_ROLES = {FT: TUNED, ORIG: PRETRAINED}


def role_columns(frame: pd.DataFrame, options: ClaimOptions) -> dict[str, pd.Series]:
    """Return columns with the role (`TUNED`, `PRETRAINED` or "") and the base of both models."""
    columns = {}
    for side in "xy":
        label, stage, base = (frame[f"{name}_{side}"] for name in ("label", "stage", "base"))
        patterns = {name: _role(name, options) for name in label.dropna().unique()}
        families = {
            name: options.family(name) for part in (base, label) for name in part.dropna().unique()
        }
        role = label.map(patterns).astype(object)
        columns[f"role_{side}"] = role.fillna(stage.map(_ROLES).astype(object)).fillna("")
        family = label.map(families).astype(object).fillna(base.map(families).astype(object))
        columns[f"base_{side}"] = family.fillna(base.astype(object)).fillna("")
    return columns


def _role(label: str, options: ClaimOptions) -> str | None:
    """Return the role that the patterns of the user give a label."""
    for pattern, role in ((options.tuned, TUNED), (options.pretrained, PRETRAINED)):
        if pattern is not None and fnmatchcase(label, pattern):
            return role
    return None
