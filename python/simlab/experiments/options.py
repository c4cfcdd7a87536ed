"""The options of maps between layers, for `align_study` and `inject`; the search for a setting.

`StudyOptions.protocol` and `InjectOptions.protocol` return the options that rows of results name.

Ren et al. 2023 (section 4.4) tune every method on a validation set and do not say between which
settings. Here the settings of a method stand in a list, the default first. Maps with each of them
are fitted on a part of the rows of the fit, and judged on the others, which come from other
examples. The setting with the least relative error, averaged over the layers, fits the map anew on
all rows of the fit. The rows that maps are judged on at the end take no part in this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations, permutations
from typing import Any

import numpy as np

from simlab.bounds import Count, FromZero, Length, check_fields
from simlab.errors import UserError, argument, require_known
from simlab.representations.folder import MORE_ROWS
from simlab.results.results import (
    FITTED,
    IDENTITY,
    ITSELF,
    LEARNT,
    METHODS,
    RANDOM_CLASSIFIER,
    RANDOM_EMBEDDINGS,
    RANDOM_LABELS,
    TUNE_FROM,
    WITHIN,
)
from simlab.store.files import hash_json

OURS, REN2023 = TRAININGS = ("ours", "ren2023")
BOTH, ONE = DIRECTIONS = ("both", "one")
PAIRS, KEYS = ATTENTION_ROWS = ("pairs", "keys")
SVCCA_KEEPS = 0.99  # the share of the variance that its aligner keeps by default
# Options of one method: the method, and the name of the option in `simcore.align`.
_OF_METHOD = {
    "weight_share": ("pwcca", "weight_share"),
    "mlp_hidden": ("mlp", "hidden"),
    "truncation": ("svcca", "truncation"),
}
# The methods of table 5 of Ren et al. 2023, which are the default of an injection.
TABLE_5 = (
    *(ITSELF, IDENTITY, "linear", "cca", "pwcca", "mlp", "inn"),
    *(RANDOM_CLASSIFIER, RANDOM_EMBEDDINGS, RANDOM_LABELS),
)
SAME_WIDTH = (IDENTITY, "inn")
CLASSIFIER, ALL = TOKENS = ("cls", "all")
INJECTED, MEAN, MEAN_ALL = FIT_ON = ("tokens", "mean", "mean-all")
FIT_SIZE = 1600  # examples, as in the tables of Ren et al. 2023
_HASH_LETTERS = 8
VALIDATION_SHARE = 0.2  # of the examples of the fit
_LEARNT: tuple[dict[str, Any], ...] = ({"max_epochs": 300}, {"learning_rate": 5e-4})
SETTINGS: Mapping[str, Sequence[dict[str, Any]]] = {
    "linear": ({}, {"ridge": 1.0}, {"ridge": 10.0}, {"ridge": 100.0}, {"ridge": 1000.0}),
    "linear-gd": ({}, *_LEARNT, {"weight_decay": 0.1}, {"learning_rate": 1e-2}),
    "cca": ({},),
    "svcca": ({}, {"truncation": 0.999}, {"truncation": 0.95}, {"truncation": 0.9}),
    "pwcca": ({}, {"weight_share": 1.0}, {"weight_share": 0.95}, {"weight_share": 0.9}),
    "mlp": ({}, *_LEARNT, {"weight_decay": 0.1}, {"hidden": 128}, {"hidden": 1024}),
    "inn": (
        {},
        *_LEARNT,
        {"n_blocks": 8},
        {"n_blocks": 2},
        {"hidden": 64},
        {"hidden": 1024},
        {"weight_decay": 0.1},
    ),
}


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

    def check_maps(self, methods: Sequence[str], choices: Sequence[str]) -> None:
        """Raise UserError for a method that is not `known`, and an option that has no use."""
        check_fields(self)
        for name in methods:
            require_known("methods", name, choices)
        if len(set(methods)) < len(methods):
            raise UserError(f"{argument('methods')}: wanted each once, found {', '.join(methods)}")
        require_known("training", self.training, TRAININGS)
        if self.tune is not None and self.training != OURS:
            raise UserError(
                f"{argument('tune')}: wanted {argument('training', OURS)}, found {self.training}"
            )
        for name, (method, _) in _OF_METHOD.items():
            value = getattr(self, name)
            if value is not None and method not in methods:
                raise UserError(
                    f"{argument(name, value)}: wanted {argument('methods', method)}, found "
                    f"{', '.join(methods)}"
                )
        share, kept = self.weight_share, self.truncation
        if share is not None and not 0 < share <= 1:
            raise UserError(f"{argument('weight_share', share)}: wanted a share in (0, 1]")
        is_share = isinstance(kept, float) and 0 < kept <= 1
        if kept is not None and not is_share and not (isinstance(kept, int) and kept >= 1):
            raise UserError(
                f"{argument('truncation', kept)}: wanted a share of the variance (0.99) or a count "
                "(20)"
            )
        if self.epochs is not None and self.steps is not None:
            raise UserError(
                f"{argument('epochs')}, {argument('steps')}: wanted one of them, found both"
            )

    def params(self, method: str, setting: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of the aligner of `method`, of which a `setting` changes some."""
        from simcore.align import REN2023 as PUBLISHED

        params = dict(PUBLISHED.get(method, {})) if self.training == REN2023 else {}
        for name, (owner, parameter) in _OF_METHOD.items():
            if owner == method and (value := getattr(self, name)) is not None:
                params[parameter] = value or None  # 0 hidden units: as many as columns
        if method in LEARNT:
            if self.epochs is not None:
                params |= {"max_epochs": self.epochs, "max_steps": None}
            if self.steps is not None:
                params |= {"max_steps": self.steps}
            params["seed"] = self.seed
        return aligner_params(method, params | dict(setting))

    def choices(self, method: str | None) -> dict[str, Any]:
        """Return the options of `method`, or of all for None, that differ from the default."""
        chosen: dict[str, Any] = {}
        if self.training != OURS and method in (None, "pwcca", *LEARNT):
            chosen["training"] = self.training
        for name, (owner, _) in _OF_METHOD.items():
            default = SVCCA_KEEPS if name == "truncation" else None
            if method in (None, owner) and getattr(self, name) not in (None, default):
                chosen[name] = getattr(self, name)
        if self.tune is None:
            return chosen
        # The search may choose others; the rows name the chosen ones apart.
        words = ", ".join(f"{name} {choice}" for name, choice in chosen.items())
        return {"tune": self.tune} | ({TUNE_FROM: words} if words else {})


def aligner_params(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an aligner, of which those of its training make a `Training`."""
    from simcore.align import Training

    if method not in LEARNT:
        return dict(params)
    names = {field.name for field in fields(Training)}
    own = {name: value for name, value in params.items() if name not in names}
    changed = {name: value for name, value in params.items() if name in names}
    return {**own, "training": replace(own.get("training", Training()), **changed)}


@dataclass(frozen=True)
class StudyOptions(MapOptions):
    """Options of an alignment study.

    Attributes
    ----------
    name
        Name of this set of models in results, for example ``fine-tuned``.
    methods
        Methods: ``linear``, ``linear-gd``, ``cca``, ``svcca``, ``pwcca``, ``mlp`` or ``inn``.
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
        Most rows to fit a map on, and to judge it on.
    at_once
        Maps trained in one batched loop; fewer take less memory.
    seed
        Seed of the split and of trained maps.
    causal
        For attention: leave out word pairs that decoders mask.
    """

    name: str = "models"
    methods: tuple[str, ...] = ("inn",)
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
        require_known("attention_rows", self.attention_rows, ATTENTION_ROWS)
        require_known("directions", self.directions, DIRECTIONS)
        if not 0 < self.heldout_share < 1:
            raise UserError(
                f"{argument('heldout_share', self.heldout_share)}: wanted a share in (0, 1)"
            )

    def protocol(self, kind: str, method: str, judged: bool) -> dict[str, Any]:
        """Return the choices that rows of `kind` name, where they are not the default.

        Rows with the same protocol can be averaged; files of another protocol have other names.
        `judged` says whether maps are judged on folders of their own.
        """
        chosen: dict[str, Any] = {"judge": "folders"} if judged else {}
        if kind != WITHIN and self.pairs is not None:
            chosen |= {"pairs": self.pairs, "pair_seed": self.pair_seed}
        if kind != WITHIN and self.directions != BOTH:
            chosen["directions"] = self.directions
        if self.attention_rows != PAIRS:
            chosen["attention_rows"] = self.attention_rows
        return chosen | self.choices(method)


@dataclass(frozen=True)
class InjectOptions(MapOptions):
    """Options of an injection: the layer and tokens to replace, and the maps.

    Attributes
    ----------
    layer
        Layer; 0 is the embedding output; None is the last layer.
    methods
        Methods: ``itself``, ``identity``, ``linear``, ``linear-gd``, ``cca``, ``svcca``, ``pwcca``,
        ``mlp``, ``inn``, ``random-classifier``, ``random-embeddings`` or ``random-labels``; None is
        all except svcca and linear-gd, without identity and inn between models of different
        widths, and without random-classifier where the model before the fine-tuning of B cannot be
        found.
    tokens
        Tokens to replace: ``cls``, the classifier token, or ``all``.
    fit_on
        Rows that the maps are fitted on: ``tokens``, the tokens of the training texts that would be
        replaced; ``mean``, the mean over the tokens of each text; or ``mean-all``, over special
        tokens too. The maps are applied to single tokens in any case.
    fit_size
        Training examples that the maps are fitted on.
    max_length
        Tokens kept per example; None is as in the fine-tuning of model B, else 64.
    seed
        Seed of trained maps, and of random heads, states and labels.
    original
        Model before the fine-tuning of B, for ``random-classifier``; None is the model that the
        checkpoint names.
    """

    layer: int | None = None
    methods: tuple[str, ...] | None = None
    tokens: str = CLASSIFIER
    fit_on: str = INJECTED
    fit_size: Count = FIT_SIZE
    max_length: Length | None = None
    original: str | None = None

    def check(self) -> None:
        """Raise UserError if a name is unknown, or a number is out of range."""
        self.check_maps(TABLE_5 if self.methods is None else self.methods, METHODS)
        require_known("tokens", self.tokens, TOKENS)
        require_known("fit_on", self.fit_on, FIT_ON)

    def protocol(self, method: str | None = None) -> dict[str, Any]:
        """Return the choices that rows of one method name, or of all methods for None."""
        # Rows of earlier versions may have another value: A's layers, and B's classifier alone.
        return {"fit_on": self.fit_on, "continue_with": "model", **self.choices(method)}


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


def file_name(parts: Sequence[str], protocol: Mapping[str, Any]) -> str:
    """Return the name of a file of results: readable words, and a hash.

    Without the hash, the labels `FT[1]` and `FT-1` would give the same name.
    """
    parts = [*parts, *(f"{name} {value}" for name, value in protocol.items())]
    readable = "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-") for part in parts)
    return f"{readable}-{hash_json(parts)[:_HASH_LETTERS]}.parquet"


def third_split(example: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of rows of the fit to fit on, and of rows to validate on.

    `example` is the example of each row, int64 [n]; no example has rows in both.
    """
    names = np.unique(example)
    count = round(VALIDATION_SHARE * len(names))
    if min(count, len(names) - count) < 2:
        raise UserError(
            f"{argument('tune')}: wanted 2 examples or more to validate on, found {count} of "
            f"{len(names)}; {MORE_ROWS}"
        )
    draw = np.random.default_rng([seed, 1])
    validation = np.isin(example, draw.permutation(names)[:count])
    return np.flatnonzero(~validation), np.flatnonzero(validation)


def best_setting(
    settings: Sequence[dict[str, Any]], errors: Callable[[dict[str, Any]], Sequence[float]]
) -> dict[str, Any]:
    """Return the setting with the least mean error; of equal ones, the first.

    ``errors`` gives the errors of a setting, of every pair. A pair without a finite error under one
    setting counts against this setting before all means; a pair without one under any setting
    counts for nothing.
    """
    if len(settings) == 1:
        return settings[0]
    table = np.array([errors(setting) for setting in settings], dtype=np.float64)
    lost = ~np.isfinite(table)  # [settings, pairs]
    counts = np.maximum((~lost).sum(1), 1)
    means = np.where(lost, 0, table).sum(1) / counts
    return settings[min(range(len(settings)), key=lambda k: (lost[k].sum(), means[k]))]
