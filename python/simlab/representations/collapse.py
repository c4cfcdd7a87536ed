"""Refuse rows that cannot be right: one row for all texts in every layer, though texts differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simlab.errors import UserError, argument
from simlab.models.vocabulary import letters, texts_of
from simlab.representations.kinds import CLS, Rows

if TYPE_CHECKING:
    from simlab.tasks import Examples

# Kinds with one row for each text. Words and tokens repeat, and attention may be uniform.
_KINDS = (CLS, "mean", "mean-all")
_ROUNDING = 16 * np.finfo(np.float32).eps


def require_other_tokens(kind: str, rows: Rows, examples: Examples, model: str) -> None:
    """Check that texts of different letters have different tokens, if `kind` has a row per text.

    Two texts may share their tokens. That all texts do shows a vocabulary that does not know them,
    or a limit of tokens within what they share; their rows would be the same.
    """
    if kind not in _KINDS or _differ(rows):
        return
    examples = examples.each_choice()
    texts = dict(zip(examples.ids, texts_of(examples), strict=True))
    written = {"".join(letters(texts[example])) for (example,) in rows.ids}
    if len(written - {""}) > 1:
        tokens = rows.encoded[0]["input_ids"]
        raise UserError(
            f"model {model}: wanted tokens that differ between texts, found the same {len(tokens)} "
            f"for all {len(rows.encoded):,} texts, whose letters differ; does its tokenizer know "
            f"their language, and does {argument('max_length')} reach to where they differ?"
        )


def _differ(rows: Rows) -> bool:
    """Return whether some text has other tokens than the first, whatever their order."""
    tokens = (sorted(example["input_ids"]) for example in rows.encoded)
    first = next(tokens, [])
    return any(one != first for one in tokens)


class SameRows:
    """Looks at the rows of every batch, and refuses an extraction whose texts have one row.

    A network that ignores the order of tokens, a text that is repeated, and a random twin, whose
    layers may pass nothing on, are none of these: texts count as different if their tokens do,
    whatever their order. The classifier token alone differs between texts only after a block.
    """

    def __init__(self, kind: str, random: bool, rows: Rows) -> None:
        self._kind = kind
        self._same = kind in _KINDS and not random and _differ(rows)
        self._first: dict[int, np.ndarray] = {}

    def see(self, layer: int, rows: np.ndarray) -> None:
        """Compare the rows [b, 1, p] of a layer of a batch with its first row."""
        if self._same:
            first = self._first.setdefault(layer, rows[:1, :1].copy())
            limit = _ROUNDING * np.abs(first).max()
            self._same = bool((np.abs(rows - first) <= limit).all())

    def refuse(self, model: str, texts: int) -> None:
        """Raise a UserError if all texts had the same row in every layer."""
        blocks = len(self._first) - 1
        if self._same and (blocks or self._kind != CLS):
            raise UserError(
                f"model {model}: wanted rows that differ between texts of different tokens, found "
                f"one row for all {texts:,} texts in every layer; do its weights belong to its "
                "configuration and tokenizer?"
            )
