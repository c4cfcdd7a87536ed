"""The measures that statistics are taken of: by name or any function of two lists of layers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import simcore
from simcore._inputs import Array, Layers, as_layer_pair, check_choice

MEASURES = (
    "cka",
    "cca",
    "svcca",
    "pwcca",
    "linreg",
    "procrustes",
    "rsa",
    "neuronsim",
    "mixedsim",
)
Measure = str | Callable[..., Any]


def check_count(value: object, name: str) -> int:
    """`value` if it is a positive integer, else a ValueError naming the argument."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name}: wanted a positive integer, got {value!r}")
    return int(value)


def generator(seed: object) -> np.random.Generator:
    """A generator of its own: neither reads nor moves any global state."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed: wanted an integer from 0 on, got {seed!r}")
    return np.random.default_rng(int(seed))


def check_measure(measure: Measure) -> None:
    """A ValueError or TypeError for what is neither a known name nor a function."""
    if isinstance(measure, str):
        check_choice(measure, "measure", MEASURES)
    elif not callable(measure):
        raise TypeError(f"measure: wanted a name or a function, got {type(measure).__name__}")


class GridMeasure:
    """Any measure as a function of row indices on both sides.

    Parameters
    ----------
    measure : str or function
        ``f(X, Y, **options)`` gets two lists of tensors and gives a grid ``[len(X), len(Y)]``.
    """

    def __init__(
        self, measure: Measure, X: Layers, Y: Layers | None, options: dict, max_memory: int | None
    ) -> None:
        name = measure if isinstance(measure, str) else getattr(measure, "__name__", "measure")
        x, y, self.from_numpy = as_layer_pair(X, Y, 2, f"resampling of {name}")
        self.x, self.y = x, y or x
        self.n = len(self.x[0])
        self.options = dict(options)
        self.function: Callable[..., Any]
        if isinstance(measure, str):
            self.function = getattr(simcore, f"{measure}_grid")
            self.options["max_memory"] = max_memory
        else:
            self.function = measure

    def __call__(self, rows_x: np.ndarray | None, rows_y: np.ndarray | None) -> Tensor:
        """The grid for layers whose rows are those of the indices (None: as they are)."""
        grid = self.function(_take(self.x, rows_x), _take(self.y, rows_y), **self.options)
        grid = torch.as_tensor(grid, dtype=torch.float64)
        wanted = (len(self.x), len(self.y))
        if tuple(grid.shape) != wanted:
            raise ValueError(f"measure: wanted a grid {wanted}, got shape {tuple(grid.shape)}")
        return grid


def _take(layers: list[Tensor], rows: np.ndarray | None) -> list[Tensor]:
    if rows is None:
        return layers
    index = torch.from_numpy(rows).long()
    return [layer[index] for layer in layers]


def as_array(values: Tensor, from_numpy: bool) -> Array:
    """As the inputs came."""
    return values.numpy() if from_numpy else values
