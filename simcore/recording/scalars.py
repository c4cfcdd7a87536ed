"""Numbers of a step for TensorBoard, Weights & Biases, trackio and the like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Log = Callable[[Mapping[str, float], int], object]


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
