"""A decorator that makes a whole function one operator wherever torch traces it.

torch.compile, torch.export and fake tensors have shapes and dtypes, but no values; the checks,
warnings or shapes of many functions here depend on values. `one_operator` registers such a function
as an operator of its name, whose kernel is the function itself: a traced call becomes one node, and
errors and warnings come when that node runs. A call that is not traced runs the function directly.

Most of these functions have no derivative: their results never require a gradient, and one warning
says so where an argument requires one. A function with a derivative is written in operations that
torch can differentiate. Forward-mode differentiation and the transforms of `torch.func` would treat
the result of either as a constant and give zeros, so that all these functions refuse them
(`refuse_derivatives`).
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import nullcontext
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch.autograd import forward_ad

from simcore._grid.finish import warn_caller
from simcore._grid.forks import computes
from simcore._grid.inputs import Array, listed
from simcore._grid.options import check_keywords

P = ParamSpec("P")
R = TypeVar("R")

SCHEMA = "(Tensor[] tensors, str call) -> Tensor[]"
# Which grids have a derivative, for the warning of those that have none.
DIFFERENTIABLE = (
    "cka_grid, hsic_grid, cosine_grid, distance_correlation_grid, procrustes_grid (of layers), "
    "rsa_grid (pearson)"
)
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
    return outputs[0]


class Estimate(NamedTuple):
    """Grids ``[len(X), len(Y)]`` of values, and of their standard errors."""

    values: Array
    errors: Array


def empty_estimate(*args: Any, **kwargs: Any) -> list[Tensor]:
    return empty_grid(*args, **kwargs) + empty_grid(*args, **kwargs)


def as_estimate(outputs: list[Tensor], *_: Any, **__: Any) -> Estimate:
    return Estimate(*outputs)


def never(*_: Any, **__: Any) -> bool:
    """Return False: no call of the function has a derivative."""
    return False


def always(*_: Any, **__: Any) -> bool:
    """Return True: every call of the function has a derivative."""
    return True


# Metadata of a result's field that is no tensor, and that ``rebuild`` makes of the arguments.
REBUILT = {"rebuilt": True}


def one_operator(
    # `empty(like, *args, **kwargs)` returns uninitialised tensors with the shapes and dtypes of the
    # call's result, on the device of `like`, in the order of the result.
    empty: Callable[..., list[Tensor]] = empty_grid,
    # `rebuild(outputs, *args, **kwargs)` makes the call's result from these tensors.
    rebuild: Callable[..., Any] = first_output,
    name: str | None = None,  # of the operator; default: of the function
    # `derivative(*args, **kwargs)` says whether autograd can differentiate the call, once. The
    # function must then keep the graph of its arguments.
    derivative: Callable[..., bool] = never,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function one operator wherever torch traces."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        label = name or function.__name__
        signature = inspect.signature(function).parameters
        parameters = tuple(signature)
        open_ended = any(value.kind is value.VAR_KEYWORD for value in signature.values())
        exact = _without_autocast(function)
        node = _register(label, exact, empty, differentiable=derivative is not never)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if not open_ended:
                check_keywords(kwargs, parameters, function.__name__)
            places = [listed(value) for value in args]
            options = {option: listed(value) for option, value in kwargs.items()}
            given = [*zip(parameters, places, strict=False), *options.items()]
            tensors = list(named_tensors(given))
            # Whether autograd follows the call, and the argument whose gradient it cannot give.
            follows, refused = _followed(tensors, derivative, places, options)
            if not torch.compiler.is_compiling() and not (tensors and is_faked(tensors[0][1])):
                refuse_derivatives(label, tensors, backward=derivative is not never)
                _warn_of_gradient(label, refused)
                with nullcontext() if follows else torch.no_grad():
                    return exact(*places, **options)
            # Operators take tensors, numbers and strings alone: the rest of a call travels as text.
            held: list[Tensor] = []
            named = zip(parameters, places, strict=False)
            values = ", ".join([_described(v, k, held) for k, v in named])
            described = ", ".join([f"{k!r}: {_described(v, k, held)}" for k, v in options.items()])
            held = held if follows else [tensor.detach() for tensor in held]
            outputs = node(held, f"([{values}], {{{described}}}, {refused!r})")
            result: R = rebuild(outputs, *places, **options)
            return result

        return call

    return decorate


def _followed(
    tensors: list[tuple[str, Tensor]],
    derivative: Callable[..., bool],
    args: list[Any],
    kwargs: dict[str, Any],
) -> tuple[bool, str]:
    """Return whether autograd follows a call, and the argument whose gradient it cannot follow."""
    wanting = [name for name, tensor in tensors if tensor.requires_grad]
    if not wanting or not torch.is_grad_enabled():
        return False, ""
    return (True, "") if derivative(*args, **kwargs) else (False, wanting[0])


def _warn_of_gradient(label: str, argument: str) -> None:
    """Warn that no gradient reaches an argument; an empty name stands for no such argument."""
    if argument:
        warn_caller(
            f"{label}: {argument} requires a gradient, and gets none, because this call has no "
            f"derivative; grids with one: {DIFFERENTIABLE}; detached layers, or torch.no_grad(), "
            "end this warning"
        )


def _without_autocast(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function without autocast, whose half-precision products would change values."""
    # Threads of the CPU's operators have no autocast, so that results would differ between them
    # too.

    @functools.wraps(function)
    def exact(*args: P.args, **kwargs: P.kwargs) -> R:
        computes()
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            return function(*args, **kwargs)

    return exact


def _register(
    label: str,
    function: Callable[..., Any],
    empty: Callable[..., list[Tensor]],
    *,
    differentiable: bool,
) -> Callable[[list[Tensor], str], list[Tensor]]:
    def kernel(tensors: list[Tensor], call: str) -> list[Tensor]:
        args, kwargs, refused = _arguments(call, tensors)
        _warn_of_gradient(label, refused)
        return _owned(_tensors_of(function(*args, **kwargs)), tensors)

    def fake(tensors: list[Tensor], call: str) -> list[Tensor]:
        args, kwargs, _ = _arguments(call, tensors)
        return empty(tensors[0], *args, **kwargs)

    defined = torch.library.custom_op(f"simcore::{label}", kernel, mutates_args=(), schema=SCHEMA)
    defined.register_fake(fake)
    if differentiable:
        defined.register_autograd(_register_backward(label, function), setup_context=_keep_inputs)
    overload: Callable[[list[Tensor], str], list[Tensor]] = getattr(
        torch.ops.simcore, label
    ).default
    return overload


def _keep_inputs(ctx: Any, inputs: tuple[list[Tensor], str], output: list[Tensor]) -> None:
    tensors, ctx.call = inputs
    ctx.save_for_backward(*tensors)


def _register_backward(label: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the backward pass of a function's node: a node that calls the function again."""

    def kernel(tensors: list[Tensor], grads: list[Tensor], call: str) -> list[Tensor]:
        # Kernels run below autograd, which this guard lets them use.
        autograd = torch._C.DispatchKey.AutogradFunctionality
        with torch._C._SetExcludeDispatchKeyGuard(autograd, False), torch.enable_grad():
            leaves = [tensor.detach().requires_grad_() for tensor in tensors]
            args, kwargs, _ = _arguments(call, leaves)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # the forward pass gave them
                outputs = _tensors_of(function(*args, **kwargs))
            gradients = torch.autograd.grad(outputs, leaves, grads, materialize_grads=True)
        return _owned(list(gradients), [*tensors, *grads])

    def fake(tensors: list[Tensor], grads: list[Tensor], call: str) -> list[Tensor]:
        return [tensor.new_empty(tensor.shape) for tensor in tensors]

    name = f"{label}_backward"
    schema = "(Tensor[] tensors, Tensor[] grads, str call) -> Tensor[]"
    defined = torch.library.custom_op(f"simcore::{name}", kernel, mutates_args=(), schema=schema)
    defined.register_fake(fake)

    def backward(ctx: Any, grads: list[Tensor]) -> tuple[list[Tensor], None]:
        node = getattr(torch.ops.simcore, name)
        return node(list(ctx.saved_tensors), list(grads), ctx.call), None

    return backward


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


def refuse_derivatives(
    function: str, tensors: Iterable[tuple[str, Tensor]], *, backward: bool = False
) -> None:
    """Refuse tensors with a tangent or under torch.func, whose derivatives torch would call 0."""
    transformed = torch._C._are_functorch_transforms_active()
    which = "a derivative in reverse mode alone" if backward else "no derivative"
    for name, tensor in tensors:
        if has_tangent(tensor) or (transformed and tensor.requires_grad):
            raise NotImplementedError(
                f"{name}: wanted a detached tensor, because {function} has {which}, got one "
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
    """Return ``value`` as a Python literal, with the places of its tensors in ``held``."""
    # torch.compile may treat numbers as variables; `index` and `hex` fix their present values.
    if isinstance(value, Tensor):
        held.append(value)
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


def _arguments(call: str, tensors: list[Tensor]) -> tuple[list[Any], dict[str, Any], str]:
    """Return the arguments of a call, and the argument that requires a gradient and gets none."""
    args, kwargs, refused = ast.literal_eval(call)
    options = {k: _value(v, tensors) for k, v in kwargs.items()}
    return [_value(v, tensors) for v in args], options, refused


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
    """Return the tensors of a tensor, a sequence, a dictionary or a dataclass."""
    # Fields of the dataclass that are no tensors must have their default values, or be declared
    # with the metadata `REBUILT`.
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
        elif field.metadata != REBUILT and value != field.default:
            raise ValueError(
                f"{type(result).__name__}.{field.name}: wanted {field.default!r} where torch "
                f"traces, got {value!r}"
            )
    return tensors


def _owned(outputs: list[Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Return contiguous outputs that share no memory with each other or with an input."""
    # torch asks this of an operator.
    taken = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    owned = []
    for output in outputs:
        tensor = output.contiguous()
        if tensor.untyped_storage().data_ptr() in taken:
            tensor = tensor.clone()
        taken.add(tensor.untyped_storage().data_ptr())
        owned.append(tensor)
    return owned
