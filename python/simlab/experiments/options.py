"""Checks of the options that experiments with maps have in common."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations
from typing import Any

import numpy as np

from simlab.errors import UserError, argument, require_known
from simlab.store.results import LEARNT

# How maps that learn by gradient descent are trained: with the defaults of the aligners, or as in
# the code that Ren et al. 2023 published (`simcore.align.REN2023`).
OURS, REN2023 = "ours", "ren2023"
TRAININGS = (OURS, REN2023)
SVCCA, SVCCA_KEEPS = "svcca", 0.99  # the share of the variance that its aligner keeps by default
# Options that experiments pass to `map_params`.
MAP_OPTIONS = ("training", "epochs", "steps", "truncation", "weight_share", "mlp_hidden")
PWCCA, MLP = "pwcca", "mlp"
BOTH, ONE = DIRECTIONS = ("both", "one")


def map_params(
    method: str,
    *,
    training: str = OURS,
    epochs: int | None = None,
    steps: int | None = None,
    truncation: float | int | None = None,
    weight_share: float | None = None,
    mlp_hidden: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the parameters of the aligner of `method`; empty for a closed form of ours.

    Parameters
    ----------
    training
        A name in `TRAININGS`.
    epochs, steps
        Passes over the rows, or batches, of maps that learn; None is the number of `training`.
    truncation
        Components that ``svcca`` keeps; None is the default of its aligner.
    weight_share
        Share of the weights that ``pwcca`` keeps; None is that of `training`.
    mlp_hidden
        Hidden units of ``mlp``; 0 is as many as the columns of X, None those of `training`.
    seed
        Seed of maps that learn.
    """
    from simcore.align import REN2023 as PUBLISHED

    params = dict(PUBLISHED.get(method, {})) if training == REN2023 else {}
    if method == SVCCA and truncation is not None:
        params["truncation"] = truncation
    if method == PWCCA and weight_share is not None:
        params["weight_share"] = weight_share
    if method == MLP and mlp_hidden is not None:
        params["hidden"] = mlp_hidden or None
    if method not in LEARNT:
        return params
    if epochs is not None:
        params |= {"max_epochs": epochs, "max_steps": None}
    if steps is not None:
        params |= {"max_steps": steps}
    return {**params, "seed": seed}


def check_truncation(truncation: float | int | None, methods: Sequence[str]) -> None:
    """Raise UserError if there is no ``svcca`` to truncate, or if the number is out of range."""
    if truncation is None:
        return
    if SVCCA not in methods:
        raise UserError(
            f"{argument('truncation', truncation)}: wanted {argument('methods', SVCCA)}, which "
            f"alone keeps components, found {', '.join(methods) or 'the default methods'}"
        )
    is_share = isinstance(truncation, float) and 0 < truncation <= 1
    if not is_share and not (isinstance(truncation, int) and truncation >= 1):
        raise UserError(
            f"{argument('truncation', truncation)}: wanted a share of the variance (0.99) or a "
            "count (20)"
        )


def truncation_choice(truncation: float | int | None, method: str | None) -> dict[str, Any]:
    """Return the truncation as results name it; nothing if it is the default or does not apply."""
    applies = method in (None, SVCCA) and truncation not in (None, SVCCA_KEEPS)
    return {"truncation": truncation} if applies else {}


def check_map_options(
    weight_share: float | None, mlp_hidden: int | None, methods: Sequence[str]
) -> None:
    """Raise UserError for options of methods that are not chosen, or out of range."""
    for name, value, method in (
        ("weight_share", weight_share, PWCCA),
        ("mlp_hidden", mlp_hidden, MLP),
    ):
        if value is not None and methods and method not in methods:
            raise UserError(
                f"{argument(name, value)}: wanted {argument('methods', method)}, found "
                f"{', '.join(methods)}"
            )
    if weight_share is not None and not 0 < weight_share <= 1:
        raise UserError(f"{argument('weight_share', weight_share)}: wanted a share in (0, 1]")


def map_choices(
    weight_share: float | None, mlp_hidden: int | None, method: str | None
) -> dict[str, Any]:
    """Return the options of pwcca and mlp as results name them; nothing where none is given."""
    chosen: dict[str, Any] = {}
    if weight_share is not None and method in (None, PWCCA):
        chosen["weight_share"] = weight_share
    if mlp_hidden is not None and method in (None, MLP):
        chosen["mlp_hidden"] = mlp_hidden
    return chosen


def check_training(name: str) -> None:
    """Raise UserError if training `name` is unknown."""
    if name not in TRAININGS:
        raise UserError(f"{argument('training', name)}: wanted {' or '.join(TRAININGS)}")


def check_methods(methods: Sequence[str], known: Sequence[str]) -> None:
    """Raise UserError if one of `methods` is not `known`, or comes twice."""
    for name in methods:
        require_known("methods", name, known)
    if len(set(methods)) < len(methods):
        raise UserError(f"{argument('methods')}: wanted each once, found {', '.join(methods)}")


def check_counts(options: object, *names: str) -> None:
    """Raise UserError if a field of `options` in `names` is below 1; None is allowed."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UserError(f"{argument(name)}: wanted at least 1, found {value}")


def drawn_pairs(
    models: int, count: int | None, seed: int, directions: str, of: str = ""
) -> list[tuple[int, int]]:
    """Return the numbers of the models of every ordered pair.

    Parameters
    ----------
    models
        Number of models.
    count
        Number of pairs to draw, without regard to direction; None is all.
    seed
        Seed of the draw.
    directions
        ``both``, or ``one``: from the model that is given first to the other.
    of
        The models in a few words, for messages.

    Raises
    ------
    UserError
        There are fewer pairs than wanted.
    """
    every = list(combinations(range(models), 2))
    sample = {every[k] for k in drawn(len(every), count, seed, of or f"{models} models")}
    ordered = combinations if directions == ONE else permutations
    return [(i, j) for i, j in ordered(range(models), 2) if (min(i, j), max(i, j)) in sample]


def drawn(pairs: int, count: int | None, seed: int, of: str) -> list[int]:
    """Return the numbers of `count` of the `pairs` pairs of `of`, drawn; of all for None.

    Raises
    ------
    UserError
        There are fewer pairs than wanted.
    """
    if count is None:
        return list(range(pairs))
    if not 1 <= count <= pairs:
        more = f"; {argument('pairs', pairs)} takes all" if count > pairs > 0 else ""
        raise UserError(f"{argument('pairs', count)}: wanted 1 to {pairs}, the pairs of {of}{more}")
    draw = np.random.default_rng(seed)
    return sorted(draw.choice(pairs, count, replace=False).tolist())


def check_choice(options: object, name: str, known: Sequence[str]) -> None:
    """Raise UserError if field `name` of `options` is not `known`."""
    if (value := getattr(options, name)) not in known:
        wanted = f"{', '.join(known[:-1])} or {known[-1]}"
        raise UserError(f"{argument(name, value)}: wanted {wanted}")
