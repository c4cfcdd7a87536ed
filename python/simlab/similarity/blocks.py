"""Blocks of layers in stored grids: clusters and scores, as rows of the results table.

Every grid of the layers of a model with themselves is scored twice, at a fixed number of clusters
and at the best number; `simlab.similarity.block_scores` defines score, chance and best. A grid of
errors of maps between layers (`align-study`) is scored too, with 1 - relative error on held-out
rows as its similarity: its score is the share of the mean error at the same distance that maps
within clusters do without. A grid of errors between two models is made symmetric, the mean of the
error from layer i of X to layer j of Y and of that from j to i, and gets one split for both models.

The interval of a score needs representations: halves of the examples are drawn
and the grid is computed for each, with its score at the same number of clusters
(`simlab.similarity.stored_grids`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.bounds import Clusters, Count, FromZero, bounded
from simlab.errors import UserError
from simlab.representations.folder import Representations
from simlab.similarity.block_scores import PERMUTATIONS, Blocks, GridScores
from simlab.similarity.catalogue import MEASURES
from simlab.similarity.devices import AUTO, check_device
from simlab.similarity.resampling import Resampling
from simlab.similarity.stored_grids import belongs, draws_of, half_width, read_inputs
from simlab.store.jobs import Outcome
from simlab.store.results import (
    ALIGNMENTS,
    BLOCK_SCORE,
    BLOCKS,
    GRID_COLUMNS,
    GRIDS,
    HELDOUT,
    RELATIVE,
    STATISTICS,
    ResultRow,
    ensure_results,
    hash_rows,
    side_in,
)
from simlab.store.tables import require_table_file

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
    bootstrap: FromZero = 0,
    permutations: Count = PERMUTATIONS,
    resampling_seed: FromZero = 0,
    device: str = AUTO,
    overwrite: bool = False,
    tell: Callable[[Outcome], None] = lambda _: None,
) -> list[tuple[Blocks, list[ResultRow]]]:
    """Split the layers of every grid of a model with itself into clusters, and score the split.

    Parameters
    ----------
    results
        Results files with grids, or folders of results files; with `bootstrap` also the
        representation folders of the grids.
    out
        Results file (.parquet) for clusters and scores; `simcore plot` outlines the best clusters.
    clusters
        Number of clusters of the first score; the second score has the best number.
    bootstrap
        Halves of the examples to draw for 95 % intervals of the scores, such as 200, for the grids
        whose representations are given.
    permutations
        Grids to draw for chance, p-values and the best number of clusters: the same similarities at
        each distance, in any order.
    resampling_seed
        Seed of `bootstrap` and `permutations`.
    device
        Where the grids of halves are computed: ``cpu``, ``cuda`` or ``cuda:1``; ``auto`` takes a
        GPU that is free where the layers fit, else the CPU.
    overwrite
        As for `truncate`.
    tell
        Function that is called with the outcome of `out`.

    Returns
    -------
    list of (Blocks, list of ResultRow)
        For each grid, the fixed number of clusters and then the best number, with the rows for the
        results table (`block_rows`).

    Raises
    ------
    UserError
        `results` have no such grid, a grid has fewer layers than `clusters`, representations are
        missing or belong to no grid, or `out` has other content and `overwrite` is False.

    Examples
    --------
    >>> from simlab import TaskOptions, blocks, extract, grid
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = extract("minilm", "rt", "runs/reps/orig", label="ORIG", task_options=few)
    >>> step = grid("runs/reps/orig", "runs/results/orig.parquet", estimator="biased")
    >>> (two, _), (best, _) = blocks("runs/results/orig.parquet")
    >>> len(two.clusters), two.score <= 1
    (2, True)
    """
    path = None if out is None else Path(out)
    if path is not None:
        require_table_file(path)
    resampling = Resampling(bootstrap, permutations, resampling_seed)
    resampling.check()
    check_device(device)
    frame, stored = read_inputs(results, path, resampling)
    splits = list(block_rows(frame, clusters, resampling, stored, device))
    if path is not None:
        tell(ensure_blocks(path, frame, clusters, resampling, stored, splits, replace=overwrite))
    return splits


def ensure_blocks(
    path: Path,
    frame: pd.DataFrame,
    clusters: int,
    resampling: Resampling,
    stored: Sequence[Representations] = (),
    blocks: Iterable[tuple[Blocks, list[ResultRow]]] | None = None,
    *,
    device: str = AUTO,
    replace: bool = False,
) -> Outcome:
    """Write the rows of `block_rows` to `path`, unless `path` was written from the same inputs.

    `blocks` is the result of `block_rows`, if it is computed already.
    """
    inputs = {
        "step": BLOCKS,
        "results": hash_rows(frame),
        "clusters": clusters,
        "representations": [part.manifest["data_sha256"] for part in stored],
        **resampling.inputs,
    }

    def make() -> Iterator[ResultRow]:
        for _, rows in blocks or block_rows(frame, clusters, resampling, stored, device):
            yield from rows

    return ensure_results(path, inputs, make, replace=replace)


def block_rows(
    frame: pd.DataFrame,
    clusters: int = CLUSTERS,
    resampling: Resampling | None = None,
    stored: Sequence[Representations] = (),
    device: str = AUTO,
) -> Iterator[tuple[Blocks, list[ResultRow]]]:
    """Score every grid of a model with itself in a results table, and every square grid of errors.

    Each grid gives its blocks at `clusters` clusters and its best blocks, both with a row for the
    score, which has no layer, and a row for each layer, whose value is the number of its cluster
    from 1 (nan if the layer is undefined). Rows of the best blocks have the `options` of the grid,
    the others have "clusters" besides, and rows of errors have "study", the comparison.
    """
    resampling = resampling or Resampling(permutations=PERMUTATIONS)
    used: set[Path] = set()
    for rows in _grids(frame):
        table = rows.pivot(index="layer_x", columns="layer_y", values="value")
        table = table.sort_index().sort_index(axis=1)
        first = rows.iloc[0]
        values = table.to_numpy()
        if first["measure"] == RELATIVE:
            values = 1 - values
        of_grid = [part for part in stored if belongs(part, first)]
        used |= {part.folder for part in of_grid}
        try:
            scores = GridScores(values, permutations=resampling.permutations, seed=resampling.seed)
            both = [scores.at(clusters), scores.best()]
        except ValueError as error:
            raise UserError(f"results, grid of {first['label_x']}: {error}") from None
        if of_grid:
            both = _with_intervals(
                both, scores, draws_of(first, values, of_grid[:1], resampling, device)
            )
        layers = [int(layer) for layer in table.index]
        for fixed, split in zip((True, False), both, strict=True):
            yield _renumbered(split, layers, first, fixed, resampling)
    for part in stored:
        if part.folder not in used:
            raise UserError(
                f"{part.folder}: wanted representations of a grid in the results, found "
                f"{part.manifest['label']} ({part.manifest['kind']}, n = {part.manifest['n']})"
            )


def _grids(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the rows of every grid of a model with itself, and of every square grid of errors.

    Grids of distances are left out: scores are of similarities.
    """
    aligned = frame["experiment"].isin(ALIGNMENTS)
    # Two models without a seed are the same model if they have the same name.
    is_own = frame["label_x"] == frame["label_y"]
    for name in ("seed", "step"):
        is_own &= frame[f"{name}_x"].fillna(-1) == frame[f"{name}_y"].fillna(-1)
    is_own &= frame["experiment"].isin(GRIDS) & ~frame["measure"].isin(_DISTANCES)
    grids = frame[is_own].drop_duplicates([*GRID_COLUMNS, "layer_x", "layer_y"])
    parts = [rows for _, rows in grids.groupby(list(GRID_COLUMNS), dropna=False, sort=False)]
    errors = frame[aligned & (frame["measure"] == RELATIVE) & frame["layer_y"].notna()]
    errors = errors[errors["options"].map(_is_judged).astype(bool)]
    names = ["experiment", "comparison", *GRID_COLUMNS, "label_y", "seed_y", "step_y"]
    pairs = [rows for _, rows in errors.groupby(names, dropna=False, sort=False)]
    parts += [rows for rows in pairs if _is_square(rows)]
    if not parts:
        names = frame["comparison"].fillna(frame["experiment"])
        found_names = ", ".join(dict.fromkeys(names)) or "an empty table"
        raise UserError(
            f"results: wanted a grid of a model with itself (FT-FT), found {found_names}"
        )
    yield from parts


def _is_judged(options: str) -> bool:
    """Return whether errors are of whole layers on held-out rows."""
    stored = json.loads(options)
    return stored.get("rows") == HELDOUT and "head_x" not in stored


def _is_square(rows: pd.DataFrame) -> bool:
    """Return whether `rows` have every layer with every layer, once."""
    layers = set(rows["layer_x"])
    pairs = set(zip(rows["layer_x"], rows["layer_y"], strict=True))
    return len(rows) == len(pairs) == len(layers) ** 2 and set(rows["layer_y"]) == layers


def _with_intervals(
    both: list[Blocks],
    scores: GridScores,
    grids_of_halves: tuple[np.ndarray, int] | None,
) -> list[Blocks]:
    """Return the blocks of a grid with the intervals of their scores."""
    if grids_of_halves is None:
        return both
    return [_with_interval(one, scores, *grids_of_halves) for one in both]


def _with_interval(blocks: Blocks, scores: GridScores, draws: np.ndarray, examples: int) -> Blocks:
    width = float(half_width(scores.of_grids(draws, len(blocks.clusters)), examples))
    return dataclasses.replace(
        blocks, low=blocks.score - width, high=min(blocks.score + width, 1.0)
    )


def _renumbered(
    blocks: Blocks,
    layers: Sequence[int],
    first: pd.Series,
    fixed: bool,
    resampling: Resampling,
) -> tuple[Blocks, list[ResultRow]]:
    import pandas as pd

    other = first["label_x"] != first["label_y"]
    common: dict[str, Any] = {
        name: None if pd.isna(first[name]) else first[name] for name in GRID_COLUMNS
    }
    common |= side_in(first).columns()
    if other:
        common |= side_in(first, "y").columns("y")
    added: dict[str, Any] = {"clusters": len(blocks.clusters)} if fixed else {}
    if first["measure"] == RELATIVE:  # two studies may have the same labels and options
        added["study"] = f"{first['experiment']}: {first['comparison']}"
    if added:
        options = json.loads(common["options"]) if common["options"] else {}
        common["options"] = json.dumps({**options, **added})
    numbered = dataclasses.replace(
        blocks,
        clusters=tuple(tuple(layers[row] for row in cluster) for cluster in blocks.clusters),
        undefined=tuple(layers[row] for row in blocks.undefined),
    )
    numbers = {layer: float("nan") for layer in numbered.undefined}
    for number, cluster in enumerate(numbered.clusters, 1):
        numbers |= dict.fromkeys(cluster, float(number))
    score = ResultRow(
        experiment=BLOCK_SCORE,
        value=numbered.score,
        **{name: getattr(numbered, name) for name in STATISTICS},
        resampling=resampling.record,
        **common,
    )
    of_layers = [
        ResultRow(experiment=BLOCKS, layer_x=layer, value=numbers[layer], **common)
        for layer in layers
    ]
    return numbered, [score, *of_layers]
