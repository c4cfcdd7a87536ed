"""What jobs take of a cluster, and how many threads they have."""

import pytest

from simlab.errors import UserError
from simlab.sweeps.cluster import share_of
from simlab.sweeps.engines import GB, Resources, fitting, parse_resources

SMALL = Resources(cores=8, gpus=0, memory=3 * GB)
LARGE = Resources(cores=64, gpus=4, memory=200 * GB)


def test_kinds_take_what_their_work_needs():
    found = {kind: fitting(kind, {}, 8, [SMALL, LARGE]) for kind in ("finetune", "grid", "scores")}
    assert found["finetune"] == Resources(1, 8, 6 * GB)
    assert found["grid"] == Resources(0, 8, 4 * GB)
    assert found["scores"] == Resources(0, 1, GB)


def test_without_gpus_none_is_asked_for_and_a_small_node_is_enough():
    assert fitting("finetune", {}, 2, [SMALL]) == Resources(0, 2, 3 * GB)


def test_what_is_chosen_counts():
    chosen = parse_resources(["finetune:gpus=0.5,memory=16 GB", "grid:cores=2", "grid:gpus=2"])
    assert fitting("finetune", chosen, 8, [LARGE]) == Resources(0.5, 8, 16 * GB)
    assert fitting("grid", chosen, 8, [LARGE]) == Resources(2, 2, 4 * GB)


def test_of_nodes_that_are_not_known_a_gpu_is_asked_for_only_where_it_is_chosen():
    assert fitting("finetune", {}, 2) == Resources(0, 2, 6 * GB)
    assert fitting("finetune", parse_resources(["finetune:gpus=1"]), 2).gpus == 1


@pytest.mark.parametrize(
    ("chosen", "threads"),
    [("grid:memory=4GB", 1), ("grid:gpus=1", 1), ("grid:cores=9", 1), ("grid:gpus=0", 9)],
)
def test_a_job_that_fits_nowhere_is_refused(chosen, threads):
    with pytest.raises(UserError, match=r"a job of kind grid, found nodes with 8 cores, 0 GPUs"):
        fitting("grid", parse_resources([chosen]), threads, [SMALL])


@pytest.mark.parametrize(
    "text",
    [
        *("finetun:gpus=1", "finetune", "finetune:gpu=1", "finetune:gpus=1.5", "finetune:gpus=-1"),
        *("finetune:gpus=inf", "grid:cores=0", "grid:memory=much", "grid:cores=1,cores"),
    ],
)
def test_a_wrong_text_is_one_line(text):
    with pytest.raises(UserError, match=f"^resources='{text}': wanted KIND:gpus=NUMBER,.*, grid, "):
        parse_resources([text])


def test_threads_are_an_equal_share():
    assert share_of([SMALL], 0) == 8
    assert share_of([LARGE], 0) == 16  # of each GPU
    assert share_of([SMALL, LARGE], 0) == 8
    assert share_of([SMALL, LARGE], 18) == 4
    assert share_of([SMALL, LARGE], 2) == 8  # a job runs on one node
    assert share_of([SMALL], 100) == 1
    assert share_of([], 0) == 1
