"""`compare`: the layers of two models on one data loader, as a grid with names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor, nn

from simcore._grid.finish import warn_caller
from simcore._grid.inputs import LEAST_ROWS
from simcore._grid.options import check_flag
from simcore._result import Comparison
from simcore.minibatch import MinibatchCKA
from simcore.recording.batches import Forward, call
from simcore.recording.masks import Given
from simcore.recording.named_grid import Question, answers, names_in_errors, read_questions
from simcore.recording.outputs import Select
from simcore.recording.pools import MANY_ROWS, Pool
from simcore.recording.reading import Reading, Sampler
from simcore.recording.selection import Chooser
from simcore.recording.storage import Budget, MemoryStore
from simcore.recording.tape import Tape
from simcore.stats.resampled_grid import Measure


@overload
def compare(
    model_a: nn.Module,
    model_b: nn.Module | None,
    loader: Iterable[Any] | None = ...,
    modules: Chooser | None = ...,
    *,
    measure: Measure = ...,
    **options: Any,
) -> Comparison: ...
@overload
def compare(
    model_a: nn.Module,
    model_b: nn.Module | None,
    loader: Iterable[Any] | None = ...,
    modules: Chooser | None = ...,
    *,
    measure: list[Any],
    **options: Any,
) -> dict[str, Comparison]: ...
def compare(
    model_a: nn.Module,
    model_b: nn.Module | None,
    loader: Iterable[Any] | None = None,
    modules: Chooser | None = None,
    *,
    modules_b: Chooser | None = None,
    measure: Measure | list[Any] = "cka",
    streaming: bool = False,
    pool: Pool = None,
    pool_b: Pool = None,
    select: Select = None,
    select_b: Select = None,
    mask: Given = None,
    sample: float | None = None,
    seed: int = 0,
    bootstrap: int | None = None,
    permutations: int | None = None,
    max_memory: int | None = None,
    progress: bool = False,
    forward: Forward | Sequence[Forward] | None = None,
    **options: Any,
) -> Comparison | dict[str, Comparison]:
    """Compare modules of two models by their outputs for the same batches.

    Parameters
    ----------
    model_a, model_b : nn.Module
        ``model_b=None`` compares the modules of `model_a` with each other.
    loader : iterable of batches
        Read once; both models see each batch. A batch is a dictionary of arguments, a tuple of
        arguments, a tensor, or an object with a method ``to``. Of a tuple such as ``(images,
        labels)``, a model of one argument takes the first; the rest is dropped.
    modules, modules_b : str, list of str, or function
        As in `simcore.record`; `modules_b` is `modules` by default. So are `pool_b` and `select_b`.
    measure : str or function, or list of them
        As in `simcore.compare_layers`.
    streaming : bool
        Add each batch to a `simcore.MinibatchCKA` and forget its rows. Batches of fewer than 4 rows
        are joined with the next.
    pool, select, mask, sample, seed
        As in `simcore.record`. The statistics have the same seed, and so has the measure "imd".
    bootstrap, permutations : int, optional
        As in `simcore.compare_layers`: intervals, p-values and calibrated values of the same rows,
        without a second pass. Not with ``streaming``, nor with a pool that makes several rows of an
        example.
    max_memory : int, optional
        Bytes of the recorded rows of both models, as in `simcore.record`.
    progress : bool
        Show progress bars on stderr: of the grid, unless a function that is not of simcore computes
        it, and of the statistics. With ``streaming`` there are none.
    forward : function, or one for each model, optional
        Called as ``forward(model, batch)`` in place of the calls described above.
    **options
        Options of the measure.

    Returns
    -------
    Comparison, or dict of str to Comparison
        ``values[i, j]`` compares ``rows[i]`` of `model_a` with ``columns[j]`` of `model_b`. Of a
        list of measures, one for each, by its name.

    Raises
    ------
    TypeError, ValueError
        As `simcore.record`; also for a loader without batches, a batch that could be called in
        several ways, and layers of different numbers of rows. An unknown measure or option, or a
        value that the measure does not take, is refused before the first batch.

    Examples
    --------
    >>> import torch
    >>> from simcore import compare
    >>> a, b = (torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()).eval() for _ in "ab")
    >>> result = compare(a, b, torch.randn(3, 50, 4).split(1), "*", forward=lambda m, x: m(x[0]))
    >>> result.values.shape, result.rows
    (torch.Size([2, 2]), ('0', '1'))
    """
    # Check all that can be checked before a model runs.
    batches = _checked_loader(loader, modules)
    questions = read_questions(
        compare,
        measure,
        options,
        bootstrap=bootstrap,
        permutations=permutations,
        seed=seed,
        progress=progress,
    )
    if check_flag(streaming, "streaming"):
        _check_streaming(questions, isinstance(measure, list))
    _check_examples((pool, pool_b), questions[0])
    budget = Budget(max_memory)

    def side(name: str, model: nn.Module, place: int, how: Any) -> _Side:
        chosen, pool, select = how
        reading = Reading(pool, select, Sampler(sample, seed))
        store = MemoryStore(budget)
        tape = Tape(model, chosen, reading, store, budget, mask=mask, generate="prompt")
        return _Side(name, model, _forward(forward, place), tape)

    # What model_b does not have of its own is as for model_a.
    first = (modules, pool, select)
    sides = [side("model_a", model_a, 0, first)]
    if model_b is not None:
        own = (modules_b, pool_b, select_b)
        second = [a if b is None else b for a, b in zip(first, own, strict=True)]
        sides.append(side("model_b", model_b, 1, second))
    if streaming:
        return _stream(sides, batches)
    _run(sides, batches, lambda rows: None)
    x, *others = [side.tape.layers() for side in sides]
    names = (sides[0].name, sides[-1].name)
    return answers(questions, measure, x, others[0] if others else None, names)


def _checked_loader(loader: Any, modules: Chooser | None) -> Iterable[Any]:
    """Return the loader; raise a TypeError for one batch, and for an object that gives none."""
    if modules is None:
        missing = "no modules" if loader is not None else "no loader and no modules"
        raise TypeError(
            "compare: wanted (model_a, model_b, loader, modules), with an iterable of batches as "
            f"loader and names such as 'encoder.layer.*' as modules, got {missing}"
        )
    kind = type(loader).__name__
    if isinstance(loader, Tensor | np.ndarray | Mapping | str):
        raise TypeError(f"loader: wanted an iterable of batches, got one {kind}; [batch] is one")
    if not (hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")):
        raise TypeError(f"loader: wanted an iterable of batches, got {kind}")
    iterable: Iterable[Any] = loader
    return iterable


def _check_streaming(questions: list[Question], several: bool) -> None:
    question = questions[0]
    if several or question.measure != "cka" or question.options or question.statistics:
        extra = ", ".join([*question.options, *question.statistics])
        names = [one.name for one in questions] if several else question.name
        got = f"{names!r} with {extra}" if extra else repr(names)
        raise ValueError(f"measure: wanted 'cka' without options for streaming=True, got {got}")


def _check_examples(pools: Iterable[Pool], question: Question) -> None:
    for pool in pools:
        if question.statistics and pool in MANY_ROWS:
            raise ValueError(
                f"{question.statistics[0]}: wanted a pool that makes one row an example, got "
                f"{pool!r}, whose rows belong together; record the layers, and give simcore.stats "
                "their groups="
            )


def _forward(given: Forward | Sequence[Forward] | None, place: int) -> Forward:
    if isinstance(given, Sequence):
        if len(given) != 2:
            raise ValueError(f"forward: wanted one function or two, got {len(given)}")
        given = given[place]
    if given is not None and not callable(given):
        raise TypeError(f"forward: wanted a function (model, batch), got {given!r}")
    return given or call


@dataclass
class _Side:
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


def _run(sides: list[_Side], loader: Iterable[Any], after: Callable[[int], None]) -> None:
    """Give every batch to both models; call `after` with the number of rows that tapes hold."""
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


def _stream(sides: list[_Side], loader: Iterable[Any]) -> Comparison:
    """Add batch after batch to a MinibatchCKA; never keep more than one, or 3 rows of others."""
    metric = MinibatchCKA()
    waiting = 0

    def add(rows: int) -> None:
        nonlocal waiting
        waiting = rows
        if rows < LEAST_ROWS["unbiased"]:
            return
        # Rows that are too few for the estimate wait on the tapes for the next batch.
        layers = [side.tape.layers() for side in sides]
        names = [tuple(layers[0]), tuple(layers[-1])]
        with names_in_errors(names, (sides[0].name, sides[-1].name)):
            metric.update(*layers)
        for side in sides:
            side.tape.clear()
        waiting = 0

    _run(sides, loader, add)
    if metric.batches == 0:
        raise ValueError(
            f"loader: wanted at least {LEAST_ROWS['unbiased']} rows for streaming, got {waiting}"
        )
    if waiting:
        warn_caller(
            f"compare: the last {waiting} rows are left out, because the unbiased estimator needs "
            f"{LEAST_ROWS['unbiased']} in a batch"
        )
    return metric.comparison()
