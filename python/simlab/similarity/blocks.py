"""Blocks of layers in stored grids: clusters and scores, as rows of the results table.

`simlab.similarity.block_scores` defines the score and its chance.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.bounds import Clusters, Count, FromZero, bounded
from simlab.errors import UserError
from simlab.results.reading import read_results, results_files
from simlab.results.results import (
    BLOCK_SCORE,
    BLOCKS,
    GRID_COLUMNS,
    GRIDS,
    ResultRow,
    ensure_results,
    hash_rows,
    side_in,
)
from simlab.results.tables import require_table_file
from simlab.similarity.block_scores import PERMUTATIONS, Blocks, find_blocks
from simlab.similarity.catalogue import MEASURES
from simlab.similarity.resampling import Resampling
from simlab.store.files import as_paths
from simlab.store.jobs import Outcome

if TYPE_CHECKING:
    import pandas as pd

CLUSTERS = 2  # earlier and later layers, as Phang et al. 2021 see them
_DISTANCES = [name for name, measure in MEASURES.items() if measure.distance]


@bounded
def blocks(
    results: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    clusters: Clusters = CLUSTERS,
    *,
    permutations: Count = PERMUTATIONS,
    resampling_seed: FromZero = 0,
    overwrite: bool = False,
    tell: Callable[[Outcome], None] = lambda _: None,
) -> list[tuple[Blocks, list[ResultRow]]]:
    """Split the layers of every grid of a model with itself into clusters, and score the split.

    Parameters
    ----------
    results
        Results files with grids, or folders of results files.
    out
        Results file (.parquet) for clusters and scores; `simcore plot` outlines the clusters.
    clusters
        Number of clusters.
    permutations
        Grids to draw for chance and p-values: the same similarities at each distance, in any order.
    resampling_seed
        Seed of `permutations`.
    overwrite
        As for `truncate`.
    tell
        Function that is called with the outcome of `out`.

    Returns
    -------
    list of (Blocks, list of ResultRow)
        For each grid, its blocks with the rows for the results table (`block_rows`).

    Raises
    ------
    UserError
        `results` have no such grid, a grid has fewer layers than `clusters`, or `out` has other
        content and `overwrite` is False.

    Examples
    --------
    >>> from simlab import TaskOptions, blocks, extract, grid
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = extract("minilm", "rt", "runs/reps/orig", label="ORIG", task_options=few)
    >>> step = grid("runs/reps/orig", "runs/results/orig.parquet", estimator="biased")
    >>> ((two, _),) = blocks("runs/results/orig.parquet")
    >>> len(two.clusters), two.score <= 1
    (2, True)
    """
    path = None if out is None else Path(out)
    if path is not None:
        require_table_file(path)
    files = results_files(as_paths(results))
    # Blocks may be written beside the grids, and are read again with them.
    frame = read_results([f for f in files if path is None or f.resolve() != path.resolve()])
    splits = list(block_rows(frame, clusters, permutations, resampling_seed))
    if path is not None:
        drawn = permutations, resampling_seed
        tell(ensure_blocks(path, frame, clusters, *drawn, splits, replace=overwrite))
    return splits


def ensure_blocks(
    path: Path,
    frame: pd.DataFrame,
    clusters: int = CLUSTERS,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
    splits: Iterable[tuple[Blocks, list[ResultRow]]] | None = None,
    *,
    replace: bool = False,
) -> Outcome:
    """Write the rows of `block_rows` to `path`, unless `path` was written from the same inputs.

    `splits` is the result of `block_rows`, if it is computed already.
    """
    inputs = {
        "step": BLOCKS,
        "results": hash_rows(frame),
        "clusters": clusters,
        "permutations": permutations,
        "seed": seed,
    }

    def make() -> Iterator[ResultRow]:
        for _, rows in splits or block_rows(frame, clusters, permutations, seed):
            yield from rows

    return ensure_results(path, inputs, make, replace=replace)


def block_rows(
    frame: pd.DataFrame,
    clusters: int = CLUSTERS,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Iterator[tuple[Blocks, list[ResultRow]]]:
    """Score every grid of a model with itself in a results table; distances are no similarities.

    Each grid gives its blocks with a row for the score, which has no layer, and a row for each
    layer, whose value is the number of its cluster from 1 (nan if the layer is undefined).
    """
    import pandas as pd

    # Two models without a seed are the same model if they have the same name.
    is_own = frame["label_x"] == frame["label_y"]
    for name in ("seed", "step"):
        is_own &= frame[f"{name}_x"].fillna(-1) == frame[f"{name}_y"].fillna(-1)
    is_own &= frame["experiment"].isin(GRIDS) & ~frame["measure"].isin(_DISTANCES)
    grids = frame[is_own].drop_duplicates([*GRID_COLUMNS, "layer_x", "layer_y"])
    if grids.empty:
        names = frame["comparison"].fillna(frame["experiment"])
        stored = ", ".join(dict.fromkeys(names)) or "an empty table"
        raise UserError(f"results: wanted a grid of a model with itself (FT-FT), found {stored}")
    for _, rows in grids.groupby(list(GRID_COLUMNS), dropna=False, sort=False):
        table = rows.pivot(index="layer_x", columns="layer_y", values="value")
        table, first = table.sort_index().sort_index(axis=1), rows.iloc[0]
        try:
            split = find_blocks(table.to_numpy(), clusters, permutations=permutations, seed=seed)
        except ValueError as error:
            raise UserError(f"results, grid of {first['label_x']}: {error}") from None
        layers = [int(layer) for layer in table.index]
        split = dataclasses.replace(
            split,
            clusters=tuple(tuple(layers[row] for row in cluster) for cluster in split.clusters),
            undefined=tuple(layers[row] for row in split.undefined),
        )
        common: dict[str, Any] = {
            name: None if pd.isna(first[name]) else first[name] for name in GRID_COLUMNS
        } | side_in(first).columns()
        numbers = {
            layer: float(number)
            for number, cluster in enumerate(split.clusters, 1)
            for layer in cluster
        }
        score = ResultRow(
            experiment=BLOCK_SCORE,
            value=split.score,
            pvalue=split.pvalue,
            calibrated=split.calibrated,
            resampling=Resampling(permutations=permutations, seed=seed).record,
            **common,
        )
        values = [numbers.get(layer, float("nan")) for layer in layers]
        yield (
            split,
            [
                score,
                *(
                    ResultRow(experiment=BLOCKS, layer_x=layer, value=value, **common)
                    for layer, value in zip(layers, values, strict=True)
                ),
            ],
        )
