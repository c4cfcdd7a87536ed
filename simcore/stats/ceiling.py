"""Noise ceilings: how well any model could explain the dissimilarities of several subjects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from simcore._grid.finish import as_given
from simcore._grid.inputs import Array
from simcore._grid.matrices import Rdm
from simcore._grid.options import check_choice
from simcore._ops.rsa import centred_ranks
from simcore.rsa import Correlation


class NoiseCeiling(NamedTuple):
    """Bounds of the mean correlation that a model can have with the subjects.

    Attributes
    ----------
    lower, upper : array ``[subjects]``, float64
        The correlation of each subject with the mean of the others, and with the mean of all. The
        noise ceiling lies between the means of the two.
    """

    lower: Array
    upper: Array


def noise_ceiling(rdms: Sequence[Rdm], *, correlation: Correlation = "pearson") -> NoiseCeiling:
    """Return the noise ceiling of the RDMs of several subjects.

    The RDM that correlates best with all subjects, as a mean over subjects, is the mean of their
    standardised RDMs; for ``spearman``, of their ranks, in the order of that mean. It overfits to
    the subjects: its correlation is the upper bound. The mean of all other subjects is a model
    that any subject could be given: the lower bound.

    Parameters
    ----------
    rdms : sequence of Rdm
        An `Rdm` for each subject, of the same examples; two or more.
    correlation : {"pearson", "spearman"}
        As in `rsa_grid`, which compares the subjects with the layers of a model.

    Returns
    -------
    NoiseCeiling
        numpy if all RDMs came as numpy arrays, else torch tensors.

    Raises
    ------
    TypeError
        A subject is no `Rdm`.
    ValueError
        Fewer than two subjects, different numbers of examples, or an RDM whose entries are all
        equal.

    References
    ----------
    Nili et al. 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from simcore import Rdm, stats
    >>> rng = np.random.default_rng(0)
    >>> shared = rng.random(45)
    >>> ceiling = stats.noise_ceiling([Rdm(shared + rng.random(45)) for _ in range(8)])
    >>> bool(ceiling.lower.mean() < ceiling.upper.mean() < 1)
    True
    """
    ranked = check_choice(correlation, "correlation", Correlation) == "spearman"
    rdms = list(rdms)
    if len(rdms) < 2:
        raise ValueError(f"rdms: wanted at least 2 subjects, got {len(rdms)}")
    rows = []
    for i, rdm in enumerate(rdms):
        if not isinstance(rdm, Rdm):
            raise TypeError(f"rdms[{i}]: wanted an Rdm, got {type(rdm).__name__}")
        if rdm.n != rdms[0].n:
            raise ValueError(
                f"rdms[{i}]: wanted n = {rdms[0].n} examples as in rdms[0], got {rdm.n}"
            )
        if not bool(rdm.values.max() > rdm.values.min()):
            raise ValueError(f"rdms[{i}]: wanted dissimilarities that differ, got equal ones")
        rows.append(_ranks(rdm.values) if ranked else _unit(rdm.values))
    total = torch.stack(rows).sum(0)  # of whole numbers for ranks: equal means stay equal
    others = [total - row for row in rows]  # [pairs] each
    if ranked:
        total, others = _ranks(total), [_ranks(mean) for mean in others]
    units = [_unit(row) for row in rows]  # [pairs] each
    best = _unit(total)  # [pairs]
    upper = torch.stack([unit @ best for unit in units])  # [subjects]
    lower = torch.stack([unit @ _unit(mean) for unit, mean in zip(units, others, strict=True)])
    numpy = all(rdm.from_numpy for rdm in rdms)
    return NoiseCeiling(*(as_given(bound, numpy) for bound in (lower, upper)))


def _ranks(values: Tensor) -> Tensor:
    """Return twice the centred ranks, whole numbers; equal values share their mean rank."""
    return centred_ranks(values, values.new_zeros(()))


def _unit(values: Tensor) -> Tensor:
    """Return the values with mean 0 and length 1."""
    centred = values - values.mean()
    return centred / torch.linalg.vector_norm(centred)
