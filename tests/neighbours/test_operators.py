"""The operators of neighbours as torch sees them: schema, fake kernels, direct calls."""

import pytest
import torch

import simcore
from support.bad_inputs import assert_refused
from support.cases import Case, layers
from support.operators import opcheck

assert simcore  # loads the extension
ops = torch.ops.simcore
X, Y = layers(Case(12, 1.0, widths=(3, 20))), layers(Case(12, widths=(2, 4, 5)), seed=1)
NOTHING = (torch.empty(0, 0, 0, dtype=torch.int32), *torch.empty(2, 0, dtype=torch.float64))


def arguments(name, cross):
    of_x, of_y = ops.nearest_rows(X, 3, "inner", 0), ops.nearest_rows(Y, 3, "inner", 0, "Y")
    of_y, y = (of_y, Y) if cross else (NOTHING, [])
    return {
        "nearest_rows": (X, 3, "cosine", 0),
        "list_similarity": (of_x[0], of_y[0], "rank", 0),
        "second_order_similarity": (X, y, of_x[0], of_y[0], 0),
        "cknna_terms": (*of_x, *of_y, "unbiased", 0),
    }[name]


NAMES = ("nearest_rows", "list_similarity", "second_order_similarity", "cknna_terms")


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_opcheck(name, cross):
    opcheck(getattr(ops, name).default, arguments(name, cross), whole=cross)


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "inner"])
def test_lists_without_values(metric):
    args = (X, 3, metric, 0, "X", False)
    opcheck(ops.nearest_rows.default, args, whole=False)
    index, values, own = ops.nearest_rows(*args)
    assert torch.equal(index, ops.nearest_rows(*args[:-1])[0])
    assert (values.shape, own.shape) == ((0, 12, 3), (0, 12))


LISTS = ops.nearest_rows(X, 3, "inner", 0)
SHORT = tuple(part[:, :5] for part in LISTS)
BAD = {
    "metric": ("nearest_rows", (X, 3, "l2", 0), ValueError, "metric cosine l2"),
    "k": ("nearest_rows", (X, 12, "inner", 0), ValueError, "k 11 12"),
    "rows": ("nearest_rows", ([X[0], X[1][:5]], 3, "inner", 0), ValueError, "X 1 12 5"),
    "finite": ("nearest_rows", ([X[0] / 0], 3, "inner", 0, "Z"), ValueError, "Z 0 finite 36"),
    "memory": ("nearest_rows", (X, 3, "inner", 1), ValueError, "max_memory 1"),
    "measure": ("list_similarity", (LISTS[0], LISTS[0], "l", 0), ValueError, "measure mutual l"),
    "dtype": ("list_similarity", (LISTS[1], LISTS[0], "rank", 0), TypeError, "x int32 Double"),
    "no lists": ("list_similarity", (NOTHING[0], LISTS[0], "rank", 0), ValueError, "x list"),
    "strides": ("list_similarity", (LISTS[0].mT, LISTS[0], "rank", 0), ValueError, "x contiguous"),
    "other n": (
        "list_similarity",
        (LISTS[0], SHORT[0].clamp(max=4).contiguous(), "rank", 0),
        ValueError,
        "y 12 3",
    ),
    "beyond n": ("list_similarity", (LISTS[0] + 9, LISTS[0], "rank", 0), ValueError, "x 12"),
    "small": ("list_similarity", (LISTS[0], LISTS[0], "rank", 1), ValueError, "max_memory 1"),
    "other layers": (
        "second_order_similarity",
        (X[:1], [], LISTS[0], NOTHING[0], 0),
        ValueError,
        "index layers",
    ),
    "little": (
        "second_order_similarity",
        (X, [], LISTS[0], NOTHING[0], 1),
        ValueError,
        "max_memory 1",
    ),
    "estimator": ("cknna_terms", (*LISTS, *NOTHING, "b", 0), ValueError, "estimator biased b"),
    "values": (
        "cknna_terms",
        (LISTS[0], LISTS[1][:1], LISTS[2], *NOTHING, "biased", 0),
        ValueError,
        "x values",
    ),
    "squares": (
        "cknna_terms",
        (*LISTS[:2], LISTS[2][:1], *NOTHING, "biased", 0),
        ValueError,
        "x squares",
    ),
    "tight": ("cknna_terms", (*LISTS, *NOTHING, "biased", 1), ValueError, "max_memory 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_direct_calls_are_checked(name):
    operator, args, error, words = BAD[name]
    assert_refused(getattr(ops, operator), args, {}, error, words)
