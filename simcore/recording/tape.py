"""`record`: the layers of a model, recorded while it runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from simcore._grid.finish import warn_caller
from simcore._grid.options import check_flag
from simcore.recording.hooks import Generate, Listener, Pass
from simcore.recording.masks import Given
from simcore.recording.outputs import Select
from simcore.recording.pools import Pool
from simcore.recording.reading import Reading, Sampler
from simcore.recording.selection import Choice, Chooser
from simcore.recording.storage import Budget, FileStore, MemoryStore, Store
from simcore.recording.wrappers import has_compiled, is_compiled


def record(
    model: nn.Module,
    modules: Chooser,
    *,
    pool: Pool = None,
    select: Select = None,
    mask: Given = None,
    detach: bool = True,
    max_memory: int | None = None,
    out: str | os.PathLike[str] | None = None,
    sample: float | None = None,
    seed: int = 0,
    generate: Generate = "prompt",
) -> Tape:
    """Record the outputs of modules of `model`, whoever calls the model inside the block.

    Parameters
    ----------
    model : nn.Module
        Any model; also a compiled one, which runs eagerly inside the block, or a DataParallel one.
    modules : str, list of str, or function
        Names or globs of ``model.named_modules()``: ``*`` matches within a name and stops at a dot,
        ``**`` does not. Or a function of a name and a module that says whether to record it. With
        ``:input`` after a name or glob, the first argument of the module is recorded, not its
        output.
    pool : str or function, optional
        The rows that an output becomes. For tokens, ``[B, T, p]``: "first", "last" or "mean" of an
        example's tokens, "tokens" (a row a token), "flatten". For images, ``[B, C, H, W]`` or
        another number of positions: "spatial-mean", "positions" (a row a position), "flatten".
        Outputs ``[B, p]`` are taken as they are. A function takes the output, and the mask if it
        has a parameter of that name, and returns rows ``[r, p]``.
    select : int, str or function, optional
        The part of an output that is recorded: an index, a key or an attribute, or a function of
        the output. Default: its first tensor. Axes are those that torch documents for the part; a
        function gives ``[B, T, p]``, or channels second.
    mask : optional
        Which positions are tokens. Default: the argument ``attention_mask`` of the call, or one of
        ``src_key_padding_mask``, ``key_padding_mask``, ``padding_mask`` (true is padding) and
        ``mask`` (true is a token); for modules of a decoder beside an encoder,
        ``decoder_attention_mask`` or ``tgt_key_padding_mask``. In a call with texts and pictures or
        sounds, the mask belongs to the texts, and modules below a name such as ``vision_model``
        have none. A lower triangle ``[T, T]`` is a causal mask, and none of padding, unless it is
        named. False: nothing is padding. Or the name of an argument, a tensor ``[B, T]`` of 0
        and 1, or a function of the call's ``(args, kwargs)``.
    detach : bool
        False keeps the rows on their device, with their gradients.
    max_memory : int, optional
        Bytes of the rows in memory, and of the copy of the largest layer that joining its batches
        takes. Default: a quarter of the free memory.
    out : path, optional
        Write the rows to this file of safetensors, which is complete when the block ends.
    sample : int or float, optional
        Keep so many rows of each forward pass, or a share of them in (0, 1).
    seed : int
        Seed of `sample`. Layers and models with equal numbers of rows keep the same rows.
    generate : {"prompt", "all"}
        Of ``model.generate``, and of calls with one new token and a filled cache: record the pass
        of the prompt alone, or all passes.

    Returns
    -------
    Tape
        A context manager. ``tape.layers()`` gives the rows.

    Raises
    ------
    TypeError, ValueError
        Unknown modules or options; inside the block, an output that does not fit `pool` or whose
        axes are not known, a mask that is missing, or more rows than `max_memory` has room for.
    RuntimeError
        The block ends without a forward pass.

    Warns
    -----
    UserWarning
        The model is in training mode; or a glob or function chose modules that never run, or that
        have no row for each example, which are left out.

    Examples
    --------
    >>> import torch
    >>> from simcore import cka_grid, record
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> with record(model.eval(), "*") as tape:
    ...     for batch in torch.randn(3, 50, 4):
    ...         _ = model(batch)
    >>> {name: tuple(layer.shape) for name, layer in tape.layers().items()}
    {'0': (150, 8), '1': (150, 8), '2': (150, 2)}
    >>> cka_grid(tape.layers()).shape
    torch.Size([3, 3])
    """
    check_flag(detach, "detach")
    if out is not None and not detach:
        raise ValueError("out: wanted no file with detach=False, got one")
    budget = Budget(max_memory)
    store = MemoryStore(budget) if out is None else FileStore(out)
    reading = Reading(pool, select, Sampler(sample, seed), detach)
    return Tape(model, modules, reading, store, budget, mask=mask, generate=generate)


class Tape:
    """The layers of a model, recorded inside a ``with`` block; `simcore.record` makes one.

    After an exception inside the block, the rows of all complete forward passes are there. The
    names in `told` were told to be left out by another tape.
    """

    def __init__(
        self,
        model: nn.Module,
        modules: Chooser,
        reading: Reading,
        store: Store,
        budget: Budget,
        *,
        mask: Given,
        generate: Generate,
        told: set[str] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model: wanted an nn.Module, got {type(model).__name__}")
        self._listener = Listener(
            model, modules, mask, generate, self._begin, self._hear, self._commit
        )
        self._reading, self._store, self._budget = reading, store, budget
        self._entered = self._closed = self._warned = False
        self._layers: dict[str, tuple[int, torch.dtype]] = {}
        self._called: set[str] = set()
        self._unfit: set[str] = set()  # modules that a glob matched, without rows of examples
        self._told: set[str] = set() if told is None else told
        self._passes = self._rows = 0

    @property
    def paused(self) -> bool:
        """Whether calls of the model are let pass; False until it is set."""
        return self._listener.paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._listener.paused = check_flag(paused, "paused")

    @property
    def names(self) -> tuple[str, ...]:
        """The recorded layers, in the order in which their outputs came."""
        return tuple(self._layers)

    def layers(self) -> dict[str, Tensor]:
        """Return the rows ``[n, p]`` of every layer by name, in the order of `names`.

        A module that runs several times in a forward pass is ``name#0``, ``name#1``, and so on.

        Raises
        ------
        RuntimeError
            No forward pass is complete yet, or ``out=`` is not written yet.
        ValueError
            A module that was named was never called, or no module has rows of examples.
        """
        self._check_complete()
        recorded = self._store.layers()
        return {name: recorded[name] for name in self._layers if name in recorded}

    def row_counts(self) -> dict[str, int]:
        """Return the number of rows of every layer so far; errors as in `layers`."""
        self._check_complete()
        return {name: self._store.counts.get(name, 0) for name in self._layers}

    def clear(self) -> None:
        """Forget the rows recorded so far, such as the rows of the last training step."""
        if not isinstance(self._store, MemoryStore):
            raise RuntimeError("clear: wanted a tape in memory, got one that writes a file")
        self._store.clear()

    def close(self) -> None:
        """Stop recording, as the end of the block does."""
        if self._closed:
            return
        self._closed = True
        self._listener.detach()
        try:
            self._check_complete()
            self._store.complete()
        finally:
            self._store.discard()

    def __enter__(self) -> Self:
        if self._entered:
            raise RuntimeError("record: wanted a new tape for every block, got one that was used")
        self._entered = True
        try:
            self._listener.attach()
        except BaseException:
            self._listener.detach()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._closed = True
            self._listener.detach()
            self._store.discard()

    def _check_complete(self) -> None:
        if not self._passes:
            why = (
                "; compiled code that calls the model sees no hooks: give record the compiled model"
            )
            if not self._entered:
                why = "; it records inside its block: with record(...) as tape"
            elif self._listener.skipped:
                why = f" but {self._listener.skipped} that generate='prompt' leaves out"
            raise RuntimeError(f"record: wanted a forward pass of the model, got none{why}")
        chosen = self._listener.modules
        never = [name for name in chosen if name not in self._called | self._unfit]
        lost = never if not self._called else [name for name in never if chosen[name].is_named]
        if lost:
            compiled = has_compiled() and not is_compiled(self._listener.model)
            raise ValueError(
                "modules: wanted modules that the forward pass calls, got "
                f"{_quoted(lost)}, never called"
                + ("; of a model compiled before, give record the compiled one" if compiled else "")
            )
        if not self._called:
            raise ValueError(
                "modules: wanted modules whose output has a row for each example, got "
                f"{_quoted(chosen)}"
            )

    def _hear(self, current: Pass, name: str, choice: Choice, value: Any) -> None:
        def check(nbytes: int, device: torch.device) -> None:
            self._budget.check(current.nbytes + nbytes, device, self._rows)

        if name in self._unfit:
            return
        rows = self._reading.rows(name, choice, value, current, check)
        if rows is None:
            current.unfit.add(name)
        else:
            current.rows.append((name, rows))

    def _begin(self) -> None:
        if self._warned or not self._reading.detach:
            return
        core = self._listener.core
        # A walk over all modules may take as long as a small model: in the first pass only.
        if core.training or (not self._passes and any(m.training for m in core.modules())):
            self._warned = True
            warn_caller(
                "record: the model is in training mode, in which dropout and batch statistics "
                "change what is recorded; model.eval() ends it"
            )

    def _commit(self, complete: Pass) -> None:
        """Add the rows of a pass to the store, all layers or none."""
        if not self._passes:
            self._leave_out(complete)
        rows = complete.named()
        if self._reading.detach:
            rows = {name: layer.cpu() for name, layer in rows.items()}
        if complete.is_part:
            rows = {name: self._reading.sampled(layer, complete) for name, layer in rows.items()}
        if not self._passes:
            self._layers = {name: (layer.shape[1], layer.dtype) for name, layer in rows.items()}
            self._called = {name for name, _ in complete.rows}
        self._check_same(rows)
        if rows:
            device = next(iter(rows.values())).device
            self._budget.check(self._store.bytes_after(rows), device, self._rows)
            self._store.append(rows)
            self._rows += max(len(layer) for layer in rows.values())
        self._passes += 1

    def _leave_out(self, first: Pass) -> None:
        """Take what has no row for each example, and a glob chose, out of a first pass; say so."""
        # The examples count as in the first argument of the call, if most layers have as many.
        chosen, lengths = self._listener.modules, first.first_axes
        odd = {name for name, length in lengths.items() if length != first.examples}
        if 2 * len(odd - first.unfit) < len(lengths.keys() - first.unfit):
            first.unfit |= {name for name in odd if not chosen[name].is_named}
        self._unfit |= first.unfit
        first.rows = [(name, rows) for name, rows in first.rows if name not in self._unfit]
        called = {name for name, _ in first.rows}
        never = [n for n in chosen if n not in called | self._unfit | self._told]
        never = [name for name in never if not chosen[name].is_named]
        unfit = [name for name in chosen if name in self._unfit - self._told]
        self._told |= {*never, *unfit}
        why = {"that the forward pass never calls": never, "without a row for each example": unfit}
        told = [f"modules {reason}: {_quoted(names)}" for reason, names in why.items() if names]
        if told and called:
            warn_caller(f"record: left out {'; '.join(told)}")

    def _check_same(self, rows: dict[str, Tensor]) -> None:
        """Raise a ValueError unless a pass has the layers, widths and dtypes of the first."""
        for name in (*self._layers, *rows):
            if name not in rows or name not in self._layers:
                got = "more" if name in rows else "no"
                raise ValueError(
                    "modules: wanted the calls of the first forward pass in all others, got "
                    f"{got} calls of {name!r} in pass {self._passes}"
                )
        for name, layer in rows.items():
            wanted, got = self._layers[name], (layer.shape[1], layer.dtype)
            if wanted != got:
                raise ValueError(
                    f"pool: wanted rows of {wanted[0]} columns in {wanted[1]} for {name!r}, as in "
                    f"the first forward pass, got {got[0]} in {got[1]} in pass {self._passes}"
                )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
