"""Orthonormal bases of layers: the part of the CCA family that depends on one layer alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from simcore._grid.accuracy import computed_again
from simcore._grid.basis import Basis as Basis
from simcore._grid.basis import Truncation, per_layer_truncation, warn_unclear_cuts
from simcore._grid.inputs import Layers, on_host
from simcore._grid.memory import memory_bound, require_memory
from simcore._grid.one_operator import one_operator
from simcore._grid.options import check_max_memory
from simcore._grid.progress import progress_bar
from simcore._grid.rank import (
    Rank,
    component_thresholds,
    needs_svd,
    numerical_rank,
    rounding_unit,
    thresholds_of_rows,
    warn_unclear_ranks,
)
from simcore._grid.scale import SINGULAR_VALUES, SQUARED_TWICE, in_range
from simcore._grid.side import Side, place, read_side
from simcore._ops.spectral import principal_components

DEVICE_BATCH = 16  # layers that a device decomposes together
# The decompositions that `shared_bases` holds; None outside of it.
_SHARED: ContextVar[dict[Any, Any] | None] = ContextVar("_SHARED", default=None)


def _empty_bases(like: Tensor, X: Sequence[Tensor], *_: Any, **__: Any) -> list[Tensor]:
    """Return empty bases, whose numbers of components are not known before the decomposition."""
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
    """Compute an orthonormal basis of the centred columns of every layer.

    Parameters
    ----------
    X : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        Representations; see `simcore.cka_grid`.
    truncation : float, int or sequence of int, optional
        Leading principal components to keep: a share of the variance, a count, or one count per
        layer. Default: as many as the numerical rank (see `Basis`).
    standardize : bool
        Divide the columns by their standard deviation first; constant columns stay zero.
    max_memory : int, optional
        Bytes that the bases and the decompositions may take; default a quarter of the free memory.
    progress : bool
        Show a progress bar on stderr.

    Returns
    -------
    list of Basis
        The basis of a layer without variance has no vectors. Not differentiable.

    Notes
    -----
    The shapes of the result depend on the values of the layers. torch.compile therefore compiles
    this function and `Basis.truncate` without a graph break only with
    ``torch._dynamo.config.capture_dynamic_output_shape_ops = True``.

    Raises
    ------
    TypeError, ValueError
        As `simcore.cka_grid`; an invalid truncation; bases that do not fit into `max_memory`.

    Warns
    -----
    UserWarning
        Rounding decides which components a truncation keeps, because singular values are equal or
        the share is reached exactly.

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
    made, _ = decompose("bases", side, cuts, bound, standardize=standardize, progress=progress)
    names = [f"X[{i}]" for i in range(len(side))]
    warn_unclear_cuts("bases", [*zip(names, made, cuts, strict=True)])
    return made


def decompose(
    function: str | None,
    side: Side,
    cuts: Sequence[float | int | None],
    bound: int,
    *,
    standardize: bool = False,
    progress: bool = False,
) -> tuple[list[Basis], int]:
    """Return bases of the side's layers, and the number of the ``bound`` bytes that they leave.

    This number is at least 1, because the operators read 0 as "the default". Bases that the side
    holds are truncated further. Warnings name the ``function``; without one, components of the size
    of rounding do no harm, and nothing warns of them.
    """
    if not side.layers:
        return [], bound
    if side.bases is None:
        with progress_bar(f"bases of {side.name}", progress) as report:
            once = _decompose if function is None else _decompose_once
            ranked = once(side, cuts, standardize, bound, report)
        made = new = [basis for basis, _ in ranked]
        if function is not None:
            warn_unclear_ranks(
                function,
                [
                    (side.label(i), rank)
                    for i, (basis, rank) in enumerate(ranked)
                    if not rank.is_clear and (basis.kept > rank.least or basis.kept == basis.rank)
                ],
            )
    elif standardize:
        raise ValueError(f"standardize: wanted False, because {side.name} holds bases, got True")
    else:
        made = truncate_all(side.bases, cuts)
        new = [b for b, given in zip(made, side.bases, strict=True) if b is not given]
    return made, max(bound - sum(basis.nbytes for basis in new), 1)


def truncate_all(bases: Sequence[Basis], cuts: Sequence[float | int | None]) -> list[Basis]:
    """Return truncated bases; the spectra are read from their device at once."""
    spectra = on_host([basis.spectrum for basis in bases])
    return [b._truncated(cut, s) for b, cut, s in zip(bases, cuts, spectra, strict=True)]


@contextmanager
def shared_bases() -> Iterator[None]:
    """Decompose layers once for all grids that are computed inside, and hold their bases."""
    token = _SHARED.set({})
    try:
        yield
    finally:
        _SHARED.reset(token)


def _decompose_once(
    side: Side, cuts: Sequence[float | int | None], standardize: bool, *how: Any
) -> list[tuple[Basis, Rank]]:
    """Return what `_decompose` does; `shared_bases` may hold it, or bases that are to be cut."""
    shared = _SHARED.get()
    if shared is None:
        return _decompose(side, cuts, standardize, *how)
    layers = (*map(place, side.layers), standardize)
    whole, key = (layers, (None,) * len(side)), (layers, tuple(cuts))
    if whole not in shared and key not in shared:
        # The layers are held too: no other layer may come to lie in their place.
        shared[key] = side.layers, _decompose(side, cuts, standardize, *how)
    if key not in shared:
        bases, ranks = zip(*shared[whole][1], strict=True)
        return [*zip(truncate_all(bases, cuts), ranks, strict=True)]
    found: list[tuple[Basis, Rank]] = shared[key][1]
    return found


@dataclass(frozen=True)
class _Components:
    """A thin SVD ``u [n, r]``, ``s [r]``, ``vt [r, p]``; ``known`` is s on the host."""

    u: Tensor
    s: Tensor
    vt: Tensor
    unit: Tensor
    known: Tensor  # at most n - 1: centring leaves no more
    thresholds: Tensor  # of the known values, on the host

    def again(self, layer: Tensor, standardize: bool) -> _Components:
        """Return the components by a float64 SVD, in the dtypes of these."""
        (part,) = _components([layer.double()], [self.unit], standardize)
        return replace(part, u=part.u.to(self.u.dtype), vt=part.vt.to(self.vt.dtype))

    def members(self, places: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Return some of the components, as views where they are the leading ones."""
        k = len(places)
        if [*places] == [*range(k)]:
            return self.u[:, :k], self.vt[:k], self.s[:k]
        at = torch.tensor(places, device=self.s.device)
        return self.u[:, at], self.vt[at], self.s[at]


def _components(
    layers: Sequence[Tensor], units: Sequence[Tensor], standardize: bool
) -> list[_Components]:
    u_of, s_of, vt_of = principal_components(layers, standardize)
    thresholds = [
        component_thresholds(*parts, standardize)
        for parts in zip(layers, s_of, vt_of, units, strict=True)
    ]
    known = on_host([*s_of, *thresholds, *(unit[None] for unit in units)])
    ends = [min(len(layer) - 1, len(s)) for layer, s in zip(layers, s_of, strict=True)]
    count = len(layers)
    cut = [values[:end] for values, end in zip(known[: 2 * count], ends * 2, strict=True)]
    for i, layer in enumerate(layers):
        (unit,) = known[2 * count + i]
        cut[count + i] = thresholds_of_rows(
            layer, cut[i], vt_of[i], unit, cut[count + i], standardize
        )
    parts = zip(u_of, s_of, vt_of, units, cut[:count], cut[count:], strict=True)
    return [_Components(*part) for part in parts]


def _decompose(
    side: Side,
    cuts: Sequence[float | int | None],
    standardize: bool,
    bound: int,
    report: Callable[[float], None],
) -> list[tuple[Basis, Rank]]:
    """Decompose a few layers at a time, and free what a truncation cuts before the next layers."""
    layers = [layer.detach() for layer in side.layers]
    result: list[tuple[Basis, Rank]] = []
    taken = 0
    while len(result) < len(layers):
        start = len(result)
        chunk = _chunk(layers[start:])
        limits = SQUARED_TWICE if standardize else SINGULAR_VALUES
        scaled = in_range(chunk, limits, columns=standardize)
        needed = taken + scaled.nbytes + sum(_working_bytes(*layer.shape) for layer in chunk)
        purpose = f"the bases of {start + len(chunk)} of {len(layers)} layers"
        require_memory(needed, bound, purpose)
        # The singular values of standardised columns do not depend on the scale of the layer.
        exponents = [0] * len(chunk) if standardize else scaled.exponents
        parts = _components(scaled.layers, [rounding_unit(t) for t in chunk], standardize)
        for i, part in enumerate(parts):
            if needs_svd(chunk[i], part.known, part.thresholds):
                computed_again("bases", side.label(start + i))
                parts[i] = part.again(scaled.layers[i], standardize)
        for cut, exponent, part in zip(cuts[start:], exponents, parts, strict=False):
            rank = numerical_rank(part.known, part.thresholds)
            full = Basis(*part.members(rank.members), exponent)
            basis = full._truncated(cut, part.known[[*rank.members]])
            # A copy, so that the vectors beyond the rank do not stay in memory.
            if basis is full and rank.kept < len(part.s):
                basis = replace(
                    full, vectors=full.vectors.contiguous(), components=full.components.clone()
                )
            result.append((basis, rank))
            taken += basis.nbytes
        report((start + len(chunk)) / len(layers))
    return result


def _chunk(layers: list[Tensor]) -> list[Tensor]:
    """Return the first layers that are decomposed together; all of them have one n."""
    # A CUDA device decomposes layers of one shape together.
    most = 2 * torch.get_num_threads() if layers[0].device.type == "cpu" else DEVICE_BATCH
    return list(takewhile(lambda layer: len(layer) == len(layers[0]), layers[:most]))


def _working_bytes(n: int, p: int) -> int:
    """Return the bytes of one decomposition: centred layer, U, V and covariance, each twice."""
    return 8 * (2 * n * p + 2 * n * min(n, p) + 2 * min(n, p) * (min(n, p) + p))
