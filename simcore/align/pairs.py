"""Maps of many pairs from one call; trained methods learn all pairs in one batched loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from simcore._grid.inputs import (
    LEAST_ROWS,
    Array,
    Groups,
    Layers,
    check_rows,
    group_numbers,
    listed,
)
from simcore._grid.options import check_choice, check_count, check_number
from simcore._grid.progress import progress_bar
from simcore.align._base import (
    Aligner,
    AlignmentError,
    ConstantRowsError,
    TooFewRowsError,
    checked_pair,
)
from simcore.align._neural import NeuralAligner
from simcore.align.canonical import CCAAligner, PWCCAAligner, SVCCAAligner
from simcore.align.linear import GradientLinearAligner, LinearAligner
from simcore.align.neural import INNAligner, MLPAligner

Method = Literal["linear", "linear-gd", "cca", "svcca", "pwcca", "mlp", "inn"]
METHODS: dict[str, type[Aligner]] = {
    "linear": LinearAligner,
    "linear-gd": GradientLinearAligner,
    "cca": CCAAligner,
    "svcca": SVCCAAligner,
    "pwcca": PWCCAAligner,
    "mlp": MLPAligner,
    "inn": INNAligner,
}


@dataclass(frozen=True)
class PairResult:
    """The fitted map of one pair and its errors.

    Attributes
    ----------
    aligner : Aligner
        The fitted map.
    train, heldout : AlignmentError
        Errors of the map on the rows of the fit, and on rows that the fit has not seen.
    """

    aligner: Aligner
    train: AlignmentError
    heldout: AlignmentError


def align_pairs(
    X: Layers,
    Y: Layers,
    method: Method = "inn",
    *,
    X_heldout: Layers | None = None,
    Y_heldout: Layers | None = None,
    groups_heldout: Groups | None = None,
    heldout: float = 0.2,
    split_seed: int = 0,
    at_once: int | None = None,
    progress: bool = False,
    **params: Any,
) -> list[PairResult]:
    """Fit a map from every ``X[i]`` to ``Y[i]`` and judge it on held-out rows.

    "inn", "mlp" and "linear-gd" train all pairs in one batched loop; each pair gives the same map
    as if it were trained alone, up to rounding.

    Parameters
    ----------
    X, Y : sequence, or dictionary, of ``[n, p]`` and of ``[n, q]`` arrays
        ``X[i]`` and ``Y[i]`` are a pair, in the order of a dictionary; trained methods need
        pairs of equal shapes.
    method : {"inn", "mlp", "linear-gd", "linear", "cca", "svcca", "pwcca"}
        The kind of aligner; see `METHODS`.
    X_heldout, Y_heldout : sequences of arrays, optional
        The rows to judge on; default: a share of the rows of X and Y, which the fit does not see.
    groups_heldout : sequence of int, optional
        The example of each row of `X_heldout`, such as the sentence of a word, for the standard
        errors of all pairs; default: rows are independent examples.
    heldout : float
        The share of rows to hold out, in (0, 1), if `X_heldout` is not given.
    split_seed : int
        Seed of the held-out rows, which are the same for pairs of equal n.
    at_once : int, optional
        Largest number of pairs in one batched loop, to bound the memory; default: all.
    progress : bool
        Show a progress bar on stderr.
    **params
        Parameters of the aligner, such as a `Training`; ``**REN2023[method]`` are those of
        published code.

    Returns
    -------
    list of PairResult
        One for each pair, in order.

    Raises
    ------
    TypeError, ValueError
        Different n, NaN, too few rows (`TooFewRowsError`) or equal rows (`ConstantRowsError`), with
        the pair in the message; different shapes for trained methods; an unknown method or
        parameter; an `at_once` that is no integer, or below 1.

    Examples
    --------
    >>> import torch
    >>> from simcore.align import align_pairs
    >>> x = torch.randn(4, 100, 8)
    >>> results = align_pairs(list(x), list(x * 2 + 1), "linear")
    >>> [result.heldout.relative < 1e-3 for result in results]
    [True, True, True, True]
    """
    check_choice(method, "method", Method)
    if at_once is not None:
        at_once = check_count(at_once, "at_once")
    pairs = _checked_pairs(X, Y, ("X", "Y"))
    if (X_heldout is None) != (Y_heldout is None):
        raise ValueError("X_heldout, Y_heldout: wanted both or neither, got one")
    if X_heldout is None or Y_heldout is None:
        check_groups(groups_heldout, None)
        pairs, judged = _split(pairs, heldout, split_seed)
    else:
        judged = _checked_pairs(X_heldout, Y_heldout, ("X_heldout", "Y_heldout"))
        if len(judged) != len(pairs):
            raise ValueError(f"X_heldout: wanted {len(pairs)} pairs as in X, got {len(judged)}")
        for i, (rows, _) in enumerate(judged):
            with _naming(i):
                check_groups(groups_heldout, rows)
    aligners = _fitted(METHODS[method], pairs, params, at_once, progress)
    results = []
    for i, (aligner, pair, rows) in enumerate(zip(aligners, pairs, judged, strict=True)):
        with _naming(i):
            judgement = aligner.errors(*rows, groups=groups_heldout)
            results.append(PairResult(aligner, aligner.errors(*pair), judgement))
    return results


Pair = tuple[Tensor, Tensor]


@contextmanager
def _naming(pair: int) -> Iterator[None]:
    """Add the number of the pair to the message of an aligner's ValueError."""
    try:
        yield
    except ValueError as error:
        told_apart = isinstance(error, TooFewRowsError | ConstantRowsError)
        kind = type(error) if told_apart else ValueError
        raise kind(f"pair {pair}: {error}") from error


def _checked_pairs(X: Layers, Y: Layers, names: tuple[str, str]) -> list[Pair]:
    x: list[Array] = list(listed(X))
    y: list[Array] = list(listed(Y))
    if len(x) != len(y) or len(x) == 0:
        wanted = f"{len(x)} arrays as in {names[0]}" if len(x) else "at least one pair"
        raise ValueError(f"{names[1]}: wanted {wanted}, got {len(y)}")
    return [
        checked_pair(x[i], y[i], (f"{names[0]}[{i}]", f"{names[1]}[{i}]")) for i in range(len(x))
    ]


def check_groups(groups: Groups | None, rows: Tensor | None) -> None:
    """Raise ValueError for groups of rows that are not given, or not one for each row."""
    if groups is None:
        return
    if rows is None:
        raise ValueError("groups_heldout: wanted X_heldout and Y_heldout too, found neither")
    group_numbers(groups, len(rows), "groups_heldout")


def _split(pairs: list[Pair], share: float, seed: int) -> tuple[list[Pair], list[Pair]]:
    fitted, held = [], []
    for x, y in pairs:
        kept, judged = split_order(x, share, seed)
        fitted.append((x[kept], y[kept]))
        held.append((x[judged], y[judged]))
    return fitted, held


def split_order(x: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return the numbers of the rows of x to fit on, and of the rows to judge on."""
    share = check_number(share, "heldout", "a share in (0, 1)", lambda v: 0 < v < 1)
    check_rows(x, "X", LEAST_ROWS["fit and holdout"], "a fit and held-out rows", TooFewRowsError)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).to(x.device)
    cut = min(max(2, round(share * len(x))), len(x) - 2)
    return order[cut:], order[:cut]


def _fitted(
    kind: type[Aligner],
    pairs: list[Pair],
    params: dict[str, Any],
    at_once: int | None,
    progress: bool,
) -> list[Aligner]:
    aligners = [kind().set_params(**params) for _ in pairs]
    if issubclass(kind, NeuralAligner):
        _fit_together(aligners, pairs, at_once or len(pairs), progress)
        return aligners
    with progress_bar(f"align_pairs, {kind.__name__}", progress) as report:
        for done, (aligner, pair) in enumerate(zip(aligners, pairs, strict=True), 1):
            with _naming(done - 1):
                aligner.fit(*pair)
            report(done / len(pairs))
    return aligners


def _fit_together(
    aligners: Sequence[Aligner], pairs: list[Pair], at_once: int, progress: bool
) -> None:
    first = pairs[0]
    for i, pair in enumerate(pairs):
        for name, side, wanted in zip("XY", pair, first, strict=True):
            if side.shape != wanted.shape or side.dtype != wanted.dtype:
                raise ValueError(
                    f"{name}[{i}]: wanted shape {tuple(wanted.shape)} of {wanted.dtype} as in "
                    f"{name}[0], to train together, got {tuple(side.shape)} of {side.dtype}"
                )
    for start in range(0, len(pairs), at_once):
        part = slice(start, start + at_once)
        some = [a.set_params(progress=progress) for a in aligners[part]]
        xs, ys = zip(*pairs[part], strict=True)
        NeuralAligner.fit_many(some, xs, ys)  # type: ignore[arg-type]
