"""`compare_layers`: a grid of layers that have names, and how sure its values are."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from simcore._grid.inputs import Array, Layers, NoLayersError, as_layers, listed
from simcore._grid.options import (
    check_count,
    check_flag,
    check_function_options,
    check_max_memory,
    check_measure_options,
    did_you_mean,
)
from simcore._measures import spelled
from simcore._result import Comparison
from simcore.basis import shared_bases
from simcore.cka import hsic_grid
from simcore.measures import Measure as NamedMeasure
from simcore.stats.bootstrap import bootstrap_ci
from simcore.stats.grams import CkaMeasure
from simcore.stats.permutation import permutation_test
from simcore.stats.resampled_grid import (
    GRIDS,
    Measure,
    record_of,
    refuse_unpaired,
    seeded_options,
    unwrapped,
)

MEASURES: dict[str, Callable[..., Any]] = {**GRIDS, "hsic": hsic_grid}


@overload
def compare_layers(
    X: Layers, Y: Layers | None = ..., *, measure: Measure = ..., **options: Any
) -> Comparison: ...
@overload
def compare_layers(
    X: Layers, Y: Layers | None = ..., *, measure: list[Any], **options: Any
) -> dict[str, Comparison]: ...
def compare_layers(
    X: Layers,
    Y: Layers | None = None,
    *,
    measure: Measure | list[Any] = "cka",
    bootstrap: int | None = None,
    permutations: int | None = None,
    seed: int = 0,
    max_memory: int | None = None,
    progress: bool = False,
    **options: Any,
) -> Comparison | dict[str, Comparison]:
    """Compare layers, such as those that ``tape.layers()`` returns, and keep their names.

    Parameters
    ----------
    X, Y : dict of str to array ``[n, p_i]``, or iterable of arrays
        Layers by name; without names they are called "0", "1", and so on. ``Y=None`` compares X
        with itself.
    measure : str or function, or list of them
        The name of a measure or of a grid function, as in `simcore.stats.permutation_test`, also
        "hsic"; one of `simcore.measures`; or a function ``(X, Y, **options)`` of two lists of
        layers ``[n, p]``. Of a list, measures that decompose layers share the bases.
    bootstrap : int, optional
        Number of halves of the rows that the intervals ``low`` and ``high`` come from.
    permutations : int, optional
        Number of permutations that ``pvalue`` and ``calibrated`` come from.
    seed : int
        Seed of both, and of the measure "imd".
    max_memory : int, optional
        Bytes that the grid may allocate beyond the layers and shared bases, and then the
        statistics. Default: a quarter of the free memory. A function that is not of simcore is not
        bounded.
    progress : bool
        Show progress bars on stderr: of the grid, unless a function that is not of simcore computes
        it, and of the statistics.
    **options
        Options of the measure.

    Returns
    -------
    Comparison, or dict of str to Comparison
        ``values[i, j]`` compares ``rows[i]`` of X with ``columns[j]`` of Y. Of a list of measures,
        one for each, by its name.

    Raises
    ------
    TypeError, ValueError
        A measure that is listed twice; an option that not every measure has; as the measure,
        `simcore.stats.bootstrap_ci` and `simcore.stats.permutation_test`. Options are
        checked before anything is computed.

    Examples
    --------
    >>> import torch
    >>> from simcore import compare_layers
    >>> layers = {"first": torch.randn(50, 8), "second": torch.randn(50, 4)}
    >>> compare_layers(layers).to_pandas().shape
    (2, 2)
    >>> list(compare_layers([*layers.values()], measure=["cka", "gulp"]))
    ['cka', 'gulp']
    """
    of_call: dict[str, Any] = {
        "bootstrap": bootstrap,
        "permutations": permutations,
        "seed": seed,
        "max_memory": max_memory,
        "progress": progress,
    }
    questions = read_questions(compare_layers, measure, options, **of_call)
    x, y = _named(X, "X"), None if Y is None else _named(Y, "Y")
    return answers(questions, measure, x, y, names=("X", "Y"))


def _named(layers: Layers, side: str) -> Mapping[str, Array]:
    """Return layers by name; the places are the names of layers without."""
    if isinstance(layers, Mapping):
        for name in layers:
            if not isinstance(name, str):
                raise TypeError(f"{side}: wanted names of layers that are texts, got {name!r}")
        return layers
    entries = as_layers(listed(layers), side)[0]
    return {str(i): layer for i, layer in enumerate(entries)}


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
        known = record_of(self.function, dict(self.options))
        return Comparison(
            _host(grid),
            rows,
            columns,
            self._title(),
            len(x[0]),
            is_distance=known is not None and known.distance,
            **statistics,
        )

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
            ask_draws = {**ask, "resamples": self.bootstrap, "return_draws": True}
            interval = bootstrap_ci(x, y, **ask_draws)
            drawn = {name: getattr(interval, name) for name in ("low", "high", "draws")}
            statistics.update({name: _host(values) for name, values in drawn.items()})
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


def read_questions(
    caller: Callable[..., Any], measure: Measure | list[Any], *args: Any, **of_call: Any
) -> list[Question]:
    """Check each measure of a list, or one, as `read_question` does."""
    every = measure if isinstance(measure, list) else [measure]
    questions = [read_question(caller, one, *args, **of_call) for one in every]
    names = [question.name for question in questions]
    if len(set(names)) < max(1, len(names)):
        raise ValueError(f"measure: wanted different measures, got {names}")
    return questions


def answers(
    questions: list[Question],
    measure: Measure | list[Any],
    X: Mapping[str, Array],
    Y: Mapping[str, Array] | None,
    names: tuple[str, str],
) -> Comparison | dict[str, Comparison]:
    """Answer the questions of a list of measures by their names, or the question of one."""
    if not isinstance(measure, list):
        return questions[0].answer(X, Y, names)
    with shared_bases():
        return {question.name: question.answer(X, Y, names) for question in questions}


def read_question(
    caller: Callable[..., Any],
    measure: Measure,
    options: Mapping[str, Any],
    *,
    seed: int,
    bootstrap: int | None = None,
    permutations: int | None = None,
    max_memory: int | None = None,
    progress: bool = False,
) -> Question:
    """Check everything that can be checked before there are layers.

    Messages name the keywords of `caller` beside the options of the measure.
    """
    # The grid function of a name, or the function itself.
    if isinstance(measure, NamedMeasure):
        measure = measure.name
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
    # Options of the measure, then of the draws.
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
