"""Measures of single neurons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simcore.reference.cca import TopK, basis, top_count
from simcore.reference.hsic import center

__all__ = ["best_partners", "localization_score", "mixedsim_grid", "neuronsim_grid"]

Array = NDArray[np.float64]


def correlations(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute the correlations ``[p, q]`` of all neurons; ``nan`` for one without variance."""
    with np.errstate(invalid="ignore"):
        rows, columns = (c / np.linalg.norm(c, axis=0) for c in (center(x), center(y)))
    return np.clip(rows.T @ columns, -1.0, 1.0)


def best_partners(x: ArrayLike, y: ArrayLike) -> tuple[Array, NDArray[np.int64]]:
    """Compute ``max_k' |pearson(x_k, y_k')|`` and its k' for every neuron k of x, both ``[p]``.

    ``nan`` and -1 where a neuron of x, or all neurons of y, have no variance. The first k' that
    reaches the maximum is returned.
    """
    strength = np.abs(correlations(x, y))
    known = np.where(np.isnan(strength), -1.0, strength)
    best, partner = known.max(axis=1), known.argmax(axis=1)
    return np.where(best < 0, np.nan, best), np.where(best < 0, -1, partner)


def _mean_known(values: Array, top_k: TopK) -> float:
    known = np.sort(values[~np.isnan(values)])[::-1]
    known = known[: top_count(top_k, len(known))]
    return float(known.mean()) if len(known) else float("nan")


def neuronsim_grid(
    x: Sequence[ArrayLike], y: Sequence[ArrayLike] | None = None, *, top_k: TopK = None
) -> Array:
    """Compute ``mean_k max_k' |pearson(x_k, y_k')|`` of all pairs; asymmetric.

    Neurons without variance are left out. With ``top_k``, the mean over the neurons with the
    largest values.

    References
    ----------
    Wu et al. 2020, section 3.1, footnote 3 and appendix A.1.
    """
    y = x if y is None else y
    return np.array([[_mean_known(best_partners(a, b)[0], top_k) for b in y] for a in x])


def mixedsim_grid(
    x: Sequence[ArrayLike],
    y: Sequence[ArrayLike] | None = None,
    *,
    top_k: TopK = None,
    eps: float = np.finfo(np.float64).eps,
) -> Array:
    """Compute ``mean_k ||Q_y' x_k|| / ||x_k||`` over the centred neurons x_k; asymmetric.

    Neurons without variance are left out. With ``top_k``, the mean over the neurons with the
    largest values.

    References
    ----------
    Wu et al. 2020, section 3.2, footnote 3 and appendix A.2.
    """
    bases = [basis(layer, eps=eps) for layer in (x if y is None else y)]
    return np.array([[_mixed(center(layer), q, top_k) for q in bases] for layer in x])


def _mixed(centred: Array, q: Array, top_k: TopK) -> float:
    norms = np.linalg.norm(centred, axis=0)
    if q.shape[1] == 0 or not norms.any():
        return float("nan")
    multiple = np.linalg.norm(q.T @ centred, axis=0)[norms > 0] / norms[norms > 0]
    return _mean_known(np.minimum(multiple, 1.0), top_k)


def localization_score(
    neuronsim: ArrayLike, svsim: ArrayLike, *, same: bool = True, standardize: bool = False
) -> Array:
    """Compute the column means of neuronsim minus the column means of svsim, ``[layers]``.

    If ``same``, rows and columns are the same layers, and the comparison of a layer with itself is
    left out of both means. With `standardize`, each series of means over the layers has mean 0 and
    standard deviation 1 (divided by ``layers - 1``) before the difference.

    References
    ----------
    Wu et al. 2020, section 5.1; with `standardize`, the notebooks behind its figures 3 and 7.
    """
    series = []
    for grid in (np.asarray(neuronsim, np.float64), np.asarray(svsim, np.float64)):
        means = np.zeros(grid.shape[1])
        for layer in range(grid.shape[1]):
            others = [row for row in range(len(grid)) if not (same and row == layer)]
            means[layer] = np.mean(grid[others, layer])
        series.append((means - np.mean(means)) / np.std(means, ddof=1) if standardize else means)
    return series[0] - series[1]
