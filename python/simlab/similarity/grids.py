"""Compute a measure between all layers of representation folders, as rows of the results table."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.bounds import FromZero, bounded
from simlab.errors import UserError, argument
from simlab.models.place import AUTO, check_device
from simlab.representations.folder import (
    MORE_ROWS,
    Representations,
    load_representations,
    note_other_lengths,
    require_same_examples,
    require_same_groups,
)
from simlab.results.results import GRID, JOINT, SIDE, ResultRow, ensure_results
from simlab.similarity.catalogue import BOTH, ESTIMATORS, find_measure, settings
from simlab.similarity.layers import as_array, choose_device, name_of, on_device, too_large
from simlab.similarity.resampling import NONE, Call, Resampling, statistics
from simlab.store.console import note
from simlab.store.files import as_paths
from simlab.store.jobs import Outcome

if TYPE_CHECKING:
    import numpy as np

    from simcore._measures.record import Measure

_MOST_WANTED = 4  # rows that unbiased CKA wants; no measure wants more
# Options that have a column of their own in the results table.
_COLUMNS = ("estimator", "kernel", "bandwidth")


@bounded
def grid(
    folders: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    measure: str = "cka",
    comparison: str | None = None,
    joint: bool = False,
    bootstrap: FromZero = 0,
    permutations: FromZero = 0,
    resampling_seed: FromZero = 0,
    device: str = AUTO,
    overwrite: bool = False,
    **options: Any,
) -> Outcome:
    """Compare every layer of one representation folder with every layer of another.

    Parameters
    ----------
    folders
        Representation folders: X (rows) and Y (columns), or X alone; with `joint`, any number.
    out
        The results file (.parquet) to write.
    measure
        Name of a measure, such as ``svcca``; in Python `simcore.measures` has the names. ``_`` may
        stand for ``-`` in the name.
    comparison
        Name of the grid, such as ``FT-ORIG``; None is the labels of the folders.
    joint
        Compare all layers of all folders with each other, in one grid, as `localize` needs it.
    bootstrap
        Halves of the examples to draw for 95 % intervals, such as 200; whole texts are drawn where
        rows are words. CKA re-uses its Gram matrices; any other measure computes the grid anew for
        each.
    permutations
        Permutations of the examples to draw for p-values, and for values calibrated to 0 at chance;
        the cost is as for `bootstrap`.
    resampling_seed
        Seed of `bootstrap` and `permutations`.
    device
        Where the grid is computed: ``cpu``, ``cuda`` or ``cuda:1``; ``auto`` takes a GPU that is
        free where the layers fit, else the CPU. Rows name the device.
    **options
        Options of the measure (`similarity.catalogue.MeasureOptions`), such as ``truncation=0.95``.
    overwrite
        As for `truncate`.

    Returns
    -------
    Outcome
        The results file: a row for each layer of X with each of Y, and, for an asymmetric measure,
        one for each layer of Y with each of X.

    Raises
    ------
    UserError
        A folder has no representations, the examples differ or are too few, the measure or an
        option is unknown, the measure does not take the input, or `out` has other content and
        `overwrite` is False.

    Examples
    --------
    >>> from simlab import TaskOptions, extract, grid, read_results
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = extract("minilm", "rt", "runs/reps/orig", label="ORIG", task_options=few)
    >>> step = grid("runs/reps/orig", "runs/results/svcca.parquet", measure="svcca", truncation=5)
    >>> len(read_results(step.path))  # 7 layers with 7
    49
    """
    folders, path = as_paths(folders), Path(out)
    measure = find_measure(measure).name
    chosen = settings(measure, options)
    resampling = Resampling(bootstrap, permutations, resampling_seed)
    resampling.check()
    check_device(device)
    if not (joint or 1 <= len(folders) <= 2):
        raise UserError(
            f"wanted one or two folders, or {argument('joint')}; found {len(folders)} folders"
        )
    loaded = [load_representations(folder) for folder in folders]
    note_other_lengths(loaded)
    xs, ys = (loaded, loaded) if joint else (loaded[:1], loaded[-1:])
    labels = [representations.manifest["label"] for representations in (*xs, *ys)]
    if joint and len(set(labels)) < len(loaded):
        raise UserError(
            f"{argument('joint')}: wanted folders with different labels, found {labels}"
        )
    labelled = " + ".join(labels[: len(xs)]) if joint else "-".join(labels)
    naming = Naming(comparison or labelled, JOINT if joint else GRID)
    return ensure_grid(
        path, measure, chosen, xs, ys, naming, resampling, device=device, replace=overwrite
    )


@dataclass(frozen=True)
class Naming:
    """How rows name a grid: its name, one of `results.GRIDS`, and its key if tiles share it."""

    comparison: str
    experiment: str = GRID
    grid: str | None = None


def ensure_grid(
    path: Path,
    measure: str,
    chosen: Mapping[str, Any],
    xs: Sequence[Representations],
    ys: Sequence[Representations],
    naming: Naming,
    resampling: Resampling,
    *,
    device: str = AUTO,
    replace: bool = False,
) -> Outcome:
    """Write the rows of `grid_rows` to `path`, unless `path` was written from the same inputs."""
    inputs = {
        "step": "grid",
        "x": [side.identity for side in xs],
        "y": None if _is_same(xs, ys) else [side.identity for side in ys],
        "named": vars(naming),
        "measure": measure,
        **chosen,
        **resampling.inputs,
    }

    def make() -> Iterator[ResultRow]:
        return grid_rows(measure, chosen, xs, ys, naming, resampling, device)

    return ensure_results(path, inputs, make, replace=replace)


def grid_rows(
    name: str,
    chosen: Mapping[str, Any],  # all options of the measure (`catalogue.settings`)
    xs: Sequence[Representations],
    ys: Sequence[Representations],
    naming: Naming,
    resampling: Resampling = NONE,
    device: str = AUTO,
) -> Iterator[ResultRow]:
    """Yield a row of measure `name` for every layer of all `xs` with every layer of all `ys`.

    If the measure is asymmetric and `ys` are not `xs`, the pairs in the other direction follow. In
    a tile of a joint grid of a symmetric measure, each row is followed by the row of the other
    direction.
    """
    measure = find_measure(name)
    if resampling.permutations and not measure.paired:
        raise UserError(
            f"{argument('permutations')}: wanted a measure that compares rows, found {name}, which "
            "ignores which rows of two layers belong together"
        )
    for other in (*xs[1:], *ys):
        require_same_examples(xs[0], other)
        if resampling.inputs:
            require_same_groups(xs[0], other)
    _require_input(name, measure, chosen, [*xs, *ys])
    same = _is_same(xs, ys)
    mirrored = naming.experiment == JOINT and measure.symmetric and not same
    x_layers = layers_of(measure, chosen, xs)
    y_layers = None if same else layers_of(measure, chosen, ys)
    device = choose_device(device, [*x_layers, *(y_layers or ())])
    x_layers = on_device(x_layers, device)
    y_layers = None if y_layers is None else on_device(y_layers, device)
    where = "X = {}, Y = {}".format(*(", ".join(str(p.folder) for p in s) for s in (xs, ys)))
    both = chosen.get("estimator") == BOTH
    for estimator in ESTIMATORS if both else (chosen.get("estimator"),):
        variant = {**chosen, "estimator": estimator} if both else dict(chosen)
        call = Call(measure, variant, x_layers, y_layers, xs[0], where, device)
        for row in _rows(name, call, xs, ys, naming, resampling):
            yield row
            if mirrored:
                yield dataclasses.replace(row, **{x: getattr(row, y) for x, y in _SWAPPED})
        if y_layers is not None and not measure.symmetric:
            call = Call(measure, variant, y_layers, x_layers, xs[0], where, device)
            yield from _rows(name, call, ys, xs, naming, resampling)


_SWAPPED = [(f"{end}_{x}", f"{end}_{y}") for end in (*SIDE, "layer") for x, y in ("xy", "yx")]


def _is_same(xs: Sequence[Representations], ys: Sequence[Representations]) -> bool:
    return [x.folder for x in xs] == [y.folder for y in ys]


def _require_input(
    name: str, measure: Measure, chosen: Mapping[str, Any], sides: list[Representations]
) -> None:
    for side in sides:
        kind = side.manifest["kind"]
        if side.is_attention != sides[0].is_attention:
            raise UserError(
                f"{side.folder}: wanted kind {sides[0].manifest['kind']} as in {sides[0].folder}, "
                f"found {kind}"
            )
        if side.is_attention and not measure.takes_attention:
            raise UserError(f"{side.folder}: measure {name} wanted representations, found {kind}")
        if not side.is_attention and not measure.takes_representations:
            raise UserError(
                f"{side.folder}: measure {name} wanted a folder of "
                f"{argument('kind', 'attention', of='extract')}, found kind {kind}"
            )
        if chosen.get("causal") and not side.is_attention:
            raise UserError(
                f"{argument('causal')}: wanted kind attention in {side.folder}, found {kind}"
            )


def layers_of(
    measure: Measure, chosen: Mapping[str, Any], sides: Sequence[Representations]
) -> list[Any]:
    """Return the layers of all `sides` in the form that the measure takes."""
    import simcore

    layers = [layer for side in sides for layer in side.layers]
    if sides[0].is_attention and measure.takes_representations:
        causal = chosen["causal"]
        return [simcore.distributed_attention(layer, causal=causal) for layer in layers]
    return layers


def compute(call: Call) -> np.ndarray:
    """Return the grid of a call, [x layers, y layers]; warnings of the measure become notes."""
    import torch

    import simcore

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            function = getattr(simcore, call.measure.function)
            grid = function(call.x_layers, call.y_layers, **call.options)
        # NaN in a file, too little memory, or a library of a measure that is missing
        except (ValueError, ImportError) as error:
            layer = call.x_layers[0]
            few = len(getattr(layer, "vectors", layer)) < _MOST_WANTED
            more = f"; {MORE_ROWS}" if few else ""
            raise UserError(f"{call.where}: {error}{more}") from None
        except torch.OutOfMemoryError:
            raise too_large(call.device) from None
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        # A constant layer is expected: at the embedding output, CLS is the same vector for every
        # example. Table and figure show such a layer as undefined.
        if "self-HSIC is not positive" not in message:
            note(message)
    return as_array(grid)


def _rows(
    name: str,
    call: Call,
    xs: Sequence[Representations],
    ys: Sequence[Representations],
    naming: Naming,
    resampling: Resampling,
) -> Iterator[ResultRow]:
    values, variant, device = compute(call), call.chosen, name_of(call.device)
    columns = {name: grid.tolist() for name, grid in statistics(call, values, resampling).items()}
    unused = () if xs[0].is_attention else ("causal",)
    options = {k: v for k, v in variant.items() if k not in (*_COLUMNS, *unused)}
    kinds = dict.fromkeys(side.manifest["kind"] for side in (*xs, *ys))
    for i, (x, layer_x) in enumerate(_numbered(xs)):
        for j, (y, layer_y) in enumerate(_numbered(ys)):
            drawn: dict[str, Any] = {name: grid[i][j] for name, grid in columns.items()}
            yield ResultRow(
                **vars(naming),
                measure=name,
                kind="/".join(kinds),
                estimator=variant.get("estimator"),
                kernel=variant.get("kernel"),
                bandwidth=variant["bandwidth"] if variant.get("kernel") == "rbf" else None,
                options=json.dumps(options, sort_keys=True) if options else None,
                **x.side.columns("x"),
                **y.side.columns("y"),
                layer_x=layer_x,
                layer_y=layer_y,
                value=float(values[i, j]),
                **drawn,
                resampling=resampling.record,
                device=device,
                n=x.manifest["n"],
                task=x.manifest["task"],
            )


def _numbered(sides: Sequence[Representations]) -> list[tuple[Representations, int]]:
    return [
        (s, layer) for s in sides for layer in range(s.first_layer, s.first_layer + len(s.layers))
    ]
