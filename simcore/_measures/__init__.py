"""The records of all measures, from which every table, name and parametrised test is made.

A file here has the name of the module whose grid functions it describes. `record` is the class.
Imports are relative and reach nothing but the standard library, so that `simlab` can load this room
without `simcore`, whose import loads torch.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import (
    attention,
    cca,
    cka,
    distances,
    imd,
    knn,
    layer_descriptors,
    matching,
    neurons,
    rowwise,
    rsa,
    subspaces,
    topology,
)
from .record import Measure

# In the order in which measures are listed.
FAMILIES = (
    *(cka, cca, rsa, neurons, knn, matching, imd, topology, distances),
    *(subspaces, rowwise, layer_descriptors, attention),
)
MEASURES: dict[str, Measure] = {
    measure.name: measure for family in FAMILIES for measure in family.RECORDS
}
# The module of each grid function, within `simcore`.
MODULES: dict[str, str] = {
    measure.function: family.__name__.rpartition(".")[2]
    for family in FAMILIES
    for measure in family.RECORDS
}


def spelled(name: str, known: Iterable[str]) -> str:
    """Return the known name that `name` spells with `-` or `_`; `name` itself if there is none."""
    return next((one for one in known if one.replace("_", "-") == name.replace("_", "-")), name)
