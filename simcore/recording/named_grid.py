"""A grid with the names of its layers, and how sure its values are."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simcore._grid.inputs import Array, NoLayersError
from simcore._grid.measure_options import check_function_options, check_measure_options
from simcore._grid.options import check_count, check_flag, check_max_memory, did_you_mean
from simcore._measures import spelled
from simcore._optional import import_optional
from simcore.cka import hsic_grid
from simcore.stats.bootstrap import bootstrap_ci
from simcore.stats.grams import CkaMeasure
from simcore.stats.permutation import permutation_test
from simcore.stats.resampled_grid import (
    GRIDS,
    Measure,
    refuse_unpaired,
    seeded_options,
    unwrapped,
)

MEASURES: dict[str, Callable[..., Any]] = {**GRIDS, "hsic": hsic_grid}
LABEL = 16  # letters of a printed name, such as encoder.layer.11; longer ones lose their beginning


@dataclass(frozen=True, eq=False)
class Comparison:
    """A grid of a measure with the names of its layers.

    Attributes
    ----------
    values : Tensor ``[len(rows), len(columns)]``
        float64, without gradients: those are of the grids, such as `simcore.cka_grid`.
    rows, columns : tuple of str
        Names of the layers of the first and of the second model.
    measure : str
        The name of the measure, with its estimator where it has several: ``"cka (biased)"``.
    n : int
        Number of rows of each layer.
    low, high : Tensor ``[len(rows), len(columns)]``, or None
        Ends of the 95 % intervals over examples, with ``bootstrap=``, see
        `simcore.stats.bootstrap_ci`.
    pvalue, calibrated : Tensor ``[len(rows), len(columns)]``, or None
        With ``permutations=``, see `simcore.stats.PermutationTest`.
    """

    values: Tensor
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    measure: str
    n: int
    low: Tensor | None = None
    high: Tensor | None = None
    pvalue: Tensor | None = None
    calibrated: Tensor | None = None

    def __str__(self) -> str:
        rows, columns = _short(self.rows), _short(self.columns)
        cells = self._cells()
        first = max(map(len, rows))
        width = max(6, *map(len, columns), *(len(cell) for line in cells for cell in line))
        intervals = "" if self.low is None else ", 95 % intervals in brackets"
        lines = [f"{self.measure}, n = {self.n}{intervals}"]
        lines.append(" ".join([" " * first, *(f"{label:>{width}}" for label in columns)]))
        for name, line in zip(rows, cells, strict=True):
            lines.append(" ".join([f"{name:{first}}", *(f"{cell:>{width}}" for cell in line)]))
        return "\n".join(lines)

    def _cells(self) -> list[list[str]]:
        """Return the printed values, each with its interval where there are intervals."""
        if self.low is None or self.high is None:
            return [[f"{value:.3f}" for value in line] for line in self.values.tolist()]
        grids = torch.stack([self.values, self.low, self.high], -1).tolist()
        return [[f"{v:.3f} [{low:.3f}, {high:.3f}]" for v, low, high in line] for line in grids]

    def to_pandas(self, *, long: bool = False) -> Any:
        """Return a pandas DataFrame of the values, with the names as index and columns.

        Parameters
        ----------
        long : bool
            Return a row for each pair of layers instead, with the columns ``row``, ``column``,
            ``value``, and of ``low``, ``high``, ``pvalue`` and ``calibrated`` the columns that are
            there.

        Raises
        ------
        ModuleNotFoundError
            pandas is not installed.
        """
        pandas = import_optional("pandas", "Comparison.to_pandas")
        if not long:
            return pandas.DataFrame(self.values.numpy(), list(self.rows), list(self.columns))
        grids = {"value": self.values, **self._statistics()}
        return pandas.DataFrame(
            {
                "row": np.repeat(self.rows, len(self.columns)),
                "column": np.tile(self.columns, len(self.rows)),
                **{name: grid.flatten().numpy() for name, grid in grids.items()},
            }
        )

    def plot(self, axes: Any = None, **options: Any) -> Any:
        """Draw the grid with matplotlib, the first layers at the bottom and on the left.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            Where to draw. Default: a new figure.
        **options
            Of ``Axes.imshow``, such as ``vmin=0, vmax=1`` or ``cmap``.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ModuleNotFoundError
            matplotlib is not installed.
        """
        import_optional("matplotlib", "Comparison.plot")
        pyplot = import_module("matplotlib.pyplot")
        if axes is None:
            _, axes = pyplot.subplots(layout="constrained")
        image = axes.imshow(self.values.numpy(), **{"origin": "lower", **options})
        axes.set_xticks(range(len(self.columns)), _short(self.columns), rotation=90)
        axes.set_yticks(range(len(self.rows)), _short(self.rows))
        axes.figure.colorbar(image, ax=axes, label=self.measure)
        axes.set_title(f"{self.measure}, n = {self.n}")
        return axes

    def _statistics(self) -> dict[str, Tensor]:
        names = ("low", "high", "pvalue", "calibrated")
        statistics = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: statistics[name] for name in names if statistics[name] is not None}


def _short(names: Sequence[str]) -> list[str]:
    """Return names without the parts that all begin with, as long as no label begins with a number.

    Names that are longer than `LABEL` lose their beginning if they stay distinguishable.
    """
    parts = [name.split(".") for name in names]
    shared = 0
    while all(len(part) > shared + 1 and part[shared] == parts[0][shared] for part in parts):
        shared += 1
    while shared and any(part[shared][:1].isdigit() for part in parts):
        shared -= 1
    labels = [".".join(part[shared:]) for part in parts]
    cut = [label if len(label) <= LABEL else f"…{label[1 - LABEL :]}" for label in labels]
    return cut if len(set(cut)) == len(set(labels)) else labels


def compare_layers(
    X: Mapping[str, Array],
    Y: Mapping[str, Array] | None = None,
    *,
    measure: Measure = "cka",
    bootstrap: int | None = None,
    permutations: int | None = None,
    seed: int = 0,
    max_memory: int | None = None,
    progress: bool = False,
    **options: Any,
) -> Comparison:
    """Compare layers that have names, such as the layers that ``tape.layers()`` returns.

    Parameters
    ----------
    X, Y : dict of str to array ``[n, p_i]``
        Layers by name. ``Y=None`` compares X with itself.
    measure : str or function
        The name of a measure or of a grid function, as in `simcore.stats.permutation_test`, also
        "hsic"; or a function ``(X, Y, **options)`` of two lists of layers ``[n, p]``.
    bootstrap : int, optional
        Number of halves of the rows that the intervals ``low`` and ``high`` come from.
    permutations : int, optional
        Number of permutations that ``pvalue`` and ``calibrated`` come from.
    seed : int
        Seed of both, and of the measure "imd".
    max_memory : int, optional
        Bytes that the grid may allocate beyond the layers, and then the statistics. Default: a
        quarter of the free memory. A function that is not of simcore is not bounded.
    progress : bool
        Show progress bars on stderr: of the grid, unless a function that is not of simcore computes
        it, and of the statistics.
    **options
        Options of the measure.

    Returns
    -------
    Comparison
        ``values[i, j]`` compares ``rows[i]`` of X with ``columns[j]`` of Y.

    Raises
    ------
    TypeError, ValueError
        X or Y is no dictionary; as the measure, `simcore.stats.bootstrap_ci` and
        `simcore.stats.permutation_test`. Options are checked before anything is computed.

    Examples
    --------
    >>> import torch
    >>> from simcore import compare_layers
    >>> layers = {"first": torch.randn(50, 8), "second": torch.randn(50, 4)}
    >>> compare_layers(layers).to_pandas().shape
    (2, 2)
    """
    for name, side in (("X", X), ("Y", Y)):
        if not isinstance(side, Mapping) and not (side is None and name == "Y"):
            raise TypeError(f"{name}: wanted a dictionary of layers, got {type(side).__name__}")
    wanted = read_question(
        compare_layers,
        measure,
        options,
        bootstrap=bootstrap,
        permutations=permutations,
        seed=seed,
        max_memory=max_memory,
        progress=progress,
    )
    return wanted.answer(X, Y, names=("X", "Y"))


@dataclass(frozen=True)
class Question:
    """A checked measure with its options, and which statistics are wanted of it."""

    function: Callable[..., Any]
    measure: Measure  # as the statistics take it
    name: str
    options: Mapping[str, Any]
    bootstrap: int | None = None
    permutations: int | None = None
    seed: int = 0
    max_memory: int | None = None
    progress: bool = False

    @property
    def statistics(self) -> list[str]:
        """The arguments that ask for statistics."""
        return [name for name in ("bootstrap", "permutations") if getattr(self, name) is not None]

    def answer(
        self, X: Mapping[str, Array], Y: Mapping[str, Array] | None, names: tuple[str, str]
    ) -> Comparison:
        """Compute the grid and its statistics; errors name layers, and their side by ``names``."""
        x, y = _detached(X), None if Y is None else _detached(Y)
        rows, columns = tuple(X), tuple(X if Y is None else Y)
        with names_in_errors((rows, columns), names):
            bar = {"progress": True} if self.progress and is_grid(self.function) else {}
            grid = self.function(x, y, **self._bounded(), **bar)
            statistics = self._statistics(x, y)
        wanted = len(rows), len(columns)
        if not isinstance(grid, Tensor | np.ndarray) or grid.shape != wanted:
            got = tuple(grid.shape) if hasattr(grid, "shape") else type(grid).__name__
            raise ValueError(f"measure: wanted a grid of shape {wanted}, got {got}")
        return Comparison(_host(grid), rows, columns, self._title(), len(x[0]), **statistics)

    def _title(self) -> str:
        """Return the name of the measure, with its estimator where it has several."""
        if not is_grid(self.function):
            return self.name
        parameter = inspect.signature(self.function).parameters.get("estimator")
        if parameter is None:
            return self.name
        return f"{self.name} ({self.options.get('estimator', parameter.default)})"

    def _statistics(self, x: list[Array], y: list[Array] | None) -> dict[str, Tensor]:
        # Options of a name go to the statistics, which hand them on. Those of a function may have
        # the names of options of the statistics, such as `method`, and are fixed here.
        ask: dict[str, Any] = {"measure": self.measure, "seed": self.seed}
        if isinstance(self.measure, str):
            ask.update(self.options)
        else:
            ask["measure"] = functools.partial(self.measure, **self._bounded())
        ask.update(max_memory=self.max_memory, progress=self.progress)
        statistics: dict[str, Tensor] = {}
        if self.bootstrap is not None:
            interval = bootstrap_ci(x, y, resamples=self.bootstrap, **ask)
            statistics.update(low=_host(interval.low), high=_host(interval.high))
        if self.permutations is not None:
            test = permutation_test(x, y, permutations=self.permutations, **ask)
            statistics.update(pvalue=_host(test.pvalue), calibrated=_host(test.calibrated))
        return statistics

    def _bounded(self) -> dict[str, Any]:
        """Return the options of the measure, with the seed and the bound that it takes."""
        options = seeded_options(self.measure, dict(self.options), self.seed)
        if self.max_memory is not None and is_grid(self.function):
            options["max_memory"] = self.max_memory
        return options


def read_question(
    caller: Callable[..., Any],
    measure: Measure,
    options: Mapping[str, Any],
    *,
    bootstrap: int | None,
    permutations: int | None,
    seed: int,
    max_memory: int | None,
    progress: bool,
) -> Question:
    """Check everything that can be checked before there are layers.

    Messages name the keywords of `caller` beside the options of the measure.
    """
    if isinstance(measure, str):
        measure = spelled(measure, MEASURES)
        if measure not in MEASURES:
            wanted, meant = ", ".join(map(repr, MEASURES)), did_you_mean(measure, MEASURES)
            raise ValueError(f"measure{meant}: wanted {wanted} or a function, got {measure!r}")
        function, name = MEASURES[measure], measure
    elif callable(measure):
        function, inner = measure, unwrapped(measure)[0]
        name = getattr(inner, "__name__", type(inner).__name__)
    else:
        raise TypeError(f"measure: wanted a name or a function, got {type(measure).__name__}")
    if is_grid(function):
        check_measure_options(name, function, options, caller)
    else:
        check_function_options(name, function, options)
    for option, count, least in (("bootstrap", bootstrap, 2), ("permutations", permutations, 1)):
        if count is not None:
            check_count(count, option, least)
    check_count(seed, "seed", 0)
    check_max_memory(max_memory)
    check_flag(progress, "progress")
    if permutations is not None:
        refuse_unpaired(measure)
    if measure == "cka" and not (bootstrap is None and permutations is None):
        _check_resampled_cka(options)
    resampled = measure if isinstance(measure, str) and measure in GRIDS else function
    return Question(
        function, resampled, name, options, bootstrap, permutations, seed, max_memory, progress
    )


def is_grid(function: Callable[..., Any]) -> bool:
    """Return whether a function is a grid of simcore, or one with options that a partial fixes."""
    inner = unwrapped(function)[0]
    return any(inner is unwrapped(grid)[0] for grid in MEASURES.values())


def _check_resampled_cka(options: Mapping[str, Any]) -> None:
    """Raise a TypeError for an option of `cka_grid` that its statistics lack."""
    try:
        CkaMeasure([], None, dict(options), None)
    except NoLayersError:
        return


@contextmanager
def names_in_errors(layers: Sequence[Sequence[str]], sides: tuple[str, str]) -> Iterator[None]:
    """Let errors of a measure name layers and sides, and not places in lists.

    ``layers`` are the names of the layers of X and of Y, and ``sides`` the names of X and Y.
    """

    def named(place: re.Match[str]) -> str:
        side = 0 if place[1] == "X" else 1
        return f"{layers[side][int(place[2])]!r} of {sides[side]}"

    try:
        yield
    except (TypeError, ValueError) as error:
        text = re.sub(r"\b([XY])(?:_batch)?\[(\d+)\]", named, str(error))
        if text == str(error):
            raise
        raise type(error)(text) from error


def _detached(layers: Mapping[str, Array]) -> list[Array]:
    """Return layers outside of the graph: a `Comparison` has no gradients."""
    return [x.detach() if isinstance(x, Tensor) else x for x in layers.values()]


def _host(grid: Array) -> Tensor:
    return torch.as_tensor(grid).detach().double().cpu()
