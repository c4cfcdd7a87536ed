"""Compute localization scores (Wu et al. 2020, section 5.1) from stored joint grids.

The score of a layer is its mean neuronsim minus its mean SVCCA over all other layers of the grid.
It is high if neurons of the other layers match single neurons of this layer, and not only
directions in its space.

The notebooks that drew figures 3 and 7 of the paper standardise both series of means over all
layers of the grid before they subtract. Rows of these scores have the options `STANDARDIZED`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simlab.errors import UserError, argument
from simlab.results.reading import read_results, results_files
from simlab.results.results import (
    JOINT,
    LOCALIZATION,
    ResultRow,
    ensure_results,
    hash_rows,
    joint_table,
    side_in,
)
from simlab.store.files import as_paths
from simlab.store.jobs import Outcome

if TYPE_CHECKING:
    import pandas as pd

NEEDED = ("neuronsim", "svcca")
STANDARDIZED = json.dumps({"standardize": True})
_CELL = ["label_x", "layer_x", "label_y", "layer_y"]
_GRID = ["options", "kind", "n"]  # columns in which two grids of a measure may differ


def localize(
    results: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    standardize: bool = False,
    overwrite: bool = False,
) -> Outcome:
    """Write the localization score of every layer of every joint comparison in `results`.

    Parameters
    ----------
    results
        Results files with joint grids of neuronsim and SVCCA, or folders of results files.
    out
        The results file (.parquet) to write.
    standardize
        Standardise the means of neuronsim, and of SVCCA, over all layers of the joint grid before
        they are subtracted, as the notebooks behind figures 3 and 7 of Wu et al. 2020 do; False is
        the definition of the paper's text.
    overwrite
        As for `truncate`.

    Returns
    -------
    Outcome
        The results file: a row for each layer of each model of each joint grid.

    Raises
    ------
    UserError
        There are no joint grids of neuronsim and SVCCA over the same layers or several grids of
        one measure, or `out` has other content and `overwrite` is False.

    Examples
    --------
    >>> from simlab import TaskOptions, extract, grid, localize, read_results
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> pair = ["runs/reps/orig", "runs/reps/random"]
    >>> step = extract("minilm", "rt", pair[0], label="ORIG", task_options=few)
    >>> step = extract(
    ...     "minilm", "rt", pair[1], label="RANDOM", random_init_seed=0, task_options=few
    ... )
    >>> for measure in ("neuronsim", "svcca"):
    ...     step = grid(pair, f"runs/joint/{measure}.parquet", joint=True, measure=measure)
    >>> step = localize("runs/joint", "runs/results/localization.parquet")
    >>> len(read_results(step.path))  # 7 layers of 2 models
    14
    """
    path = Path(out)
    files = [file for file in results_files(as_paths(results)) if file.resolve() != path.resolve()]
    return ensure_localization(
        path, read_results(files), standardize=standardize, replace=overwrite
    )


def ensure_localization(
    path: Path, frame: pd.DataFrame, *, standardize: bool = False, replace: bool = False
) -> Outcome:
    """Write the scores of every joint comparison in a table of results to `path`.

    Nothing is done if `path` was written from the same inputs.
    """
    inputs = {"step": LOCALIZATION, "results": hash_rows(frame), "standardize": standardize}

    def make() -> list[ResultRow]:
        needed = frame[frame["measure"].isin(NEEDED) & (frame["experiment"] == JOINT)]
        joint = [rows for _, rows in needed.groupby(["task", "comparison"], sort=False)]
        if not joint:
            raise UserError(
                f"results: wanted joint grids of {' and '.join(NEEDED)} "
                f"({argument('joint', True, of='grid')}), found none"
            )
        return [row for rows in joint for row in _rows(rows, standardize)]

    return ensure_results(path, inputs, make, replace=replace)


def _rows(frame: pd.DataFrame, standardize: bool) -> list[ResultRow]:
    """Return the score of every layer of a joint grid of neuronsim and one of SVCCA."""
    import simcore

    first = frame.iloc[0]
    where = f"results, comparison {first['comparison']}"
    stored = []
    for measure in NEEDED:  # a copy of a grid counts as the same grid
        rows = frame[frame["measure"] == measure].drop_duplicates([*_CELL, *_GRID, "value"])
        count = len(rows[_GRID].drop_duplicates())
        if count == 1:
            count = int(rows.groupby(_CELL).size().max())
        if count != 1:
            raise UserError(f"{where}: wanted one grid of {measure}, found {count}")
        stored.append(joint_table(rows))
    (layers, neuronsim), (other_layers, svcca) = stored
    if layers != other_layers or frame["kind"].nunique() > 1:
        raise UserError(
            f"{where}: wanted {' and '.join(NEEDED)} over the same layers of one kind, found "
            "different ones"
        )
    # Undefined layers get nan, and count for no other layer.
    defined = np.isfinite(np.diagonal(neuronsim)) & np.isfinite(np.diagonal(svcca))
    scores = np.full(len(layers), np.nan)
    finite = (table[np.ix_(defined, defined)] for table in (neuronsim, svcca))
    scores[defined] = simcore.localization_score(*finite, standardize=standardize)
    models = {
        row["label_x"]: side_in(row) for _, row in frame.drop_duplicates("label_x").iterrows()
    }
    return [
        ResultRow(
            experiment=LOCALIZATION,
            comparison=first["comparison"],
            measure=LOCALIZATION,
            kind=first["kind"],
            options=STANDARDIZED if standardize else None,
            **models[layer.model].columns(),
            layer_x=layer.number,
            value=float(score),
            n=int(first["n"]),
            task=first["task"],
        )
        for layer, score in zip(layers, scores, strict=True)
    ]
