"""Any measure, by name or as a function, computed for reordered or resampled rows."""

import functools
import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simcore import _measures as records
from simcore import knn
from simcore._grid.basis import Basis, per_layer_truncation
from simcore._grid.inputs import Layers
from simcore._grid.neighbours import Metric, Neighbours
from simcore._grid.options import check_choice, check_count, check_measure_options
from simcore._grid.progress import counted
from simcore._grid.side import Side, read_sides
from simcore._measures import record
from simcore.basis import decompose

Measure = str | Callable[..., Any]
# A draw of equal rows gives the observed value up to the order of summation. Values that differ by
# at most this many units in the last place are therefore ties.
TIE_EPS = 64
# A value near 0 is a difference of numbers of the measure's size, and has their rounding.
ZERO_EPS = 8


def function_of(measure: record.Measure) -> Callable[..., Any]:
    """Return the grid function of a record, without its fixed options."""
    module = import_module(f"simcore.{records.MODULES[measure.function]}")
    return getattr(module, measure.function)


def _by_name() -> dict[str, Callable[..., Any]]:
    """Return the grid of each name: of measures, and of functions without the ending `_grid`.

    A name of a measure fixes the options that make it this measure; the name of a function fixes
    none, and stands for the measure of the same name too.
    """
    grids: dict[str, Callable[..., Any]] = {}
    for measure in records.MEASURES.values():
        if measure.takes != (record.ATTENTION,) and measure.normalised:
            function = function_of(measure)
            stem = measure.function.removesuffix("_grid").replace("_", "-")
            if "measure" not in measure.fixed:  # else the statistics' own option hides this one
                grids.setdefault(stem, function)
            if measure.name != stem:
                grids[measure.name] = functools.partial(function, **measure.fixed)
    return grids


GRIDS = _by_name()


def generator(seed: object) -> np.random.Generator:
    """Return a numpy generator with this seed; no global random state is read or changed."""
    return np.random.default_rng(check_count(seed, "seed", 0))


def check_measure(measure: Measure) -> Measure:
    """Return the name of a measure as `GRIDS` spells it, or the function that was given."""
    if isinstance(measure, str):
        return check_choice(records.spelled(measure, GRIDS), "measure", tuple(GRIDS))
    if not callable(measure):
        raise TypeError(f"measure: wanted a name or a function, got {type(measure).__name__}")
    return measure


def unwrapped(measure: Callable[..., Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the function within `functools.partial`, and the keywords that partials fix.

    A partial that fixes positions, and with them layers, counts as a function of its own.
    """
    fixed: dict[str, Any] = {}
    while isinstance(measure, functools.partial) and not measure.args:
        fixed = {**measure.keywords, **fixed}
        measure = measure.func
    return measure, fixed


def _unwrapped_named(measure: Measure) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the function of a measure, and its fixed keywords; of an unknown name `str`."""
    return unwrapped(GRIDS.get(measure, str) if isinstance(measure, str) else measure)


def record_of(measure: Measure, options: dict[str, Any] | None = None) -> record.Measure | None:
    """Return the record of a measure that is given by name or as its function; None for others.

    Measures that share a function are told apart by their fixed options.
    """
    function, fixed = _unwrapped_named(measure)
    sharing = [
        one
        for one in records.MEASURES.values()
        if one.function == getattr(function, "__name__", "") and function_of(one) is function
    ]
    if not sharing:
        return None
    chosen = {name: each.default for name, each in inspect.signature(function).parameters.items()}
    chosen |= fixed | (options or {})
    fitting = (one for one in sharing if chosen.items() >= one.fixed.items())
    return next(fitting, sharing[0])


def seeded_options(measure: Measure, options: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the options with the seed for a measure that takes one, unless a partial fixes it."""
    function, fixed = _unwrapped_named(measure)
    own = record_of(measure) is not None and "seed" in inspect.signature(function).parameters
    return {**options, "seed": seed} if own and "seed" not in fixed else options


def refuse_unpaired(measure: Measure) -> None:
    """Raise a ValueError for a measure whose values do not depend on the order of the rows."""
    known = record_of(measure)
    if known is not None and not known.paired:
        name = measure if isinstance(measure, str) else known.function.removesuffix("_grid")
        raise ValueError(
            f"measure: wanted a measure that compares rows, got {name!r}, which ignores which rows "
            "of two layers belong together"
        )


def best_value(measure: Measure, options: dict[str, Any]) -> float:
    """Return the value of a layer with itself: 1, or 0 for distances.

    A function that is not of simcore is taken to be a similarity.
    """
    known = record_of(measure, options)
    return 0.0 if known is not None and known.distance else 1.0


def value_range(measure: Measure, options: dict[str, Any]) -> tuple[float, float]:
    """Return the least and the greatest value of a measure; infinities for an unknown function."""
    known = record_of(measure, options)
    return (-math.inf, math.inf) if known is None else (known.lowest, known.highest)


def rounding(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return how far apart values are that may be equal, for layers of this dtype."""
    return TIE_EPS * torch.finfo(dtype).eps * values.abs()


def tie_widths(values: Tensor, dtype: torch.dtype, known: record.Measure | None, n: int) -> Tensor:
    """Return how far from the first of the draws ``values`` another one is that may equal it."""
    first = values[0].abs()  # [Lx, Ly]
    near = rounding(first, dtype)
    if known is None:
        return near
    size = torch.full_like(first, known.highest)
    if known.highest == math.inf:
        size = values.abs().nan_to_num(0.0).amax(0)
    if not (known.distance or known.root):
        return torch.maximum(near, ZERO_EPS * torch.finfo(dtype).eps * size)
    # The square of the value is a difference of float64 numbers, whose rounding grows with n.
    error = size * math.sqrt(TIE_EPS * n * torch.finfo(torch.float64).eps)
    return torch.maximum(near, torch.hypot(first, error) - first)


class GridMeasure:
    """A measure of fixed layers as a function of the rows that are taken of each side.

    A measure that is a function ``f(X, Y, **options)`` takes two lists of tensors and returns a
    grid ``[len(X), len(Y)]``. If ``permuted``, calls permute the rows of Y alone, and measures that
    take bases decompose every layer once.
    """

    def __init__(
        self,
        measure: Measure,
        X: Layers,
        Y: Layers | None,
        options: dict[str, Any],
        max_memory: int | None,
        caller: Callable[..., Any],  # hands on keywords of its call as options
        *,
        permuted: bool = False,
    ) -> None:
        if isinstance(measure, str):
            name = measure
            check_measure_options(measure, GRIDS[measure], options, caller)
        else:
            name = getattr(unwrapped(measure)[0], "__name__", "measure")
        sides = read_sides(
            X, Y, f"resampling of {name}", max_memory=max_memory, differentiable=True
        )
        x, y, self.from_numpy = sides.x.layers, sides.y.layers, sides.from_numpy
        self.n, self.dtype, self.selves = sides.n, narrowest_dtype(x + y), sides.selves()
        self.x: list[Tensor] | list[Basis] | list[Neighbours] = x
        self.y: list[Tensor] | list[Basis] | list[Neighbours] = y or x
        self.options, self.named = dict(options), isinstance(measure, str)
        self.known, self.precomputed = record_of(measure, options), False
        self._observed: Tensor | None = None
        self.function: Callable[..., Any]
        self.grid = functools.partial(
            GRIDS[measure] if isinstance(measure, str) else measure, X, Y, **options
        )
        if isinstance(measure, str):
            self.function = GRIDS[measure]
            self.grid = functools.partial(self.grid, max_memory=max_memory)
            bound = sides.bound
            if "truncation" in options:
                self.options["truncation"] = _counts_of_both(options["truncation"], x, y)
            taken, known = 0, self.known
            if permuted and known is not None and known.precomputed:
                self.precomputed = True
                self._observed = self._of_grid()  # while nothing of the bound is taken
                if known.precomputed in (record.BASES, record.BASES_OF_Y):
                    taken = self._decompose(known, x, y, bound)
                else:
                    taken = self._find_neighbours(known, x, y, bound)
            # A permutation copies the layers of Y; a resample copies the layers of X too.
            drawn = [*self.y] if permuted else [*self.x, *self.y]
            taken += sum(_drawn_bytes(layer) for layer in drawn)
            if taken >= bound:
                raise ValueError(
                    f"max_memory: wanted more than {taken} bytes, which the reordered layers of a "
                    f"draw take, got {bound}"
                )
            self.options["max_memory"] = bound - taken
        else:
            self.function = measure

    def _decompose(
        self, measure: record.Measure, x: list[Tensor], y: list[Tensor], bound: int
    ) -> int:
        """Replace layers by bases, with truncation and scaling applied; return their bytes."""
        cut_x = cut_y = None
        basis_options: dict[str, Any] = {}
        if "truncation" in measure.options:
            cut_x = cut_y = self.options.get("truncation", measure.options["truncation"])
            if isinstance(cut_x, list):
                cut_x, cut_y = cut_x[: len(x)], cut_x[len(x) :]
            self.options["truncation"] = None
        if "standardize" in measure.options:
            basis_options["standardize"] = self.options.pop("standardize", False)
        side, cuts = Side("Y" if y else "X", y or x), per_layer_truncation(cut_y, len(y or x))
        explaining, left = decompose(None, side, cuts, bound, **basis_options)
        self.y = explaining
        taken = sum(basis.nbytes for basis in explaining)
        if measure.precomputed == record.BASES_OF_Y:
            return taken
        if not y:
            self.x = explaining
            return taken
        cuts = per_layer_truncation(cut_x, len(x))
        explained, _ = decompose(None, Side("X", x), cuts, left, **basis_options)
        self.x = explained
        return taken + sum(basis.nbytes for basis in explained)

    def _find_neighbours(
        self, measure: record.Measure, x: list[Tensor], y: list[Tensor], bound: int
    ) -> int:
        """Replace layers by their neighbours, which a permutation moves; return their bytes."""
        k = self.options.pop("k", measure.options["k"])
        metric: Metric = "inner"
        if measure.precomputed == record.NEIGHBOURS:
            metric = self.options.pop("metric", "cosine")
        neighbours = knn.neighbours(x, k, metric, max_memory=bound)
        taken = sum(one.nbytes for one in neighbours)
        self.x = self.y = neighbours
        if y:
            self.y = knn.neighbours(y, k, metric, max_memory=max(bound - taken, 1))
            taken += sum(one.nbytes for one in self.y)
        return taken

    def __call__(self, rows_x: np.ndarray | None, rows_y: np.ndarray | None) -> Tensor:
        """Return the grid of the layers with these rows; None stands for all rows in order."""
        x = _take(self.x, rows_x)
        alike = self.y is self.x and rows_y is rows_x  # then a layer is compared with itself
        if alike and self.named:  # as the grid is without draws, and in half the time
            grid = self.function(x, None, **_of_one_side(self.options, len(x)))
        else:
            grid = self.function(x, x if alike else _take(self.y, rows_y), **self.options)
        grid = torch.as_tensor(grid, dtype=torch.float64)
        wanted = (len(self.x), len(self.y))
        if tuple(grid.shape) != wanted:
            raise ValueError(f"measure: wanted a grid {wanted}, got shape {tuple(grid.shape)}")
        return grid

    def observed(self) -> Tensor:
        """Return the value for the layers as they came; for a measure of simcore, its own grid."""
        if self.known is None:
            return self(None, None)
        return self._of_grid() if self._observed is None else self._observed

    def _of_grid(self) -> Tensor:
        with torch.no_grad():
            return torch.as_tensor(self.grid(), dtype=torch.float64)

    def draws(
        self,
        rows: Sequence[np.ndarray] | np.ndarray,
        label: str,
        progress: bool,
        *,
        resampling: str | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the observed grid, and the grids ``[draws, Lx, Ly]`` of all draws of rows.

        Rows are those of Y, and with a method of ``resampling`` of X too. The first draw is all
        rows in order, computed as the others are: equal rows tie with it. The observed grid alone
        may warn, because a measure would give the same warnings for every draw.
        """
        grids: list[Tensor] = []
        with warnings.catch_warnings():
            for index in counted(rows, label, progress):
                if not grids:
                    observed = self.observed()
                    warnings.simplefilter("ignore", UserWarning)
                    grids.append(self(None, None) if self.precomputed else observed)
                elif resampling:
                    grids.append(self._resampled(index, resampling))
                else:
                    grids.append(self(None, index))
        return observed, torch.stack(grids)

    def _resampled(self, rows: np.ndarray, method: str) -> Tensor:
        try:
            return self(rows, rows)
        except ValueError as error:
            if self.known is None:
                raise
            # The grid of all rows has been computed: too few rows are what is left.
            raise ValueError(
                f"method: wanted more rows in each draw of {method!r}, got {len(rows)} of "
                f"{self.n}: {error}"
            ) from error


def _drawn_bytes(layer: Tensor | Basis | Neighbours) -> int:
    """Return the number of bytes that a draw copies of a layer, a basis or neighbours."""
    if isinstance(layer, Neighbours):
        return layer.nbytes + layer.layer.nbytes
    return layer.vectors.nbytes if isinstance(layer, Basis) else layer.nbytes


def narrowest_dtype(layers: Sequence[Tensor]) -> torch.dtype:
    """Return the precision of a grid: float64 if all layers are float64, else float32."""
    double = all(layer.dtype == torch.float64 for layer in layers)
    return torch.float64 if double else torch.float32


def _counts_of_both(truncation: Any, x: list[Tensor], y: list[Tensor]) -> Any:
    """Return a truncation for the layers of both sides; counts of X are repeated if Y is None."""
    cuts = per_layer_truncation(truncation, len(x) + len(y))
    if truncation is None or np.ndim(truncation) == 0:
        return truncation
    return cuts if y else cuts + cuts


def _of_one_side(options: dict[str, Any], count: int) -> dict[str, Any]:
    """Return the options for layers that are compared with themselves."""
    cut: Any = options.get("truncation")
    return options if np.ndim(cut) == 0 else {**options, "truncation": cut[:count]}


def _take(layers: list[Any], rows: np.ndarray | None) -> list[Any]:
    if rows is None:
        return layers
    first = layers[0]
    device = first.vectors.device if isinstance(first, Basis) else torch.device("cpu")
    if isinstance(first, Tensor):
        device = first.device
    index = torch.from_numpy(rows).long().to(device)
    return [layer[index] if isinstance(layer, Tensor) else layer.permute(index) for layer in layers]
