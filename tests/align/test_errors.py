"""What aligners refuse: one message each, naming the argument, the wanted and the found."""

import numpy as np
import pytest

from simcore.align import (
    METHODS,
    AlignmentError,
    CCAAligner,
    ConstantRowsError,
    GradientLinearAligner,
    INNAligner,
    LinearAligner,
    MLPAligner,
    NotFittedError,
    PWCCAAligner,
    SVCCAAligner,
    TooFewRowsError,
    align_pairs,
)
from support.trained import trained

X = np.random.default_rng(0).standard_normal((60, 5))
QUICK = {"max_epochs": 2, "hidden": 4}


def make(method):
    quick = {"linear-gd": {"max_epochs": 2}, "inn": QUICK, "mlp": QUICK}
    return METHODS[method](**trained(**quick.get(method, {})))


def spoiled(value):
    array = X.copy()
    array[3, :2] = value
    return array


ROWS = {
    "no array": ((X.tolist(), X), TypeError, r"X: wanted a torch tensor or numpy array, got list"),
    "complex": ((X, X.astype(complex)), TypeError, r"Y: wanted a floating-point.*complex128"),
    "one dimension": ((X, X[:, 0]), ValueError, r"Y: wanted shape \[n, p\].*\(60,\)"),
    "no columns": ((X[:, :0], X), ValueError, r"X: wanted shape .* at least 1, got \(60, 0\)"),
    "different n": ((X, X[:59]), ValueError, r"Y: wanted n = 60 rows as in X, got 59"),
    "one row": ((X[:1], X[:1]), ValueError, r"X: wanted at least 2 rows.*got 1"),
    "nan in X": ((spoiled(np.nan), X), ValueError, r"X: wanted finite values, got 2 .* of 300"),
    "inf in Y": ((X, spoiled(np.inf)), ValueError, r"Y: wanted finite values, got 2 .* of 300"),
}


@pytest.mark.parametrize("case", ROWS, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_bad_rows_are_refused_before_anything_is_learnt(method, case):
    arguments, kind, message = ROWS[case]
    aligner = make(method).fit(X, X)
    before = aligner.transform(X)
    with pytest.raises(kind, match=message):
        aligner.fit(*arguments)
    with pytest.raises(kind, match=message):
        aligner.errors(*arguments)
    assert np.array_equal(aligner.transform(X), before)


@pytest.mark.parametrize("method", METHODS)
def test_before_fit(method):
    aligner = make(method)
    calls = [aligner.transform, lambda x: aligner.score(x, x), lambda x: aligner.errors(x, x)]
    if method != "mlp":
        calls.append(aligner.inverse_transform)
    for call in calls:
        with pytest.raises(NotFittedError, match="Aligner: wanted a call of fit first, found none"):
            call(X)


@pytest.mark.parametrize("method", METHODS)
def test_another_width_after_fit(method):
    aligner = make(method).fit(X, X)
    message = "wanted 5 columns as in fit, got 4"
    with pytest.raises(ValueError, match=f"X: {message}"):
        aligner.transform(X[:, :4])
    with pytest.raises(ValueError, match=f"Y: {message}"):
        aligner.score(X, X[:, :4])
    if method != "mlp":
        with pytest.raises(ValueError, match=message):
            aligner.inverse_transform(X[:, :4])
    with pytest.raises(ValueError, match="X: wanted finite values, got 2"):
        aligner.transform(spoiled(np.nan))


TOO_FEW = {
    "linear": (LinearAligner(), 5, r"wanted at least 6 rows for least squares.*got 5"),
    "cca": (CCAAligner(), 6, r"wanted at least 7 rows for the canonical directions, got 6"),
    "svcca": (SVCCAAligner(truncation=4), 5, r"wanted at least 6 rows.*got 5"),
    "pwcca": (PWCCAAligner(), 6, r"wanted at least 7 rows.*got 6"),
    "linear-gd": (
        GradientLinearAligner(**trained(max_epochs=2)),
        3,
        r"wanted at least 4 rows for .*got 3",
    ),
    "inn": (INNAligner(**trained(**QUICK)), 3, r"wanted at least 4 rows for training.*got 3"),
    "mlp": (MLPAligner(**trained(**QUICK)), 3, r"wanted at least 4 rows for training.*got 3"),
}


@pytest.mark.parametrize("method", METHODS)
def test_too_few_rows(method):
    aligner, n, message = TOO_FEW[method]
    with pytest.raises(TooFewRowsError, match=message):
        aligner.fit(X[:n], X[:n])
    aligner.fit(X[: n + 1], X[: n + 1])
    judged = {"X_heldout": [X], "Y_heldout": [X]}
    with pytest.raises(TooFewRowsError, match=message):
        align_pairs([X[:n]], [X[:n]], method, **judged, **aligner.get_params())


@pytest.mark.parametrize("method", ["cca", "svcca", "pwcca"])
def test_equal_rows_have_no_canonical_directions(method):
    equal = np.repeat(X[:1], len(X), axis=0)
    with pytest.raises(ConstantRowsError, match="X: wanted rows that differ, got equal ones"):
        make(method).fit(equal, X)
    with pytest.raises(ConstantRowsError, match="pair 0: Y: wanted rows that differ"):
        align_pairs([X], [equal], method)


def test_ridge_needs_no_more_rows_than_two():
    assert LinearAligner(ridge=1.0).fit(X[:3], X[:3]).transform(X).shape == X.shape


# Of the training: an aligner, a value and the message.
TRAINING = {
    "optimizer": (INNAligner, "sgd", r"wanted 'adam' or 'adamw', got 'sgd'"),
    "learning_rate": (INNAligner, 0, r"wanted more than 0, got 0"),
    "weight_decay": (INNAligner, -1, r"wanted at least 0, got -1"),
    "warmup": (INNAligner, 1.0, r"wanted a share in \[0, 1\), got 1.0"),
    "max_epochs": (MLPAligner, 0, r"wanted at least 1, got 0"),
    "batch_size": (MLPAligner, 0, r"wanted at least 1, got 0"),
    "patience": (MLPAligner, 0, r"wanted at least 1, got 0"),
    "validation_share": (INNAligner, 1, r"wanted a share"),
    "schedule": (INNAligner, "step", r"wanted 'cosine' or 'exponential', got"),
    "decay": (GradientLinearAligner, 0, r"wanted a factor in \(0, 1\], got 0"),
    "max_steps": (GradientLinearAligner, 0, r"wanted at least 1, got 0"),
    "group": (GradientLinearAligner, 0, r"wanted at least 1, got 0"),
    "init": (GradientLinearAligner, "zero", r"wanted 'default' or 'xavier', got"),
}
PARAMETERS = {
    "ridge": (LinearAligner(ridge=-1.0), r"wanted a number of at least 0, got -1.0"),
    "scale": (CCAAligner(scale="two"), r"wanted 'one' or 'rho', got 'two'"),
    "truncation": (SVCCAAligner(truncation=2.5), r"wanted a share in \(0, 1\]"),
    "weight_share": (PWCCAAligner(weight_share=0), r"wanted a share.*got 0"),
    "block": (INNAligner(block="nice"), r"wanted 'coupling' or 'pair', got 'nice'"),
    "mixing": (
        INNAligner(block="pair", mixing="permutation"),
        r"wanted 'none' with block 'pair', got 'permutation'",
    ),
    "hidden": (MLPAligner(hidden=0), r"wanted at least 1, got 0"),
    "n_blocks": (INNAligner(n_blocks=0), r"wanted at least 1, got 0"),
    **{
        name: (aligner(**trained(**{name: value})), message)
        for name, (aligner, value, message) in TRAINING.items()
    },
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_out_of_range(name):
    aligner, message = PARAMETERS[name]
    with pytest.raises(ValueError, match=f"{name}: {message}"):
        aligner.fit(X, X)


@pytest.mark.parametrize("name", ["max_epochs", "batch_size", "patience", "seed"])
def test_counts_are_integers(name):
    with pytest.raises(TypeError, match=rf"{name}: wanted an integer, got 2\.5"):
        INNAligner(**trained(**{name: 2.5})).fit(X, X)


@pytest.mark.parametrize("value", [True, 2.5, "all"], ids=repr)
def test_the_number_of_pairs_at_once_is_an_integer(value):
    with pytest.raises(TypeError, match=f"at_once: wanted an integer, got {value!r}"):
        align_pairs([X], [X], at_once=value)


def test_a_ridge_that_rounding_swallows():
    with pytest.raises(ValueError, match=r"ridge: wanted more than the rounding .* got 1e-300"):
        LinearAligner(ridge=1e-300).fit(np.hstack([X, X]), X)


def test_parameters_that_do_not_exist():
    with pytest.raises(ValueError, match=r"rigde: wanted one of \['ridge'\] of LinearAligner"):
        LinearAligner().set_params(rigde=1)


def test_an_inn_keeps_the_number_of_columns():
    message = "Y: wanted as many columns as X, 2 or more, got 4 for X's 5"
    with pytest.raises(ValueError, match=message):
        INNAligner(**trained(**QUICK)).fit(X, X[:, :4])
    with pytest.raises(ValueError, match="got 1 for X's 1"):
        INNAligner(**trained(**QUICK)).fit(X[:, :1], X[:, :1])


def test_constant_rows_have_no_canonical_directions():
    with pytest.raises(ValueError, match="Y: wanted rows that differ, got equal ones"):
        CCAAligner().fit(X, np.ones((60, 3)))


def test_constant_targets_have_no_relative_error():
    found = LinearAligner().fit(X, np.ones((60, 3))).errors(X, np.ones((60, 3)))
    assert found.mse < 1
    assert np.isnan(found.relative)


PAIRS = {
    "method": (([X], [X], "ols"), {}, r"method: wanted 'linear'.*got 'ols'"),
    "no pairs": (([], []), {}, r"Y: wanted at least one pair, got 0"),
    "another count": (([X, X], [X]), {}, r"Y: wanted 2 arrays as in X, got 1"),
    "pair is named": (([X, X], [X, X[:59]]), {}, r"Y\[1\]: wanted n = 60 rows as in X\[1\]"),
    "nan": (([X, spoiled(np.nan)], [X, X]), {}, r"X\[1\]: wanted finite values, got 2"),
    "shapes": (([X, X[:50]], [X, X[:50]], "inn"), {}, r"X\[1\]: wanted shape \(48, 5\).*\(40, 5\)"),
    "heldout": (([X], [X]), {"heldout": 1.0}, r"heldout: wanted a share in \(0, 1\), got 1.0"),
    "one side": (([X], [X]), {"X_heldout": [X]}, r"X_heldout, Y_heldout: wanted both"),
    "heldout count": (
        ([X], [X]),
        {"X_heldout": [X, X], "Y_heldout": [X, X]},
        r"X_heldout: wanted 1 pairs as in X, got 2",
    ),
    "few rows": (([X[:3]], [X[:3]]), {}, r"X: wanted at least 4 rows for .* held-out rows, got 3"),
    "at_once": (([X], [X]), {"at_once": 0}, r"at_once: wanted at least 1, got 0"),
    "parameter": (([X], [X]), {"depht": 2}, r"depht: wanted one of .* of INNAligner"),
}


@pytest.mark.parametrize("case", PAIRS)
def test_pairs(case):
    arguments, options, message = PAIRS[case]
    with pytest.raises(ValueError, match=message):
        align_pairs(*arguments, **options)


def test_the_pair_is_named():
    with pytest.raises(ValueError, match=r"pair 1: X: wanted rows that differ"):
        align_pairs([X, np.ones_like(X)], [X, X], "cca")
    with pytest.raises(ValueError, match=r"pair 1: Y: wanted 5 columns as in fit, got 4"):
        align_pairs([X, X], [X, X], "linear", X_heldout=[X, X], Y_heldout=[X, X[:, :4]])


def test_an_error_prints_the_numbers_that_there_are():
    """It printed four None and the standard errors as an error within the error."""
    few = AlignmentError(0.1538906, 0.4686686, stderr=AlignmentError(0.00823, 0.012858))
    assert repr(few) == "AlignmentError(mse=0.1539 +- 0.0082, relative=0.4687 +- 0.013)"
    all_of_it = AlignmentError(2.0, 1.0, 0.5, 0.25)
    assert repr(all_of_it) == (
        "AlignmentError(mse=2, relative=1, component_mse=0.5, component_relative=0.25)"
    )
