"""Compute localization scores (Wu et al. 2020, section 5.1) from stored joint grids.

The score of a layer is its mean neuronsim minus its mean SVCCA over all other layers of the grid.
It is high if neurons of the other layers match single neurons of this layer, and not only
directions in its space.

The interval of a score needs the representations: both grids are computed for the same halves of
the examples (`simlab.similarity.stored_grids`), and with them the score.

The notebooks that drew figures 3 and 7 of the paper standardise both series of means over all
layers of the grid before they subtract. Rows of these scores have the options `STANDARDIZED`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.bounds import FromZero, bounded
from simlab.errors import UserError, argument
from simlab.representations.folder import Representations
from simlab.similarity.devices import AUTO, check_device
from simlab.similarity.resampling import NONE, Resampling, packed
from simlab.similarity.stored_grids import belongs, draws_of, half_width, read_inputs
from simlab.store.jobs import Outcome
from simlab.store.joint import joint_table
from simlab.store.results import (
    JOINT,
    LOCALIZATION,
    ResultRow,
    ensure_results,
    hash_rows,
    side_in,
)

if TYPE_CHECKING:
    import pandas as pd

NEEDED = ("neuronsim", "svcca")
STANDARDIZED = json.dumps({"standardize": True})
_CELL = ["label_x", "layer_x", "label_y", "layer_y"]
_GRID = ["options", "kind", "n"]  # columns in which two grids of a measure may differ


@bounded
def localize(
    results: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    standardize: bool = False,
    bootstrap: FromZero = 0,
    resampling_seed: FromZero = 0,
    device: str = AUTO,
    overwrite: bool = False,
) -> Outcome:
    """Write the localization score of every layer of every joint comparison in `results`.

    Parameters
    ----------
    results
        Results files with joint grids of neuronsim and SVCCA, or folders of results files; with
        `bootstrap`, also the representation folders of the grids.
    out
        The results file (.parquet) to write.
    standardize
        Standardise the means of neuronsim, and of SVCCA, over all layers of the joint grid before
        they are subtracted, as the notebooks behind figures 3 and 7 of Wu et al. 2020 do; False is
        the definition of the paper's text.
    bootstrap
        Halves of the examples to draw for 95 % intervals of the scores, such as 200.
    resampling_seed
        Seed of `bootstrap`.
    device
        Where the grids of halves are computed: ``cpu``, ``cuda`` or ``cuda:1``; ``auto`` takes a
        GPU that is free where the layers fit, else the CPU.
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
        one measure, representations are missing or belong to no grid, or `out` has other content
        and `overwrite` is False.

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
    path, resampling = Path(out), Resampling(bootstrap, seed=resampling_seed)
    resampling.check()
    check_device(device)
    frame, sides = read_inputs(results, path, resampling)
    return ensure_localization(
        path,
        frame,
        sides,
        resampling,
        standardize=standardize,
        device=device,
        replace=overwrite,
    )


def ensure_localization(
    path: Path,
    frame: pd.DataFrame,
    sides: Sequence[Representations] = (),
    resampling: Resampling = NONE,
    *,
    standardize: bool = False,
    device: str = AUTO,
    replace: bool = False,
) -> Outcome:
    """Write the scores of every joint comparison in a table of results to `path`.

    Nothing is done if `path` was written from the same inputs. `sides` are the representations of
    the grids in any order, and none without `resampling`.
    """
    inputs: dict[str, Any] = {
        "step": LOCALIZATION,
        "results": hash_rows(frame),
        "standardize": standardize,
    }
    if sides:
        hashes = [side.manifest["data_sha256"] for side in sides]
        inputs |= {"representations": hashes, **resampling.inputs}

    def make() -> list[ResultRow]:
        needed = frame[frame["measure"].isin(NEEDED) & (frame["experiment"] == JOINT)]
        joint = [rows for _, rows in needed.groupby(["task", "comparison"], sort=False)]
        if not joint:
            raise UserError(
                f"results: wanted joint grids of {' and '.join(NEEDED)} "
                f"({argument('joint', True, of='grid')}), found none"
            )
        _refuse_strangers(sides, joint)
        return [
            row
            for rows in joint
            for row in localization_rows(
                rows, sides, resampling, standardize=standardize, device=device
            )
        ]

    return ensure_results(path, inputs, make, replace=replace)


def localization_rows(
    frame: pd.DataFrame,
    sides: Sequence[Representations],
    resampling: Resampling,
    *,
    standardize: bool,
    device: str = AUTO,
) -> list[ResultRow]:
    """Return the localization score of every layer; the score of an undefined layer is nan.

    Undefined layers are also left out of the means of the other layers. `frame` has a joint grid of
    neuronsim and one of SVCCA over the same layers, and `sides` are the representations of the
    grids in any order, or none for scores without intervals.
    """
    first = frame.iloc[0]
    stored = [_one_grid(frame, name) for name in NEEDED]
    (layers, neuronsim), (other_layers, svcca) = (joint_table(rows) for rows in stored)
    if layers != other_layers or frame["kind"].nunique() > 1:
        raise UserError(
            f"results, comparison {first['comparison']}: wanted {' and '.join(NEEDED)} over the "
            "same layers of one kind, found different ones"
        )
    scores = _scores(neuronsim, svcca, standardize)
    widths, texts = np.full(len(layers), np.nan), np.full(len(layers), None)
    if sides:
        ordered = _in_order(sides, frame)
        pairs = zip(stored, (neuronsim, svcca), strict=True)
        all_draws = [
            draws_of(rows.iloc[0], values, ordered, resampling, device) for rows, values in pairs
        ]
        draws = [grids for grids in all_draws if grids is not None]
        if len(draws) == len(all_draws):
            (of_neurons, examples), (of_spaces, _) = draws
            both = zip(of_neurons, of_spaces, strict=True)
            drawn = np.stack([_scores(*grids, standardize) for grids in both])
            widths = half_width(drawn, examples)
            texts = packed(drawn, examples)
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
            low=float(score - width),
            high=float(score + width),
            resampling=resampling.record,
            draws=text,
            n=int(first["n"]),
            task=first["task"],
        )
        for layer, score, width, text in zip(layers, scores, widths, texts, strict=True)
    ]


def _scores(neuronsim: np.ndarray, svcca: np.ndarray, standardize: bool) -> np.ndarray:
    """Return the score of every layer; undefined layers get nan and count for no other layer."""
    import simcore

    tables = (neuronsim, svcca)
    defined = np.all([np.isfinite(np.diagonal(table)) for table in tables], axis=0)
    scores = np.full(len(neuronsim), np.nan)
    known = (table[np.ix_(defined, defined)] for table in tables)
    scores[defined] = simcore.localization_score(*known, standardize=standardize)
    return scores


def _in_order(sides: Sequence[Representations], frame: pd.DataFrame) -> list[Representations]:
    """Return the representations of the models of a joint grid, in the order of the grid."""
    ordered = []
    for label, rows in frame.groupby("label_x", sort=False):
        matching = [side for side in sides if belongs(side, rows.iloc[0])]
        if len(matching) != 1:
            raise UserError(
                f"{argument('bootstrap')}: wanted one folder with the representations of {label} "
                f"of task {rows.iloc[0]['task']}, found {len(matching)}"
            )
        ordered += matching
    return ordered


def _refuse_strangers(sides: Sequence[Representations], joint: Sequence[pd.DataFrame]) -> None:
    models = [rows.iloc[0] for frame in joint for _, rows in frame.groupby("label_x")]
    for side in sides:
        if not any(belongs(side, first) for first in models):
            raise UserError(
                f"{side.folder}: wanted representations of a joint grid in the results, found "
                f"{side.manifest['label']} ({side.manifest['kind']}, n = {side.manifest['n']})"
            )


def _one_grid(frame: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return the rows of the joint grid of a measure; a copy of a grid counts as the same grid."""
    rows = frame[frame["measure"] == measure].drop_duplicates([*_CELL, *_GRID, "value"])
    count = len(rows[_GRID].drop_duplicates())
    if count == 1:
        count = int(rows.groupby(_CELL).size().max())
    if count != 1:
        raise UserError(
            f"results, comparison {frame.iloc[0]['comparison']}: wanted one grid of {measure}, "
            f"found {count}"
        )
    return rows
