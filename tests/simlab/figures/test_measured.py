"""The measure of rows in words, and the range of its colours."""

import numpy as np
import pandas as pd
import pytest

from simlab.figures.table import MEASURED, Measured
from support.lab.drawing import drawable
from support.lab.result_rows import grid


def measure(name="cka", **options):
    known = dict.fromkeys(("kind", "kernel", "bandwidth", "estimator", "options"))
    return Measured(measure=name, **{**known, **options})


def test_a_name_says_kernel_estimator_and_unusual_options():
    rbf = measure(kernel="rbf", bandwidth=2.0, estimator="biased", kind="cls")
    assert rbf.name == "RBF CKA (biased, bandwidth 2.0)"
    assert rbf.words == ("cka", "rbf", "biased", "bandwidth-2.0")
    assert measure("mine", options='{"k": 3}').name == "mine (k 3)"
    assert measure("mine", kind="mean").words == ("mine", "mean")


@pytest.mark.parametrize(
    ("name", "values", "wanted"),
    [
        ("cka", [0.2, 0.7], (0.0, 1.0)),
        ("cka", [-0.1, 0.7], (-0.1, 1.0)),
        ("mine", [0.2, 4.0], (0.0, 4.0)),  # what is not in the catalogue has no highest value
        ("size-and-shape", [0.2, 5.0], (5.0, 0.0)),
        ("angular", [0.2, 0.4], (1.0, 0.0)),
    ],
)
def test_colours_end_at_the_value_of_equal_layers(name, values, wanted):
    assert measure(name).colours([np.array([*values, np.nan])]) == wanted


def test_every_row_has_its_measure_and_few_objects_are_made():
    rows = [*grid("FT-FT", "FT", "FT"), *grid("FT-FT", "FT", "FT", estimator="unbiased")]
    frame = drawable(rows)
    assert isinstance(frame[MEASURED].dtype, pd.CategoricalDtype)
    assert len(frame[MEASURED].cat.categories) == 2
    for estimator, of in zip(frame["estimator"], frame[MEASURED], strict=True):
        assert of == measure(kind=of.kind, kernel=of.kernel, estimator=estimator)
