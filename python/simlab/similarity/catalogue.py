"""The measures that ``simcore grid`` can compute: the one place that lists them.

A name stands for a grid function of `simcore` with its options, what it takes, whether X against Y
says the same as Y against X, and the range of its values. Nothing is imported from `simcore` here,
so that help and figures, which ask for names and ranges, load no numerics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf, log
from typing import Any

from simlab.errors import UserError

ESTIMATORS = ("biased", "unbiased")
BOTH = "both"
HIGHEST = 1.0  # the value of a layer with itself, in all of them


@dataclass(frozen=True)
class Option:
    """What values an option takes, in words and as a check."""

    wanted: str
    accepts: Callable[[Any], bool]


def _one_of(*names: str) -> Option:
    return Option(", ".join(names[:-1]) + f" or {names[-1]}", lambda value: value in names)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_truncation(value: Any) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return value >= 1
    return value is None or (isinstance(value, float) and 0 < value <= 1)


OPTIONS = {
    "estimator": _one_of(*ESTIMATORS, BOTH),
    "kernel": _one_of("linear", "rbf"),
    "bandwidth": Option("a positive number", lambda value: _is_number(value) and 0 < value < inf),
    "reduction": _one_of("mean", "r2"),
    "truncation": Option("a share of the variance (0.99) or a count (20)", _is_truncation),
    "standardize": Option("a flag", lambda value: isinstance(value, bool)),
    "correlation": _one_of("pearson", "spearman"),
    "causal": Option("a flag", lambda value: isinstance(value, bool)),
}


@dataclass(frozen=True)
class Measure:
    """One measure.

    Attributes
    ----------
    function, fixed
        Name of the grid function in `simcore`, and the arguments that make it this measure.
    summary, label
        For the help, and for the axis of a figure.
    options
        Names and defaults of what the user may set.
    takes_representations, takes_attention
        What it compares. Attention that goes to a measure of representations becomes the
        [word pairs, heads] matrix of `simcore.distributed_attention` first.
    symmetric
        Whether X against Y equals Y against X.
    lowest
        The least value there is; the greatest is always 1.
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


_CKA = {"estimator": BOTH, "kernel": "linear", "bandwidth": 1.0, "causal": False}
_ATTENTION = {
    "function": "attention_grid",
    "options": {"causal": False},
    "takes_representations": False,
    "takes_attention": True,
    "symmetric": False,
}
MEASURES = {
    "cka": Measure(
        "cka_grid", "centred kernel alignment", "CKA", _CKA, takes_attention=True, lowest=-1.0
    ),
    "cca": Measure(
        "cca_grid",
        "mean canonical correlation",
        "mean CCA",
        {"reduction": "mean", "truncation": None},
    ),
    "svcca": Measure(
        "svcca_grid",
        "mean CCA of the leading principal components",
        "SVCCA",
        {"truncation": 0.99, "standardize": False, "causal": False},
        takes_attention=True,
    ),
    "pwcca": Measure(
        "pwcca_grid",
        "CCA weighted by what X's variates explain of X",
        "PWCCA",
        {"truncation": None, "causal": False},
        takes_attention=True,
        symmetric=False,
    ),
    "linreg": Measure(
        "linreg_grid",
        "share of X that a linear map of Y explains",
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
        symmetric=False,
    ),
    "mixedsim": Measure(
        "mixedsim_grid", "each neuron of X with all of Y", "mixedsim", symmetric=False
    ),
    "attention-js": Measure(
        summary="heads of X with their best of Y, 1 - Jensen-Shannon divergence",
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
    """Return measure `name`, or raise UserError with the names there are."""
    if name not in MEASURES:
        raise UserError(f"--measure {name}: wanted one of {', '.join(MEASURES)}")
    return MEASURES[name]


def settings(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of measure `name`: what the user gave, and defaults for the rest.

    Raises
    ------
    UserError
        Unknown measure, an option that it does not have, or a value that it does not take.
    """
    options = find_measure(name).options
    for option, value in given.items():
        if option not in options:
            names = ", ".join(f"--{own}" for own in options) or "none"
            raise UserError(f"--{option}: wanted an option of measure {name} ({names})")
        if not OPTIONS[option].accepts(value):
            raise UserError(f"--{option}: wanted {OPTIONS[option].wanted}, found {value!r}")
    return {**options, **given}


def help_lines() -> list[str]:
    """One line per measure: name, what it is, its options."""
    lines = []
    for name, measure in MEASURES.items():
        notes = [f"--{option}" for option in measure.options]
        notes += [] if measure.symmetric else ["asymmetric: both directions are stored"]
        lines.append(f"`{name}`: {measure.summary}" + (f" ({', '.join(notes)})" if notes else ""))
    return lines
