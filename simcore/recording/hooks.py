"""Hooks on a model: when a forward pass begins, what it calls, when it ends, and its rows."""

from __future__ import annotations

import dataclasses
import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel
from torch.utils.hooks import RemovableHandle

from simcore._grid.options import check_choice
from simcore.recording.axes import Trail, needs_trail, shows_axes
from simcore.recording.masks import Given, MaskFinder, PassMask
from simcore.recording.selection import Choice, Chooser, choose_modules
from simcore.recording.wrappers import (
    current_generation,
    eager,
    is_compiled,
    is_replica,
    unwatch_generation,
    watch_generation,
    wrapped_in,
)

Generate = Literal["prompt", "all"]
Begin = Callable[[], None]
Hear = Callable[["Pass", str, Choice, Any], None]
Commit = Callable[["Pass"], None]


@dataclass
class Pass:
    """The rows of one forward pass, in the order in which outputs came."""

    number: int  # counts the passes that are recorded, from 0
    mask: PassMask
    # Name of the module and rows [r, p], for every call of a module.
    rows: list[tuple[str, Tensor]] = field(default_factory=list)
    device: torch.device | None = None  # of the first output
    is_part: bool = False  # whether other replicas of the model have the other examples of the pass
    # The layers that have shown the axes of their outputs; None if no layer need show them.
    trail: Trail | None = None
    # The number of examples, if the first tensor among the arguments has one for each row.
    examples: int | None = None
    # The length of the first axis of the states of each module, with which examples count.
    first_axes: dict[str, int] = field(default_factory=dict)
    # Modules that a glob matched and whose output has no row for each example.
    unfit: set[str] = field(default_factory=set)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the rows."""
        return sum(rows.nbytes for _, rows in self.rows)

    def named(self) -> dict[str, Tensor]:
        """Return the rows by name; a module called several times is ``name#0``, ``name#1``, ..."""
        calls, seen = Counter(name for name, _ in self.rows), Counter[str]()
        named = {}
        for name, rows in self.rows:
            named[f"{name}#{seen[name]}" if calls[name] > 1 else name] = rows
            seen[name] += 1
        return named


def merged(parts: Sequence[Pass]) -> Pass:
    """Return the one pass whose examples several replicas of a model shared."""
    first = parts[0]
    calls = [[name for name, _ in part.rows] for part in parts]
    if any(names != calls[0] for names in calls):
        raise ValueError("modules: wanted the same calls in every replica of the model, got others")
    rows = []
    for entry, (name, head) in enumerate(first.rows):
        tails = [part.rows[entry][1].to(head.device) for part in parts[1:]]
        rows.append((name, torch.cat([head, *tails]) if tails else head))
    return dataclasses.replace(first, rows=rows)


def cached_tokens(arguments: dict[str, Any]) -> int:
    """Return the number of tokens whose keys and values the call finds in its cache."""
    cache = arguments.get("past_key_values")
    if cache is None:
        return 0
    if hasattr(cache, "get_seq_length"):
        return int(cache.get_seq_length())
    try:  # tuples of keys and values [B, heads, T, p], as in older versions of transformers
        return int(cache[0][0].shape[-2])
    except (AttributeError, IndexError, TypeError):
        return 0


def new_tokens(arguments: dict[str, Any]) -> int:
    """Return the number of tokens that the call adds to its cache, 0 if it does not say."""
    for name in ("decoder_input_ids", "decoder_inputs_embeds", "input_ids", "inputs_embeds"):
        given = arguments.get(name)
        if isinstance(given, Tensor) and given.ndim >= 2:
            return given.shape[1]
    return 0


def first_length(arguments: dict[str, Any]) -> int | None:
    """Return the length of the first tensor among the arguments of a call: mostly its examples."""
    lengths = (len(value) for value in arguments.values() if _has_rows(value))
    return next(lengths, None)


def _has_rows(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0


class Listener:
    """Listens to a model; tells what it hears, and each pass that is complete.

    A pass is a call of the core (see `wrappers`). Passes may run in several threads: a DataParallel
    model runs a replica in each, and their passes are parts of one.
    """

    def __init__(
        self,
        model: nn.Module,
        modules: Chooser,  # as in `simcore.record`; so are `mask` and `generate`
        mask: Given,
        generate: Generate,
        begin: Begin,  # called when a pass begins
        # Called with the pass, the name, the choice, and the output or the input of each call.
        hear: Hear,
        commit: Commit,  # called with each pass that has ended without an exception
    ) -> None:
        chain = list(wrapped_in(model))
        self.model, self.core = model, chain[-1]
        if isinstance(self.core, torch.jit.ScriptModule):
            raise TypeError(
                "model: wanted an nn.Module of Python code, got a TorchScript module, whose parts "
                "run without hooks"
            )
        self.modules = choose_modules(self.core, modules)
        self.skipped = 0
        self._parallel = next((m for m in chain if isinstance(m, DataParallel)), None)
        self._masks = MaskFinder(self.core, mask)
        self._generate = check_choice(generate, "generate", Generate)
        self._begun, self._heard, self._commit = begin, hear, commit
        self._undo: list[Callable[[], None]] = []
        self._attached = False
        self.paused = False
        self._passes = 0
        self._running = threading.local()
        self._lock = threading.RLock()
        self._parts: list[Pass] | None = None

    def attach(self) -> None:
        """Begin to listen."""
        self._attached = True
        if is_compiled(self.model):
            eager.hold()
            self._undo.append(eager.release)
        watch_generation(self.core)
        self._undo.append(functools.partial(unwatch_generation, self.core))
        for handle in self._handles():
            self._undo.append(handle.remove)

    def _handles(self) -> Iterator[RemovableHandle]:
        if self._parallel is not None:
            begins, ends = map(_untraced, self._parallel_hooks())
            yield self._parallel.register_forward_pre_hook(begins)
            yield self._parallel.register_forward_hook(ends, always_call=True)
        begins, ends = map(_untraced, self._core_hooks())
        yield self.core.register_forward_pre_hook(begins, with_kwargs=True)
        if needs_trail(self.core):
            for module in filter(shows_axes, self.core.modules()):
                yield module.register_forward_hook(_untraced(self._trail_hook(module)))
        for name, choice in self.modules.items():
            gives, takes = map(_untraced, self._module_hooks(name, choice))
            if choice.is_input:
                yield choice.module.register_forward_pre_hook(takes, with_kwargs=True)
            else:
                yield choice.module.register_forward_hook(gives)
        yield self.core.register_forward_hook(ends)  # after a hook that hears the core

    def detach(self) -> None:
        """Stop listening, and forget a pass that has not ended."""
        self._attached = False
        undo, self._undo = self._undo, []
        for step in undo:
            step()
        self._running, self._parts = threading.local(), None

    def _concerns(self, module: nn.Module, wanted: nn.Module) -> bool:
        """Whether a hook is to act; copies of the model and compiled code may keep old ones."""
        listens = self._attached and not self.paused
        return listens and (module is wanted or is_replica(module))

    # Hooks are functions, not bound methods, with which a copy of the model would copy the
    # listener.

    def _core_hooks(self) -> tuple[Callable[..., None], Callable[..., None]]:
        def begins(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._concerns(module, self.core):
                self._begin(module, args, kwargs)

        def ends(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if self._concerns(module, self.core):
                self._end()

        return begins, ends

    def _module_hooks(
        self, name: str, choice: Choice
    ) -> tuple[Callable[..., None], Callable[..., None]]:
        def gives(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if self._concerns(module, choice.module):
                self._hear(name, choice, output)

        def takes(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._concerns(module, choice.module):
                self._hear(name, choice, next(iter((*args, *kwargs.values())), None))

        return gives, takes

    def _trail_hook(self, wanted: nn.Module) -> Callable[..., None]:
        def heard(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            current = getattr(self._running, "current", None)
            if current is not None and self._concerns(module, wanted):
                current.trail = current.trail or Trail()
                current.trail.hear(module, args, output)

        return heard

    def _parallel_hooks(self) -> tuple[Callable[..., None], Callable[..., None]]:
        def begins(module: nn.Module, args: tuple[Any, ...]) -> None:
            if not self.paused:
                self._parts = []

        def ends(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            parts, self._parts = self._parts, None
            if parts and output is not None:  # None: an exception
                self._finish(merged(self._in_order(parts)))

        return begins, ends

    def _in_order(self, parts: list[Pass]) -> list[Pass]:
        """Order parts as DataParallel deals out a batch: by device."""
        assert self._parallel is not None
        places: dict[int | None, int] = {
            index: place for place, index in enumerate(self._parallel.device_ids)
        }
        indices = [part.device.index if part.device else None for part in parts]
        order = sorted(range(len(parts)), key=lambda i: places.get(indices[i], 0))
        return [parts[i] for i in order]

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if is_replica(module) and self._parts is None:
            raise RuntimeError(
                "record: wanted the DataParallel model, whose replicas run in no fixed order, got "
                "the model inside it"
            )
        arguments = self._masks.arguments(args, kwargs)
        past = cached_tokens(arguments)
        if self._continues(arguments, past):
            self.skipped += 1
            self._running.current, self._running.skipping = None, True
            return
        self._begun()
        mask = self._masks.find(args, kwargs, arguments, past)
        part = self._parts is not None
        examples = first_length(arguments)
        self._running.current = Pass(self._passes, mask, is_part=part, examples=examples)
        self._running.skipping = False

    def _continues(self, arguments: dict[str, Any], past: int) -> bool:
        """Whether the call continues a generation, and `generate` leaves it out."""
        if self._generate == "all":
            return False
        generation = current_generation(self.core)
        if generation is not None and not generation.first_time(self):
            return True
        return past > 0 and new_tokens(arguments) == 1

    def _hear(self, name: str, choice: Choice, value: Any) -> None:
        if getattr(self._running, "skipping", False):
            return
        current = getattr(self._running, "current", None)
        if current is not None:
            self._heard(current, name, choice, value)
        elif torch._C._current_graph_task_id() == -1:  # a backward pass may compute a layer anew
            raise RuntimeError(
                f"record: wanted calls of the model itself, got one of {name!r} outside of it; "
                "give record the module that is called, or set tape.paused"
            )

    def _end(self) -> None:
        if getattr(self._running, "skipping", False):
            self._running.skipping = False
            return
        current = getattr(self._running, "current", None)
        self._running.current = None
        if current is None:
            raise RuntimeError("record: wanted a model that does not call itself, got one")
        if current.is_part:
            with self._lock:
                assert self._parts is not None
                self._parts.append(current)
        else:
            self._finish(current)

    def _finish(self, complete: Pass) -> None:
        with self._lock:
            self._commit(complete)
            self._passes += 1


def _untraced(hook: Callable[..., None]) -> Callable[..., None]:
    """Return the hook such that torch.compile calls it and does not look inside."""
    loaded = "torch._dynamo" in sys.modules  # takes a second to import
    return torch.compiler.disable(hook) if loaded else hook
