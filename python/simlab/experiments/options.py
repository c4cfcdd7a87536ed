"""Checks of the options that experiments with maps have in common."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations
from typing import Any

import numpy as np

from simlab.errors import UserError
from simlab.store.results import LEARNT

# How maps that learn by gradient descent are trained: with the defaults of the aligners, or as in
# the code that Ren et al. 2023 published (`simcore.align.REN2023`).
OURS, REN2023 = "ours", "ren2023"
TRAININGS = (OURS, REN2023)
BOTH, ONE = DIRECTIONS = ("both", "one")


def map_params(
    method: str,
    *,
    training: str = OURS,
    epochs: int | None = None,
    steps: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the parameters of the aligner of `method`; empty for a closed form of ours.

    Parameters
    ----------
    training
        A name in `TRAININGS`.
    epochs, steps
        Passes over the rows, or batches, of maps that learn; None is the number of `training`.
    seed
        Seed of maps that learn.
    """
    from simcore.align import REN2023 as PUBLISHED

    params = dict(PUBLISHED.get(method, {})) if training == REN2023 else {}
    if method not in LEARNT:
        return params
    if epochs is not None:
        params |= {"max_epochs": epochs, "max_steps": None}
    if steps is not None:
        params |= {"max_steps": steps}
    return {**params, "seed": seed}


def check_training(name: str) -> None:
    """Raise UserError if training `name` is unknown."""
    if name not in TRAININGS:
        raise UserError(f"--training {name}: wanted {' or '.join(TRAININGS)}")


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


def drawn_pairs(
    names: Sequence[str], count: int | None, seed: int, directions: str
) -> list[tuple[str, str]]:
    """Return ordered pairs of models.

    Parameters
    ----------
    names
        The models.
    count
        Number of pairs to draw, without regard to direction; None is all.
    seed
        Seed of the draw.
    directions
        ``both``, or ``one``: from the model that is given first to the other.

    Raises
    ------
    UserError
        There are fewer pairs than wanted, or `directions` is unknown.
    """
    if directions not in DIRECTIONS:
        raise UserError(f"--directions {directions}: wanted {' or '.join(DIRECTIONS)}")
    kept = {frozenset(pair) for pair in some_of(list(combinations(names, 2)), count, seed)}
    ordered = combinations if directions == ONE else permutations
    return [(a, b) for a, b in ordered(names, 2) if frozenset((a, b)) in kept]


def some_of(
    pairs: Sequence[tuple[str, str]], count: int | None, seed: int
) -> list[tuple[str, str]]:
    """Return `count` of `pairs`, drawn with `seed`, in their order; all of them for None.

    Raises
    ------
    UserError
        There are no pairs, or fewer than wanted.
    """
    if not pairs:
        raise UserError("--pairs: wanted two models or more, found no pair of models")
    if count is None:
        return list(pairs)
    if not 1 <= count <= len(pairs):
        raise UserError(f"--pairs {count}: wanted 1 to {len(pairs)}, the pairs of these models")
    drawn = np.random.default_rng(seed).choice(len(pairs), count, replace=False)
    return [pairs[k] for k in sorted(drawn)]
