"""The options of an alignment study, and its protocol: the options that results name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simlab.bounds import Count, FromZero
from simlab.errors import UserError, argument
from simlab.experiments.options import BOTH, DIRECTIONS, MapOptions, check_choice
from simlab.store.results import FITTED, WITHIN

PER_LAYER, SHARED = "per-layer", "shared"
MAPS = (PER_LAYER, SHARED)
PAIRS, KEYS = ATTENTION_ROWS = ("pairs", "keys")


@dataclass(frozen=True)
class StudyOptions(MapOptions):
    """Options of an alignment study.

    Attributes
    ----------
    name
        Name of this set of models in results, for example ``fine-tuned``.
    methods
        Methods: ``linear``, ``linear-gd``, ``cca``, ``svcca``, ``pwcca``, ``mlp`` or ``inn``.
    map
        ``per-layer``: every pair of layers has a map of its own. ``shared``: one map for all
        layers, fitted on the rows of all layers (layer i of X with layer i of Y), and judged on
        each layer.
    within
        Align the layers of each model with each other too.
    across_layers
        Align every layer of one model with every layer of the other too; in attention, every head
        with every head.
    pairs
        Pairs of models to draw; None is all.
    pair_seed
        Seed of the drawn pairs.
    attention_rows
        Rows of attention: ``pairs`` of words, with a column for each head; or ``keys``: a map for
        each head and its counterpart, whose rows are texts, with the mean weight that each word
        receives.
    directions
        Each pair in ``both`` directions, or in ``one``: from the model that is given first.
    heldout_share
        Share of the examples that the maps are judged on, where no folders to judge on are given.
    rows
        Most rows to fit a map on, and to judge it on. A shared map is fitted on as many rows of
        every layer.
    at_once
        Maps trained in one batched loop; fewer take less memory.
    steps
        Batches that inn, mlp and linear-gd learn from, in place of epochs. A shared map takes a
        step for each layer of a batch.
    seed
        Seed of the split and of trained maps.
    causal
        For attention: leave out word pairs that decoders mask.
    """

    name: str = "models"
    methods: tuple[str, ...] = ("inn",)
    map: str = PER_LAYER
    within: bool = False
    across_layers: bool = False
    pairs: Count | None = None
    pair_seed: FromZero = 0
    attention_rows: str = PAIRS
    directions: str = BOTH
    heldout_share: float = 0.5
    rows: Count = 20_000
    at_once: Count = 16
    causal: bool = False

    def check(self) -> None:
        """Raise UserError if a method or choice is unknown, or a number is out of range."""
        self.check_maps(self.methods, FITTED)
        check_choice(self, "map", MAPS)
        check_choice(self, "attention_rows", ATTENTION_ROWS)
        check_choice(self, "directions", DIRECTIONS)
        if not 0 < self.heldout_share < 1:
            raise UserError(
                f"{argument('heldout_share', self.heldout_share)}: wanted a share in (0, 1)"
            )

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
        if kind != WITHIN and self.pairs is not None:
            chosen |= {"pairs": self.pairs, "pair_seed": self.pair_seed}
        if kind != WITHIN and self.directions != BOTH:
            chosen["directions"] = self.directions
        if self.attention_rows != PAIRS:
            chosen["attention_rows"] = self.attention_rows
        return chosen | self.choices(method)
