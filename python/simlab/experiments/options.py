"""Checks of the options that experiments with maps have in common."""

from __future__ import annotations

from collections.abc import Sequence

from simlab.errors import UserError


def check_methods(methods: Sequence[str], known: Sequence[str]) -> None:
    """Raise UserError if one of `methods` is not `known`, or comes twice."""
    for name in methods:
        if name not in known:
            raise UserError(f"--method {name}: wanted one of {', '.join(known)}")
    if len(set(methods)) < len(methods):
        raise UserError(f"--method: wanted each once, found {', '.join(methods)}")


def check_counts(options: object, *names: str) -> None:
    """Raise UserError if a field of `options` in `names` is below 1; None is allowed."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UserError(f"--{name.replace('_', '-')}: wanted at least 1, found {value}")
