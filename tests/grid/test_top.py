"""`top_k`: means of the best neurons and of the largest canonical correlations of each pair."""

import pytest
import torch

import simcore
from simcore import _top
from simcore._top import top_count
from simcore.reference.cca import top_count as twin_count
from support import tolerance
from support.cases import Case
from support.measure_table import CCA, CCA_R2, MIXEDSIM, NEURONSIM, PWCCA_TRUNCATED, SVCCA

LAYERS = Case(150, 10.0, widths=(20, 7, 33))
MEASURES = (CCA, CCA_R2, SVCCA, PWCCA_TRUNCATED, NEURONSIM, MIXEDSIM)


@pytest.mark.parametrize("top_k", [1000, 1.0])
@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_all_of_them_are_the_plain_mean(measure, top_k):
    x, y = measure.layers(LAYERS), measure.layers(Case(150, widths=(12, 5)), seed=1)
    for other in (None, y):
        plain = measure(x, other)
        tolerance.assert_measure(measure(x, other, top_k=top_k), plain, torch.float64)


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_fewer_are_better(measure):
    x, y = measure.layers(LAYERS), measure.layers(Case(150, widths=(12, 9)), seed=1)
    if measure is PWCCA_TRUNCATED:
        return  # the weights of the largest correlations are scaled anew
    grids = torch.stack([measure(x, y, top_k=k) for k in (1, 3, 6)])
    assert bool((grids[:-1] > grids[1:]).all())


@pytest.mark.parametrize("count", [1, 7, 100, 768])
@pytest.mark.parametrize("top_k", [1, 50, 0.001, 0.1, 0.29, 0.3, 0.7, 1.0])
def test_a_share_rounds_down_to_one_at_least(top_k, count):
    kept = top_count(top_k, count)
    assert kept == twin_count(top_k, count)
    assert 1 <= kept <= count
    if (top_k, count) == (0.29, 100):  # below 29 in float64
        assert kept == 29


@pytest.fixture
def _one_thread():
    """What the smallest tiles need grows with the threads; the tables below do not."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_one_thread")
def test_little_memory_makes_the_table_in_parts(monkeypatch):
    x = NEURONSIM.layers(Case(20, widths=(120,) * 50))  # a table of 4.8 MB
    y = NEURONSIM.layers(Case(20, widths=(90, 120, 80, 30) * 10), seed=1)
    columns = []
    table = _top.top_of_table
    for other in (None, y):
        whole = simcore.neuronsim_grid(x, other, top_k=4)
        with monkeypatch.context() as patch:
            patch.setattr(
                _top, "top_of_table", lambda t, *a: columns.append(t.shape) or table(t, *a)
            )
            parts = simcore.neuronsim_grid(x, other, top_k=4, max_memory=4 * 10**6)
        tolerance.assert_measure(parts, whole, torch.float64)
    assert columns == [(6000, 20), (6000, 20), (6000, 10), (6000, 20), (6000, 20)]


def test_memory_for_no_tile_beside_the_table_says_so():
    x = NEURONSIM.layers(Case(20, widths=(30,) * 50))
    with pytest.raises(ValueError, match=r"max_memory: wanted .* beside the table"):
        simcore.neuronsim_grid(x, top_k=4, max_memory=1000)


def test_the_mean_of_the_best_is_that_of_the_partners():
    x = NEURONSIM.layers(LAYERS)
    best = simcore.neuron_partners(x).best
    want = torch.stack([table.topk(len(table) // 2, dim=0).values.mean(0) for table in best])
    tolerance.assert_measure(simcore.neuronsim_grid(x, top_k=0.5), want, torch.float64)
