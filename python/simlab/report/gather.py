"""A results table as the page needs it: settings, grids over axes of layers, facts of layers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from simlab.errors import UserError
from simlab.figures.style import blocks_of, undefined_note
from simlab.figures.table import (
    MEASURED,
    Measured,
    describe,
    in_order,
    tell_apart,
    with_seeds,
    without_seed,
)
from simlab.report.planes import PLANES, VALUE, clustered, entries, is_symmetric, pack
from simlab.report.trainings import named_by_step, trainings
from simlab.representations.kinds import KINDS
from simlab.results.results import (
    BASELINE,
    BLOCK_SCORE,
    BLOCKS,
    GRIDS,
    INFLUENCE,
    JOINT,
    LOCALIZATION,
    MAJORITY,
    SPANS,
    TFIDF,
    TFIDF_REGRESSION,
    TRUNCATIONS,
    split_step,
)
from simlab.similarity.catalogue import MEASURES

_SETTING = ("task", MEASURED)
_MOST_LAYERS = 1 << 20  # of a model
UNKNOWN = -1  # a seed that the table does not say
Model = tuple[str, int]
_DETAILS = ("kind", "estimator", "kernel", "bandwidth", "options")

Axis = tuple[tuple[int, tuple[int, ...]], ...]


@dataclass
class Gathered:
    """The content of the page, as JSON values, and the compressed planes of every setting."""

    models: list[dict[str, Any]] = field(default_factory=list)
    axes: list[Axis] = field(default_factory=list)
    settings: list[dict[str, Any]] = field(default_factory=list)
    grids: list[dict[str, Any]] = field(default_factory=list)
    facts: list[list[Any]] = field(default_factory=list)
    baselines: list[list[Any]] = field(default_factory=list)
    trainings: list[dict[str, Any]] = field(default_factory=list)
    text: dict[str, str] = field(default_factory=dict)


def gather(frame: pd.DataFrame) -> Gathered:
    """Return what the page shows of a table that `without_copies` returned."""
    frame = named_by_step(frame)
    gathered = Gathered(trainings=list(trainings(frame)))
    is_cell = frame["experiment"].isin(GRIDS)
    _require_places(frame, is_cell)
    cells, others = frame[is_cell].reset_index(drop=True), frame[~is_cell]
    sides = [_models(cells, side) for side in "xy"]
    described = _described(frame, [*sides[0], *sides[1], *_models(of_layers(others), "x")])
    gathered.models = list(described.values())
    numbers = {model: number for number, model in enumerate(described)}
    blocks = others[others["experiment"].isin((BLOCKS, BLOCK_SCORE))]
    # The model is the high digit and the layer the low one: sorted codes are sorted by model first.
    codes = [
        np.array([numbers[model] for model in models], dtype=np.int64) * _MOST_LAYERS
        + cells[f"layer_{side}"].to_numpy(dtype=np.int64)
        for side, models in zip("xy", sides, strict=True)
    ]
    axes: dict[Axis, int] = {}
    for places in _settings(cells, codes):
        _add_setting(gathered, cells, places, codes, axes, blocks)
    _share_ranges(gathered.settings)
    _name_apart(gathered.settings)
    gathered.axes = list(axes)
    gathered.facts = list(facts(others, numbers))
    gathered.baselines = baselines(others)
    return gathered


def _require_places(frame: pd.DataFrame, inside: pd.Series) -> None:
    """Check that every cell names its models and layers, and every row of a layer its layer."""
    alone = frame["experiment"].isin((LOCALIZATION, *SPANS, *TRUNCATIONS.values()))
    for name, rows in (("label_y", inside), ("layer_y", inside), ("layer_x", inside | alone)):
        column = frame.loc[rows, name]
        good = column.notna()
        if name != "label_y":
            good &= column.between(0, _MOST_LAYERS - 1).fillna(False)
        if not good.all():
            row = good.idxmin()
            name_of = frame["comparison"].fillna(frame["experiment"])[row]
            wanted = "a model" if name == "label_y" else f"a number from 0 to {_MOST_LAYERS - 1:,}"
            raise UserError(
                f"results {frame['file'][row]}: wanted {wanted} in column {name!r} of "
                f"{name_of}, found {column[row]}"
            )


def _models(rows: pd.DataFrame, side: str) -> list[Model]:
    """Return the model of every row on one side."""
    labels, seeds = rows[f"label_{side}"], rows[f"seed_{side}"].fillna(UNKNOWN)
    return list(zip(labels, seeds.astype(int), strict=True))


def _described(frame: pd.DataFrame, models: list[Model]) -> dict[Model, dict[str, Any]]:
    """Return what the page says of every model, in natural order of the names."""
    origins: dict[Model, list[Any]] = {}
    for side in "xy":
        columns = [f"{name}_{side}" for name in ("label", "seed", "base", "stage", "step")]
        distinct = frame[columns].drop_duplicates().astype(object)
        for label, seed, *origin in distinct.where(distinct.notna(), None).itertuples(False, None):
            origins.setdefault((label, seed_of(seed)), origin)
    rank = {name: place for place, name in enumerate(in_order(name for name, _ in models))}
    families: dict[tuple[Any, ...], list[int]] = {}  # their seeds
    described: dict[Model, dict[str, Any]] = {}
    for name, seed in sorted(set(models), key=lambda model: (rank[model[0]], model[1])):
        base, stage, step = origins[name, seed]
        stored = None if seed == UNKNOWN else seed
        family = (without_seed(name, stored, base), base, stage)
        families.setdefault(family, []).append(seed)
        step = step if split_step(name)[1] == step else None
        described[name, seed] = {"name": name, "seed": stored, "family": family, "step": step}
    numbers = {family: number for number, family in enumerate(families)}
    for model in described.values():
        family = model["family"]
        stem = with_seeds(family[0], families[family])  # FT[1–3]
        # The training is the same at all its steps; it has no name without steps.
        run = "" if model["step"] is None else split_step(stem)[0]
        model |= {"family": numbers[family], "base": family[1], "stage": family[2]}
        model |= {"stem": stem, "run": run}
    return described


def _settings(cells: pd.DataFrame, codes: list[np.ndarray]) -> list[list[np.ndarray]]:
    """Return, for every setting, the places of the cells of each of its grids."""
    joint = (cells["experiment"] == JOINT).to_numpy(dtype=bool)
    # A joint grid has all models; the others have a model on each side.
    x, y = (np.where(joint, UNKNOWN, code // _MOST_LAYERS) for code in codes)
    keys = [*(cells[name] for name in (*_SETTING, "comparison", "n")), x, y]
    grids = cells.groupby(keys, dropna=False, sort=False, observed=True).indices
    settings: dict[Any, list[np.ndarray]] = {}
    for key, places in grids.items():
        settings.setdefault(key[:2], []).append(places)
    rank = {name: place for place, name in enumerate(MEASURES)}
    ordered = sorted(settings, key=lambda setting: rank.get(setting[1].measure, len(rank)))
    return [settings[setting] for setting in ordered]


def _add_setting(
    gathered: Gathered,
    cells: pd.DataFrame,
    grids: list[np.ndarray],
    codes: list[np.ndarray],
    axes: dict[Axis, int],
    blocks: pd.DataFrame,
) -> None:
    """Add the grids of one task, measure, kind and options; `grids` are places of cells."""
    number, start = len(gathered.settings), 0
    heads = cells.iloc[[places[0] for places in grids]]
    measure: Measured = heads[MEASURED].iloc[0]
    mine = cells.iloc[np.concatenate(grids)]
    filled = [name for name in PLANES if name == VALUE or np.isfinite(mine[name]).any()]
    columns = {name: cells[name].to_numpy(dtype=np.float64) for name in filled}
    stored: dict[str, list[np.ndarray]] = {name: [] for name in filled}
    for row, places in enumerate(grids):
        (x, x_at), (y, y_at) = (_axis(code[places]) for code in codes)
        depths = [np.concatenate([layers for _, layers in axis]) for axis in (x, y)]
        planes = {}
        for name in filled:
            planes[name] = np.full([len(depth) for depth in depths], np.nan)
            planes[name][x_at, y_at] = columns[name][places]
        symmetric = x == y and is_symmetric(list(planes.values()))
        for name in filled:
            stored[name].append(entries(planes[name], symmetric))
        # Layers that are alike stand together: distances count from the other end.
        trees = clustered(planes[VALUE] * (-1 if measure.is_distance else 1), *depths)
        head = heads.iloc[row]
        grid = {
            "comparison": str(head["comparison"]),
            "n": int(head["n"]),
            "setting": number,
            "symmetric": symmetric,
            "start": start,
            **{name: axes.setdefault(axis, len(axes)) for name, axis in (("x", x), ("y", y))},
            "clustered": [tree.leaves for tree in trees],
            "heights": [tree.heights for tree in trees],
        }
        if isinstance(head["resampling"], str):
            grid["resampling"] = json.loads(head["resampling"])
        if x == y and len(blocks):
            grid |= _blocks(heads.iloc[[row]], x, gathered.models, blocks)
        gathered.grids.append(grid)
        start += len(stored[VALUE][-1])
    numbers = {name: np.concatenate(parts) for name, parts in stored.items()}
    gathered.text |= {f"plane-{number}-{name}": pack(plane) for name, plane in numbers.items()}
    gathered.settings.append(_setting(heads, numbers[VALUE], filled))


def _setting(heads: pd.DataFrame, values: np.ndarray, planes: list[str]) -> dict[str, Any]:
    """Return what the page says of the grids of one task, measure, kind and options."""
    first = heads.iloc[0]
    measure: Measured = first[MEASURED]
    catalogued = measure.catalogued
    about = [] if catalogued is None else [f"{catalogued.label}: {catalogued.summary}"]
    about += [f"{measure.kind}: {KINDS[measure.kind].summary}"] if measure.kind in KINDS else []
    return {
        "task": str(first["task"]),
        "kind": measure.kind or "",
        "measure": measure.measure,
        "name": measure.name,
        "range": list(measure.colours([values[np.isfinite(values)]])),
        "planes": planes,
        "undefined": undefined_note(measure.kind),
        "about": ". ".join(about),
        "files": [str(file) for file in heads["file"].unique()],
        "manual": "" if catalogued is None else f"docs/measures/{catalogued.page}",
        "details": describe({name: first[name] for name in ("bandwidth", "options")}),
    }


def _axis(codes: np.ndarray) -> tuple[Axis, np.ndarray]:
    """Return the layers along a side of a grid, and the place of every cell along it."""
    layers, places = np.unique(codes, return_inverse=True)
    models: dict[int, list[int]] = {}
    for code in layers.tolist():
        models.setdefault(code // _MOST_LAYERS, []).append(code % _MOST_LAYERS)
    return tuple((model, tuple(numbers)) for model, numbers in models.items()), places


def _share_ranges(settings: list[dict[str, Any]]) -> None:
    """Give all settings of a measure one range, so that colours compare tasks and estimators."""
    shared: dict[str, list[float]] = {}
    for setting in settings:
        first, last = setting["range"]
        widest = shared.setdefault(setting["measure"], [first, last])
        # The range of a distance goes from far to equal.
        low, high = (max, min) if first > last else (min, max)
        widest[:] = [low(widest[0], first), high(widest[1], last)]
        setting["range"] = widest


def _name_apart(settings: list[dict[str, Any]]) -> None:
    """Give settings of one name other names: usual options may stand in a table or not."""
    details = [setting.pop("details") for setting in settings]
    places: dict[tuple[str, str], list[int]] = {}
    for place, setting in enumerate(settings):
        places.setdefault((setting["task"], setting["kind"]), []).append(place)
    for mine in places.values():
        names = [settings[place]["name"] for place in mine]
        differences = tell_apart(names, [details[place] for place in mine])
        for place, name in zip(mine, differences, strict=True):
            settings[place]["name"] = name


def _blocks(
    head: pd.DataFrame, axis: Axis, models: list[dict[str, Any]], blocks: pd.DataFrame
) -> dict[str, list[tuple[int, Any]]]:
    """Return blocks of a grid of a model with itself, and the p-values of their scores."""
    of_grid: dict[str, list[tuple[int, Any]]] = {"blocks": [], "tests": []}
    facts = [name for name in head if name not in ("step_x", "step_y")]
    for number, _ in axis:
        name, seed = models[number]["name"], models[number]["seed"]
        stored_seed = pd.NA if seed is None else seed
        of_model = {"label_x": name, "label_y": name, "seed_x": stored_seed, "seed_y": stored_seed}
        mine = blocks_of(head[facts].assign(**of_model), blocks)
        for _, cluster in (
            mine[mine["experiment"] == BLOCKS].dropna(subset="value").groupby("value")
        ):
            layers = [int(layer) for layer in cluster["layer_x"]]
            if len(layers) > 1:
                of_grid["blocks"].append((number, layers))
        scores = mine[mine["experiment"] == BLOCK_SCORE]["pvalue"].dropna()
        of_grid["tests"] += [(number, float(pvalue)) for pvalue in scores]
    return of_grid


def seed_of(value: Any) -> int:
    """Return a seed of the table, or `UNKNOWN`."""
    return UNKNOWN if pd.isna(value) else int(value)


def of_layers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that say something of one layer."""
    skipped = frame["experiment"].isin(SPANS) & (frame["layer_y"] - frame["layer_x"] == 1)
    alone = frame["experiment"].isin((LOCALIZATION, *TRUNCATIONS.values()))
    return frame[alone | skipped.fillna(False).astype(bool)]


def baselines(frame: pd.DataFrame) -> list[list[Any]]:
    """Return task, metric, n, name and value of each simple model, such as the majority class."""
    simple = frame["label_x"].isin((MAJORITY, TFIDF, TFIDF_REGRESSION))
    mine = frame[(frame["experiment"] == BASELINE) & simple]
    columns = mine[["task", "measure", "n", "label_x", "value"]].dropna().drop_duplicates()
    return columns.astype(object).to_numpy().tolist()


def facts(frame: pd.DataFrame, numbers: dict[Model, int]) -> Iterator[list[Any]]:
    """Yield task, model, layer, name of the value, value, low, high, n, and details."""
    for row in of_layers(frame).to_dict("records"):
        work = row["experiment"]
        alone = {LOCALIZATION: LOCALIZATION, INFLUENCE: row["measure"]}
        layer = int(row["layer_y" if work in SPANS else "layer_x"])
        values = [
            float(row[name]) if np.isfinite(row[name]) else None
            for name in ("value", "low", "high")
        ]
        parts = [*describe({name: row[name] for name in _DETAILS}).values()]
        if work == LOCALIZATION and isinstance(row["comparison"], str):
            parts.append(row["comparison"])  # a score depends on the models of its joint grid
        details = ", ".join(parts)
        model = numbers[row["label_x"], seed_of(row["seed_x"])]
        name = alone.get(work, f"{row['measure']}, {work}")
        yield [row["task"], model, layer, name, *values, int(row["n"]), details]
