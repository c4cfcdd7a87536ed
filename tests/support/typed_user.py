"""Calls that a user may write, for a strict type checker; nothing runs them.

A line that ends in ``# refused`` has a mistake that the checker must find.
"""

from pathlib import Path

import numpy as np
import torch

import simcore
import simlab
from simcore import Comparison, MinibatchCKA, cka_grid, compare, record, stats, svcca_grid
from simcore.align import LinearAligner, PairResult, align_pairs
from simcore.measures import cka
from simlab import Sweep, TaskOptions, extract, finetune, grid, read_results


def grids_of_tensors(layers: list[torch.Tensor]) -> float:
    """Tensors, one tensor of all layers, options, and a value."""
    values = cka_grid(layers, layers[:2], kernel="rbf", bandwidth=0.5)
    values = svcca_grid(torch.stack(layers), truncation=0.99)
    return float(values[0, 1])


def one_pair(x: torch.Tensor, y: np.ndarray) -> tuple[float, bool]:
    """A measure by name, and imported."""
    values: list[float] = [measure(x, x) for measure in simcore.measures.values()]
    return cka(x, y) + values[0], simcore.measures["gulp"].is_distance


def grids_of_arrays(layers: list[np.ndarray]) -> tuple[int, ...]:
    """Arrays of numpy, and layers that come in parts."""
    metric = MinibatchCKA()
    metric.update(layers)
    cka_grid(np.stack(layers))
    return tuple(cka_grid(layers, estimator="unbiased", max_memory=1 << 20).shape)


def recording(model: torch.nn.Module, batches: list[torch.Tensor]) -> Comparison:
    """A recording of one model, and a comparison of two."""
    with record(model, "layers.*", pool="mean") as tape:
        for batch in batches:
            model(batch)
    first: torch.Tensor = tape.layers()[tape.names[0]]
    print(first.shape, tape.row_counts())
    return compare(model, None, batches, "layers.*", measure="svcca")


def alignment(x: torch.Tensor, y: np.ndarray) -> float:
    """A map of one pair, and of several."""
    aligner = LinearAligner().fit(x, y)
    results: list[PairResult] = align_pairs([x, x], [y, y], "linear", heldout=0.5)
    return aligner.errors(x, y).relative + results[0].heldout.relative


def interval(x: list[torch.Tensor]) -> tuple[float, float]:
    """An interval of one value."""
    found = stats.bootstrap_ci(x, measure="cka", resamples=100, seed=1)
    return float(found.low[0, 1]), float(found.high[0, 1])


def study(folder: Path) -> list[str]:
    """A model, its layers, a table and a sweep."""
    few = TaskOptions(train_size=64, heldout_size=32)
    finetune("minilm", "rt", folder / "model", seed=1, epochs=1, task_options=few)
    layers = extract(folder / "model", "rt", folder / "layers", label="FT[1]", task_options=few)
    step = grid([layers.path], folder / "cka.parquet", measure="cka", estimator="unbiased")
    Sweep.from_file(folder / "sweep.toml").run(folder / "sweep", workers=2)
    simlab.plot(read_results(step.path), folder)
    return [str(name) for name in read_results([step.path])["measure"]]


def mistakes(layers: list[torch.Tensor], model: torch.nn.Module) -> None:
    """Calls that fail when they run."""
    cka_grid(layers, estimater="biased")  # refused
    cka_grid(layers, bandwidth="wide")  # refused
    cka_grid("layers")  # refused
    compare("model", model)  # refused
    stats.bootstrap_ci(layers, resamples="many")  # refused
    simcore.no_such_grid(layers)  # refused
    extract("minilm", "rt")  # refused
    grid(["layers"], "cka.parquet", permutations=None)  # refused
    simlab.no_such_step("rt")  # refused
    Sweep.from_file(1)  # refused
    TaskOptions(train_sise=3)  # refused
