"""The options that experiments with maps have in common, and checks of options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np

from simlab.bounds import Count, FromZero, check_fields
from simlab.errors import UserError, argument, require_known
from simlab.store.results import LEARNT, TUNE_FROM

# How maps that learn by gradient descent are trained: with the defaults of the aligners, or as in
# the code that Ren et al. 2023 published (`simcore.align.REN2023`).
OURS, REN2023 = "ours", "ren2023"
TRAININGS = (OURS, REN2023)
SVCCA, SVCCA_KEEPS = "svcca", 0.99  # the share of the variance that its aligner keeps by default
PWCCA, MLP = "pwcca", "mlp"
BOTH, ONE = DIRECTIONS = ("both", "one")


@dataclass(frozen=True, kw_only=True)
class MapOptions:
    """Options of the maps that are fitted between the layers of two models.

    Attributes
    ----------
    training
        Training of inn, mlp and linear-gd, and cut of pwcca: ``ours``, or ``ren2023`` as in the
        code of Ren et al. 2023 (Adam, a rate of 1e-6 that falls by 1 % per batch, 3,000 batches of
        64 rows).
    truncation
        Components that svcca keeps: a share of the variance (0.99) or a count (20); None is 0.99.
    weight_share
        Share of the weights of all directions that pwcca keeps, 1 for all; None is 0.99, or that of
        the training.
    mlp_hidden
        Hidden units of mlp; 0 is as many as the states have columns; None is 512, or that of the
        training.
    epochs
        Most passes of inn, mlp and linear-gd over the rows; None is 100, or the steps of the
        training.
    steps
        Batches that inn, mlp and linear-gd learn from, in place of epochs.
    tune
        Settings to try for each method, from a list of at most eight: each is fitted on a part of
        the rows of the fit, and judged on the others; the best one fits the map on all of them.
        The first one has the other options; None is the first one, without a search.
    seed
        Seed of trained maps.
    """

    training: str = OURS
    truncation: float | int | None = None
    weight_share: float | None = None
    mlp_hidden: FromZero | None = None
    epochs: Count | None = None
    steps: Count | None = None
    tune: Count | None = None
    seed: FromZero = 0

    def check_maps(self, methods: Sequence[str], known: Sequence[str]) -> None:
        """Raise UserError if a method is not `known`, or an option is out of range or has no use.

        Parameters
        ----------
        methods
            The chosen methods; empty for the default methods.
        """
        check_fields(self)
        check_methods(methods, known)
        check_choice(self, "training", TRAININGS)
        if self.tune is not None and self.training != OURS:
            raise UserError(
                f"{argument('tune')}: wanted {argument('training', OURS)}, found {self.training}"
            )
        self._check_truncation(methods)
        for name, method in (("weight_share", PWCCA), ("mlp_hidden", MLP)):
            value = getattr(self, name)
            if value is not None and methods and method not in methods:
                raise UserError(
                    f"{argument(name, value)}: wanted {argument('methods', method)}, found "
                    f"{', '.join(methods)}"
                )
        share = self.weight_share
        if share is not None and not 0 < share <= 1:
            raise UserError(f"{argument('weight_share', share)}: wanted a share in (0, 1]")
        if self.epochs is not None and self.steps is not None:
            raise UserError(
                f"{argument('epochs')}, {argument('steps')}: wanted one of them, found both"
            )

    def _check_truncation(self, methods: Sequence[str]) -> None:
        truncation = self.truncation
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

    def params(self, method: str) -> dict[str, Any]:
        """Return the parameters of the aligner of `method`; empty for a closed form of ours."""
        from simcore.align import REN2023 as PUBLISHED

        params = dict(PUBLISHED.get(method, {})) if self.training == REN2023 else {}
        if method == SVCCA and self.truncation is not None:
            params["truncation"] = self.truncation
        if method == PWCCA and self.weight_share is not None:
            params["weight_share"] = self.weight_share
        if method == MLP and self.mlp_hidden is not None:
            params["hidden"] = self.mlp_hidden or None
        if method not in LEARNT:
            return params
        if self.epochs is not None:
            params |= {"max_epochs": self.epochs, "max_steps": None}
        if self.steps is not None:
            params |= {"max_steps": self.steps}
        return {**params, "seed": self.seed}

    def choices(self, method: str | None) -> dict[str, Any]:
        """Return the options of `method` that differ from the default, as results name them.

        Parameters
        ----------
        method
            None stands for all methods.
        """
        chosen: dict[str, Any] = {}
        if self.training != OURS and method in (None, PWCCA, *LEARNT):
            chosen["training"] = self.training
        if self.weight_share is not None and method in (None, PWCCA):
            chosen["weight_share"] = self.weight_share
        if self.mlp_hidden is not None and method in (None, MLP):
            chosen["mlp_hidden"] = self.mlp_hidden
        if self.truncation not in (None, SVCCA_KEEPS) and method in (None, SVCCA):
            chosen["truncation"] = self.truncation
        if self.tune is None:
            return chosen
        # The search may choose others; the rows name the chosen ones apart.
        words = ", ".join(f"{name} {choice}" for name, choice in chosen.items())
        return {"tune": self.tune} | ({TUNE_FROM: words} if words else {})


def check_methods(methods: Sequence[str], known: Sequence[str]) -> None:
    """Raise UserError if one of `methods` is not `known`, or comes twice."""
    for name in methods:
        require_known("methods", name, known)
    if len(set(methods)) < len(methods):
        raise UserError(f"{argument('methods')}: wanted each once, found {', '.join(methods)}")


def drawn_pairs(
    models: int, count: int | None, seed: int, directions: str, of: str = ""
) -> list[tuple[int, int]]:
    """Return the numbers of the models of every ordered pair.

    Pairs are drawn without regard to direction; `directions` ``one`` leads from the model that is
    given first to the other. `of` names the models in a message.
    """
    every = list(combinations(range(models), 2))
    sample = {every[k] for k in drawn(len(every), count, seed, of or f"{models} models")}
    ordered = combinations if directions == ONE else permutations
    return [(i, j) for i, j in ordered(range(models), 2) if (min(i, j), max(i, j)) in sample]


def drawn(pairs: int, count: int | None, seed: int, of: str) -> list[int]:
    """Return the numbers of `count` of the `pairs` pairs of `of`, drawn; of all for None."""
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
