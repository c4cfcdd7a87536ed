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
# What permutations of the rows of Y reorder in place of layers, so that it is computed once.
BASES, BASES_OF_Y = "bases", "bases of Y alone"
NEIGHBOURS, LARGEST_PRODUCTS = "neighbours", "neighbours by inner products"


@dataclass(frozen=True)
class Variant:
    """A measure with some of its options, as the documentation and the studies show it.

    Attributes
    ----------
    job
        The job of `bench` that times it, if there is one of its own.
    operators
        The operators that it calls, where they differ from the measure's.
    """

    label: str
    options: Mapping[str, Any] = field(default_factory=dict)
    job: str = ""
    operators: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A measure of similarity or of distance.

    Attributes
    ----------
    name
        Its one name. Wherever a name is read, `_` may stand for `-`.
    function, fixed
        Name of the grid function in `simcore`, and its arguments that make it this measure. The
        float64 twin has the same name in `simcore.reference`.
    label, summary
        Label for tables and axes, and description for the help of the command line.
    page, job
        Its page in `docs/measures`, and the job of `bench` that times it.
    options
        Names and defaults of the options that the user of ``simcore grid`` may set.
    takes
        What is compared. A measure of layers that takes attention too compares the [word pairs,
        heads] matrices of `simcore.distributed_attention`.
    symmetric
        Whether the value of X against Y equals the value of Y against X.
    lowest, highest
        The least and the greatest possible value.
    distance
        Whether the value of a layer with itself is 0, and large values mean unlike layers.
    normalised
        Whether the value of a layer with itself is 1 or 0, so that values can be stored beside
        others and be calibrated.
    paired
        Whether values depend on which rows of two layers belong together: if not, no permutation
        test is possible.
    precomputed
        What permutations reorder in place of layers.
    operators
        The operators that a call with the defaults makes on a CUDA device.
    invariant, invariant_y
        Changes of a layer that leave the value as it is, in the words of the pages of the measures;
        ``invariant_y`` is for Y alone where it differs. A change contains the changes of
        `CONTAINS`.
    jointly
        Changes that leave the value as it is if both sides have them, but not if one side has.
    undefined
        Layers without a value: without ``variance``, of ``zeros``, or ``none``.
    equal_widths, least_rows
        Whether the layers have to be of one width, and how many rows they have to have.
    degree
        The power of a common factor of both layers that the value has; None where it has no such
        power.
    variants
        The measure with options, where the documentation shows it more than once.
    """

    name: str
    function: str
    label: str
    summary: str
    page: str
    job: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    takes: tuple[str, ...] = (LAYERS,)
    symmetric: bool = True
    lowest: float = 0.0
    highest: float = 1.0
    distance: bool = False
    normalised: bool = True
    paired: bool = True
    precomputed: str = ""
    operators: tuple[str, ...] = ()
    invariant: tuple[str, ...] = ()
    invariant_y: tuple[str, ...] | None = None
    jointly: tuple[str, ...] = ()
    undefined: str = "none"
    equal_widths: bool = False
    least_rows: int = 2
    degree: int | None = 0
    variants: tuple[Variant, ...] = ()

    @property
    def takes_representations(self) -> bool:
        """Whether layers ``[n, p]`` are compared."""
        return LAYERS in self.takes

    @property
    def takes_attention(self) -> bool:
        """Whether attention weights are compared."""
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
