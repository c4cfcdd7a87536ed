"""All measures that ``simcore grid`` computes: the records of simcore, with the command's options.

The value of a layer with itself is 1, or 0 for measures that are distances, where it is defined;
only `attention-pearson` counts constant rows as 0. This module loads the records without `simcore`,
so that help texts and figures, which need names and ranges only, load no numerics.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError, argument, did_you_mean, one_of, option_name
from simlab.similarity.options import BOTH, OPTIONS

if TYPE_CHECKING:
    from simcore import _measures as records
    from simcore._measures.record import Measure


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
        if not OPTIONS[option].accepts(value):
            raise UserError(f"{argument(option)}: wanted {OPTIONS[option].wanted}, found {value!r}")
    return {**options, **given}


def help_lines() -> list[str]:
    """Return a line of help for each measure: name, summary, options."""
    lines = []
    for name, measure in MEASURES.items():
        notes = [option_name(option) for option in measure.options]
        notes += [] if measure.symmetric else ["asymmetric: both directions are stored"]
        notes += ["a distance"] if measure.distance else []
        lines.append(f"`{name}`: {measure.summary}" + (f" ({', '.join(notes)})" if notes else ""))
    return lines
