"""`simcore.measures`: the records of all measures, called on two arrays."""

import sys
from collections.abc import Mapping

import numpy as np
import pytest
import torch

import simcore
from simcore import _measures as records
from simcore import cka_grid, measures, procrustes_grid
from simcore.measures import Measure, cka, procrustes_distance
from support.processes import python


@pytest.fixture
def pair():
    x, y = np.random.default_rng(0).standard_normal((2, 60, 8))
    return x, x + y


def test_it_is_a_mapping_of_all_records():
    assert isinstance(measures, Mapping)
    assert list(measures) == list(records.MEASURES)
    assert len(measures) == len(records.MEASURES)
    assert all(isinstance(one, Measure) and one.name == name for name, one in measures.items())
    assert measures["knn_mutual"] is measures["knn-mutual"] is measures.knn_mutual
    assert "procrustes_distance" in dir(measures)
    assert "cka" in measures
    assert "kca" not in measures
    assert {measures: 1}[measures] == 1  # a module still


def test_two_arrays_give_a_float(pair):
    x, y = pair
    assert cka(x, y) == cka_grid([x], [y])[0, 0]
    assert isinstance(cka(torch.tensor(x), torch.tensor(y)), float)
    assert cka(x, y, kernel="rbf") == cka_grid([x], [y], kernel="rbf")[0, 0]
    assert procrustes_distance(x, y) == procrustes_grid([x], [y], form="distance")[0, 0]


@pytest.mark.parametrize("name", [n for n, m in records.MEASURES.items() if "layers" in m.takes])
def test_every_measure_of_layers_is_callable(pair, name):
    x, y = (layer[:20] for layer in pair)
    measure = measures[name]
    value = measure(x, y)
    assert measure.lowest <= value <= measure.highest or name == "hsic"
    assert measure.grid([x, y]).shape == (2, 2)
    assert measure.is_distance == records.MEASURES[name].distance
    if records.MEASURES[name].normalised and name != "cknna":
        assert measure(x, x) == pytest.approx(0 if measure.is_distance else 1, abs=1e-6)


def test_the_table_has_a_line_for_each():
    lines = repr(measures).splitlines()
    assert len(lines) == len(measures) + 1
    gulp = next(line for line in lines if line.startswith("gulp "))
    assert "distance" in gulp
    assert "0 to inf" in gulp
    assert "ridge regressions" in gulp
    assert repr(measures["cka"]) == f"<cka: {measures['cka'].summary} (similarity, -1 to 1)>"


def test_errors_name_the_argument(pair):
    x, _ = pair
    with pytest.raises(ValueError, match=r"^y: wanted n = 60 rows as in x, got 59"):
        cka(x, x[:59])
    with pytest.raises(TypeError, match="kernle"):
        cka(x, x, kernle="rbf")
    with pytest.raises(KeyError, match=r"did you mean 'cka'\?.*got 'ckaa'"):
        measures["ckaa"]
    with pytest.raises(AttributeError, match="no attribute 'ckaa'"):
        measures.ckaa  # noqa: B018


@pytest.mark.deep
def test_an_import_in_a_new_process():
    code = "from simcore.measures import gulp; import simcore; print(simcore.measures.gulp is gulp)"
    assert python("-c", code).stdout.strip() == "True"
    assert simcore.measures is sys.modules["simcore.measures"]
