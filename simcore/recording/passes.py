"""The state of one forward pass while it runs, and how the parts of a pass are joined."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from simcore.recording.axes import Trail
from simcore.recording.masks import PassMask


@dataclass
class Pass:
    """The rows of one forward pass, in the order in which outputs came."""

    number: int  # counts the passes that are recorded, from 0
    mask: PassMask
    # Name of the module and rows [r, p], for every call of a module.
    rows: list[tuple[str, Tensor]] = field(default_factory=list)
    device: torch.device | None = None  # of the first output
    is_part: bool = False  # whether other replicas of the model have the other examples of the pass
    # The layers that have shown the axes of their outputs; None if no layer need show them.
    trail: Trail | None = None
    # The number of examples, if the first tensor among the arguments has one for each row.
    examples: int | None = None
    # The length of the first axis of the states of each module, with which examples count.
    first_axes: dict[str, int] = field(default_factory=dict)
    # Modules that a glob matched and whose output has no row for each example.
    unfit: set[str] = field(default_factory=set)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the rows."""
        return sum(rows.nbytes for _, rows in self.rows)

    def named(self) -> dict[str, Tensor]:
        """Return the rows by name; a module called several times is ``name#0``, ``name#1``, ..."""
        calls, seen = Counter(name for name, _ in self.rows), Counter[str]()
        named = {}
        for name, rows in self.rows:
            named[f"{name}#{seen[name]}" if calls[name] > 1 else name] = rows
            seen[name] += 1
        return named


def merged(parts: Sequence[Pass]) -> Pass:
    """Return the one pass whose examples several replicas of a model shared."""
    first = parts[0]
    calls = [[name for name, _ in part.rows] for part in parts]
    if any(names != calls[0] for names in calls):
        raise ValueError("modules: wanted the same calls in every replica of the model, got others")
    rows = []
    for entry, (name, head) in enumerate(first.rows):
        tails = [part.rows[entry][1].to(head.device) for part in parts[1:]]
        rows.append((name, torch.cat([head, *tails]) if tails else head))
    return dataclasses.replace(first, rows=rows)


def cached_tokens(arguments: dict[str, Any]) -> int:
    """Return the number of tokens whose keys and values the call finds in its cache."""
    cache = arguments.get("past_key_values")
    if cache is None:
        return 0
    if hasattr(cache, "get_seq_length"):
        return int(cache.get_seq_length())
    try:  # tuples of keys and values [B, heads, T, p], as in older versions of transformers
        return int(cache[0][0].shape[-2])
    except (AttributeError, IndexError, TypeError):
        return 0


def new_tokens(arguments: dict[str, Any]) -> int:
    """Return the number of tokens that the call adds to its cache, 0 if it does not say."""
    for name in ("decoder_input_ids", "decoder_inputs_embeds", "input_ids", "inputs_embeds"):
        given = arguments.get(name)
        if isinstance(given, Tensor) and given.ndim >= 2:
            return given.shape[1]
    return 0


def first_length(arguments: dict[str, Any]) -> int | None:
    """Return the length of the first tensor among the arguments of a call: mostly its examples."""
    lengths = (len(value) for value in arguments.values() if _has_rows(value))
    return next(lengths, None)


def _has_rows(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0
