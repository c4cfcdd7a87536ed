"""What the labels of models say: which models are fine-tuned, and from which base model.

A label with the word FT (FT[1], ft-1, roberta-rte FT[2]) is that of a fine-tuned model, and a label
with the word ORIG is that of a pretrained model; patterns of the user count more. Other labels get
their role from grids with the names of Phang et al. 2021, figure 1: in a grid FT-ORIG, x is
fine-tuned and y is pretrained.

What remains of a label without that word, its number and the task is the name of the base model
(roberta). If families are given, a model's family is its base. Models whose labels do not name a
base share one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from simlab.evidence.options import ClaimOptions
from simlab.store.labels import without_task

TUNED, PRETRAINED = "fine-tuned", "pretrained"
UNTRAINED = "RANDOM"  # labels of untrained models begin with this word
_ROLES = {"FT": TUNED, "ORIG": PRETRAINED}
_NUMBER = r"(?:\[[^\]]*\]|[-_ ]?\d+)?"
_FIGURE_1 = re.compile(rf"(FT|ORIG){_NUMBER}-(FT|ORIG){_NUMBER}")
_WORD = re.compile(rf"(?<![A-Za-z0-9])(FT|ORIG){_NUMBER}(?![A-Za-z0-9])", re.IGNORECASE)


def roles_of(pairs: Iterable[tuple[str, str, str | None]], options: ClaimOptions) -> dict[str, str]:
    """Return the role of each label: `TUNED`, `PRETRAINED` or "".

    Parameters
    ----------
    pairs
        Comparison and labels of rows, in the order of the results; the second label may be None.
    """
    pairs = list(pairs)
    labels = dict.fromkeys(label for _, *both in pairs for label in both if label is not None)
    roles = {label: _role(label, options) for label in labels}
    for comparison, *both in pairs:
        found = _FIGURE_1.fullmatch(comparison)
        # A grid in the other direction follows under the same name: the first role counts.
        for label, word in zip(both, found.groups() if found else (), strict=False):
            if label is not None:
                roles[label] = roles[label] or _ROLES[word]
    return roles


def base_of(label: str, task: str, options: ClaimOptions) -> str:
    """Return the name of the base model of a fine-tuned or pretrained model; "" if it has none."""
    family = options.family(label)
    if family is not None:
        return family
    if not _WORD.search(label):
        return ""
    return re.sub(r"[-_ ./]+", "-", _WORD.sub("", without_task(label, task))).strip("-")


def _role(label: str, options: ClaimOptions) -> str:
    for pattern, role in ((options.tuned, TUNED), (options.pretrained, PRETRAINED)):
        if pattern is not None and fnmatchcase(label, pattern):
            return role
    found = _WORD.search(label)
    return _ROLES[found[1].upper()] if found else ""
