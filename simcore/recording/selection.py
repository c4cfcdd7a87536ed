"""Which modules of a model are recorded, and under which names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torch import nn

Chooser = str | Sequence[str] | Callable[[str, nn.Module], bool]

# Attributes in which wrappers keep the module that they wrap; they are left out of names.
WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
INPUT = ":input"  # after a name: what the module takes, and not what it gives
_FEW = 5  # names in an error message
_GLOB = {"**": ".*", "*": "[^.]*", "?": "[^.]"}


def named_modules(core: nn.Module) -> dict[str, nn.Module]:
    """Return all modules below `core` by name; the root's own name is ``""``."""
    named = {}
    for path, module in core.named_modules(remove_duplicate=False):
        # A wrapped module comes after its wrapper and takes its place.
        named[".".join(part for part in path.split(".") if part not in WRAPPERS)] = module
    return named


@dataclass(frozen=True)
class Choice:
    """A module, whether its input is recorded and not its output, and whether it was named."""

    module: nn.Module
    is_input: bool = False
    is_named: bool = False


def choose_modules(core: nn.Module, modules: Chooser) -> dict[str, Choice]:
    """Return the modules that `modules` describes, by name, each output and input once."""
    named = named_modules(core)
    chosen: dict[str, Choice] = {}
    labels: dict[tuple[nn.Module, bool], str] = {}  # each module is recorded under its first name

    def choose(name: str, is_input: bool, is_named: bool) -> None:
        module = named[name]
        if _runs(module):
            label = labels.setdefault((module, is_input), name + INPUT * is_input)
            is_named = is_named or (label in chosen and chosen[label].is_named)
            chosen[label] = Choice(module, is_input, is_named)

    if callable(modules):
        names = [name for name, module in named.items() if modules(name, module)]
        _check_some(names, named, "modules: wanted a predicate that is true for some module")
        for name in names:
            choose(name, False, False)
        return chosen
    for entry in _entries(modules):
        is_input = entry.endswith(INPUT) and entry not in named
        wanted = entry.removesuffix(INPUT) if is_input else entry
        for name in _matches(wanted, named):
            choose(name, is_input, not _is_glob(wanted))
    return chosen


def _entries(modules: object) -> Iterable[str]:
    entries = [modules] if isinstance(modules, str) else modules
    if not isinstance(entries, Sequence) or not all(isinstance(entry, str) for entry in entries):
        raise TypeError(f"modules: wanted a glob, a list of globs or a predicate, got {modules!r}")
    if not entries:
        raise ValueError("modules: wanted at least one name, got an empty list")
    return entries


def _matches(entry: str, named: dict[str, nn.Module]) -> list[str]:
    if _is_glob(entry):
        pattern = re.compile(_regex(entry))
        names = [name for name in named if name and pattern.fullmatch(name)]
    else:
        names = [entry] if entry in named else []
    wanted = f"modules: wanted {entry!r} to match a module that has a forward pass"
    _check_some(names, named, wanted, near=entry)
    return names


def _is_glob(entry: str) -> bool:
    return any(sign in entry for sign in "*?[")


def _regex(glob: str) -> str:
    parts = re.split(r"(\*\*|\*|\?|\[!?[^\]]+\])", glob)
    return "".join(
        _GLOB.get(part) or (part.replace("[!", "[^") if part[:1] == "[" else re.escape(part))
        for part in parts
    )


def _check_some(
    names: list[str], named: dict[str, nn.Module], wanted: str, near: str | None = None
) -> None:
    if any(_runs(named[name]) for name in names):
        return
    kinds = sorted({type(named[name]).__name__ for name in names})
    got = f"only {', '.join(kinds)}, which is never called" if names else "no match"
    runnable = [name for name, module in named.items() if name and _runs(module)]
    if not runnable:
        raise ValueError(f"{wanted}, got {got}; the model has none inside, and '' is its own name")
    if len(runnable) <= _FEW:
        told = "its modules are"
    elif near is None:
        told, runnable = "its modules are such as", runnable[:_FEW]
    else:
        told, runnable = "the nearest names are", _nearest(near, runnable)
    raise ValueError(f"{wanted}, got {got}; {told} {', '.join(map(repr, runnable))}")


def _nearest(entry: str, names: Sequence[str]) -> list[str]:
    """Return the names that are, as a whole or in their last part, most like `entry`."""

    def likeness(name: str) -> float:
        parts = (name, name.rpartition(".")[2])
        return max(difflib.SequenceMatcher(None, entry, part).ratio() for part in parts)

    return sorted(names, key=likeness, reverse=True)[:_FEW]


def _runs(module: nn.Module) -> bool:
    """Whether the module has a forward pass; containers as ModuleList have none."""
    return type(module).forward is not nn.Module.forward or "forward" in vars(module)
