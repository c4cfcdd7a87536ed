"""Values and partners of neurons do not depend on `max_memory`, from the least bound up."""

import re
from functools import partial

import pytest
import torch

from simcore import matching_grid, mixedsim_grid, neuron_partners, neuronsim_grid
from simcore._ops.columns import Columns
from simcore._ops.neurons_composed import _Gains
from support.cases import Case, layers

X, Y = layers(Case(80, 1.0, widths=(40, 70, 7))), layers(Case(80, widths=(33, 50)), seed=1)
KEPT, REMADE, ALONE, TOGETHER = "kept columns", "remade columns", "one pair", "pairs together"
BEST = {KEPT, REMADE}
ASSIGNED = BEST | {ALONE, TOGETHER}
MEASURES = {
    "neuron_partners": (neuron_partners, BEST),
    "neuronsim": (neuronsim_grid, BEST),
    "mixedsim": (mixedsim_grid, {REMADE}),
    "best": (partial(matching_grid, matching="best"), BEST),
    "correlation": (matching_grid, ASSIGNED),
    "distance": (partial(matching_grid, score="distance"), ASSIGNED),
    "angular": (partial(matching_grid, score="angular"), ASSIGNED),
}


@pytest.fixture
def taken(monkeypatch):
    """Return the set of ways that calls take, as they take them."""
    found, init, empty = set(), Columns.__init__, _Gains.empty

    def kept_or_remade(columns, *args, **options):
        init(columns, *args, **options)
        found.add(REMADE if columns._kept is None else KEPT)

    def alone_or_together(gains, count):
        found.add(ALONE if count == 1 else TOGETHER)
        return empty(gains, count)

    monkeypatch.setattr(Columns, "__init__", kept_or_remade)
    monkeypatch.setattr(_Gains, "empty", alone_or_together)
    return found


def tensors(result):
    return [result.values, *result.best, *result.partner] if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("y", [None, Y], ids=["same", "cross"])
@pytest.mark.parametrize("name", MEASURES)
def test_results_do_not_depend_on_memory(name, y, taken):
    measure, ways = MEASURES[name]
    with pytest.raises(ValueError, match="max_memory") as refused:
        measure(X, y, max_memory=1)
    least = int(re.search(r"at least (\d+) bytes", str(refused.value))[1])
    with pytest.raises(ValueError, match=f"max_memory: wanted at least {least} "):
        measure(X, y, max_memory=least - 1)
    want = tensors(measure(X, y))
    taken.clear()
    for step in range(7):
        got = tensors(measure(X, y, max_memory=int(least * 1.3**step)))
        torch.testing.assert_close(got, want, rtol=1e-12, atol=0, equal_nan=True)
    assert taken == ways
