"""All measures that ``simcore grid`` computes: the records of simcore, and the options they take.

The value of a layer with itself is 1, or 0 for measures that are distances, where it is defined;
only `attention-pearson` counts constant rows as 0. This module loads the records without `simcore`,
so that help texts and figures, which need names and ranges only, load no numerics.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError, argument, did_you_mean, one_of, option_name

if TYPE_CHECKING:
    from simcore import _measures as records
    from simcore._measures.record import Measure

ESTIMATORS = ("biased", "unbiased")
BOTH = "both"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(least: int, value: Any) -> bool:
    return type(value) is int and value >= least


def _is_count_or_share(value: Any) -> bool:
    return value is None or _is_count(1, value) or (isinstance(value, float) and 0 < value <= 1)


@dataclass(frozen=True)
class MeasureOptions:
    """The options of all measures; each measure takes some, and has defaults of its own.

    Attributes
    ----------
    estimator
        Estimator of CKA, CKNNA: ``biased``, ``unbiased`` or ``both``.
    kernel
        Kernel of CKA: ``linear`` or ``rbf``.
    bandwidth
        Width of the RBF kernel, in median distances.
    reduction
        Reduction of canonical correlations: ``mean`` or ``r2``.
    truncation
        Components to keep: a share of the variance (0.99) or a count (20).
    standardize
        Scale columns to unit variance first.
    top_k
        Average only the best neurons of X, or the largest canonical correlations: a count (50) or a
        share (0.1).
    correlation
        Correlation of RSA: ``pearson`` or ``spearman``.
    causal
        For attention: use the lower triangle only.
    k
        Number of neighbours (knn-..., cknna), such as 10.
    metric
        Nearness of rows: by ``cosine``, ``euclidean`` or ``inner`` products.
    norm
        Norm of the RSM difference: ``frobenius`` or ``spectral``.
    ridge
        Ridge of GULP, in units of the total variance.
    rows
        Rows of a draw of RTD, such as 500.
    draws
        Number of draws of RTD, such as 10.
    """

    estimator: str | None = None
    kernel: str | None = None
    bandwidth: float | None = None
    reduction: str | None = None
    truncation: int | float | None = None
    standardize: bool = False
    top_k: int | float | None = None
    correlation: str | None = None
    causal: bool = False
    k: int | None = None
    metric: str | None = None
    norm: str | None = None
    ridge: float | None = None
    rows: int | None = None
    draws: int | None = None


_CHOICES = {
    "estimator": (*ESTIMATORS, BOTH),
    "kernel": ("linear", "rbf"),
    "reduction": ("mean", "r2"),
    "correlation": ("pearson", "spearman"),
    "metric": ("cosine", "euclidean", "inner"),
    "norm": ("frobenius", "spectral"),
}
_COUNTS = {"k": 1, "rows": 3, "draws": 1}  # the least of each
_FLAG = ("a flag", lambda value: isinstance(value, bool))
# The values that each option takes, in words, and whether a value is one of them.
OPTIONS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **{n: (f"{', '.join(c[:-1])} or {c[-1]}", c.__contains__) for n, c in _CHOICES.items()},
    **{n: (f"a count from {least}", partial(_is_count, least)) for n, least in _COUNTS.items()},
    **dict.fromkeys(("standardize", "causal"), _FLAG),
    "bandwidth": ("a positive number", lambda value: _is_number(value) and 0 < value < inf),
    "ridge": ("a number from 0", lambda value: _is_number(value) and 0 <= value < inf),
    "truncation": ("a share of the variance (0.99) or a count (20)", _is_count_or_share),
    "top_k": ("a count (50) or a share (0.1)", _is_count_or_share),
}


def _load_records() -> Any:
    """Return the room `_measures` of simcore; to import it as such would import simcore first."""
    package = find_spec("simcore")
    if package is None or package.origin is None:
        raise ImportError("simcore: wanted an installed package, found none")
    folder, name = Path(package.origin).parent / "_measures", f"{__name__}.records"
    spec = spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder}: wanted the records of the measures, found none")
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if not TYPE_CHECKING:
    records = _load_records()


def _on_command_line(measure: Measure) -> Measure:
    """Return the record of a measure with the options that only the command has."""
    options = dict(measure.options)
    if measure.name == "cka":
        options["estimator"] = BOTH
    if measure.takes_attention:
        options["causal"] = False
    return replace(measure, options=options)


MEASURES: dict[str, Measure] = {
    name: _on_command_line(measure)
    for name, measure in records.MEASURES.items()
    if measure.normalised and (measure.takes_representations or measure.takes_attention)
}


def spelled(name: str) -> str:
    """Return the name of the measure that `name` spells, with `-` or `_`; else `name` itself."""
    return records.spelled(name, MEASURES)


def find_measure(name: str) -> Measure:
    """Return measure `name`; raise UserError with all names if there is no such measure."""
    name = spelled(name)
    if name not in MEASURES:
        meant = did_you_mean(name, MEASURES)
        raise UserError(f"{argument('measure', name)}{meant}: wanted {one_of(MEASURES, meant)}")
    return MEASURES[name]


def settings(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of measure `name`: the values in `given`, and defaults for the others."""
    options = find_measure(name).options
    for option, value in given.items():
        if option not in options:
            names = ", ".join(map(argument, options)) or "none"
            raise UserError(
                f"{argument('measure', name)}: wanted no options but its own ({names}), found "
                f"{argument(option)}"
            )
        wanted, accepts = OPTIONS[option]
        if not accepts(value):
            raise UserError(f"{argument(option)}: wanted {wanted}, found {value!r}")
    return {**options, **given}


def help_lines() -> list[str]:
    """Return a heading and a line for each measure: name, summary, options and their defaults."""
    lines = ["Values of --measure, with their options and the defaults of these:"]
    for name, measure in MEASURES.items():
        notes = [
            option_name(option) + ("" if default is None or default is False else f" {default}")
            for option, default in measure.options.items()
        ]
        notes += [] if measure.symmetric else ["asymmetric: both directions are stored"]
        notes += ["a distance"] if measure.distance else []
        lines.append(f"`{name}`: {measure.summary}" + (f" ({', '.join(notes)})" if notes else ""))
    return lines
