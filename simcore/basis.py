"""Orthonormal bases of layers: the part of the CCA family that depends on one layer alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simcore._devices import check_device, memory_bound
from simcore._inputs import Layers, as_layers, check_finite, check_max_memory, warn_caller
from simcore._one_operator import one_operator, tensor_record
from simcore._ops import principal_components
from simcore._progress import progress_bar
from simcore._range import SINGULAR_VALUES, SQUARED_TWICE, in_range

Truncation = float | int | Sequence[int] | None
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


def _empty_truncated(like: Tensor, basis: Basis, *_: Any, **__: Any) -> list[Tensor]:
    kept = torch.library.get_ctx().new_dynamic_size()
    torch._check(kept <= basis.spectrum.shape[0])
    vectors, components = basis.vectors, basis.components
    return [
        vectors.new_empty((vectors.shape[0], kept)),
        components.new_empty((kept, components.shape[1])),
        torch.empty_like(basis.spectrum),
    ]


def _as_basis(outputs: list[Tensor], *_: Any, **__: Any) -> Basis:
    vectors, components, spectrum = outputs
    return Basis(vectors, components, spectrum)


@tensor_record
@dataclass(frozen=True, eq=False)
class Basis:
    """The leading principal components of a layer: ``Xc ~ vectors @ diag(s) @ components``.

    ``s`` is ``singular_values * 2**exponent``.

    What `cca_grid`, `svcca_grid`, `pwcca_grid`, `linreg_grid`, `mixedsim_grid` and
    `procrustes_grid` need of a layer.
    A list of bases may stand wherever they take layers, so that a sweep computes and saves each
    layer's basis once; see `bases`.

    Attributes
    ----------
    vectors : Tensor ``[n, k]``
        Orthonormal left singular vectors of the centred layer; float64 for float64 layers, else
        float32.
    components : Tensor ``[k, p]``
        Right singular vectors, one a row.
    spectrum : Tensor ``[rank]``, float64
        All singular values down to the numerical rank, over ``2**exponent``, descending; the first
        k belong to ``vectors``.
    exponent : int
        0, unless float64 could not hold the singular values of the layer, or not all their digits:
        where the largest difference in a column is not between 2^-900 and 2^960.

    Notes
    -----
    The numerical rank counts singular values above ``eps * max(n, p)`` times the largest, numpy's
    rule for matrices; ``eps`` is float64's for float64 layers and float32's for all others.
    """

    vectors: Tensor
    components: Tensor
    spectrum: Tensor
    exponent: int = 0

    @property
    def kept(self) -> int:
        """k, the number of components."""
        return self.vectors.shape[1]

    @property
    def rank(self) -> int:
        """The numerical rank of the centred layer."""
        return len(self.spectrum)

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors."""
        return self.vectors.nbytes + self.components.nbytes + self.spectrum.nbytes

    @property
    def singular_values(self) -> Tensor:
        """``[k]`` float64: those of the kept components, over ``2**exponent``."""
        return self.spectrum[: self.kept]

    @one_operator(_empty_truncated, _as_basis, name="truncated_basis")
    def truncate(self, truncation: float | int | None) -> Basis:
        """The leading components of this basis.

        Parameters
        ----------
        truncation : float, int or None
            A float is a share of the variance: the fewest components whose squared singular values
            sum to at least that share of the spectrum's. An int is the number itself. Never more
            components than there are.

        Raises
        ------
        ValueError
            A share outside (0, 1] or a count below 1.

        Warns
        -----
        UserWarning
            This basis was truncated before, and to fewer components.

        References
        ----------
        Raghu et al. 2017; Wu et al. 2020, appendix A.3.
        """
        (cut,) = per_layer_truncation(truncation, 1)
        wanted = _components_to_keep(self.spectrum, cut)
        if cut is not None and wanted > self.kept:
            warn_caller(
                f"truncation: {cut} is {wanted} components, of which this basis keeps {self.kept}"
            )
        k = min(wanted, self.kept)
        if k == self.kept:
            return self
        # Copies: a view would keep all columns in memory.
        vectors, components = self.vectors[:, :k].contiguous(), self.components[:k].clone()
        return replace(self, vectors=vectors, components=components)

    def permute(self, rows: Tensor) -> Basis:
        """The basis of the same layer with its n rows (examples) in another order."""
        return replace(self, vectors=self.vectors[rows])

    def state_dict(self) -> dict[str, Tensor]:
        """Its tensors by name, for safetensors or `torch.save`; the exponent if it is not 0."""
        state = {
            "vectors": self.vectors,
            "components": self.components,
            "spectrum": self.spectrum,
        }
        return {**state, "exponent": torch.tensor(self.exponent)} if self.exponent else state

    @classmethod
    def from_state_dict(cls, state: dict[str, Tensor]) -> Basis:
        """The inverse of `state_dict`.

        Raises
        ------
        TypeError
            What is no tensor.
        ValueError
            A name is missing or unknown, or the shapes do not fit together.
        """
        wanted = {"vectors", "components", "spectrum"}
        if set(state) - {"exponent"} != wanted:
            raise ValueError(f"state: wanted {sorted(wanted)}, got {sorted(state)}")
        for name, tensor in state.items():
            if not isinstance(tensor, Tensor):
                raise TypeError(f"state[{name!r}]: wanted a tensor, got {type(tensor).__name__}")
        shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
        k = shapes["vectors"][-1]
        if shapes["components"][0] != k or shapes["spectrum"][0] < k:
            raise ValueError(f"state: wanted k components and at least k values, got {shapes}")
        exponent = state.get("exponent", torch.tensor(0))
        if exponent.numel() != 1:
            raise ValueError(
                f"state['exponent']: wanted one number, got shape {shapes['exponent']}"
            )
        return cls(**{name: state[name] for name in wanted}, exponent=int(exponent))


def _components_to_keep(spectrum: Tensor, truncation: float | int | None) -> int:
    if truncation is None:
        return len(spectrum)
    if isinstance(truncation, Integral):
        return min(int(truncation), len(spectrum))
    if truncation == 1 or not len(spectrum):  # the last sums may be equal by rounding
        return len(spectrum)
    shares = (spectrum / spectrum[0]).square().cumsum(0)
    return int((shares < float(truncation) * shares[-1]).sum()) + 1


def per_layer_truncation(truncation: Truncation, count: int) -> list[float | int | None]:
    """`truncation` checked, one value a layer."""
    if isinstance(truncation, Tensor | np.ndarray) and truncation.ndim == 1:
        truncation = truncation.tolist()
    if isinstance(truncation, str):
        raise ValueError(f"truncation: wanted a share, a count or counts, got {truncation!r}")
    listed = isinstance(truncation, Sequence)
    values: list[float | int | None] = (
        [*truncation] if isinstance(truncation, Sequence) else [truncation] * count
    )
    if len(values) != count:
        raise ValueError(f"truncation: wanted one count for each of {count} layers, got {values}")
    for value in values:
        number = isinstance(value, Integral) and not isinstance(value, bool) and value >= 1
        share = isinstance(value, Real) and not isinstance(value, Integral) and 0 < value <= 1
        if not (number or (not listed and (share or value is None))):
            raise ValueError(
                "truncation: wanted a share in (0, 1], a count of at least 1, or one count per "
                f"layer, got {truncation!r}"
            )
    return values


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
    layers, _ = as_layers(X, "X")
    cuts = per_layer_truncation(truncation, len(layers))
    check_device(layers[0], "X[0]")
    bound = memory_bound(check_max_memory(max_memory), layers[0])
    return decompose(layers, "X", cuts, standardize, bound, progress)


def decompose(
    layers: list[Tensor],
    name: str,
    cuts: list[float | int | None],
    standardize: bool,
    bound: int,
    progress: bool,
) -> list[Basis]:
    """`bases` of layers whose shapes are checked, ``cuts[i]`` for layer i, in ``bound`` bytes."""
    for i, layer in enumerate(layers):
        if len(layer) < 2:
            raise ValueError(f"{name}[{i}]: wanted at least 2 rows for a basis, got {len(layer)}")
    layers = [layer.detach() for layer in layers]
    check_finite(layers, name)
    with progress_bar(f"bases of {name}", progress) as report:
        return _decompose(layers, cuts, standardize, bound, report)


def _decompose(
    layers: list[Tensor],
    cuts: list[float | int | None],
    standardize: bool,
    bound: int,
    report: Callable[[float], None],
) -> list[Basis]:
    """A few layers at a time: what a truncation cuts is freed before the next."""
    result: list[Basis] = []
    # On a device, layers of one shape are one batch.
    step = 2 * torch.get_num_threads() if layers[0].device.type == "cpu" else DEVICE_BATCH
    taken = 0
    for start in range(0, len(layers), step):
        chunk = layers[start : start + step]
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


def _working_bytes(n: int, p: int) -> int:
    """What one decomposition takes in float64: the centred layer, U, V and the covariance twice."""
    return 8 * (2 * n * p + 2 * n * min(n, p) + 2 * min(n, p) * (min(n, p) + p))


def _numerical_rank(s: Tensor, layer: Tensor) -> int:
    dtype = torch.float64 if layer.dtype == torch.float64 else torch.float32
    return int((s > s[0] * max(layer.shape) * torch.finfo(dtype).eps).sum())


def as_basis_list(layers: Layers | Sequence[Basis], name: str) -> list[Basis] | None:
    """The layers if they are `Basis` objects, None if none is; a TypeError if only some are."""
    if not isinstance(layers, Sequence):
        return None
    found = [layer for layer in layers if isinstance(layer, Basis)]
    if found and len(found) < len(layers):
        i = next(i for i, layer in enumerate(layers) if not isinstance(layer, Basis))
        raise TypeError(
            f"{name}[{i}]: wanted a Basis as others are, got {type(layers[i]).__name__}"
        )
    return found or None
