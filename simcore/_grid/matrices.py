"""`Rdm` and `Gram`: matrices over examples that were made elsewhere, as layers of RSA and CKA."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from simcore._grid.inputs import Array, as_tensor, check_finite_count, listed

# Entries that rounding makes: an asymmetry, or a dissimilarity of an example with itself. Distances
# may be roots of rounding: `torch.cdist` takes squares from products where there are many rows.
ROUNDING = 64


class Matrix:
    """A symmetric matrix over examples; `values` is float64."""

    values: Tensor
    from_numpy: bool
    n: int

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n})"

    def __len__(self) -> int:
        """Return the number of examples, as of a layer."""
        return self.n


class Rdm(Matrix):
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
        The rounding that `torch.cdist` leaves is allowed; of n (n - 1) entries, those of i < j
        count.

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
        self.from_numpy = not isinstance(values, Tensor)
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
            if bool((diagonal > _rounding(given, values, "Rdm")).any()):
                raise ValueError(
                    "Rdm: values: wanted 0 on the diagonal, the dissimilarity of an example with "
                    f"itself, got up to {diagonal.max():.4g}; a matrix of similarities is `1 - "
                    "values`, or a `Gram`; the rounding of `torch.cdist` becomes small with "
                    "`compute_mode='donot_use_mm_for_euclid_dist'`"
                )
            i, j = torch.triu_indices(self.n, self.n, 1, device=given.device)
            self.values = given[i, j]
        if self.n < 3:
            raise ValueError(f"Rdm: values: wanted at least 3 examples, got {self.n}")

    def taken(self, rows: Tensor) -> Rdm:
        """Return the dissimilarities of some examples, which may be drawn more than once."""
        return Rdm(square_of(self.values, self.n)[rows][:, rows])


class Gram(Matrix):
    """A Gram or kernel matrix that was made elsewhere, as a layer of `cka_grid` and `hsic_grid`.

    Parameters
    ----------
    values : array ``[n, n]``
        The kernel of all examples, numpy or torch, symmetric. It is centred here, which loses the
        digits that a large common offset took: centre a layer before its products are formed.

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
        Another shape, a matrix that is not symmetric or whose diagonal is 0, as the one of
        dissimilarities is, NaN or infinity.

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
        self.from_numpy = not isinstance(values, Tensor)
        self.n = _check_symmetric(self.values, values, "Gram")
        rounding = _rounding(self.values, values, "Gram")
        if rounding and bool((self.values.diagonal().abs() <= rounding).all()):
            raise ValueError(
                "Gram: values: wanted the similarity of each example with itself on the diagonal, "
                "got 0; a matrix of dissimilarities is an `Rdm`"
            )

    def taken(self, rows: Tensor) -> Gram:
        """Return the matrix of some examples, which may be drawn more than once."""
        return Gram(self.values[rows][:, rows])


def _finite(values: Any, name: str) -> Tensor:
    given = as_tensor(values, name).detach().double()
    check_finite_count(given.isfinite().sum(), given.numel(), name)
    return given


def _rounding(given: Tensor, values: Any, kind: str) -> float:
    """Return how large an entry may be that rounding in the caller's dtype has made."""
    eps = torch.finfo(as_tensor(values, "values").dtype).eps
    share = math.sqrt(ROUNDING * eps) if kind == "Rdm" else ROUNDING * eps
    return share * float(given.abs().max())


def _check_symmetric(given: Tensor, values: Any, kind: str) -> int:
    if given.ndim != 2 or len(given) != given.shape[1] or len(given) == 0:
        wanted = "[n, n] or [n (n - 1) / 2]" if kind == "Rdm" else "[n, n]"
        raise ValueError(f"{kind}: values: wanted shape {wanted}, got {tuple(given.shape)}")
    apart = (given - given.T).abs()
    if bool((apart > _rounding(given, values, kind)).any()):
        raise ValueError(
            f"{kind}: values: wanted a symmetric matrix, got entries {apart.max():.4g} apart"
        )
    return len(given)


def square_of(triangle: Tensor, n: int) -> Tensor:
    """Return the symmetric matrix with zeros on the diagonal and these entries of i < j."""
    square = triangle.new_zeros(n, n)
    i, j = torch.triu_indices(n, n, 1, device=triangle.device)
    square[i, j] = square[j, i] = triangle
    return square


def holds(kind: type[Matrix], *sides: object) -> bool:
    listings = [listed(side) for side in sides]
    return any(
        isinstance(layer, kind) for side in listings if isinstance(side, Sequence) for layer in side
    )
