"""Orthonormal bases of layers: the part of the CCA family that depends on one layer alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from simcore._grid.basis import Basis as Basis
from simcore._grid.basis import Truncation, per_layer_truncation
from simcore._grid.inputs import Layers
from simcore._grid.memory import memory_bound
from simcore._grid.one_operator import one_operator
from simcore._grid.options import check_max_memory
from simcore._grid.progress import progress_bar
from simcore._grid.scale import SINGULAR_VALUES, SQUARED_TWICE, in_range
from simcore._grid.side import Side, read_side
from simcore._ops.spectral import principal_components

DEVICE_BATCH = 16  # layers that a device decomposes together


def _empty_bases(like: Tensor, X: Sequence[Tensor], *_: Any, **__: Any) -> list[Tensor]:
    """Ranks and what a truncation keeps of them are known when the layers are decomposed."""
    context = torch.library.get_ctx()
    empty = []
    for layer in X:
        n, p = layer.shape
        dtype = torch.float64 if layer.dtype == torch.float64 else torch.float32
        kept, rank = context.new_dynamic_size(), context.new_dynamic_size()
        torch._check(kept <= rank)
        empty.append(like.new_empty((n, kept), dtype=dtype))
        empty.append(like.new_empty((kept, p), dtype=dtype))
        empty.append(like.new_empty((rank,), dtype=torch.float64))
    return empty


def _as_bases(outputs: list[Tensor], *_: Any, **__: Any) -> list[Basis]:
    triples = zip(outputs[::3], outputs[1::3], outputs[2::3], strict=True)
    return [Basis(vectors, components, spectrum) for vectors, components, spectrum in triples]


@one_operator(_empty_bases, _as_bases)
def bases(
    X: Layers,
    *,
    truncation: Truncation = None,
    standardize: bool = False,
    max_memory: int | None = None,
    progress: bool = False,
) -> list[Basis]:
    """An orthonormal basis of every layer's centred columns.

    Parameters
    ----------
    X : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        Representations; see `simcore.cka_grid`.
    truncation : float, int or sequence of int, optional
        How many leading principal components to keep: a share of the variance, a count, or one
        count per layer. Default: all, down to the numerical rank (`Basis`).
    standardize : bool
        Divide the columns by their standard deviation first; constant columns stay zero.
    max_memory : int, optional
        Bytes that bases and decompositions may take; default a quarter of the free memory.
    progress : bool
        Show a progress bar on stderr.

    Returns
    -------
    list of Basis
        A layer without variance has a basis of no vectors. Not differentiable.

    Notes
    -----
    The numerical rank decides shapes, so that torch.compile takes this function whole, and
    `Basis.truncate` too, with ``torch._dynamo.config.capture_dynamic_output_shape_ops = True``.

    Raises
    ------
    TypeError, ValueError
        As `simcore.cka_grid`; a wrong truncation; bases that do not fit into `max_memory`.

    Examples
    --------
    >>> import torch
    >>> from simcore import bases, svcca_grid
    >>> saved = bases(torch.randn(3, 100, 16))
    >>> svcca_grid(saved, truncation=0.9).shape
    torch.Size([3, 3])
    """
    side = read_side(X, "X", "a basis")
    cuts = per_layer_truncation(truncation, len(side))
    bound = memory_bound(check_max_memory(max_memory), side.layers[0])
    made, _ = decompose(side, cuts, bound, standardize=standardize, progress=progress)
    return made


def decompose(
    side: Side,
    cuts: Sequence[float | int | None],
    bound: int,
    *,
    standardize: bool = False,
    progress: bool = False,
) -> tuple[list[Basis], int]:
    """Return bases of the side's layers, and what of ``bound`` bytes they leave (at least 1).

    Parameters
    ----------
    cuts : sequence of float, int or None
        The truncation of each layer. Bases that the side holds are truncated further.

    Raises
    ------
    ValueError
        The bases do not fit into ``bound`` bytes; ``standardize`` for a side that holds bases.
    """
    if not side.layers:
        return [], bound
    if side.bases is None:
        layers = [layer.detach() for layer in side.layers]
        with progress_bar(f"bases of {side.name}", progress) as report:
            made = new = _decompose(layers, cuts, standardize, bound, report)
    elif standardize:
        raise ValueError(
            f"standardize: wanted False, {side.name} holds bases, which are computed already"
        )
    else:
        made = [basis.truncate(cut) for basis, cut in zip(side.bases, cuts, strict=True)]
        new = [b for b, given in zip(made, side.bases, strict=True) if b is not given]
    # At least one byte: the operators refuse too little, and 0 would mean their default.
    return made, max(bound - sum(basis.nbytes for basis in new), 1)


def _decompose(
    layers: list[Tensor],
    cuts: Sequence[float | int | None],
    standardize: bool,
    bound: int,
    report: Callable[[float], None],
) -> list[Basis]:
    """Decompose a few layers at a time: what a truncation cuts is freed before the next ones."""
    result: list[Basis] = []
    taken = 0
    while len(result) < len(layers):
        start = len(result)
        chunk = _chunk(layers[start:])
        limits = SQUARED_TWICE if standardize else SINGULAR_VALUES
        scaled = in_range(chunk, limits, columns=standardize)
        needed = taken + scaled.nbytes + sum(_working_bytes(*layer.shape) for layer in chunk)
        if needed > bound:
            raise ValueError(
                f"max_memory: wanted at least {needed} bytes for the bases of {start + len(chunk)} "
                f"of {len(layers)} layers, got {bound}"
            )
        # Standardised columns have no scale left.
        exponents = [0] * len(chunk) if standardize else scaled.exponents
        parts = zip(
            chunk, exponents, *principal_components(scaled.layers, standardize), strict=True
        )
        for cut, (layer, exponent, u, s, vt) in zip(cuts[start:], parts, strict=False):
            rank = _numerical_rank(s, layer)
            full = Basis(u[:, :rank], vt[:rank], s[:rank], exponent)
            basis = full.truncate(cut)
            # Columns beyond the rank are no basis; a copy, so that they do not stay in memory.
            if basis is full and rank < len(s):
                basis = replace(
                    full, vectors=full.vectors.contiguous(), components=vt[:rank].clone()
                )
            result.append(basis)
            taken += basis.nbytes
        report((start + len(chunk)) / len(layers))
    return result


def _chunk(layers: list[Tensor]) -> list[Tensor]:
    """Return the first layers that are decomposed together; all of them have one n."""
    # On a device, layers of one shape are one batch.
    most = 2 * torch.get_num_threads() if layers[0].device.type == "cpu" else DEVICE_BATCH
    return list(takewhile(lambda layer: len(layer) == len(layers[0]), layers[:most]))


def _working_bytes(n: int, p: int) -> int:
    """What one decomposition takes in float64: the centred layer, U, V and the covariance twice."""
    return 8 * (2 * n * p + 2 * n * min(n, p) + 2 * min(n, p) * (min(n, p) + p))


def _numerical_rank(s: Tensor, layer: Tensor) -> int:
    dtype = torch.float64 if layer.dtype == torch.float64 else torch.float32
    return int((s > s[0] * max(layer.shape) * torch.finfo(dtype).eps).sum())
