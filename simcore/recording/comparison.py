"""`compare`: the layers of two models on one data loader, as a grid with names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from simcore._grid.finish import warn_caller
from simcore._grid.inputs import LEAST_ROWS
from simcore._grid.options import check_flag
from simcore.cka import hsic_grid
from simcore.minibatch import MinibatchCKA
from simcore.recording.batches import Forward, call
from simcore.recording.masks import Given
from simcore.recording.outputs import Select
from simcore.recording.pools import Pool
from simcore.recording.reading import Reading
from simcore.recording.sampling import Sampler
from simcore.recording.selection import Chooser
from simcore.recording.storage import Budget, MemoryStore
from simcore.recording.tape import Tape
from simcore.stats.resampled_grid import GRIDS

MEASURES: dict[str, Callable[..., Any]] = {**GRIDS, "hsic": hsic_grid}
LABEL = 16  # the most letters of a printed name of a column, such as encoder.layer.11


@dataclass(frozen=True, eq=False)
class Comparison:
    """A grid of a measure with the names of its layers.

    Attributes
    ----------
    values : Tensor ``[len(rows), len(columns)]``
        float64.
    rows, columns : tuple of str
        Names of the layers of the first and of the second model.
    measure : str
        The name of the measure.
    n : int
        Number of rows of each layer.
    """

    values: Tensor
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    measure: str
    n: int

    def __str__(self) -> str:
        labels = _short(self.columns)
        first, width = max(map(len, self.rows)), max(6, *map(len, labels))
        lines = [f"{self.measure}, n = {self.n}"]
        lines.append(" ".join([" " * first, *(f"{label:>{width}}" for label in labels)]))
        for name, values in zip(self.rows, self.values.tolist(), strict=True):
            lines.append(" ".join([f"{name:{first}}", *(f"{v:{width}.3f}" for v in values)]))
        return "\n".join(lines)

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with the names as index and columns."""
        import pandas

        return pandas.DataFrame(self.values.numpy(), list(self.rows), list(self.columns))


def _short(names: Sequence[str]) -> list[str]:
    """Return names without the parts that all begin with, cut at the left to `LABEL` letters."""
    parts = [name.split(".") for name in names]
    shared = 0
    while all(len(part) > shared + 1 and part[shared] == parts[0][shared] for part in parts):
        shared += 1
    labels = [".".join(part[shared:]) for part in parts]
    return [label if len(label) <= LABEL else f"…{label[1 - LABEL :]}" for label in labels]


def compare(
    model_a: nn.Module,
    model_b: nn.Module | None,
    loader: Iterable[Any],
    modules: Chooser,
    *,
    modules_b: Chooser | None = None,
    measure: str | Callable[..., Any] = "cka",
    streaming: bool = False,
    pool: Pool = None,
    pool_b: Pool = None,
    select: Select = None,
    select_b: Select = None,
    mask: Given = None,
    sample: float | None = None,
    seed: int = 0,
    max_memory: int | None = None,
    forward: Forward | Sequence[Forward] | None = None,
    **options: Any,
) -> Comparison:
    """Compare modules of two models by their outputs for the same batches.

    Parameters
    ----------
    model_a, model_b : nn.Module
        ``model_b=None`` compares the modules of `model_a` with each other.
    loader : iterable of batches
        Read once; both models see each batch. A batch is a dictionary of arguments, a tuple of
        arguments, a tensor, or an object with a method ``to``. Of a tuple such as ``(images,
        labels)``, a model of one argument takes the first.
    modules, modules_b : str, list of str, or function
        As in `simcore.record`; `modules_b` is `modules` by default. So are `pool_b` and `select_b`.
    measure : str or function
        A grid of simcore without the ending ``_grid``, or a function ``(X, Y, **options)`` of two
        lists of layers ``[n, p]``.
    streaming : bool
        Add each batch to a `simcore.MinibatchCKA` and forget its rows. Batches of fewer than 4 rows
        are joined with the next.
    pool, select, mask, sample, seed
        As in `simcore.record`.
    max_memory : int, optional
        Bytes of the recorded rows of both models, as in `simcore.record`.
    forward : function, or one for each model, optional
        Called as ``forward(model, batch)`` in place of the calls described above.
    **options
        Options of the measure.

    Returns
    -------
    Comparison
        ``values[i, j]`` compares ``rows[i]`` of `model_a` with ``columns[j]`` of `model_b`.

    Raises
    ------
    TypeError, ValueError
        As `simcore.record`; also for an unknown measure, a loader without batches, a batch that
        could be called in several ways, and layers of different numbers of rows.

    Examples
    --------
    >>> import torch
    >>> from simcore import compare
    >>> a, b = (torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()).eval() for _ in "ab")
    >>> result = compare(a, b, torch.randn(3, 50, 4).split(1), "*", forward=lambda m, x: m(x[0]))
    >>> result.values.shape, result.rows
    (torch.Size([2, 2]), ('0', '1'))
    """
    function, name = _measure(measure, check_flag(streaming, "streaming"), options)
    budget = Budget(max_memory)

    def side(name: str, model: nn.Module, place: int, how: Any) -> _Side:
        chosen, pool, select = how
        reading = Reading(pool, select, Sampler(sample, seed))
        store = MemoryStore(budget)
        tape = Tape(model, chosen, reading, store, budget, mask=mask, generate="prompt")
        return _Side(name, model, _forward(forward, place), tape)

    first = (modules, pool, select)
    sides = [side("model_a", model_a, 0, first)]
    if model_b is not None:
        own = (modules_b, pool_b, select_b)
        second = [a if b is None else b for a, b in zip(first, own, strict=True)]
        sides.append(side("model_b", model_b, 1, second))
    run = _stream if streaming else _keep
    values, n = run(sides, loader, function, options)
    rows, columns = sides[0].tape.names, sides[-1].tape.names
    return Comparison(values, rows, columns, name, n)


def _measure(
    measure: str | Callable[..., Any], streaming: bool, options: Mapping[str, Any]
) -> tuple[Callable[..., Any], str]:
    if streaming and (measure != "cka" or options):
        got = f"{measure!r} with {', '.join(options)}" if options else repr(measure)
        raise ValueError(f"measure: wanted 'cka' without options for streaming=True, got {got}")
    if callable(measure):
        return measure, getattr(measure, "__name__", type(measure).__name__)
    if measure not in MEASURES:
        wanted = ", ".join(map(repr, MEASURES))
        raise ValueError(f"measure: wanted {wanted} or a function, got {measure!r}")
    return MEASURES[measure], "cka (minibatch)" if streaming else measure


def _forward(given: Forward | Sequence[Forward] | None, place: int) -> Forward:
    """Return the function that calls the first or the second model."""
    if isinstance(given, Sequence):
        if len(given) != 2:
            raise ValueError(f"forward: wanted one function or two, got {len(given)}")
        given = given[place]
    if given is not None and not callable(given):
        raise TypeError(f"forward: wanted a function (model, batch), got {given!r}")
    return given or call


@dataclass
class _Side:
    """A model, how it is called, and its tape."""

    name: str
    model: nn.Module
    forward: Forward
    tape: Tape

    def run(self, batch: Any) -> None:
        """Call the model; both models may be one, or have modules in common."""
        self.tape.paused = False
        self.forward(self.model, batch)
        self.tape.paused = True

    def rows(self) -> tuple[int, str]:
        """Return the number of rows of every layer, and the name of the first."""
        counts = self.tape.row_counts()
        first = next(iter(counts))
        for name, count in counts.items():
            if count != counts[first]:
                raise ValueError(
                    f"modules: wanted as many rows in every layer of {self.name}, got "
                    f"{counts[first]} of {first!r} and {count} of {name!r}"
                )
        return counts[first], first

    def layers(self) -> list[Tensor]:
        """Return the layers in order."""
        return list(self.tape.layers().values())


def _run(sides: list[_Side], loader: Iterable[Any], after: Callable[[int], None]) -> None:
    """Give every batch to both models; call `after` with the number of rows that tapes hold."""
    if isinstance(loader, Tensor | np.ndarray | Mapping | str):
        kind = type(loader).__name__
        raise TypeError(f"loader: wanted an iterable of batches, got one {kind}; [batch] is one")
    empty = True
    with torch.no_grad(), ExitStack() as stack:
        for side in sides:
            stack.enter_context(side.tape).paused = True
        for number, batch in enumerate(loader):
            empty = False
            for side in sides:
                side.run(batch)
            counts = [side.rows() for side in sides]
            if counts[0][0] != counts[-1][0]:
                (n_a, layer_a), (n_b, layer_b) = counts[0], counts[-1]
                raise ValueError(
                    f"loader: wanted as many rows of both models, got {n_a} of {layer_a!r} in "
                    f"model_a and {n_b} of {layer_b!r} in model_b after batch {number}"
                )
            after(counts[0][0])
        if empty:
            raise ValueError("loader: wanted at least one batch, got none")


@contextmanager
def _names_in_errors(sides: list[_Side]) -> Iterator[None]:
    """Let errors of a measure name layers and models, and not their places in lists."""

    def named(place: re.Match[str]) -> str:
        side = sides[0] if place[1] == "X" else sides[-1]
        return f"{side.tape.names[int(place[2])]!r} of {side.name}"

    try:
        yield
    except (TypeError, ValueError) as error:
        text = re.sub(r"\b([XY])(?:_batch)?\[(\d+)\]", named, str(error))
        if text == str(error):
            raise
        raise type(error)(text) from error


def _keep(
    sides: list[_Side],
    loader: Iterable[Any],
    function: Callable[..., Any],
    options: Mapping[str, Any],
) -> tuple[Tensor, int]:
    """Record all rows, then compute one grid."""
    _run(sides, loader, lambda rows: None)
    x, *others = [side.layers() for side in sides]
    y = others[0] if others else None
    with _names_in_errors(sides):
        grid = function(x, y, **options)
    wanted = len(x), len(x if y is None else y)
    if not isinstance(grid, Tensor | np.ndarray) or grid.shape != wanted:
        got = tuple(grid.shape) if hasattr(grid, "shape") else type(grid).__name__
        raise ValueError(f"measure: wanted a grid of shape {wanted}, got {got}")
    return torch.as_tensor(grid).double().cpu(), len(x[0])


def _stream(
    sides: list[_Side],
    loader: Iterable[Any],
    function: Callable[..., Any],
    options: Mapping[str, Any],
) -> tuple[Tensor, int]:
    """Add batch after batch to a MinibatchCKA; never keep more than one, or 3 rows of others."""
    metric: MinibatchCKA | None = None
    used = waiting = 0

    def add(rows: int) -> None:
        nonlocal metric, used, waiting
        waiting = rows
        if rows < LEAST_ROWS["unbiased"]:
            return
        layers = [side.layers() for side in sides]
        metric = metric or MinibatchCKA(*map(len, layers))
        with _names_in_errors(sides):
            metric.update(*layers)
        for side in sides:
            side.tape.clear()
        used, waiting = used + rows, 0

    _run(sides, loader, add)
    if metric is None:
        raise ValueError(
            f"loader: wanted at least {LEAST_ROWS['unbiased']} rows for streaming, got {waiting}"
        )
    if waiting:
        warn_caller(
            f"compare: the last {waiting} rows are left out, because the unbiased estimator needs "
            f"{LEAST_ROWS['unbiased']} in a batch"
        )
    return metric.compute(), used
