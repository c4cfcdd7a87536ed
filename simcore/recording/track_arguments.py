"""The arguments of `simcore.Track`, checked, and loggers of other tools."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from simcore._grid.options import check_choice, check_count

START, PREVIOUS = "start", "previous"
Layers = Mapping[str, Tensor]
Log = Callable[[Mapping[str, float], int], object]


def plain(value: object) -> Any:
    """Return a value of JSON as it is, another as its text."""
    return value if isinstance(value, str | int | float | None) else repr(value)


def inner_model(model: nn.Module) -> nn.Module:
    """Return the module in a DistributedDataParallel one, whose own pass waits for all ranks."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def read_batches(batch: Any) -> list[Any]:
    """Return a list of batches."""
    batches = batch if isinstance(batch, list) else [batch]
    for one in batches:
        if not (isinstance(one, Tensor | Mapping | tuple) or hasattr(one, "to")):
            raise TypeError(
                "batch: wanted a tensor, a dictionary or tuple of arguments, or a list of these, "
                f"got {type(one).__name__}; of a loader, list(loader) is one"
            )
    if not batches:
        raise ValueError("batch: wanted at least one batch, got an empty list")
    return batches


def recorded_steps(every: int | Collection[int]) -> int | frozenset[int]:
    """Return the number whose multiples are recorded, or the steps."""
    if isinstance(every, Collection) and not isinstance(every, str):
        if not every:
            raise ValueError("every: wanted a number or some steps, got no steps")
        return frozenset(check_count(step, "every", 0) for step in every)
    return check_count(every, "every")


def own_references(against: Sequence[str]) -> tuple[str, ...]:
    """Return the states of the model itself that are compared with."""
    names = dict.fromkeys((against,) if isinstance(against, str) else against)
    return tuple(check_choice(name, "against", (START, PREVIOUS)) for name in names)


def other_references(
    references: Mapping[str, nn.Module | Layers] | None,
) -> dict[str, nn.Module | Layers]:
    """Return the other models, or their layers, by name."""
    others: dict[str, nn.Module | Layers] = {}
    for name, other in (references or {}).items():
        if name in (START, PREVIOUS):
            raise ValueError(
                f"references: wanted other names than 'start' and 'previous', got {name!r}"
            )
        if not isinstance(other, nn.Module | Mapping):
            raise TypeError(
                f"references: wanted a module or a dictionary of layers for {name!r}, got "
                f"{type(other).__name__}"
            )
        others[name] = inner_model(other) if isinstance(other, nn.Module) else dict(other)
    return others


def read_log(log: Any, pairs: str) -> Log | None:
    """Return the function that takes numbers by name; None without a logger."""
    if log is not None and pairs != "same":
        raise ValueError(f"log: wanted pairs='same' for values with names, got pairs={pairs!r}")
    return None if log is None else log_function(log)


def read_out(out: str | os.PathLike[str] | None) -> Path | None:
    """Return the place of the file, in a folder that exists."""
    place = None if out is None else Path(out)
    if place is not None and not place.parent.is_dir():
        raise ValueError(f"out: wanted a folder that exists, got {str(place.parent)!r}")
    return place


def log_function(logger: Any) -> Log:
    """Return a function of numbers by name and of a step that hands them to `logger`.

    A logger has ``add_scalar(name, value, step)`` (TensorBoard's SummaryWriter),
    ``log_metrics(values, step)`` (loggers of Lightning) or ``log(values, step=step)`` (wandb,
    trackio, Accelerator), or it is a function ``(values, step)``.
    """
    if hasattr(logger, "add_scalar"):

        def add_all(values: Mapping[str, float], step: int) -> None:
            for name, value in values.items():
                logger.add_scalar(name, value, step)

        return add_all
    if hasattr(logger, "log_metrics"):
        return lambda values, step: logger.log_metrics(dict(values), step)
    if hasattr(logger, "log"):
        return lambda values, step: logger.log(dict(values), step=step)
    if callable(logger):
        return logger
    raise TypeError(
        "log: wanted a function (values, step) or a logger with add_scalar, log_metrics or log, "
        f"got {type(logger).__name__}"
    )
