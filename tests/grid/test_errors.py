"""Every error message of the measures beside CKA once."""

import re

import numpy as np
import pytest
import torch

from simcore import (
    Basis,
    bases,
    cca_grid,
    cka_grid,
    localization_score,
    neuronsim_grid,
    rsa_grid,
    svcca_grid,
)
from support.bad_inputs import ENTRIES, LAYERS, X, Y, assert_refused, rows, spoiled, with_layer
from support.cases import DTYPES, HALVES, Case, layers, noted
from support.measure_table import CCA, FUNCTIONS, MIXEDSIM, ON_BASES, PWCCA, RSA, SVCCA


@pytest.mark.parametrize("measure", FUNCTIONS, ids=str)
def test_message(measure):
    for name, (*given, words) in {**LAYERS, **ENTRIES}.items():
        with noted(name):
            assert_refused(measure, *given, words)
    least = 3 if measure is RSA else 2
    too_few = ([rows(least - 1)],)
    assert_refused(measure, too_few, {}, ValueError, f"X 0 {least} {least - 1}")
    for dtype in DTYPES + HALVES:
        good = [layer.to(dtype) for layer in X]
        bad = with_layer(good, 1, spoiled(spoiled(good[1], torch.nan, 5), torch.inf, 2))
        for arguments, side in (((bad,), "X"), ((good, bad), "Y"), ((bad, good), "X")):
            with pytest.raises(ValueError, match=rf"{side}\[1\].*\b5\b.*\b222\b"):
                measure(*arguments)


@pytest.mark.parametrize("measure", FUNCTIONS, ids=str)
def test_options_are_keyword_only(measure):
    with pytest.raises(TypeError, match="positional"):
        measure.grid(X, Y, 2**30)
    words = r"max_memry \(did you mean 'max_memory'\?\): wanted X, .*max_memory, .* of \w+_grid$"
    with pytest.raises(TypeError, match=words):
        measure.grid(X, max_memry=1)


def test_one_layer_in_the_place_of_a_list():
    with pytest.raises(ValueError, match=r"got shape \(9, 2\) of one layer; \[x\] is a list of it"):
        cka_grid(torch.randn(9, 2))
    with pytest.raises(TypeError, match=r"^estimater \(did you mean 'estimator'\?\): .*cka_grid$"):
        cka_grid([torch.randn(9, 2)], estimater="biased")


OPTIONS = {
    "truncation a word": (svcca_grid, (X,), {"truncation": "0.9"}, ValueError, "truncation 0.9"),
    "reduction": (cca_grid, (X,), {"reduction": "sum"}, ValueError, "reduction mean r2 sum"),
    "correlation": (
        rsa_grid,
        (X,),
        {"correlation": "kendall"},
        ValueError,
        "correlation pearson spearman kendall",
    ),
    "one column for rsa": (
        rsa_grid,
        (X, with_layer(Y, 1, Y[1][:, :1])),
        {},
        ValueError,
        "Y 1 2 columns",
    ),
    "counts for other layers": (
        svcca_grid,
        (X,),
        {"truncation": [1, 2]},
        ValueError,
        "truncation 3 layers",
    ),
    "counts for both sides": (
        svcca_grid,
        (X, Y),
        {"truncation": [1, 2, 3]},
        ValueError,
        "truncation 5 layers",
    ),
    "no partners of bases": (neuronsim_grid, (bases(X),), {}, TypeError, "X 0 Basis"),
    "no rsa of bases": (rsa_grid, (X, bases(Y)), {}, TypeError, "Y 0 Basis"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_option(name):
    function, *expected = OPTIONS[name]
    assert_refused(function, *expected)


WRONG = [0, -1, 0.0, 1.5, -0.5, np.nan, True, "all"]


@pytest.mark.parametrize("function", [cca_grid, svcca_grid, PWCCA.grid, bases])
def test_wrong_truncation(function):
    for truncation in (*WRONG, [0, 1, 2], [0.5, 0.5, 0.5], [1, None, 2]):
        with noted(truncation), pytest.raises(ValueError, match="truncation: wanted"):
            function(X, truncation=truncation)


@pytest.mark.parametrize(
    "function", [cca_grid, svcca_grid, PWCCA.grid, neuronsim_grid, MIXEDSIM.grid]
)
def test_wrong_top_k(function):
    for top_k in (*WRONG, [1]):
        with noted(top_k), pytest.raises(ValueError, match="top_k: wanted a count of at least 1"):
            function(X, top_k=top_k)


@pytest.mark.parametrize("measure", ON_BASES, ids=str)
def test_bases_among_arrays(measure):
    if measure.options.get("standardize"):
        for arguments in ((bases(X),), (X, bases(Y))):
            assert_refused(measure, arguments, {}, ValueError, "standardize bases")
        return
    held = bases(X)
    assert_refused(measure, ([held[0], X[1], held[2]],), {}, TypeError, "X 1 Basis Tensor")
    assert_refused(measure, ([X[0], held[1]],), {}, TypeError, "X 0 Basis Tensor")
    assert_refused(measure, (X, [held[0], X[1]]), {}, TypeError, "Y 1 Basis Tensor")
    other = bases(layers(Case(41, widths=(3,))))
    assert_refused(measure, (held, other), {}, ValueError, "Y 0 37 41")
    assert_refused(measure, (X, other), {}, ValueError, "Y 0 37 41")


def test_truncating_a_basis():
    for truncation in WRONG:
        with noted(truncation), pytest.raises(ValueError, match="truncation: wanted"):
            bases(X)[0].truncate(truncation)


BASES = {
    "integers": (bases, ([rows(5, dtype=torch.int64)],), {}, TypeError, "X 0 int64"),
    "one row": (bases, ([rows(1)],), {}, ValueError, "X 0 2 1"),
    "NaN": (bases, ENTRIES["NaN"][0], {}, ValueError, "X 1 3 NaN"),
    "bases of bases": (bases, (bases(X),), {}, TypeError, "X 0 Basis"),
    "memory": (bases, (X,), {"max_memory": 100}, ValueError, "max_memory 3 100"),
    "memory of a grid": (CCA, (X, Y), {"max_memory": 100}, ValueError, "max_memory 3 100"),
    "memory zero": (SVCCA, (X,), {"max_memory": 0}, ValueError, "max_memory 0"),
    "counts": (bases, (X,), {"truncation": [1, 2]}, ValueError, "truncation 3 layers"),
    "state": (
        Basis.from_state_dict,
        ({"vectors": X[0]},),
        {},
        ValueError,
        "state vectors components spectrum",
    ),
}


@pytest.mark.parametrize("name", BASES)
def test_basis_message(name):
    function, *expected = BASES[name]
    assert_refused(function, *expected)


GRID = np.eye(3)
SCORES = {
    "shapes": ((GRID, GRID[:2]), {}, ValueError, "neuronsim svsim 3 2"),
    "one axis": ((GRID[0], GRID[0]), {}, ValueError, "neuronsim svsim 3"),
    "not square": ((GRID[:2], GRID[:2]), {}, ValueError, "neuronsim square 2 3"),
    "list": (([[1.0]], [[1.0]]), {}, TypeError, "neuronsim list"),
    "integers": ((GRID, GRID.astype(int)), {}, TypeError, "svsim int64"),
    "flag": ((GRID, GRID), {"standardize": "zscore"}, TypeError, "standardize True False zscore"),
}


@pytest.mark.parametrize("name", SCORES)
def test_localization_message(name):
    assert_refused(localization_score, *SCORES[name])


def test_messages_are_one_line():
    for arguments, options, error, _ in {**LAYERS, **ENTRIES}.values():
        with pytest.raises(error) as caught:
            cca_grid(*arguments, **options)
        assert not re.search(r"\n", str(caught.value))
