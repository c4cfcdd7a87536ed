"""Groups of rows that belong together, such as the words of a sentence."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

Groups = Sequence[int] | np.ndarray | Tensor


def group_numbers(groups: Groups | None, n: int, name: str = "groups") -> np.ndarray | None:
    """Return the number of the group of every row, from 0 in the order of their first rows."""
    if groups is None:
        return None
    values = groups.detach().cpu().numpy() if isinstance(groups, Tensor) else np.asarray(groups)
    if values.dtype.kind not in "iu":
        raise TypeError(f"{name}: wanted whole numbers, got {values.dtype}")
    if values.shape != (n,):
        raise ValueError(f"{name}: wanted one number for each of {n} rows, got {values.shape}")
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    if len(first) == n:
        return None
    rank = np.empty_like(first)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]
