"""A decorator that makes a whole function one operator wherever torch traces it.

torch.compile, torch.export and fake tensors know shapes and dtypes, but no values; the checks,
warnings or shapes of many functions here depend on values. `one_operator` registers such a function
as an operator of its name, whose kernel is the function itself: a traced call becomes one node, and
errors and warnings come when that node runs. A call that is not traced runs the function directly.

These functions have no derivative: their results never require a gradient. Forward-mode
differentiation and the transforms of `torch.func` would treat such a result as a constant and give
zeros, so that these functions refuse them (`refuse_derivatives`).
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch.autograd import forward_ad

P = ParamSpec("P")
R = TypeVar("R")

SCHEMA = "(Tensor[] tensors, str call) -> Tensor[]"
# Dataclasses that may be arguments, and the names of their fields: tensors and numbers.
_RECORDS: dict[str, tuple[type, tuple[str, ...]]] = {}


def tensor_record(cls: type[R]) -> type[R]:
    """Register a dataclass of tensors and numbers, so that its instances may be arguments."""
    _RECORDS[cls.__name__] = (cls, tuple(inspect.signature(cls).parameters))
    return cls


def empty_grid(like: Tensor, X: Sized, Y: Sized | None = None, **_: Any) -> list[Tensor]:
    """Return one uninitialised grid ``[len(X), len(Y)]``, float64."""
    return [like.new_empty((len(X), len(X if Y is None else Y)), dtype=torch.float64)]


def first_output(outputs: list[Tensor], *_: Any, **__: Any) -> Tensor:
    """Return the first output: the result of a function that returns one tensor."""
    return outputs[0]


def one_operator(
    empty: Callable[..., list[Tensor]] = empty_grid,
    rebuild: Callable[..., Any] = first_output,
    name: str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function that has no derivative one operator wherever torch traces.

    Parameters
    ----------
    empty : function
        ``empty(like, *args, **kwargs)`` returns uninitialised tensors with the shapes and dtypes of
        the call's result, on the device of ``like``, in the order of the result.
    rebuild : function
        ``rebuild(outputs, *args, **kwargs)`` returns the call's result, made from these tensors.
    name : str, optional
        Name of the operator; default: the name of the function.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        label = name or function.__name__
        parameters = tuple(inspect.signature(function).parameters)
        exact = _without_autocast(function)
        node = _register(label, exact, empty)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if not torch.compiler.is_compiling():
                given = [*zip(parameters, args, strict=False), *kwargs.items()]
                tensors = list(named_tensors(given))
                if not (tensors and is_faked(tensors[0][1])):
                    refuse_derivatives(label, tensors)
                    return exact(*args, **kwargs)
            held: list[Tensor] = []
            named = zip(parameters, args, strict=False)
            values = ", ".join([_described(v, k, held) for k, v in named])
            options = ", ".join([f"{k!r}: {_described(v, k, held)}" for k, v in kwargs.items()])
            result: R = rebuild(node(held, f"([{values}], {{{options}}})"), *args, **kwargs)
            return result

        return call

    return decorate


def _without_autocast(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with autocast switched off: half-precision products would change values.

    Threads of the CPU's operators have no autocast, so that results would differ between them too.
    """

    @functools.wraps(function)
    def exact(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            return function(*args, **kwargs)

    return exact


def _register(
    label: str, function: Callable[..., Any], empty: Callable[..., list[Tensor]]
) -> Callable[[list[Tensor], str], list[Tensor]]:
    def kernel(tensors: list[Tensor], call: str) -> list[Tensor]:
        args, kwargs = _arguments(call, tensors)
        return _owned(_tensors_of(function(*args, **kwargs)), tensors)

    def fake(tensors: list[Tensor], call: str) -> list[Tensor]:
        args, kwargs = _arguments(call, tensors)
        return empty(tensors[0], *args, **kwargs)

    defined = torch.library.custom_op(f"simcore::{label}", kernel, mutates_args=(), schema=SCHEMA)
    defined.register_fake(fake)
    overload: Callable[[list[Tensor], str], list[Tensor]] = getattr(
        torch.ops.simcore, label
    ).default
    return overload


def is_faked(tensor: Tensor) -> bool:
    """Return whether a fake mode, which computes shapes and no values, holds for ``tensor``."""
    return detect_fake_mode(tensor) is not None


def is_traced(tensor: Tensor) -> bool:
    """Return whether the values of ``tensor`` are unknown: no decision can rest on them."""
    return torch.compiler.is_compiling() or is_faked(tensor)


def has_tangent(tensor: Tensor) -> bool:
    """Return whether ``tensor`` has a tangent: forward-mode differentiation is under way."""
    return forward_ad.unpack_dual(tensor).tangent is not None


def is_followed(tensors: Iterable[Tensor]) -> bool:
    """Return whether a transform of torch.func is active or one of ``tensors`` has a tangent."""
    return torch._C._are_functorch_transforms_active() or any(map(has_tangent, tensors))


def refuse_derivatives(function: str, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Refuse tensors whose derivatives torch would take to be zero.

    Raises
    ------
    NotImplementedError
        A tensor has a tangent, or a transform of torch.func differentiates it; the message names
        the first such tensor.
    """
    transformed = torch._C._are_functorch_transforms_active()
    for name, tensor in tensors:
        if has_tangent(tensor) or (transformed and tensor.requires_grad):
            raise NotImplementedError(
                f"{name}: wanted a detached tensor, because {function} has no derivative, got one "
                "that forward-mode differentiation or torch.func follows"
            )


def named_tensors(arguments: Iterable[tuple[str, object]]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors among named arguments, and within their lists and records, with names."""
    for name, value in arguments:
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, list | tuple):
            yield from named_tensors((f"{name}[{i}]", item) for i, item in enumerate(value))
        elif type(value).__name__ in _RECORDS:
            fields = _RECORDS[type(value).__name__][1]
            yield from named_tensors((f"{name}.{f}", getattr(value, f)) for f in fields)


def _described(value: Any, name: str, held: list[Tensor]) -> str:
    """Return ``value`` as a Python literal, with the places of its tensors in ``held``.

    The tensors are appended to ``held``. torch.compile may treat numbers as variables; ``index``
    and ``hex`` fix their present values.
    """
    if isinstance(value, Tensor):
        held.append(value.detach())
        return f"('tensor', {len(held) - 1})"
    if isinstance(value, list | tuple):
        return "[" + ", ".join([_described(item, name, held) for item in value]) + "]"
    if value is None or isinstance(value, bool | str):
        return repr(value)
    if isinstance(value, int):
        return repr(operator.index(value))
    if isinstance(value, float):
        return f"('float', {float(value).hex()!r})"
    kind = type(value).__name__
    if kind in _RECORDS:
        fields = [_described(getattr(value, field), name, held) for field in _RECORDS[kind][1]]
        return f"({kind!r}, {', '.join(fields)})"
    raise TypeError(
        f"{name}: wanted tensors, numbers, strings or lists of them where torch traces, got {kind}"
    )


def _arguments(call: str, tensors: list[Tensor]) -> tuple[list[Any], dict[str, Any]]:
    args, kwargs = ast.literal_eval(call)
    return [_value(v, tensors) for v in args], {k: _value(v, tensors) for k, v in kwargs.items()}


def _value(described: Any, tensors: list[Tensor]) -> Any:
    """Return the value that `_described` described."""
    if isinstance(described, list):
        return [_value(item, tensors) for item in described]
    if not isinstance(described, tuple):
        return described
    kind, *fields = described
    if kind == "tensor":
        return tensors[fields[0]]
    if kind == "float":
        return float.fromhex(fields[0])
    return _RECORDS[kind][0](*(_value(field, tensors) for field in fields))


def _tensors_of(result: Any) -> list[Tensor]:
    """Return the tensors of a tensor, a sequence, a dictionary or a dataclass.

    Fields of the dataclass that are no tensors must have their default values.
    """
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, list | tuple):
        return [tensor for item in result for tensor in _tensors_of(item)]
    tensors = []
    for field in dataclasses.fields(result):
        value = getattr(result, field.name)
        if isinstance(value, Tensor):
            tensors.append(value)
        elif value != field.default:
            raise ValueError(
                f"{type(result).__name__}.{field.name}: wanted {field.default!r} where torch "
                f"traces, got {value!r}"
            )
    return tensors


def _owned(outputs: list[Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Return contiguous outputs that share no memory with each other or with an input.

    torch asks this of an operator.
    """
    taken = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    owned = []
    for output in outputs:
        tensor = output.contiguous()
        if tensor.untyped_storage().data_ptr() in taken:
            tensor = tensor.clone()
        taken.add(tensor.untyped_storage().data_ptr())
        owned.append(tensor)
    return owned
