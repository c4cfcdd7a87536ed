"""A results table as the page needs it: settings, grids over axes of layers, facts of layers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.figures.blocks import clusters_of
from simlab.figures.names import in_order, with_seeds, without_seed
from simlab.figures.style import lowest_colour, measure_name
from simlab.figures.table import MEASURE_COLUMNS
from simlab.report.order import clustered
from simlab.report.planes import PLANES, VALUE, entries, is_symmetric, pack
from simlab.similarity.catalogue import MEASURES
from simlab.store.results import (
    BLOCK_SCORE,
    BLOCKS,
    LOCALIZATION,
    SKIPPING,
    TRUNCATIONS,
    is_alignment,
)

if TYPE_CHECKING:
    import pandas as pd

_SETTING = ("task", *MEASURE_COLUMNS)
_SIDES = ("model_x", "seed_x"), ("model_y", "seed_y")
_UNKNOWN = -1  # a seed that the table does not say
_MOST_LAYERS = 1 << 20  # of a model

Model = tuple[str, int]
Axis = tuple[tuple[int, tuple[int, ...]], ...]


@dataclass
class Gathered:
    """What the page shows, as JSON values, and the compressed planes of every setting."""

    models: list[dict[str, Any]] = field(default_factory=list)
    axes: list[Axis] = field(default_factory=list)
    settings: list[dict[str, Any]] = field(default_factory=list)
    grids: list[dict[str, Any]] = field(default_factory=list)
    facts: list[list[Any]] = field(default_factory=list)
    text: dict[str, str] = field(default_factory=dict)


def grid_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `frame` that are cells of grids of measures."""
    aligned = is_alignment(frame)
    return frame[frame["layer_y"].notna() & (frame["comparison"] != SKIPPING) & ~aligned]


def gather(frame: pd.DataFrame, exact: bool = False) -> Gathered:
    """Return what the page shows of a table that `distinguish` returned.

    Parameters
    ----------
    exact
        Store float32 numbers instead of 16-bit steps.
    """
    cells = grid_rows(frame)
    found = Gathered()
    numbers = _number_models(frame, cells)
    stems = _stems(numbers)
    for (name, seed), stem in zip(numbers, stems, strict=True):
        known = None if seed == _UNKNOWN else seed
        found.models.append({"name": name, "seed": known, "stem": stem})
    codes = [_codes(cells, side, f"layer_{'xy'[i]}", numbers) for i, side in enumerate(_SIDES)]
    blocks = frame[frame["comparison"].isin((BLOCKS, BLOCK_SCORE))]
    axes: dict[Axis, int] = {}
    places = cells.reset_index(drop=True)
    # Measures in the order of the catalogue, whatever the names of the files are.
    parts = [rows for _, rows in places.groupby(list(_SETTING), dropna=False, sort=False)]
    for rows in sorted(parts, key=_rank):
        _add_setting(found, rows, [code[rows.index] for code in codes], axes, blocks, exact)
    found.axes = list(axes)
    found.facts = list(_facts(frame, numbers))
    return found


def _number_models(frame: pd.DataFrame, cells: pd.DataFrame) -> dict[Model, int]:
    """Return a number for every model and seed, in natural order of the names."""
    parts = [cells[list(side)].drop_duplicates().to_numpy() for side in _SIDES]
    parts.append(_with_facts(frame)[list(_SIDES[0])].drop_duplicates().to_numpy())
    found = [_model(*pair) for part in parts for pair in part]
    rank = {name: place for place, name in enumerate(in_order(name for name, _ in found))}
    ordered = sorted(dict.fromkeys(found), key=lambda model: (rank[model[0]], model[1]))
    return {model: place for place, model in enumerate(ordered)}


def _model(name: Any, seed: Any) -> Model:
    import pandas as pd

    return str(name), _UNKNOWN if pd.isna(seed) else int(seed)


def _stems(models: dict[Model, int]) -> list[str]:
    """Return for every model the name of all its seeds: ``FT[1–3]``."""
    stems = [without_seed(name, None if seed == _UNKNOWN else seed) for name, seed in models]
    seeds: dict[str, list[int]] = {}
    for stem, (_, seed) in zip(stems, models, strict=True):
        seeds.setdefault(stem, []).append(seed)
    return [with_seeds(stem, seeds[stem]) for stem in stems]


def _codes(
    cells: pd.DataFrame, side: tuple[str, str], layer: str, numbers: dict[Model, int]
) -> np.ndarray:
    """Return a number for the layer of every cell; its order is that of the axes."""
    places = cells.groupby(list(side), dropna=False, sort=False).ngroup().to_numpy()
    models = cells[list(side)].drop_duplicates().itertuples(index=False, name=None)
    of_place = np.array([numbers[_model(*model)] for model in models], dtype=np.int64)
    of_cell = of_place[places] if len(places) else places
    return of_cell * _MOST_LAYERS + cells[layer].to_numpy(dtype=np.int64)


def _add_setting(
    found: Gathered,
    rows: pd.DataFrame,
    codes: list[np.ndarray],
    axes: dict[Axis, int],
    blocks: pd.DataFrame,
    exact: bool,
) -> None:
    """Add the grids of one task, measure, kind and options."""
    number, first = len(found.settings), rows.iloc[0]
    parts: dict[str, list[np.ndarray]] = {name: [] for name in PLANES}
    columns = {name: rows[name].to_numpy(dtype=np.float64) for name in PLANES}
    start = 0
    for places in _grids(rows, codes):
        of_grid = rows.iloc[places]
        (x, x_at), (y, y_at) = (_axis(code[places]) for code in codes)
        planes = {}
        for name in PLANES:
            plane = np.full((sum(map(_length, x)), sum(map(_length, y))), np.nan)
            plane[x_at, y_at] = columns[name][places]
            planes[name] = plane
        symmetric = x == y and is_symmetric(list(planes.values()))
        for name in PLANES:
            parts[name].append(entries(planes[name], symmetric))
        grid = _describe(of_grid.iloc[0], planes[VALUE])
        if x == y and len(blocks):
            grid["blocks"] = list(_blocks(of_grid, x, found.models, blocks))
        grid |= {"setting": number, "symmetric": symmetric, "start": start}
        grid |= {name: axes.setdefault(axis, len(axes)) for name, axis in (("x", x), ("y", y))}
        start += len(parts[VALUE][-1])
        found.grids.append(grid)
    numbers = {name: np.concatenate(of_name) for name, of_name in parts.items()}
    packed = pack(numbers, exact)
    texts = {f"plane-{number}-{name}": text for name, text in packed.text.items()}
    values = numbers[VALUE][np.isfinite(numbers[VALUE])]
    found.text |= texts
    found.settings.append(
        {
            "task": str(first["task"]),
            "kind": _word(first["kind"]),
            "measure": str(first["measure"]),
            "name": measure_name(rows.head(1)),
            "range": [lowest_colour(str(first["measure"]), values), 1.0],
            "planes": packed.planes,
            "count": start,
        }
    )


def _grids(rows: pd.DataFrame, codes: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the places of the rows of every grid: of two models, or a joint one."""
    joint = rows["joint"].to_numpy(dtype=bool)
    pair = np.where(joint, _UNKNOWN, codes[0] // _MOST_LAYERS)
    other = np.where(joint, _UNKNOWN, codes[1] // _MOST_LAYERS)
    keys = [rows["comparison"], rows["source"], rows["n"], pair, other]
    for places in rows.groupby(keys, dropna=False, sort=False).indices.values():
        yield np.sort(places)


def _rank(rows: pd.DataFrame) -> tuple[int, bool]:
    first, names = rows.iloc[0], list(MEASURES)
    known = first["measure"] in names
    return names.index(first["measure"]) if known else len(names), first["quantity"] != ""


def _axis(codes: np.ndarray) -> tuple[Axis, np.ndarray]:
    """Return the layers along a side of a grid, and the place of every cell along it."""
    layers, places = np.unique(codes, return_inverse=True)
    models: dict[int, list[int]] = {}
    for code in layers.tolist():
        models.setdefault(code // _MOST_LAYERS, []).append(code % _MOST_LAYERS)
    return tuple((model, tuple(numbers)) for model, numbers in models.items()), places


def _length(part: tuple[int, tuple[int, ...]]) -> int:
    return len(part[1])


def _describe(first: pd.Series, values: np.ndarray) -> dict[str, Any]:
    down, across = clustered(values)
    grid: dict[str, Any] = {
        "comparison": str(first["comparison"]),
        "source": str(first["source"]),
        "n": int(first["n"]),
        "clustered": [down] if down == across else [down, across],
    }
    if isinstance(first["resampling"], str):
        grid["resampling"] = json.loads(first["resampling"])
    return grid


def _blocks(
    rows: pd.DataFrame, axis: Axis, models: list[dict[str, Any]], blocks: pd.DataFrame
) -> Iterator[tuple[int, list[int]]]:
    """Yield the model and the layers of every block of a grid that has the same layers twice."""
    import pandas as pd

    for number, _ in axis:
        name, seed = models[number]["name"], models[number]["seed"]
        given = pd.NA if seed is None else seed
        of_model = {"model_x": name, "model_y": name, "seed_x": given, "seed_y": given}
        for cluster in clusters_of(rows.head(1).assign(**of_model), blocks):
            yield number, [int(layer) for layer in cluster["layer_x"]]


def _with_facts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that say something of one layer."""
    skipped = (frame["comparison"] == SKIPPING) & (frame["layer_y"] - frame["layer_x"] == 1)
    alone = frame["comparison"].isin((LOCALIZATION, *TRUNCATIONS.values()))
    return frame[alone | skipped.fillna(False).astype(bool)]


def _facts(frame: pd.DataFrame, numbers: dict[Model, int]) -> Iterator[list[Any]]:
    """Yield task, model, layer, what the value is, value, low, high and n.

    The layer that is skipped is the upper one of its span.
    """
    import pandas as pd

    names = ("task", "comparison", "measure", "model_x", "seed_x", "layer_x", "layer_y")
    rows = _with_facts(frame)[[*names, "value", "low", "high", "n"]]
    for task, work, measure, model, seed, layer, upper, *values, n in rows.itertuples(
        index=False, name=None
    ):
        what = LOCALIZATION if work == LOCALIZATION else f"{measure}, {work}"
        number = int(upper if work == SKIPPING else layer)
        known = [None if pd.isna(value) else float(value) for value in values]
        yield [task, numbers[_model(model, seed)], number, what, *known, int(n)]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""
