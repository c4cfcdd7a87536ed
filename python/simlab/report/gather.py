"""A results table as the page needs it: settings, grids over axes of layers, facts of layers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError
from simlab.figures.blocks import clusters_of, pvalues_of
from simlab.figures.heatmap import undefined_note
from simlab.figures.measured import MEASURE_COLUMNS, MEASURED, Measured
from simlab.figures.names import describe, in_order, tell_apart, with_seeds, without_seed
from simlab.figures.table import firsts, numbered
from simlab.report.facts import UNKNOWN, Model, facts, of_layers, seed_of
from simlab.report.order import clustered
from simlab.report.planes import PLANES, VALUE, entries, is_symmetric, pack
from simlab.report.trainings import named_by_step, trainings
from simlab.representations.kinds import KINDS
from simlab.similarity.catalogue import MEASURES
from simlab.store.labels import split_step
from simlab.store.results import (
    BLOCK_SCORE,
    BLOCKS,
    GRIDS,
    JOINT,
    LOCALIZATION,
    SPANS,
    TRUNCATIONS,
)

if TYPE_CHECKING:
    import pandas as pd

_SETTING = ("task", MEASURED)
_LABEL = ("comparison", "source", "n", "resampling")
_SIDES = ("label_x", "seed_x"), ("label_y", "seed_y")
_MOST_LAYERS = 1 << 20  # of a model

Axis = tuple[tuple[int, tuple[int, ...]], ...]


@dataclass
class Gathered:
    """The content of the page, as JSON values, and the compressed planes of every setting."""

    models: list[dict[str, Any]] = field(default_factory=list)
    axes: list[Axis] = field(default_factory=list)
    settings: list[dict[str, Any]] = field(default_factory=list)
    grids: list[dict[str, Any]] = field(default_factory=list)
    facts: list[list[Any]] = field(default_factory=list)
    trainings: list[dict[str, Any]] = field(default_factory=list)
    text: dict[str, str] = field(default_factory=dict)


def gather(frame: pd.DataFrame, exact: bool = False) -> Gathered:
    """Return what the page shows of a table that `distinguish` returned.

    If `exact`, float32 numbers are stored instead of 16-bit steps.
    """
    frame = named_by_step(frame)
    by_step = list(trainings(frame))
    sides = [*_SIDES[0], "layer_x", *_SIDES[1], "layer_y"]
    frame = frame if "file" in frame else frame.assign(file="")
    needed = ["experiment", "file", *_SETTING, *MEASURE_COLUMNS, *_LABEL, *sides, *PLANES]
    inside = frame["experiment"].isin(GRIDS)
    origins = _origins(frame)
    _require_places(frame, inside)
    cells, frame = frame[needed], frame[~inside]
    if len(frame):
        cells = cells[inside].reset_index(drop=True)
    gathered = Gathered(trainings=by_step)
    places = [numbered(cells, side) for side in _SIDES]
    sides = [
        _models(cells.iloc[firsts(place)], *side)
        for place, side in zip(places, _SIDES, strict=True)
    ]
    numbers = _number_models([*sides, _models(of_layers(frame), *_SIDES[0])])
    for (name, seed), family in zip(numbers, _families(numbers, origins), strict=True):
        known = None if seed == UNKNOWN else seed
        gathered.models.append({"name": name, "seed": known, **family})
    codes = [
        _codes(place, [numbers[model] for model in side], cells[layer])
        for place, side, layer in zip(places, sides, ("layer_x", "layer_y"), strict=True)
    ]
    columns = {name: cells[name].to_numpy(dtype=np.float64) for name in PLANES}
    blocks = frame[frame["experiment"].isin((BLOCKS, BLOCK_SCORE))]
    axes: dict[Axis, int] = {}
    for heads, grids in _settings(cells, codes):
        _add_setting(gathered, heads, grids, codes, columns, axes, blocks, exact)
    _share_ranges(gathered.settings)
    _name_apart(gathered.settings)
    gathered.axes = list(axes)
    gathered.facts = list(facts(frame, numbers))
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


def _models(rows: pd.DataFrame, name: str, seed: str) -> list[Model]:
    return [(label, seed_of(of)) for label, of in zip(rows[name], rows[seed], strict=True)]


def _number_models(parts: list[list[Model]]) -> dict[Model, int]:
    """Return a number for every model and seed, in natural order of the names."""
    models = list(dict.fromkeys(model for part in parts for model in part))
    rank = {name: place for place, name in enumerate(in_order(name for name, _ in models))}
    ordered = sorted(models, key=lambda model: (rank[model[0]], model[1]))
    return {model: place for place, model in enumerate(ordered)}


def _origins(frame: pd.DataFrame) -> dict[Model, tuple[Any, Any, Any]]:
    """Return base, stage and step of every model."""
    origins: dict[Model, tuple[Any, Any, Any]] = {}
    for side in "xy":
        names = [f"{name}_{side}" for name in ("label", "seed", "base", "stage", "step")]
        known = frame[names].drop_duplicates().astype(object)
        for label, seed, *origin in known.where(known.notna(), None).itertuples(False, None):
            origins.setdefault((label, seed_of(seed)), (origin[0], origin[1], origin[2]))
    return origins


def _families(
    models: dict[Model, int], origins: dict[Model, tuple[Any, Any, Any]]
) -> list[dict[str, Any]]:
    """Return for every model its base, stage and step, and the number and name of all its seeds."""
    keys, steps = [], []
    for name, seed in models:
        base, stage, step = origins[name, seed]
        named = split_step(name)[1]
        steps.append(named if named == step else None)
        stem = without_seed(name, None if seed == UNKNOWN else seed, base)
        keys.append((stem, base, stage))
    seeds: dict[tuple[Any, ...], list[int]] = {}
    for key, (_, seed) in zip(keys, models, strict=True):
        seeds.setdefault(key, []).append(seed)
    numbers = {key: number for number, key in enumerate(seeds)}
    return [
        {
            "stem": with_seeds(key[0], seeds[key]),  # FT[1–3]
            "family": numbers[key],
            "base": key[1],
            "stage": key[2],
            # The training is the same at all its steps; it has no name without steps.
            "run": "" if step is None else split_step(with_seeds(key[0], seeds[key]))[0],
            "step": step,
        }
        for key, step in zip(keys, steps, strict=True)
    ]


def _codes(places: np.ndarray, models: list[int], layers: pd.Series) -> np.ndarray:
    """Return a number for the layer of every cell, in the order of the axes."""
    # The model is the high digit and the layer the low one: sorted codes are sorted by model first.
    of_cell = np.array(models, dtype=np.int64)[places] if len(places) else places
    return of_cell * _MOST_LAYERS + layers.to_numpy(dtype=np.int64)


def _settings(
    cells: pd.DataFrame, codes: list[np.ndarray]
) -> list[tuple[pd.DataFrame, list[np.ndarray]]]:
    """Return, for every setting, the first cells of its grids and the places of the cells of each.

    A grid is of two models, or joint. Settings stand in the order of the catalogue of measures,
    whatever the names of files are.
    """
    import pandas as pd

    setting = numbered(cells, _SETTING)
    key = numbered(cells, _LABEL[:3])
    joint = (cells["experiment"] == JOINT).to_numpy(dtype=bool)
    for code in codes:
        # A digit for each side: the model, from 1, and 0 for all models of a joint grid.
        model = np.where(joint, 0, code // _MOST_LAYERS + 1)
        key = key * (model.max(initial=0) + 1) + model
    # Ranked between the digits, so that the product cannot overflow.
    grid = pd.factorize(pd.factorize(key)[0] * (setting.max(initial=0) + 1) + setting)[0]
    # Rows sorted by grid, in table order within each; cut where the number of the grid changes.
    order = np.argsort(grid, kind="stable")
    grids = np.split(order, np.flatnonzero(np.diff(grid[order])) + 1) if len(order) else []
    first = np.array([places[0] for places in grids], dtype=np.int64)
    # Rows of large tables of texts are slow to take: all at once.
    heads, numbers = cells.iloc[first].reset_index(drop=True), setting[first]
    settings = []
    for number in dict.fromkeys(numbers.tolist()):
        mine = np.flatnonzero(numbers == number)
        settings.append((heads.iloc[mine], [grids[place] for place in mine]))
    return sorted(settings, key=lambda part: _rank(part[0].iloc[0]))


def _rank(first: pd.Series) -> tuple[int, bool]:
    names, measure = list(MEASURES), first[MEASURED]
    known = measure.catalogued is not None
    return names.index(measure.measure) if known else len(names), measure.quantity != ""


def _add_setting(
    gathered: Gathered,
    heads: pd.DataFrame,
    grids: list[np.ndarray],
    codes: list[np.ndarray],
    columns: dict[str, np.ndarray],
    axes: dict[Axis, int],
    blocks: pd.DataFrame,
    exact: bool,
) -> None:
    """Add the grids of one task, measure, kind and options."""
    number, start = len(gathered.settings), 0
    measure: Measured = heads[MEASURED].iloc[0]
    parts: dict[str, list[np.ndarray]] = {name: [] for name in PLANES}
    labels = heads[list(_LABEL)].to_dict("records")
    filled = [name for name in PLANES if name == VALUE or np.isfinite(columns[name]).any()]
    described: list[dict[str, Any]] = []
    values: list[np.ndarray] = []
    depths: list[tuple[np.ndarray, np.ndarray]] = []
    for place, (places, label) in enumerate(zip(grids, labels, strict=True)):
        (x, x_at), (y, y_at) = (_axis(code[places]) for code in codes)
        planes = {}
        for name in filled:
            plane = np.full((sum(map(_length, x)), sum(map(_length, y))), np.nan)
            plane[x_at, y_at] = columns[name][places]
            planes[name] = plane
        symmetric = x == y and is_symmetric(list(planes.values()))
        for name in filled:
            parts[name].append(entries(planes[name], symmetric))
        grid = _describe(label)
        if x == y and len(blocks):
            grid |= _blocks(heads.iloc[[place]], x, gathered.models, blocks)
        grid |= {"setting": number, "symmetric": symmetric, "start": start}
        grid |= {name: axes.setdefault(axis, len(axes)) for name, axis in (("x", x), ("y", y))}
        start += len(parts[VALUE][-1])
        described.append(grid)
        # Layers that are alike stand together: distances count from the other end.
        values.append(planes[VALUE] * (-1 if measure.is_distance else 1))
        depths.append((_depths(x), _depths(y)))
    for grid, (down, across) in zip(described, clustered(values, depths), strict=True):
        sides = [down] if down == across else [down, across]
        grid |= {"clustered": [of.leaves for of in sides], "heights": [of.heights for of in sides]}
    gathered.grids += described
    none = np.full(start, np.nan)
    numbers = {name: np.concatenate(part) if part else none for name, part in parts.items()}
    packed = pack(numbers, exact)
    texts = {f"plane-{number}-{name}": text for name, text in packed.text.items()}
    gathered.text |= texts
    gathered.settings.append(_setting(heads, numbers[VALUE], packed.planes))


def _setting(heads: pd.DataFrame, values: np.ndarray, planes: Any) -> dict[str, Any]:
    """Return what the page says of the grids of one task, measure, kind and options."""
    first = heads.iloc[0]
    measure: Measured = first[MEASURED]
    known = measure.catalogued
    return {
        "task": str(first["task"]),
        "kind": measure.kind or "",
        "measure": measure.measure,
        "name": measure.name,
        "range": list(measure.colours([values[np.isfinite(values)]])),
        "planes": planes,
        "undefined": undefined_note(measure.kind),
        "about": ". ".join(_about(measure)),
        "files": [str(file) for file in heads["file"].unique()],
        "manual": "" if known is None else f"docs/measures/{known.page}",
        "details": describe({name: first[name] for name in ("bandwidth", "options")}),
    }


def _about(measure: Measured) -> Iterator[str]:
    """Yield what a measure and a kind of representation are."""
    if measure.catalogued is not None:
        yield f"{measure.catalogued.label}: {measure.catalogued.summary}"
    if measure.kind in KINDS:
        yield f"{measure.kind}: {KINDS[measure.kind].summary}"


def _axis(codes: np.ndarray) -> tuple[Axis, np.ndarray]:
    """Return the layers along a side of a grid, and the place of every cell along it."""
    layers, places = np.unique(codes, return_inverse=True)
    models: dict[int, list[int]] = {}
    for code in layers.tolist():
        models.setdefault(code // _MOST_LAYERS, []).append(code % _MOST_LAYERS)
    return tuple((model, tuple(numbers)) for model, numbers in models.items()), places


def _depths(axis: Axis) -> np.ndarray:
    """Return the number of every layer along an axis."""
    return np.concatenate([np.array(layers) for _, layers in axis])


def _length(part: tuple[int, tuple[int, ...]]) -> int:
    return len(part[1])


def _share_ranges(settings: list[dict[str, Any]]) -> None:
    """Give all settings of a measure one range, so that colours compare tasks and estimators."""
    shared: dict[str, list[float]] = {}
    for setting in settings:
        first, last = setting["range"]
        known = shared.setdefault(setting["measure"], [first, last])
        if first > last:  # a distance: from far to equal
            known[:] = [max(known[0], first), min(known[1], last)]
        else:
            known[:] = [min(known[0], first), max(known[1], last)]
        setting["range"] = known


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


def _describe(label: dict[str, Any]) -> dict[str, Any]:
    grid: dict[str, Any] = {
        "comparison": str(label["comparison"]),
        "source": str(label["source"]),
        "n": int(label["n"]),
    }
    if isinstance(label["resampling"], str):
        grid["resampling"] = json.loads(label["resampling"])
    return grid


def _blocks(
    first: pd.DataFrame, axis: Axis, models: list[dict[str, Any]], blocks: pd.DataFrame
) -> dict[str, list[tuple[int, Any]]]:
    """Return the blocks of a grid that has the same layers twice, and the p-values of their scores.

    Each with the number of its model. A partition leaves no layer out: one alone is no block.
    """
    import pandas as pd

    found: dict[str, list[tuple[int, Any]]] = {"blocks": [], "tests": []}
    for number, _ in axis:
        name, seed = models[number]["name"], models[number]["seed"]
        stored_seed = pd.NA if seed is None else seed
        of_model = {"label_x": name, "label_y": name, "seed_x": stored_seed, "seed_y": stored_seed}
        own = first.assign(**of_model)
        clusters = [[int(layer) for layer in of["layer_x"]] for of in clusters_of(own, blocks)]
        found["blocks"] += [(number, layers) for layers in clusters if len(layers) > 1]
        found["tests"] += [(number, pvalue) for pvalue in pvalues_of(own, blocks)]
    return found
