"""Compute localization scores (Wu et al. 2020, section 5.1) from stored joint grids.

The score of a layer is its mean neuronsim minus its mean SVCCA over all other layers of the grid.
It is high if neurons of the other layers match single neurons of this layer, and not only
directions in its space.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.errors import UserError
from simlab.store.files import hash_file
from simlab.store.jobs import Outcome
from simlab.store.results import (
    LOCALIZATION,
    ResultRow,
    ensure_results,
    is_joint,
    joint_table,
    read_results,
    results_files,
)

if TYPE_CHECKING:
    import pandas as pd

NEEDED = ("neuronsim", "svcca")


def localize(
    results: str | Path | Sequence[str | Path], out: str | Path, *, overwrite: bool = False
) -> Outcome:
    """Write the localization score of every layer of every joint comparison in `results`.

    Parameters
    ----------
    results
        Results files with joint grids of neuronsim and SVCCA, or folders of results files.
    out
        The results file (.parquet) to write.
    overwrite
        Make `out` anew if it was made from other inputs; if False, raise an error instead.

    Returns
    -------
    Outcome
        Path of the results file, and whether it was there before; `read_results` reads it.

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
    files = [file for file in results_files(results) if file.resolve() != path.resolve()]
    inputs = {"step": LOCALIZATION, "results": [hash_file(file) for file in files]}

    def make() -> list[ResultRow]:
        frame = read_results(files)
        frame = frame[frame["measure"].isin(NEEDED)]
        groups = [rows for _, rows in frame.groupby(["task", "comparison"], sort=False)]
        joint = [rows for rows in groups if is_joint(rows)]
        if not joint:
            raise UserError(
                f"results: wanted joint grids of {' and '.join(NEEDED)} "
                "(`simcore grid --joint`), found none"
            )
        return [row for rows in joint for row in localization_rows(rows)]

    return ensure_results(path, inputs, make, replace=overwrite)


def localization_rows(frame: pd.DataFrame) -> list[ResultRow]:
    """Return the localization score of every layer; the score of an undefined layer is nan.

    Undefined layers are also left out of the means of the other layers.

    Parameters
    ----------
    frame
        The rows of a joint grid of neuronsim and of a joint grid of SVCCA, over the same layers.

    Raises
    ------
    UserError
        A grid is missing, there are several grids of one measure, or their layers differ.
    """
    import numpy as np

    import simcore

    first = frame.iloc[0]
    grids = [joint_table(_one_grid(frame, name)) for name in NEEDED]
    (layers, _), (other_layers, _) = grids
    if layers != other_layers or frame["kind"].nunique() > 1:
        raise UserError(
            f"results, comparison {first['comparison']}: wanted {' and '.join(NEEDED)} over the "
            "same layers of one kind, found different ones"
        )
    tables = [table for _, table in grids]
    defined = np.all([np.isfinite(np.diagonal(table)) for table in tables], axis=0)
    scores = np.full(len(layers), np.nan)
    scores[defined] = simcore.localization_score(*(t[np.ix_(defined, defined)] for t in tables))
    return [
        ResultRow(
            comparison=LOCALIZATION,
            measure=LOCALIZATION,
            kind=first["kind"],
            model_x=layer.model,
            seed_x=layer.seed,
            layer_x=layer.number,
            value=float(score),
            n=int(first["n"]),
            task=first["task"],
        )
        for layer, score in zip(layers, scores, strict=True)
    ]


def _one_grid(frame: pd.DataFrame, measure: str) -> pd.DataFrame:
    rows = frame[frame["measure"] == measure]
    found = rows["options"].nunique(dropna=False)
    if found != 1:
        raise UserError(
            f"results, comparison {frame.iloc[0]['comparison']}: wanted one grid of {measure}, "
            f"found {found}"
        )
    return rows
