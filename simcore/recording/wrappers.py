"""Code around a model: compiled, data-parallel and generating.

Hooks belong to the innermost model, the *core*. Names of modules are as the core has them.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from simcore.recording.selection import WRAPPERS


def wrapped_in(model: nn.Module) -> Iterator[nn.Module]:
    """Yield `model`, the module that it wraps, and so on down to the core."""
    while True:
        yield model
        inner = [model._modules[name] for name in WRAPPERS if name in model._modules]
        if isinstance(model, DataParallel | DistributedDataParallel):
            inner = [model.module]
        if not inner or inner[0] is None:
            return
        model = inner[0]


def is_replica(module: nn.Module) -> bool:
    """Whether `module` is one of the copies that DataParallel makes for a forward pass."""
    return bool(getattr(module, "_is_replica", False))


def is_compiled(model: nn.Module) -> bool:
    """Whether `model` or one of its modules was given to torch.compile."""
    return any(
        "_orig_mod" in module._modules
        or getattr(module, "_compiled_call_impl", None) is not None
        or getattr(module.forward, "_torchdynamo_orig_callable", None) is not None
        for module in model.modules()
    )


def has_compiled() -> bool:
    """Whether torch.compile has compiled any code in this process."""
    loaded = sys.modules.get("torch._dynamo.utils")  # takes a second to import
    return loaded is not None and bool(loaded.counters["frames"])


class _Eager:
    """Lets compiled code run eagerly, as long as somebody holds it."""

    # Compiled code does not see hooks that were added after its compilation: torch does not guard
    # on them.

    def __init__(self) -> None:
        self._holders = 0
        self._stance: Any = None
        self._lock = threading.Lock()

    def hold(self) -> None:
        with self._lock:
            if self._holders == 0:
                self._stance = torch.compiler.set_stance("force_eager")
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                self._stance.__exit__(None, None, None)


eager = _Eager()


class Generation:
    """One call of ``core.generate``, and the objects that have asked `first_time` of it."""

    def __init__(self, core: nn.Module) -> None:
        self.core = core
        self._met: set[int] = set()

    def first_time(self, who: object) -> bool:
        """Whether `who` has not asked before."""
        first = id(who) not in self._met
        self._met.add(id(who))
        return first


_GENERATION: ContextVar[Generation | None] = ContextVar("generation", default=None)
_watchers: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()


def current_generation(core: nn.Module) -> Generation | None:
    """Return the call of ``core.generate`` that is running, if it is watched."""
    generation = _GENERATION.get()
    return generation if generation is not None and generation.core is core else None


def _generate(core: Any, own: Any, *args: Any, **kwargs: Any) -> Any:
    """Call ``core.generate`` and let `current_generation` know; `own` is an instance's method."""
    token = _GENERATION.set(Generation(core))
    try:
        return own(*args, **kwargs) if own else type(core).generate(core, *args, **kwargs)
    finally:
        _GENERATION.reset(token)


def watch_generation(core: nn.Module) -> None:
    """Note calls of ``core.generate`` until `unwatch_generation`; nothing if there is none."""
    if not callable(getattr(core, "generate", None)):
        return
    _watchers[core] = _watchers.get(core, 0) + 1
    if _watchers[core] == 1:
        # A partial, which deepcopy and pickle bind to the copy of the model.
        vars(core)["generate"] = functools.partial(_generate, core, vars(core).get("generate"))


def unwatch_generation(core: nn.Module) -> None:
    """Undo one `watch_generation`."""
    if core not in _watchers:
        return
    _watchers[core] -= 1
    if _watchers[core] == 0:
        del _watchers[core]
        own = vars(core).pop("generate").args[1]
        if own is not None:
            vars(core)["generate"] = own
