"""The options of an alignment study, and its protocol: the options that results name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simlab.errors import UserError, argument
from simlab.experiments.options import (
    BOTH,
    DIRECTIONS,
    OURS,
    check_choice,
    check_counts,
    check_methods,
    check_training,
    check_truncation,
    truncation_choice,
)
from simlab.store.results import FITTED, LEARNT, WITHIN

PER_LAYER, SHARED = "per-layer", "shared"
MAPS = (PER_LAYER, SHARED)


@dataclass(frozen=True)
class StudyOptions:
    """Options of an alignment study.

    Attributes
    ----------
    name
        Name of this set of models in results.
    methods
        Names in `simcore.align.METHODS`.
    map
        ``per-layer``: every pair of layers has a map of its own. ``shared``: one map for all
        layers, fitted on the rows of all layers (layer i of X with layer i of Y), and judged on
        each layer.
    training
        How the maps that learn by gradient descent are trained, and ``pwcca`` cut: ``ours``, or
        ``ren2023`` as in `simcore.align.REN2023`.
    within
        Whether to align also every layer of each model with every other layer of that model.
    across_layers
        Whether to align also every layer of X with every layer of Y; in attention, every head of X
        with every head of Y.
    pairs
        Number of pairs of models to draw; None is all.
    pair_seed
        Seed of the drawn pairs.
    truncation
        Components that ``svcca`` keeps of each side: a share of the variance, or a count. None is
        .99 of the variance.
    directions
        ``both``, or ``one``: from the model that is given first to the other.
    heldout_share
        Share of the examples that maps are judged on, where no folders to judge on are given.
    rows
        Most rows that a map is fitted on, and most rows that it is judged on. A shared map is
        fitted on as many rows of every layer.
    at_once
        Number of maps that are trained in one batched loop.
    epochs
        Passes over the rows for maps that are trained; None is the default of `training`.
    steps
        Batches that maps learn from, in place of `epochs`. A shared map takes a step for each layer
        of a batch.
    seed
        Seed of the split and of maps that are trained.
    causal
        Whether to leave out the word pairs that decoders mask; for attention only.
    """

    name: str = "models"
    methods: tuple[str, ...] = ("inn",)
    map: str = PER_LAYER
    training: str = OURS
    within: bool = False
    across_layers: bool = False
    pairs: int | None = None
    pair_seed: int = 0
    truncation: float | int | None = None
    directions: str = BOTH
    heldout_share: float = 0.5
    rows: int = 20_000
    at_once: int = 16
    epochs: int | None = None
    steps: int | None = None
    seed: int = 0
    causal: bool = False

    def check(self) -> None:
        """Raise UserError if a method or choice is unknown, or a number is out of range."""
        check_methods(self.methods, FITTED)
        check_training(self.training)
        check_truncation(self.truncation, self.methods)
        check_choice(self, "map", MAPS)
        check_choice(self, "directions", DIRECTIONS)
        if not 0 < self.heldout_share < 1:
            raise UserError(
                f"{argument('heldout_share', self.heldout_share)}: wanted a share in (0, 1)"
            )
        if self.epochs is not None and self.steps is not None:
            raise UserError(
                f"{argument('epochs')}, {argument('steps')}: wanted one of them, found both"
            )
        check_counts(self, "rows", "epochs", "steps", "at_once", "pairs")

    def protocol(self, kind: str, method: str, judged: bool) -> dict[str, Any]:
        """Return the choices that the results of a part name, where they are not the default.

        Rows with the same protocol can be averaged; files of another protocol have other names.

        Parameters
        ----------
        kind
            `results.ALIGNMENT`, `WITHIN` or `ACROSS`.
        judged
            Whether maps are judged on folders of their own.
        """
        chosen: dict[str, Any] = {}
        if self.map != PER_LAYER:
            chosen["map"] = self.map
        if judged:
            chosen["judge"] = "folders"
        if self.training != OURS and method in (*LEARNT, "pwcca"):
            chosen["training"] = self.training
        if kind != WITHIN and self.pairs is not None:
            chosen |= {"pairs": self.pairs, "pair_seed": self.pair_seed}
        if kind != WITHIN and self.directions != BOTH:
            chosen["directions"] = self.directions
        return chosen | truncation_choice(self.truncation, method)
