"""Every measure agrees with a float64 twin, has rows of accuracy, and bench has a job for it."""

import inspect
from functools import partial

import numpy as np
import pytest
import torch

import simcore
from bench import rows as bench_rows
from simcore import reference
from simcore._measures import MEASURES
from support import tolerance
from support.distance_table import DISTANCE_ROWS, TESTED_APART
from support.documentation import ROOT

ROWS, WIDTH, SENTENCES, HEADS, WORDS = 200, 6, 4, 3, 7
FEWER_ROWS = {"rtd": 14}  # a twin that reduces the boundaries of all triangles of 2n points
CLUSTERS = 29  # of a layer: graphs of neighbours that differ more than estimates of them
EVERY = pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
SHOWN = [
    pytest.param(measure, shown, id=shown.label)
    for measure in MEASURES.values()
    for shown in measure.shown
]


def drawn(kind, offset, rows):
    """Return three layers, which have something in common, and two more."""
    rng = np.random.default_rng(7)
    if kind == "attention":
        logits = offset + rng.standard_normal((5, SENTENCES, HEADS, WORDS, WORDS))
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        layers = [list(layer) for layer in weights / weights.sum(-1, keepdims=True)]
    else:
        shared = rng.standard_normal((rows, WIDTH))
        layers = [offset + shared + rng.standard_normal((rows, WIDTH)) for _ in range(5)]
        layers[-1] += 10 * rng.standard_normal((CLUSTERS, WIDTH))[np.arange(rows) % CLUSTERS]
    return layers[:3], layers[3:]


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize(("measure", "shown"), SHOWN)
def test_it_agrees_with_its_twin(measure, shown, offset):
    options = {**measure.fixed, **shown.options}
    grid, twin = (
        partial(getattr(room, measure.function), **options) for room in (simcore, reference)
    )
    x, y = drawn(measure.takes[0], offset, FEWER_ROWS.get(measure.name, ROWS))
    for sides in ((x, y), (x, None)):
        got, want = grid(*sides), twin(*sides)
        tolerance.assert_measure(got, want, torch.float64, condition=tolerance.CONDITION)


@EVERY
def test_bench_times_it(measure):
    jobs = {measure.job} | {shown.job for shown in measure.variants} - {""}
    assert jobs <= set(bench_rows.jobs())


@EVERY
def test_its_accuracy_is_tested(measure):
    place = TESTED_APART.get(measure.name)
    if place is None:
        assert any(row.name == measure.name for row in DISTANCE_ROWS)
    else:
        assert measure.function in (ROOT / place).read_text()


def test_defaults_of_the_records_are_those_of_the_functions():
    for measure in MEASURES.values():
        parameters = inspect.signature(getattr(simcore, measure.function)).parameters
        for option, default in measure.options.items():
            assert parameters[option].default in (default, None), (measure.name, option)
        assert set(measure.fixed) <= set(parameters) - set(measure.options)
