"""The measures that the pages of docs/measures show: each with its options, page and rows.

A `Variant` is one measure with its options. `VARIANTS` lists them in the order of the table of all
measures. What `simcore grid` can compute comes from `simlab.similarity.catalogue`; the rest are
functions of simcore alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

import simcore
from simlab.similarity.catalogue import MEASURES, Measure

BATCHES = 4


@dataclass(frozen=True, eq=False)
class Variant:
    """A measure with its options.

    Attributes
    ----------
    label
        Name of the variant, as the table of its page has it.
    page
        Name of its page below docs/measures.
    measure, options
        Name in the catalogue, and options as the rows of the identification study have them;
        ``""`` and none for a function that is no measure of `simcore grid`.
    grid
        The grid function, for measures that are not in the catalogue.
    traits
        What the catalogue would say of these.
    kind
        What is compared: ``layers``, ``attention`` or ``predictions``.
    job
        Job of `bench` that times it.
    least
        Changes of the value that are smaller are rounding, in units of the largest change.
    """

    label: str
    page: str
    measure: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    grid: Callable[..., Any] | None = None
    traits: Measure | None = None
    kind: str = "layers"
    job: str = ""
    least: float = 1e-8

    @property
    def known(self) -> Measure:
        """What is known of the measure: symmetry, range, whether it is a distance."""
        return MEASURES[self.measure] if self.measure else self.traits  # type: ignore[return-value]

    def __call__(self, x: Sequence[Any], y: Sequence[Any] | None = None) -> np.ndarray:
        """Return the grid of layers ``x`` with ``y``, or with each other."""
        sides = (x,) if y is None else (x, y)
        if self.grid is not None:
            return np.asarray(self.grid(*sides))
        known = self.known
        return np.asarray(getattr(simcore, known.function)(*sides, **known.fixed, **self.options))


def minibatch_cka(layers: Sequence[np.ndarray]) -> np.ndarray:
    """Return CKA from batches of consecutive rows."""
    metric = simcore.MinibatchCKA(len(layers))
    for rows in np.array_split(np.arange(len(layers[0])), BATCHES):
        metric.update([layer[rows] for layer in layers])
    return np.asarray(metric.compute())


def _other(summary: str, **traits: Any) -> Measure:
    return Measure(function="", summary=summary, label="", **traits)


def _cka(kernel: str, estimator: str, job: str) -> Variant:
    options = {"kernel": kernel, "estimator": estimator}
    name = {"linear": "linear", "rbf": "RBF"}[kernel]
    return Variant(f"CKA ({name}, {estimator})", "cka", "cka", options, job=job)


VARIANTS = (
    _cka("linear", "biased", "cka13"),
    _cka("linear", "unbiased", "unbiased13"),
    _cka("rbf", "biased", "rbf13"),
    _cka("rbf", "unbiased", ""),
    Variant(
        "minibatch CKA",
        "cka",
        grid=minibatch_cka,
        traits=_other("CKA from batches", lowest=-1.0),
    ),
    Variant(
        "HSIC",
        "cka",
        grid=simcore.hsic_grid,
        traits=_other("the numerator of CKA", highest=inf),
    ),
    Variant("CCA (mean)", "cca", "cca", {"reduction": "mean"}, job="cca13"),
    Variant("CCA (R²)", "cca", "cca", {"reduction": "r2"}, job="cca_r2_13"),
    Variant("SVCCA", "cca", "svcca", job="svcca13"),
    Variant("PWCCA", "pwcca", "pwcca", job="pwcca13"),
    Variant("linear regression R²", "linreg", "linreg", job="linreg13"),
    Variant("Procrustes", "procrustes", "procrustes", job="procrustes13"),
    Variant(
        "Procrustes distance", "procrustes", "procrustes-distance", job="procrustes_distance13"
    ),
    Variant("Procrustes angle", "procrustes", "procrustes-angular", job="procrustes_angular13"),
    Variant("size-and-shape distance", "procrustes", "size-and-shape", job="size_and_shape13"),
    Variant("RSA (Pearson)", "rsa", "rsa", {"correlation": "pearson"}, job="rsa13"),
    Variant("RSA (Spearman)", "rsa", "rsa", {"correlation": "spearman"}, job="rsa_spearman13"),
    Variant(
        "RSM difference (Frobenius)",
        "rsm-difference",
        "rsm-difference",
        {"norm": "frobenius"},
        job="rsm_difference13",
    ),
    Variant(
        "RSM difference (spectral)",
        "rsm-difference",
        "rsm-difference",
        {"norm": "spectral"},
        job="rsm_spectral13",
    ),
    Variant(
        "distance correlation",
        "distance-correlation",
        "distance-correlation",
        job="distance_correlation13",
    ),
    Variant(
        "mutual k-NN (cosine)", "neighbours", "knn-mutual", {"metric": "cosine"}, job="mutual13"
    ),
    Variant("mutual k-NN (Euclidean)", "neighbours", "knn-mutual", {"metric": "euclidean"}),
    Variant("Jaccard k-NN", "neighbours", "knn-jaccard", job="jaccard13"),
    Variant("rank k-NN", "neighbours", "knn-rank", job="rank13"),
    Variant("second-order cosine", "neighbours", "knn-second-order", job="second_order13"),
    Variant("CKNNA", "cknna", "cknna", job="cknna13"),
    Variant("soft correlation match", "matching", "match-soft", job="soft_match13"),
    Variant("hard correlation match", "matching", "match-hard", job="hard_match13"),
    Variant("soft matching", "matching", "match-transport", job="soft_matching13"),
    Variant(
        "soft-matching distance", "matching", "transport-distance", job="soft_matching_distance13"
    ),
    Variant(
        "permutation Procrustes",
        "matching",
        "permutation-procrustes",
        job="permutation_procrustes13",
    ),
    Variant("permutation angle", "matching", "permutation-angular", job="permutation_angular13"),
    Variant("aligned cosine", "aligned-cosine", "aligned-cosine", job="aligned_cosine13"),
    Variant("cosine of rows", "cosine", "cosine", job="cosine13"),
    Variant("angle of rows", "cosine", "angular", job="angular13"),
    Variant("GULP (ridge 0)", "gulp", "gulp", {"ridge": 0.0}),
    Variant("GULP (ridge 0.01)", "gulp", "gulp", {"ridge": 0.01}, job="gulp13"),
    Variant(
        "eigenspace overlap", "eigenspace-overlap", "eigenspace-overlap", job="eigenspace_overlap13"
    ),
    Variant("magnitude difference", "descriptors", "magnitude", job="magnitude13"),
    Variant("concentricity difference", "descriptors", "concentricity", job="concentricity13"),
    Variant("uniformity difference", "descriptors", "uniformity", job="uniformity13"),
    Variant("IMD", "imd", "imd", job="imd13"),
    Variant("neuronsim", "neurons", "neuronsim", job="neuronsim13"),
    Variant("mixedsim", "neurons", "mixedsim", job="mixedsim13"),
    Variant("attention, Jensen–Shannon", "attention", "attention-js", kind="attention", job="js12"),
    Variant(
        "attention, Pearson", "attention", "attention-pearson", kind="attention", job="pearson12"
    ),
    Variant(
        "attention, Frobenius",
        "attention",
        "attention-frobenius",
        kind="attention",
        job="frobenius12",
    ),
    Variant(
        "disagreement",
        "predictions",
        grid=simcore.disagreement_grid,
        job="disagreement13",
        traits=_other("share of different labels", distance=True),
        kind="predictions",
    ),
    Variant(
        "output divergence",
        "predictions",
        grid=simcore.output_divergence_grid,
        job="output_divergence13",
        traits=_other("mean Jensen-Shannon divergence", distance=True),
        kind="predictions",
    ),
)
BY_LABEL = {variant.label: variant for variant in VARIANTS}


@functools.cache
def of_page(page: str) -> tuple[Variant, ...]:
    """Return the variants that a page shows, in its order."""
    return tuple(variant for variant in VARIANTS if variant.page == page)
