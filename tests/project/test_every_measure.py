"""Every measure agrees with a float64 twin, and bench has a job for it."""

import importlib
import sys

import numpy as np
import pytest
import torch

from bench import rows as bench_rows
from simcore import reference
from support import tolerance
from support.documentation import DOCS

sys.path.append(str(DOCS / "_ext"))
variants = importlib.import_module("measure_variants")
ROWS, WIDTH, SENTENCES, HEADS, WORDS = 200, 6, 4, 3, 7
CLUSTERS = 29  # of a layer: graphs of neighbours that differ more than estimates of them
# Shown beside the measures: parts of CKA, which have tests and jobs of their own.
PARTS = ("minibatch CKA", "HSIC")
MEASURES = [variant for variant in variants.VARIANTS if variant.label not in PARTS]
EVERY = pytest.mark.parametrize("variant", MEASURES, ids=lambda variant: variant.label)


def drawn(kind, offset):
    """Return three layers, which have something in common, and two more."""
    rng = np.random.default_rng(7)
    if kind == "attention":
        logits = offset + rng.standard_normal((5, SENTENCES, HEADS, WORDS, WORDS))
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        layers = [list(layer) for layer in weights / weights.sum(-1, keepdims=True)]
    else:
        shared = rng.standard_normal((ROWS, WIDTH))
        layers = [offset + shared + rng.standard_normal((ROWS, WIDTH)) for _ in range(5)]
        layers[-1] += 10 * rng.standard_normal((CLUSTERS, WIDTH))[np.arange(ROWS) % CLUSTERS]
    return layers[:3], layers[3:]


def twin(variant):
    """Return the twin's grid of two sides, as the measure and its options define it."""
    function = variant.known.function or variant.grid.__name__
    options = {**variant.known.fixed, **variant.options}
    return lambda x, y: getattr(reference, function)(x, y, **options)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@EVERY
def test_it_agrees_with_its_twin(variant, offset):
    x, y = drawn(variant.kind, offset)
    for sides in ((x, y), (x, None)):
        got, want = variant(*sides), twin(variant)(*sides)
        if variant.label == "IMD":  # an estimate
            assert tolerance.max_error(got, want) < tolerance.HEAT_ESTIMATE
        else:
            tolerance.assert_measure(got, want, torch.float64, condition=tolerance.CONDITION)


@EVERY
def test_bench_times_it(variant):
    of_measure = [other for other in MEASURES if other.measure == variant.measure]
    jobs = {other.job for other in of_measure if other.grid is variant.grid} - {""}
    assert jobs
    assert jobs <= set(bench_rows.jobs())
