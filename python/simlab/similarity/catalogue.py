"""The table of all measures that ``simcore grid`` computes.

A `Measure` names a grid function of `simcore` and holds its options, the kinds of input that it
takes, its symmetry and the range of its values. The value of a layer with itself is 1, or 0 for
measures that are distances, where it is defined; only `attention-pearson` counts constant rows as
0. This module imports nothing from `simcore`, so that help texts and figures, which need names and
ranges only, load no numerics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, log, pi, sqrt
from typing import Any

from simlab.errors import UserError, did_you_mean
from simlab.similarity.options import BOTH, OPTIONS


@dataclass(frozen=True)
class Measure:
    """A measure of similarity or of distance.

    Attributes
    ----------
    function, fixed
        Name of the grid function in `simcore`, and its arguments that belong to this measure.
    summary, label
        Description for the help, and label for the axis of a figure.
    options
        Names and defaults of the options that the user may set.
    takes_representations, takes_attention
        Kinds of input. A measure of representations takes attention as the [word pairs, heads]
        matrix of `simcore.distributed_attention`.
    symmetric
        Whether the value of X against Y equals the value of Y against X.
    lowest, highest
        The least and the greatest possible value.
    distance
        Whether the value of a layer with itself is 0, and large values mean unlike layers.
    paired
        Whether values depend on which rows of two layers belong together: if not, no permutation
        test is possible.
    """

    function: str
    summary: str
    label: str
    options: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    takes_representations: bool = True
    takes_attention: bool = False
    symmetric: bool = True
    lowest: float = 0.0
    highest: float = 1.0
    distance: bool = False
    paired: bool = True


_CKA = {"estimator": BOTH, "kernel": "linear", "bandwidth": 1.0, "causal": False}
_TOP = {"top_k": None}
_LATER = {"pwcca": ("standardize",)}  # options of measures that earlier versions had without
_ATTENTION: dict[str, Any] = {
    "function": "attention_grid",
    "options": {"causal": False},
    "takes_representations": False,
    "takes_attention": True,
    "symmetric": False,
}
_MATCHED: dict[str, Any] = {"function": "matching_grid", "distance": True}
_MATCHING = {
    "match-soft": Measure(
        "matching_grid",
        "each neuron with its best neuron of the other layer, signed, both directions",
        "soft correlation match",
        fixed={"matching": "best"},
        lowest=-1.0,
    ),
    "match-hard": Measure(
        "matching_grid",
        "mean correlation of neurons that are assigned one to one",
        "hard correlation match",
        lowest=-1.0,
    ),
    "match-transport": Measure(
        "matching_grid",
        "correlation of neurons under the optimal transport plan (needs the package POT)",
        "soft matching",
        fixed={"matching": "transport"},
        lowest=-1.0,
    ),
    "transport-distance": Measure(
        summary="the same as a distance of neurons that are not centred",
        label="soft-matching distance",
        fixed={"matching": "transport", "score": "distance"},
        highest=inf,
        **_MATCHED,
    ),
    "permutation-procrustes": Measure(
        summary="distance after the best permutation of neurons",
        label="permutation Procrustes",
        fixed={"score": "distance"},
        highest=inf,
        **_MATCHED,
    ),
    "permutation-angular": Measure(
        summary="angle after the best permutation of neurons",
        label="permutation angle",
        fixed={"score": "angular"},
        highest=pi,
        **_MATCHED,
    ),
    "aligned-cosine": Measure(
        "aligned_cosine_grid",
        "mean cosine of the rows after the best rotation",
        "aligned cosine",
        lowest=-1.0,
    ),
    "imd": Measure(
        "imd_grid",
        "distance of the heat traces of the layers' graphs of neighbours",
        "IMD",
        highest=inf,  # exp(-4), far above what layers reach: colours begin at the largest found
        distance=True,
        paired=False,
    ),
}
_KNN: dict[str, Any] = {"function": "knn_grid", "options": {"k": 10, "metric": "cosine"}}
_NEIGHBOURS = {
    "knn-mutual": Measure(
        summary="share of the k nearest rows that two layers have in common",
        label="mutual k-NN",
        fixed={"measure": "mutual"},
        **_KNN,
    ),
    "knn-jaccard": Measure(
        summary="the same, over the rows that are nearest in either layer",
        label="Jaccard k-NN",
        fixed={"measure": "jaccard"},
        **_KNN,
    ),
    "knn-rank": Measure(
        summary="agreement of the ranks of common nearest rows",
        label="rank k-NN",
        fixed={"measure": "rank"},
        **_KNN,
    ),
    "knn-second-order": Measure(
        "knn_grid",
        "cosine of the distances to the rows that are nearest in either layer",
        "second-order cosine",
        {"k": 10},
        fixed={"measure": "second-order"},
    ),
    "cknna": Measure(
        "cknna_grid",
        "kernel alignment of the nearest rows that two layers have in common",
        "CKNNA",
        {"k": 10, "estimator": "unbiased"},
        symmetric=False,
        lowest=-1.0,
    ),
}
_DESCRIPTOR: dict[str, Any] = {"function": "descriptor_grid", "distance": True, "paired": False}
_DISTANCES = {
    "procrustes-distance": Measure(
        "procrustes_grid",
        "orthogonal Procrustes distance of layers of unit norm",
        "Procrustes distance",
        fixed={"form": "distance"},
        highest=sqrt(2),
        distance=True,
    ),
    "procrustes-angular": Measure(
        "procrustes_grid",
        "the same as an angle",
        "Procrustes angle",
        fixed={"form": "angular"},
        highest=pi / 2,
        distance=True,
    ),
    "size-and-shape": Measure(
        "procrustes_grid",
        "the same without scaling the layers",
        "size-and-shape distance",
        fixed={"form": "size-and-shape"},
        highest=inf,
        distance=True,
    ),
    "distance-correlation": Measure(
        "distance_correlation_grid",
        "correlation of the distances between rows",
        "distance correlation",
    ),
    "rsm-difference": Measure(
        "rsm_difference_grid",
        "norm of the difference of the distances between rows",
        "RSM difference",
        {"norm": "frobenius"},
        highest=inf,
        distance=True,
    ),
    "gulp": Measure(
        "gulp_grid",
        "how far the predictions of ridge regressions on X and on Y are apart",
        "GULP",
        {"ridge": 0.0},
        highest=inf,
        distance=True,
    ),
    "eigenspace-overlap": Measure(
        "eigenspace_overlap_grid",
        "overlap of the spaces that the columns span",
        "eigenspace overlap",
    ),
    "cosine": Measure(
        "cosine_grid",
        "mean cosine of the rows of layers of one width",
        "cosine of rows",
        lowest=-1.0,
    ),
    "angular": Measure(
        "cosine_grid",
        "mean angle of the rows of layers of one width, over pi",
        "angle of rows",
        fixed={"form": "angular"},
        distance=True,
    ),
    "magnitude": Measure(
        summary="difference of the lengths of the mean rows",
        label="magnitude difference",
        fixed={"descriptor": "magnitude"},
        highest=inf,
        **_DESCRIPTOR,
    ),
    "concentricity": Measure(
        summary="difference of the mean cosines to the mean row",
        label="concentricity difference",
        fixed={"descriptor": "concentricity"},
        highest=2.0,
        **_DESCRIPTOR,
    ),
    "uniformity": Measure(
        summary="difference of the logarithms of the mean of exp(-2 distance²)",
        label="uniformity difference",
        fixed={"descriptor": "uniformity"},
        highest=inf,
        **_DESCRIPTOR,
    ),
}
MEASURES = {
    "cka": Measure(
        "cka_grid", "centred kernel alignment", "CKA", _CKA, takes_attention=True, lowest=-1.0
    ),
    "cca": Measure(
        "cca_grid",
        "mean canonical correlation",
        "mean CCA",
        {"reduction": "mean", "truncation": None, **_TOP},
    ),
    "svcca": Measure(
        "svcca_grid",
        "mean CCA of the leading principal components",
        "SVCCA",
        {"truncation": 0.99, "standardize": False, **_TOP, "causal": False},
        takes_attention=True,
    ),
    "pwcca": Measure(
        "pwcca_grid",
        "CCA weighted by the share of X that each variate explains",
        "PWCCA",
        {"truncation": None, "standardize": False, **_TOP, "causal": False},
        takes_attention=True,
        symmetric=False,
    ),
    "linreg": Measure(
        "linreg_grid",
        "share of the variance of X that a linear map of Y explains",
        "linear regression R²",
        symmetric=False,
    ),
    "procrustes": Measure("procrustes_grid", "orthogonal Procrustes similarity", "Procrustes"),
    "rsa": Measure(
        "rsa_grid",
        "correlation of the layers' dissimilarity matrices",
        "RSA",
        {"correlation": "pearson"},
        lowest=-1.0,
    ),
    "neuronsim": Measure(
        "neuronsim_grid",
        "each neuron of X with its best neuron of Y",
        "neuronsim",
        _TOP,
        symmetric=False,
    ),
    "mixedsim": Measure(
        "mixedsim_grid", "each neuron of X with all of Y", "mixedsim", _TOP, symmetric=False
    ),
    **_NEIGHBOURS,
    **_MATCHING,
    **_DISTANCES,
    "attention-js": Measure(
        summary="each head of X with its best head of Y, 1 - Jensen-Shannon divergence",
        label="attention, Jensen–Shannon",
        fixed={"measure": "js"},
        lowest=1 - log(2),
        **_ATTENTION,
    ),
    "attention-pearson": Measure(
        summary="the same, Pearson correlation of the words' rows",
        label="attention, Pearson",
        fixed={"measure": "pearson"},
        lowest=-1.0,
        **_ATTENTION,
    ),
    "attention-frobenius": Measure(
        summary="the same, 1 - Frobenius distance",
        label="attention, Frobenius",
        fixed={"measure": "frobenius"},
        lowest=-inf,
        **_ATTENTION,
    ),
}


def find_measure(name: str) -> Measure:
    """Return measure `name`; raise UserError with all names if there is no such measure."""
    if name not in MEASURES:
        meant = did_you_mean(name, MEASURES)
        raise UserError(f"--measure {name}: wanted one of {', '.join(MEASURES)}{meant}")
    return MEASURES[name]


def settings(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of measure `name`: the values in `given`, and defaults for the others.

    Raises
    ------
    UserError
        The measure is unknown or does not have an option, or an option does not take a value.
    """
    options = find_measure(name).options
    for option, value in given.items():
        if option not in options:
            names = ", ".join(map(_flag, options)) or "none"
            flag = _flag(option)
            raise UserError(
                f"--measure {name}: wanted no options but its own ({names}), found {flag}"
            )
        if not OPTIONS[option].accepts(value):
            raise UserError(f"{_flag(option)}: wanted {OPTIONS[option].wanted}, found {value!r}")
    return {**options, **given}


def stored(name: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of measure `name` as results store them.

    An option that earlier versions did not have is left out where it has its default, so that the
    results of earlier versions stay done.
    """
    defaults = find_measure(name).options
    later = [option for option in ("top_k", *_LATER.get(name, ())) if option in defaults]
    left_out = {option for option in later if chosen.get(option) == defaults[option]}
    return {option: value for option, value in chosen.items() if option not in left_out}


def help_lines() -> list[str]:
    """Return a line of help for each measure: name, summary, options."""
    lines = []
    for name, measure in MEASURES.items():
        notes = [_flag(option) for option in measure.options]
        notes += [] if measure.symmetric else ["asymmetric: both directions are stored"]
        notes += ["a distance"] if measure.distance else []
        lines.append(f"`{name}`: {measure.summary}" + (f" ({', '.join(notes)})" if notes else ""))
    return lines


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"
