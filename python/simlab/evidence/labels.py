"""Which models are fine-tuned, and from which base model: as rows say, or as the user does.

Rows say the stage and the base of each model. Patterns of labels that the user gives count more; if
families are given, the family of a model is its base. Models whose base nobody says share one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from simlab.evidence.options import ClaimOptions
from simlab.store.results import FT, ORIG

if TYPE_CHECKING:
    import pandas as pd

TUNED, PRETRAINED = "fine-tuned", "pretrained"
_ROLES = {FT: TUNED, ORIG: PRETRAINED}


@dataclass(frozen=True)
class Who:
    """The facts that are known of a model."""

    origin: str  # the pretrained model, with the seed of its pretraining if there are several
    base: str  # the model before fine-tuning, or the family that the user named
    task: str  # of the fine-tuning
    root: str = ""  # the pretrained model, whatever the seed of its pretraining and its family

    @property
    def architecture(self) -> str:
        """The base or the family, of which pretraining seeds are restarts."""
        return self.base or self.origin


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


def who_is_who(frame: pd.DataFrame, task: str) -> dict[str, Who]:
    """Return which pretrained model and task each model of `frame` comes from.

    `frame` has the roles and families of the models, and their names in columns ``x`` and ``y``.
    A base of which several seeds are there before fine-tuning was pretrained several times; the
    seed of its fine-tuned models is then the seed of the pretraining, unless their label names
    both, as ``bert[2]-FT[1]`` does. Fine-tuned models without a known base count as models of one
    base: the pretrained model without a base, if there is one alone.
    """
    import pandas as pd

    columns = ("label", "base", "stage", "seed", "role", "family")
    sides = [
        frame[[side, *(f"{name}_{side}" for name in columns)]].set_axis(["name", *columns], axis=1)
        for side in "xy"
    ]
    models = pd.concat(sides).dropna(subset="name").drop_duplicates("name")
    first = models[(models["stage"] == ORIG) & models["seed"].notna()]
    seeds = first.groupby("base", dropna=True)["seed"].nunique()
    restarted = set(seeds.index[seeds > 1])
    families: dict[str, set[str]] = {}
    for one in models[(models["stage"] == ORIG) & models["base"].notna()].itertuples(index=False):
        label = re.sub(rf"-{ORIG.upper()}(\[\d+\])?$", "", str(one.label))
        families.setdefault(str(one.base), set()).add(label)
    nameless = models.loc[(models["role"] == PRETRAINED) & models["base"].isna(), "label"].unique()
    unsaid = str(nameless[0]) if len(nameless) == 1 else ""
    return {
        str(one.name): _who(one, families, restarted, unsaid, task)
        for one in models.itertuples(index=False)
    }


def _who(
    one: Any, families: Mapping[str, set[str]], restarted: set[str], unsaid: str, task: str
) -> Who:
    import pandas as pd

    base = "" if pd.isna(one.base) else str(one.base)
    tuned = one.role == TUNED
    origin = root = base or (unsaid if tuned else str(one.label))
    # Labels of a sweep begin with the family: the name of the base, or the label in the sweep file.
    names = "|".join(map(re.escape, {base, base.rpartition("/")[2], *families.get(base, ())}))
    label = re.match(rf"(?:{names})(\[\d+\])?(?:-(.+))?-{FT.upper()}\b", str(one.label))
    number, tuned_on = label.groups() if tuned and label else (None, None)
    if number is not None:
        origin += number
    elif base in restarted and not pd.isna(one.seed):
        origin += f"[{one.seed}]"
    return Who(origin, str(one.family), tuned_on or task, root)
