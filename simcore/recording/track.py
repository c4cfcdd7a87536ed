"""`Track`: how a model's layers change while any loop trains it."""

from __future__ import annotations

import copy
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from simcore._grid.options import check_choice, check_count
from simcore._measures import MEASURES
from simcore._optional import import_optional
from simcore.recording.batches import Forward, call, undisturbed
from simcore.recording.history import History
from simcore.recording.masks import Given
from simcore.recording.named_grid import read_question
from simcore.recording.outputs import Select
from simcore.recording.pools import Pool
from simcore.recording.reading import Reading, Sampler
from simcore.recording.selection import Chooser
from simcore.recording.storage import Budget, MemoryStore
from simcore.recording.tape import Tape
from simcore.recording.track_arguments import (
    PREVIOUS,
    START,
    Layers,
    inner_model,
    other_references,
    own_references,
    plain,
    read_batches,
    read_log,
    read_out,
    recorded_steps,
)

Pairs = Literal["same", "all"]


class Track:
    """The similarity of a model's layers with references, over the steps of any training loop.

    ``track.step(n)`` runs the model on the same examples each time, and compares its layers with
    their state when the track was made, with their state at the last recorded step, and with other
    models. The training is not disturbed: modes of modules and random states are restored, and no
    gradients are touched.

    Parameters
    ----------
    model : nn.Module
        The model that is trained; of a DistributedDataParallel model, the module inside runs.
    modules : str, list of str, or function
        As in `simcore.record`; so are `pool`, `select`, `mask`, `sample` and `seed`.
    batch : tensor, dict, tuple, or list of these
        The examples on which layers are compared: one batch, or a list of batches, as from the
        loader of `simcore.compare`. A loader is refused, because it may shuffle: give
        ``list(loader)``.
    against : sequence of {"start", "previous"}
        The states of the model itself to compare with: when the track is made, and at the last
        recorded step.
    references : dict of str to nn.Module or dict of layers, optional
        Others to compare with, by name. A module, such as the same model trained from another seed,
        runs at each step, since it may change. The layers ``[n, p]`` of one that does not change,
        as ``tape.layers()`` gives them, are kept.
    every : int, or collection of int
        Record each step that is a multiple of this number, or the steps that are listed.
    pairs : {"same", "all"}
        Compare each layer with the layer of its name, or with all layers.
    measure : str or function
        As in `simcore.compare_layers`.
    forward : function, optional
        Called as ``forward(model, batch)`` in place of the call that `simcore.compare` describes.
    max_memory : int, optional
        Bytes of all rows that are held together: now, at the start, and at the last recorded step.
        Default: a quarter of the free memory.
    out : path, optional
        Add each recorded step to this file of JSON lines, which ``simcore plot``, ``simcore
        report`` and ``simlab.read_results`` read.
    log : object, optional
        Where each value goes as ``cka/start/NAME``: a SummaryWriter, a run of wandb, trackio, an
        Accelerator, a logger of Lightning, or a function ``(values, step)``. For ``pairs="same"``.
    about : dict, optional
        Facts for the file, each a text or a number, which name the run in tables and figures:
        ``task``, ``label``, ``seed``, ``base``.
    **options
        Options of the measure.

    Attributes
    ----------
    layers : tuple of str
        The names of the layers, in the order in which their outputs come.
    n : int
        The number of rows of each layer.

    Raises
    ------
    TypeError, ValueError
        As `simcore.record` and `simcore.compare_layers`; options are checked before the model runs.

    Examples
    --------
    >>> import torch
    >>> from simcore import Track
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> track = Track(model, "*", torch.randn(50, 4), every=2)
    >>> for step in range(1, 5):
    ...     x = torch.randn(16, 4)
    ...     loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    ...     loss.backward()
    ...     optimizer.step()
    ...     optimizer.zero_grad()
    ...     _ = track.step(step)
    >>> track.steps, track.values("start").shape
    ([2, 4], (2, 3))
    """

    def __init__(
        self,
        model: nn.Module,
        modules: Chooser,
        batch: Any,
        *,
        against: Sequence[str] = (START, PREVIOUS),
        references: Mapping[str, nn.Module | Layers] | None = None,
        every: int | Collection[int] = 1,
        pairs: Pairs = "same",
        measure: Any = "cka",
        pool: Pool = None,
        select: Select = None,
        mask: Given = None,
        sample: float | None = None,
        seed: int = 0,
        forward: Forward | None = None,
        max_memory: int | None = None,
        out: str | os.PathLike[str] | None = None,
        log: Any = None,
        about: Mapping[str, str | float] | None = None,
        **options: Any,
    ) -> None:
        self._question = read_question(Track, measure, options, seed=seed)
        self._named = isinstance(measure, str)
        self.model, self._modules, self.batches = inner_model(model), modules, read_batches(batch)
        self._forward: Forward = forward or call
        self._mask, self._sample, self._seed = mask, sample, seed
        self._pool, self._select = pool, select
        self.budget = Budget(max_memory, "fewer examples make fewer rows")
        self._same = check_choice(pairs, "pairs", Pairs) == "same"
        self._every = recorded_steps(every)
        self._own = own_references(against)
        self._others = other_references(references)
        if not self._own and not self._others:
            raise ValueError("against: wanted 'start', 'previous' or references=, got none of them")
        self._log, self._out = read_log(log, pairs), read_out(out)
        # The first run finds the layers, the room that they take, and whether references fit.
        self._kept: dict[str, Layers] = {}
        self._in_file = self._loaded = False
        self._left_out: set[str] = set()
        start = self._run(self.model)
        self.layers = tuple(start)
        self.n = len(start[self.layers[0]])
        self._check_room(start)
        self._kept = dict.fromkeys(self._own, start)
        for name, other in self._others.items():
            if not isinstance(other, nn.Module):
                self._check_fits(name, other)
        self._history = History(self._describe(about or {}))

    @property
    def references(self) -> tuple[str, ...]:
        """The names of all references."""
        return (*self._own, *self._others)

    @property
    def steps(self) -> list[int]:
        """The recorded steps."""
        return list(self._history.steps)

    def step(self, n: int) -> dict[str, Tensor] | None:
        """Record step `n`, if it is one to record.

        Parameters
        ----------
        n : int
            The number of steps that the model was trained for.

        Returns
        -------
        dict of str to Tensor, or None
            float64 values for each reference: ``[L]``, or ``[L, K]`` with ``pairs="all"``. None if
            this step is not recorded.

        Raises
        ------
        ValueError
            A step that is not after the last recorded one; or `out` is a file of another run.
        """
        n = check_count(n, "n", 0)
        if not (n % self._every == 0 if isinstance(self._every, int) else n in self._every):
            return None
        steps = self._history.steps
        if steps and n <= steps[-1]:
            raise ValueError(f"n: wanted a step after the last recorded one, {steps[-1]}, got {n}")
        if self._out is not None and self._out.exists() and not (self._in_file or self._loaded):
            raise ValueError(
                f"out: wanted a new file, got {str(self._out)!r}, which exists; load_state_dict "
                "goes on with its run"
            )
        now = self._run(self.model)
        values = {name: self._compare(now, name) for name in self.references}
        if PREVIOUS in self._kept:
            self._kept[PREVIOUS] = now
        self._history.add(n, values)
        if self._out is not None:
            (self._history.append if self._in_file else self._history.write)(self._out)
            self._in_file = True
        if self._log is not None:
            self._log(self._scalars(values), n)
        return values

    def values(self, reference: str) -> np.ndarray:
        """Return the values of a reference, float64 ``[steps, L]`` or ``[steps, L, K]``.

        Raises
        ------
        ValueError
            There is no such reference.
        """
        check_choice(reference, "reference", self.references)
        return self._history.array(reference)

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame: ``step``, ``reference``, ``layer``, ``other``, ``value``.

        ``other`` is the layer of the reference.

        Raises
        ------
        ModuleNotFoundError
            pandas is not installed.
        """
        pandas = import_optional("pandas", "Track.to_pandas")
        return pandas.DataFrame(list(self._history.rows()))

    def state_dict(self) -> dict[str, Any]:
        """Return what another process needs to go on: values, and the states compared with."""
        return {
            "steps": self.steps,
            "values": copy.deepcopy(self._history.values),
            "layers": {name: dict(layers) for name, layers in self._kept.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` stopped; the next recorded step writes the file `out` anew.

        Raises
        ------
        ValueError
            The state belongs to a track of other references, layers or examples.
        """
        kept, values = state["layers"], state["values"]
        if list(kept) != list(self._own) or (values and list(values) != list(self.references)):
            got = ", ".join(values or kept)
            raise ValueError(f"state: wanted the references {self.references}, got {got}")
        for name, layers in kept.items():
            self._check_fits(name, layers)
        self._kept = {name: dict(layers) for name, layers in kept.items()}
        self._history.steps = list(state["steps"])
        self._history.values = copy.deepcopy(dict(values))
        self._in_file, self._loaded = False, True

    def _check_room(self, start: Layers) -> None:
        states = len(self._own) + 1  # that are held while a step is recorded
        states += any(isinstance(other, nn.Module) for other in self._others.values())
        largest = max(rows.nbytes for rows in start.values())  # is copied where batches are joined
        self.budget.held = 0
        self.budget.check(states * _bytes(start) + largest, torch.device("cpu"), self.n)

    def record(self, model: nn.Module, store: MemoryStore) -> None:
        """Append the rows of all layers of `model` to `store`; a subclass may have others."""
        reading = Reading(self._pool, self._select, Sampler(self._sample, self._seed))
        options: dict[str, Any] = {"mask": self._mask, "generate": "prompt", "told": self._left_out}
        tape = Tape(model, self._modules, reading, store, self.budget, **options)
        with tape:
            for batch in self.batches:
                self._forward(model, batch)
        tape.layers()  # checks that all modules were called

    def _run(self, model: nn.Module) -> Layers:
        """Return the layers of `model` now, all of as many rows."""
        held = {id(layers): layers for layers in self._kept.values()}
        self.budget.held = sum(_bytes(layers) for layers in held.values())
        store = MemoryStore(self.budget)
        with undisturbed(model):
            self.record(model, store)
        layers = store.layers()
        counts = {name: len(rows) for name, rows in layers.items()}
        if len(set(counts.values())) > 1:
            raise ValueError(f"modules: wanted as many rows in every layer, got {counts}")
        return layers

    def _compare(self, now: Layers, reference: str) -> Tensor:
        """Return the values between the layers now and the layers of a reference."""
        other = self._kept.get(reference) or self._others[reference]
        if isinstance(other, nn.Module):
            other = self._run(other)
            self._check_fits(reference, other)
        sides = ("model", reference)
        if not self._same:
            return self._question.answer(now, other, sides).values
        grids = [
            self._question.answer({name: now[name]}, {name: other[name]}, sides).values
            for name in self.layers
        ]
        return torch.cat(grids).flatten()

    def _check_fits(self, reference: str, layers: Layers) -> None:
        names = tuple(layers)
        if self._same and set(names) != set(self.layers):
            raise ValueError(
                f"references: wanted the layers {self.layers} of {reference!r}, got {names}; "
                "pairs='all' compares other layers"
            )
        for name, rows in layers.items():
            if len(rows) != self.n:
                raise ValueError(
                    f"references: wanted {self.n} rows in each layer of {reference!r}, got "
                    f"{len(rows)} in {name!r}"
                )

    def _scalars(self, by_reference: Mapping[str, Tensor]) -> dict[str, float]:
        return {
            f"{self._question.name}/{reference}/{layer}": value
            for reference, values in by_reference.items()
            for layer, value in zip(self.layers, values.tolist(), strict=True)
        }

    def _describe(self, about: Mapping[str, str | float]) -> dict[str, Any]:
        """Return the first line of the file."""
        for name, value in about.items():
            if not isinstance(value, str | int | float):
                raise TypeError(f"about: wanted texts and numbers, got {name} = {value!r}")
        columns = {name: list(self.layers) for name in self.references}
        for name, other in self._others.items():
            if not (self._same or isinstance(other, nn.Module)):
                columns[name] = list(other)
        defaults = MEASURES[self._question.name].options if self._named else {}
        options = {**defaults, **self._question.options}
        return {
            "measure": self._question.name,
            "options": {name: plain(value) for name, value in options.items()},
            "pool": self._pool if isinstance(self._pool, str) else None,
            "n": self.n,
            "pairs": "same" if self._same else "all",
            "layers": list(self.layers),
            "references": columns,
            "about": dict(about),
        }


def _bytes(layers: Layers) -> int:
    return sum(rows.nbytes for rows in layers.values())
