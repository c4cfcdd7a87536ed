"""Grids that are stored, computed anew for halves of their examples.

A score of a grid (of its blocks, or of localization) gets its interval from the same
score of the grids of halves: the score minus and plus 1.96 standard deviations of these. The halves
depend on the seed and the examples alone, so that two grids of the same rows have the same halves.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError, argument
from simlab.representations.folder import MANIFEST, Representations, load_representations
from simlab.similarity.catalogue import MEASURES
from simlab.similarity.devices import AUTO, choose_device, on_device
from simlab.similarity.grids import layers_of
from simlab.similarity.resampling import Call, Resampling, halves, row_groups, scale_of_halves
from simlab.store.files import as_paths
from simlab.store.reading import read_results, results_files

if TYPE_CHECKING:
    import pandas as pd

# A stored grid and the grid of its representations differ by less than this, on any machine.
_ROUNDING = 1e-3


def read_inputs(
    results: str | Path | Sequence[str | Path], out: Path | None, resampling: Resampling
) -> tuple[pd.DataFrame, list[Representations]]:
    """Return the rows of the results files among the inputs, and the representations.

    The rows of `out` are left out.
    """
    paths = as_paths(results)
    folders = [folder for folder in paths if (folder / MANIFEST).is_file()]
    every = results_files([place for place in paths if place not in folders])
    files = [file for file in every if out is None or file.resolve() != out.resolve()]
    if bool(folders) != bool(resampling.bootstrap):
        wanted = "representation folders (`simcore extract`) beside the results"
        if folders:
            raise UserError(f"{argument('bootstrap')}: wanted 1 or more with {folders[0]}, found 0")
        raise UserError(
            f"{argument('bootstrap', resampling.bootstrap)}: wanted {wanted}, found none"
        )
    return read_results(files), [load_representations(folder) for folder in folders]


def belongs(side: Representations, row: pd.Series) -> bool:
    """Return whether the X of a row of a grid is a layer of `side`."""
    import pandas as pd

    names = {"label_x": "label", "kind": "kind", "task": "task", "n": "n"}
    same = all(row[column] == side.manifest[name] for column, name in names.items())
    for name in ("seed", "step"):
        value = row[f"{name}_x"]
        same &= (None if pd.isna(value) else value) == side.manifest[name]
    return row["measure"] in MEASURES and same


def draws_of(
    first: pd.Series,
    values: np.ndarray,
    sides: Sequence[Representations],
    resampling: Resampling,
    device: str = AUTO,
) -> tuple[np.ndarray, int] | None:
    """Return the grids of halves, [draws, layers, layers], and the number of examples.

    `first` is a row of the stored grid, which tells the measure and its options. If halves have too
    few rows for the measure, return None and print a note; if the grid of `sides` is not the stored
    one, `values` [layers, layers], raise a UserError.
    """
    measure, options = MEASURES[first["measure"]], _chosen(first)
    where = ", ".join(str(side.folder) for side in sides)
    layers = layers_of(measure, options, sides)
    device = choose_device(device, layers)
    call = Call(measure, options, on_device(layers, device), None, sides[0], where, device)
    interval = halves(call, resampling, return_draws=True)
    computed = interval.observed
    if computed.shape != values.shape or not np.allclose(
        computed, values, rtol=0, atol=_ROUNDING, equal_nan=True
    ):
        raise UserError(
            f"{where}: wanted the representations of the {first['measure']} grid of "
            f"{first['label_x']} in the results, found others with the same label"
        )
    if (np.isnan(interval.low) & ~np.isnan(computed)).any():
        return None
    return interval.draws, len(np.unique(row_groups(call)))


def half_width(scores: np.ndarray, examples: int) -> Any:
    """Return half the width of the 95 % interval of a score from scores of halves, [draws, ...]."""
    deviation = scale_of_halves(examples) * np.std(scores, axis=0, ddof=1)
    return NormalDist().inv_cdf(0.975) * deviation


def _chosen(first: pd.Series) -> dict[str, Any]:
    """Return all options of the measure of a grid, of which `first` is a row."""
    import pandas as pd

    options = MEASURES[first["measure"]].options
    stored = json.loads(first["options"]) if isinstance(first["options"], str) else {}
    columns = {name: first[name] for name in ("estimator", "kernel", "bandwidth")}
    facts = {name: value for name, value in columns.items() if not pd.isna(value)}
    return {**options, **stored, **facts}
