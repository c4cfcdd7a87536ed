"""The record of a measure: all that is known of it beside its computation.

Records hold plain values and import nothing: `simlab` reads them for help texts and figures, which
need names and ranges and load no numerics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Objects that a measure compares.
LAYERS, ATTENTION, PREDICTIONS = "layers", "attention", "predictions"
# The object that a permutation test reorders instead of the layer itself: it is computed once,
# before the permutations.
BASES, BASES_OF_Y = "bases", "bases of Y alone"
NEIGHBOURS, LARGEST_PRODUCTS = "neighbours", "neighbours by inner products"


@dataclass(frozen=True)
class Variant:
    """A measure with some of its options, as the documentation and the studies show it."""

    label: str
    options: Mapping[str, Any] = field(default_factory=dict)
    job: str = ""  # the job of `bench` that times it, if there is one of its own
    operators: tuple[str, ...] | None = None  # the operators that it calls, if not the measure's


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A measure of similarity or of distance."""

    name: str  # wherever a name is read, `_` may stand for `-`
    # Name of the grid function in `simcore`, and of the float64 twin in `simcore.reference`.
    function: str
    label: str  # for tables and axes
    summary: str  # for the help of the command line
    page: str  # in `docs/measures`
    job: str  # of `bench`, which times it
    # Arguments of `function` that make it this measure.
    fixed: Mapping[str, Any] = field(default_factory=dict)
    # Names and defaults of the options that the user of `simcore grid` may set.
    options: Mapping[str, Any] = field(default_factory=dict)
    # What is compared. A measure of layers that takes attention too compares the
    # [word pairs, heads] matrices of `simcore.distributed_attention`.
    takes: tuple[str, ...] = (LAYERS,)
    symmetric: bool = True  # whether the value of X against Y equals the value of Y against X
    lowest: float = 0.0  # the least possible value
    highest: float = 1.0  # the greatest possible value
    # Whether the value of a layer with itself is 0, and large values mean unlike layers.
    distance: bool = False
    root: bool = False  # whether a similarity is the root of a difference, as distances may be
    # Whether the value of a layer with itself is 1 or 0, so that values can be stored beside others
    # and be calibrated.
    normalised: bool = True
    # Whether values depend on which rows of two layers belong together: if not, no permutation test
    # is possible.
    paired: bool = True
    precomputed: str = ""  # the object that permutations reorder, of those above
    operators: tuple[str, ...] = ()  # called on a CUDA device with the defaults
    # Changes of a layer that leave the value as it is, in the words of the pages of the measures; a
    # change contains the changes of `CONTAINS`.
    invariant: tuple[str, ...] = ()
    invariant_y: tuple[str, ...] | None = None  # of Y alone, where it differs
    # Changes that leave the value as it is if both sides have them, but not if one side has.
    jointly: tuple[str, ...] = ()
    undefined: str = "none"  # layers without a value: without `variance`, of `zeros`, or `none`
    equal_widths: bool = False  # whether the layers have to be of one width
    least_rows: int = 2  # number of rows that the layers have to have
    # The power of a common factor of both layers that the value has; None if it has none.
    degree: int | None = 0
    # The measure with options, where the documentation shows it more than once.
    variants: tuple[Variant, ...] = ()

    @property
    def takes_representations(self) -> bool:
        return LAYERS in self.takes

    @property
    def takes_attention(self) -> bool:
        return ATTENTION in self.takes

    @property
    def shown(self) -> tuple[Variant, ...]:
        """The variants that the documentation shows, or the measure as it is."""
        return self.variants or (Variant(self.label, {}, self.job),)


# What a change contains: a measure that ignores the first ignores the others too.
CONTAINS = {
    "scaling of neurons": {"isotropic scaling"},
    "orthogonal map": {"signs of neurons", "permutation of neurons"},
    "invertible linear map": {
        *("isotropic scaling", "scaling of neurons", "signs of neurons"),
        *("permutation of neurons", "orthogonal map"),
    },
    "scaling of rows": {"isotropic scaling"},
}


def closure(changes: frozenset[str] | set[str] | tuple[str, ...]) -> frozenset[str]:
    """Return the changes with all that they contain."""
    return frozenset(changes).union(*(CONTAINS.get(change, ()) for change in changes))
