"""`Basis`, which may stand in for a layer wherever the CCA family takes one, and its truncation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from simcore._grid.finish import warn_caller
from simcore._grid.inputs import on_host
from simcore._grid.one_operator import one_operator, tensor_record

Truncation = float | int | Sequence[int] | None
# Singular values, relative to each other, and shares of the variance that count as equal.
TIED64, TIED32 = 1e-10, 1e-6
# Singular values, over the largest, below which float32 vectors divided by them lose the contract.
WEIGHTS_ARE_FLOAT32 = 2.0**-9


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

    `cca_grid`, `svcca_grid`, `pwcca_grid`, `linreg_grid`, `mixedsim_grid` and `procrustes_grid`
    take a list of bases wherever they take layers, so that each layer's basis is computed and saved
    once for many grids; see `bases`.

    Attributes
    ----------
    vectors : Tensor ``[n, k]``
        Orthonormal left singular vectors of the centred layer; float64 for float64 layers, else
        float32.
    components : Tensor ``[k, p]``
        Right singular vectors, one in each row; dtype of ``vectors``.
    spectrum : Tensor ``[rank]``, float64
        All singular values down to the numerical rank, divided by ``2**exponent``, descending; the
        first k belong to ``vectors``.
    exponent : int
        0, unless the largest difference within a column is below 2^-900 or above 2^960, where
        float64 would lose singular values of the layer or some of their digits.

    Notes
    -----
    The numerical rank counts the singular values ``s_i`` above ``tau_i = unit * sqrt(sum_j v_ij^2
    |x_j|^2)``: v_i is the right singular vector, and ``|x_j|`` the length of column j before it is
    centred. Every entry is rounded relative to its own size, so that a small column counts beside
    a large one, and more rows never remove a dimension. ``unit`` is 16 roundings of float32 (2^-24)
    or float64 (2^-53), and two of half precision (2^-9 for bfloat16, 2^-12 for float16) more. What
    counts is the narrowest dtype that holds every entry: ``.double()`` and ``.float()`` change no
    rank. tau is at least a share of the largest singular value: ``2 sqrt(2^-52 min(n, p))``, which
    is what a float64 covariance resolves, or for float64 numbers ``2^-52 max(n, p)``. A warning
    names a layer that has singular values within a factor of 10 of each other on both sides of tau.
    """

    vectors: Tensor
    components: Tensor
    spectrum: Tensor
    exponent: int = 0

    @property
    def kept(self) -> int:
        """The number of components, k."""
        return self.vectors.shape[1]

    @property
    def rank(self) -> int:
        """The numerical rank of the centred layer."""
        return len(self.spectrum)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the three tensors."""
        return self.vectors.nbytes + self.components.nbytes + self.spectrum.nbytes

    @property
    def singular_values(self) -> Tensor:
        """The singular values of the kept components over ``2**exponent``, ``[k]`` float64."""
        return self.spectrum[: self.kept]

    @one_operator(_empty_truncated, _as_basis, name="truncated_basis")
    def truncate(self, truncation: float | int | None) -> Basis:
        """Return the leading components of this basis as a basis.

        Parameters
        ----------
        truncation : float, int or None
            A float is a share of the variance: it keeps the fewest components whose squared
            singular values sum to at least that share of the spectrum's. An int keeps that many
            components, or all if there are fewer. None keeps all.

        Raises
        ------
        ValueError
            A share outside (0, 1] or a count below 1.

        Warns
        -----
        UserWarning
            This basis was truncated to fewer components before; rounding decides which components
            are kept, because singular values are equal or the share is reached exactly.

        References
        ----------
        Raghu et al. 2017; Wu et al. 2020, appendix A.3.
        """
        (cut,) = per_layer_truncation(truncation, 1)
        made = self._truncated(cut, self.spectrum)
        if made is not self:
            warn_unclear_cuts("Basis.truncate", [("the layer", made, cut)])
        return made

    def _truncated(self, cut: float | int | None, spectrum: Tensor) -> Basis:
        """Return `truncate`; ``spectrum`` belongs to this basis, which is read here."""
        wanted = _components_to_keep(spectrum, cut)
        if cut is not None and wanted > self.kept:
            warn_caller(
                f"truncation: {cut} is {wanted} components, of which this basis keeps {self.kept}"
            )
        k = min(wanted, self.kept)
        if k == self.kept:
            return self
        # Copies: views would keep all components in memory.
        vectors, components = self.vectors[:, :k].contiguous(), self.components[:k].clone()
        return replace(self, vectors=vectors, components=components)

    def permute(self, rows: Tensor) -> Basis:
        """Return the basis of the same layer with its rows (examples) in the order ``rows``."""
        return replace(self, vectors=self.vectors[rows])

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors by name, for safetensors or `torch.save`, without an exponent of 0."""
        state = {"vectors": self.vectors, "components": self.components, "spectrum": self.spectrum}
        return {**state, "exponent": torch.tensor(self.exponent)} if self.exponent else state

    @classmethod
    def from_state_dict(cls, state: dict[str, Tensor]) -> Basis:
        """Build a basis from the tensors that `state_dict` returned.

        Raises
        ------
        TypeError
            A value is no tensor.
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


@dataclass(frozen=True)
class Factored:
    """Orthonormal columns of a layer, where its spectrum is not asked for, float32."""

    vectors: Tensor
    coordinates: Tensor  # ``vectors @ coordinates`` is the centred layer, or a part, times a number

    @property
    def kept(self) -> int:
        """The number of columns: the rank of the centred layer, or of what was kept of it."""
        return self.vectors.shape[1]

    @property
    def nbytes(self) -> int:
        """The number of bytes of both tensors."""
        return self.vectors.nbytes + self.coordinates.nbytes


Columns: TypeAlias = Basis | Factored


def columns_of(basis: Columns) -> Tensor:
    """Return the vectors of a basis; without any, zeros ``[n, 1]``, which operators take."""
    return basis.vectors if basis.kept else basis.vectors.new_zeros(len(basis.vectors), 1)


def scores(basis: Basis) -> Tensor:
    """Return ``vectors diag(s) / max(s)``: no measure here depends on the scale of a layer."""
    if not basis.kept:
        return columns_of(basis)
    return basis.vectors * (basis.singular_values / basis.spectrum[0]).to(basis.vectors.dtype)


def largest(basis: Basis) -> Tensor:
    """Return the largest singular value of the layer; 1 without variance."""
    if not basis.kept:
        return torch.ones((), dtype=torch.float64, device=basis.vectors.device)
    return basis.spectrum[0] * 2.0**basis.exponent


Basis.__module__ = "simcore.basis"  # the public module, which pickles refer to


def _components_to_keep(spectrum: Tensor, truncation: float | int | None) -> int:
    if truncation is None:
        return len(spectrum)
    if isinstance(truncation, Integral):
        return min(int(truncation), len(spectrum))
    if truncation == 1 or not len(spectrum):  # rounding may make the last sums equal
        return len(spectrum)
    shares = (spectrum / spectrum[0]).square().cumsum(0)
    return int((shares < float(truncation) * shares[-1]).sum()) + 1


def check_truncation(truncation: Truncation) -> None:
    """Raise a ValueError for a truncation that fits no number of layers."""
    listed = isinstance(truncation, Sequence) and not isinstance(truncation, str)
    if isinstance(truncation, Tensor | np.ndarray):
        listed = truncation.ndim == 1
    per_layer_truncation(truncation, len(truncation) if listed else 1)  # type: ignore[arg-type]


def per_layer_truncation(truncation: Truncation, count: int) -> list[float | int | None]:
    """Return the checked ``truncation`` as a list of one value for each of ``count`` layers."""
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


def loses_weights(basis: Basis) -> bool:
    """Whether float32 vectors, divided by the singular values of a basis, lose the contract."""
    s = basis.singular_values
    return basis.vectors.dtype != torch.float64 and bool((s < WEIGHTS_ARE_FLOAT32 * s[:1]).any())


def _unclear_cut(spectrum: Tensor, kept: int, cut: float | int, tied: float) -> str | None:
    """Say why other components could be kept as well; ``spectrum`` is on the CPU."""
    last = spectrum[kept - 1]
    equal = ((spectrum - last).abs() <= tied * last).nonzero().flatten()
    first, end = int(equal[0]), int(equal[-1]) + 1
    if end > kept:
        return (
            f"keeps components 1 to {kept}, and the singular values {first + 1} to {end} are equal "
            f"({float(spectrum[first]):.7g} to {float(spectrum[end - 1]):.7g})"
        )
    if isinstance(cut, Integral) or cut == 1:
        return None
    sums = (spectrum / spectrum[0]).square().cumsum(0)
    reached = ((sums[:-1] / sums[-1] - float(cut)).abs() <= TIED64).nonzero().flatten().tolist()
    if not reached:
        return None
    return (
        f"keeps components 1 to {kept}, and the variance of 1 to {reached[0] + 1} is the share "
        f"{float(cut):.7g} up to rounding"
    )


def warn_unclear_cuts(
    function: str, layers: Sequence[tuple[str, Basis, float | int | None]]
) -> None:
    """Warn once of the layers whose truncation, the third value, rounding decides."""
    spectra = on_host([basis.spectrum for _, basis, _ in layers])
    unclear = []
    for (name, basis, cut), spectrum in zip(layers, spectra, strict=True):
        if cut is None or not basis.kept:
            continue
        tied = TIED64 if basis.vectors.dtype == torch.float64 else TIED32
        why = _unclear_cut(spectrum, basis.kept, cut, tied)
        if why is not None:
            unclear.append(f"{name} {why}")
    if unclear:
        warn_caller(
            f"{function}: the truncation is not clear: {'; '.join(unclear)}; which components are "
            "kept follows rounding and the order of rows and columns"
        )
