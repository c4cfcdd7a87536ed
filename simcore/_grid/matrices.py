"""`Rdm` and `Gram`: matrices over examples that were made elsewhere, as layers of RSA and CKA."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simcore._grid.inputs import Array, as_tensor, check_same_device

# Entries that rounding makes: an asymmetry, or a dissimilarity of an example with itself.
ROUNDING = 64


class _Matrix:
    """A symmetric matrix over examples; `values` is float64."""

    values: Tensor
    from_numpy: bool
    n: int

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n})"


class Rdm(_Matrix):
    """A representational dissimilarity matrix that was made elsewhere, as a layer of `rsa_grid`.

    It may be of brain responses or of behaviour, by any distance: `rsa_grid` correlates its upper
    triangle with the upper triangles of other layers.

    Parameters
    ----------
    values : array ``[n, n]``, or ``[n (n - 1) / 2]``
        The dissimilarities of all examples, numpy or torch; or those of i < j, row by row, as
        `scipy.spatial.distance.pdist` returns them. n of at least 3.

    Attributes
    ----------
    values : Tensor ``[n (n - 1) / 2]``, float64
    n : int
        Number of examples.

    Raises
    ------
    TypeError
        `values` is no array of floating point.
    ValueError
        Another shape, a matrix that is not symmetric or whose diagonal is not 0, NaN or infinity.

    References
    ----------
    Kriegeskorte et al. 2008.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.spatial.distance import pdist
    >>> from simcore import Rdm, rsa_grid
    >>> brain, layer = np.random.default_rng(0).normal(size=(2, 20, 5))
    >>> rsa_grid([Rdm(pdist(brain, "euclidean"))], [layer]).shape
    (1, 1)
    """

    def __init__(self, values: Array) -> None:
        given = _finite(values, "Rdm: values")
        self.from_numpy = isinstance(values, np.ndarray)
        if given.ndim == 1:
            self.n = (1 + math.isqrt(1 + 8 * len(given))) // 2
            if self.n * (self.n - 1) // 2 != len(given):
                raise ValueError(
                    "Rdm: values: wanted n (n - 1) / 2 entries, such as 3, 6 or 10, got "
                    f"{len(given)}"
                )
            self.values = given
        else:
            self.n = _check_symmetric(given, values, "Rdm")
            diagonal = given.diagonal().abs()
            if bool((diagonal > _rounding(given, values)).any()):
                raise ValueError(
                    "Rdm: values: wanted 0 on the diagonal, the dissimilarity of an example with "
                    f"itself, got up to {diagonal.max():.4g}; a matrix of similarities is `1 - "
                    "values`, or a `Gram`"
                )
            i, j = torch.triu_indices(self.n, self.n, 1, device=given.device)
            self.values = given[i, j]
        if self.n < 3:
            raise ValueError(f"Rdm: values: wanted at least 3 examples, got {self.n}")


class Gram(_Matrix):
    """A Gram or kernel matrix that was made elsewhere, as a layer of `cka_grid`.

    Parameters
    ----------
    values : array ``[n, n]``
        The kernel of all examples, numpy or torch, symmetric; it need not be centred.

    Attributes
    ----------
    values : Tensor ``[n, n]``, float64
    n : int
        Number of examples.

    Raises
    ------
    TypeError
        `values` is no array of floating point.
    ValueError
        Another shape, a matrix that is not symmetric, NaN or infinity.

    Examples
    --------
    >>> import numpy as np
    >>> from simcore import Gram, cka_grid
    >>> x, y = np.random.default_rng(0).normal(size=(2, 20, 5))
    >>> bool(np.isclose(cka_grid([Gram(x @ x.T)], [y]), cka_grid([x], [y])))
    True
    """

    def __init__(self, values: Array) -> None:
        self.values = _finite(values, "Gram: values")
        self.from_numpy = isinstance(values, np.ndarray)
        self.n = _check_symmetric(self.values, values, "Gram")


def _finite(values: Any, name: str) -> Tensor:
    given = as_tensor(values, name).detach().double()
    if not bool(given.isfinite().all()):
        raise ValueError(
            f"{name}: wanted finite entries, got {int((~given.isfinite()).sum())} NaN or infinite"
        )
    return given


def _rounding(given: Tensor, values: Any) -> float:
    """Return how large an entry may be that rounding in the caller's dtype has made."""
    eps = torch.finfo(as_tensor(values, "values").dtype).eps
    return ROUNDING * eps * float(given.abs().max())


def _check_symmetric(given: Tensor, values: Any, kind: str) -> int:
    if given.ndim != 2 or len(given) != given.shape[1] or len(given) == 0:
        wanted = "[n, n] or [n (n - 1) / 2]" if kind == "Rdm" else "[n, n]"
        raise ValueError(f"{kind}: values: wanted shape {wanted}, got {tuple(given.shape)}")
    apart = (given - given.T).abs()
    if bool((apart > _rounding(given, values)).any()):
        raise ValueError(
            f"{kind}: values: wanted a symmetric matrix, got entries {apart.max():.4g} apart"
        )
    return len(given)


def holds(kind: type[_Matrix], *sides: object) -> bool:
    """Return whether a layer of an argument is such a matrix."""
    return any(isinstance(layer, kind) for side in sides for layer in _layers(side))


def _layers(side: object) -> list[Any]:
    layers = list(side.values()) if isinstance(side, Mapping) else side
    return list(layers) if isinstance(layers, Sequence) else []


def entries(
    kind: type[_Matrix], X: object, Y: object, bound: int
) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield the name of every layer of X and Y, its tensor, and whether that is a matrix.

    Raises
    ------
    TypeError
        A layer is neither an array nor such a matrix.
    ValueError
        The layers differ in their numbers of examples or in their device; an array has another
        shape or NaN or infinity; matrices of all layers do not fit into ``bound`` bytes.
    """
    named = [
        (f"{name}[{i}]", layer)
        for name, side in (("X", X), ("Y", Y))
        for i, layer in enumerate(_layers(side))
    ]
    first: Tensor | None = None
    n = 0
    for name, layer in named:
        given = isinstance(layer, kind)
        tensor = layer.values if given else _array(layer, name)
        count = layer.n if given else len(tensor)
        if first is None:
            first, n = tensor, count
            needed = 8 * n * n * (len(named) + 2)
            if needed > bound:
                raise ValueError(
                    f"max_memory: wanted at least {needed} bytes for the matrices of "
                    f"{len(named)} layers, got {bound}"
                )
        check_same_device(tensor, name, first, named[0][0])
        if count != n:
            raise ValueError(f"{name}: wanted n = {n} examples as in {named[0][0]}, got {count}")
        yield name, tensor, given


def _array(layer: Any, name: str) -> Tensor:
    tensor = as_tensor(layer, name).detach()
    if tensor.ndim != 2 or tensor.shape[1] == 0:
        raise ValueError(f"{name}: wanted shape [n, p], got {tuple(tensor.shape)}")
    return _finite(tensor, name).to(tensor.dtype)


def from_numpy(*sides: object) -> bool:
    """Return whether all layers, and the values of all matrices, came as numpy arrays."""
    layers = [layer for side in sides for layer in _layers(side)]
    return all(
        layer.from_numpy if isinstance(layer, _Matrix) else isinstance(layer, np.ndarray)
        for layer in layers
    )
