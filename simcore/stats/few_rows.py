"""Resamples with too few rows for measures that span a layer's rows by its components.

Math: k components of m centred rows span all of their ``m - 1`` dimensions if ``k >= m - 1``. Every
canonical correlation and every R² is then 1, whatever the layers are. Two sides with
``k_x + k_y > m - 1`` components have dimensions in common, so that some correlations are 1.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simcore._grid.finish import warn_caller
from simcore._measures import record
from simcore.basis import bases
from simcore.stats.resampled_grid import GridMeasure


class FewRowsWarning(UserWarning):
    """Resamples have too few rows for the intervals of a measure."""


def is_spanned(measure: record.Measure) -> bool:
    """Return whether components that span all rows of a layer make every value 1."""
    truncated = measure.precomputed == record.BASES and "truncation" in measure.options
    return truncated or measure.precomputed == record.BASES_OF_Y


def spanned_pairs(measure: record.Measure, grid: GridMeasure, rows: Sequence[np.ndarray]) -> Tensor:
    """Return the pairs of layers whose resamples have the value 1 whatever the layers are.

    ``rows`` has all rows in order, and then the rows of each resample; the result is bool
    ``[Lx, Ly]``. A FewRowsWarning tells of such pairs, and of pairs whose components exceed the
    rows of a resample together.
    """
    fewest = min(len(np.unique(drawn)) for drawn in rows[1:])
    kept_x, kept_y = _kept(measure, grid)
    together = kept_x[:, None] + kept_y[None, :]
    # A map explains X by the components of Y alone.
    largest = kept_y.expand_as(together)
    if measure.precomputed != record.BASES_OF_Y:
        largest = torch.maximum(kept_x[:, None], largest)
    spanned = largest >= fewest - 1
    overlapping = (together > fewest - 1) & ~spanned
    for pairs, kept, what, effect in (
        (spanned, largest, "the components of each layer", "their intervals are nan"),
        (
            overlapping,
            together,
            "the components of both layers together",
            "their resamples lie above the values",
        ),
    ):
        if pairs.any():
            most = int(kept[pairs].max())
            enough = math.ceil(grid.n * (most + 2) / fewest)
            warn_caller(
                f"bootstrap_ci: {measure.name} wanted more rows in a resample than {what} "
                f"({most}), found {fewest} for {int(pairs.sum())} of {pairs.numel()} pairs: "
                f"{effect}; about {enough} rows would be enough",
                FewRowsWarning,
            )
    return spanned


def _kept(measure: record.Measure, grid: GridMeasure) -> tuple[Tensor, Tensor]:
    """Return the numbers of kept components of the layers of X, and of Y."""
    layers: list[Any] = [*grid.x, *([] if grid.y is grid.x else grid.y)]
    cuts = grid.options.get("truncation", measure.options.get("truncation"))
    options: dict[str, Any] = {"max_memory": grid.options["max_memory"]}
    if "standardize" in measure.options:
        options["standardize"] = grid.options.get("standardize", False)
    kept = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the grid gives the same warnings
        for place, layer in enumerate(layers):  # one at a time: bases take memory
            cut = cuts[place] if isinstance(cuts, list) else cuts
            (basis,) = bases([layer], truncation=cut, **options)
            kept.append(basis.kept)
    counts = torch.tensor(kept)
    return counts[: len(grid.x)], counts[-len(grid.y) :]
