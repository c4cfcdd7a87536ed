"""The leading eigenvectors of a covariance by block Lanczos, with a proof of what they are.

Math      Q grows by blocks of columns: the products of C with the last block, orthogonal to all
          columns before. The leading Ritz pairs of ``Q' C Q`` come near eigenpairs of C first.
Plan      matrix products throughout, and a small eigenproblem each time that Q has grown by a
          half. Two products keep a block orthogonal to Q.
Proof     V, theta the k leading Ritz pairs, ``R = C V - V diag(theta)``. If ``c I - (C - V
          diag(theta) V')`` has a Cholesky factor, then all but k eigenvalues of C lie below c
          (Weyl), and for ``theta_k > c`` the angle between the spaces of V and of the k leading
          eigenvectors has ``sin <= ||R||_F / (theta_k - c)`` (Davis & Kahan 1970). It does not
          matter how V was found: a start that misses an eigenvector has no proof. The sums of
          eigenvalues that decide a share follow from ``|lambda_i - theta_i| <= ||R||``. Where the
          share needs all eigenvalues, these take the place of the factor.
Bound     ``sin <= MOST_SINE``, or where float64 cannot tell so much, ``||R||_F <= sqrt(k)
          ROUNDING lambda_1``, which is the rounding error of a full decomposition too.
Numerics  float64; the same start each time. Without a proof there is no result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor

BLOCK = 16  # columns
MOST_KEPT = 1 / 12  # of all components: above it a full decomposition is as fast
MOST_COLUMNS = 1 / 3
MOST_SINE = 1e-7
ROUNDING = 16 * torch.finfo(torch.float64).eps
SUMMATION = 1e-12  # relative error of a sum of eigenvalues
AT_THE_EDGE = 1e-4  # relative: nearer eigenvalues to the least that counts may count or not
CONVERGED = 1e-3  # residual over value, for a bound on the work that is ahead


@dataclass(frozen=True)
class Wanted:
    """The components to keep: a count, or a share of the sum of all eigenvalues that count."""

    cut: float | int
    least: float

    @property
    def share(self) -> float | None:
        return None if isinstance(self.cut, Integral) else float(self.cut)

    def count(self, values: Tensor, total: float) -> int:
        """Return the number of values to keep, more than there are if these are too few."""
        if self.share is None:
            return int(self.cut)
        return int((values.cumsum(0) < self.share * total).sum()) + 1

    def at_least(self, values: Tensor, total: float, squares: float) -> float:
        """Return a lower bound of the count, of which the first values are known."""
        # The k - i values that follow the first i sum to S, and their squares to Q at most: ``(k -
        # i) Q >= S^2`` by Cauchy and Schwarz.
        if self.share is None:
            return float(self.cut)
        missing = self.share * total - float(values.sum())
        if missing <= 0:
            return 0.0
        left = max(squares - float(values.square().sum()), SUMMATION * squares)
        return len(values) + missing**2 / left


@dataclass(frozen=True)
class _Ritz:
    """Ritz values, their residuals, both on the host, and their coordinates in columns."""

    values: Tensor  # [j], descending
    residuals: Tensor  # [j]
    coordinates: Tensor  # [j, j]

    def next_below(self, k: int) -> float:
        """Return the bound of the eigenvalue after the first k: Ritz value plus residual."""
        return float(self.values[k] + self.residuals[k])

    def gap(self, k: int) -> float:
        """Return the distance of the k-th value from the middle between it and the next."""
        return (float(self.values[k - 1]) - self.next_below(k)) / 2

    def error(self, k: int) -> float:
        return float(torch.linalg.vector_norm(self.residuals[:k]))


class _Space:
    """Orthonormal columns, which are the rows of ``vectors``, and ``Q' C Q``."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix, self.columns = matrix, 0
        self.most = int(len(matrix) * MOST_COLUMNS) // BLOCK * BLOCK
        self.generator = torch.Generator().manual_seed(0)
        self.vectors = matrix.new_empty(self.most + BLOCK, len(matrix))  # [most + BLOCK, m]
        self.projected = matrix.new_zeros(self.most, self.most)  # [most, most]
        self.vectors[:BLOCK] = torch.linalg.qr(self._random().mT)[0].mT

    def _random(self) -> Tensor:
        shape = (BLOCK, len(self.matrix))
        rows = torch.randn(shape, generator=self.generator, dtype=self.matrix.dtype)
        return (rows / shape[1] ** 0.5).to(self.matrix.device)

    def grow(self) -> None:
        old, self.columns = self.columns, self.columns + BLOCK
        basis = self.vectors[: self.columns]  # [columns, m]
        product = basis[old:] @ self.matrix  # [BLOCK, m]
        shares = self._project(product, basis)
        shares += self._project(product, basis)
        self.projected[old : self.columns, : self.columns] = shares
        self.projected[: self.columns, old : self.columns] = shares.mT
        # Rounding's worth of other directions, for a product within the columns that are there.
        size = torch.finfo(product.dtype).eps * self.projected[0, 0].abs()
        turned, self.beyond = torch.linalg.qr((product + size * self._random()).mT)
        block = turned.mT.contiguous()
        self._project(block, basis)
        self.vectors[self.columns : self.columns + BLOCK] = torch.linalg.qr(block.mT)[0].mT

    @staticmethod
    def _project(rows: Tensor, basis: Tensor) -> Tensor:
        """Take the share of the basis from the rows, in place, and return its coordinates."""
        shares = rows @ basis.mT  # [rows, columns]
        rows.addmm_(shares, basis, alpha=-1)
        return shares

    def ritz(self) -> _Ritz:
        values, coordinates = torch.linalg.eigh(self.projected[: self.columns, : self.columns])
        coordinates = coordinates.flip(1)  # [j, j], as the values descend
        residuals = torch.linalg.vector_norm(self.beyond @ coordinates[-BLOCK:], dim=0)  # [j]
        return _Ritz(values.flip(0).cpu(), residuals.cpu(), coordinates)


def leading_eigenvectors(matrix: Tensor, wanted: Wanted) -> tuple[Tensor, Tensor] | None:
    """Return the leading eigenvalues and eigenvectors of a covariance, or None."""
    # ``matrix`` ``[m, m]`` is float64, symmetric and positive semidefinite; the eigenvalues ``[k]``
    # descend, and the eigenvectors are ``[m, k]``. The result is None where k would exceed
    # ``MOST_KEPT m``, or where ``MOST_COLUMNS m`` columns do not prove k and the space of the
    # eigenvectors to the bound that the module states.
    total = float(matrix.trace())
    squares = float(torch.linalg.vector_norm(matrix)) ** 2
    most_kept = len(matrix) * MOST_KEPT
    if not 0 < squares < float("inf") or not 0 < total < float("inf"):
        return None
    if wanted.at_least(torch.zeros(0), total, squares) > most_kept:
        return None
    space = _Space(matrix)
    check = 2 * BLOCK + (0 if wanted.share else int(wanted.cut))
    while space.columns < space.most:
        space.grow()
        if space.columns < min(check, space.most):
            continue
        check = space.columns + max(BLOCK, space.columns // 2)
        ritz = space.ritz()
        most = wanted.count(ritz.values, total)
        known = ritz.values[: _known(ritz)]
        if wanted.at_least(known, total, squares) > most_kept:
            return None
        if most >= space.columns or not _is_near(ritz, most):
            continue
        allowed = _most_error(float(ritz.values[0]), ritz.gap(most), most)
        k, spectrum = _kept(matrix, wanted, ritz, most, total, allowed)
        if k is None or not _is_near(ritz, k):
            return None
        vectors = space.vectors[: space.columns].mT @ ritz.coordinates[:, :k]  # [m, k]
        error = _proven_error(matrix, ritz, vectors, spectrum)
        if error is not None and error <= allowed:
            return ritz.values[:k].to(matrix.device), vectors
    return None


def _known(ritz: _Ritz) -> int:
    """Return the number of leading values that are near eigenvalues."""
    far = ritz.residuals > CONVERGED * ritz.values
    return int((far.cumsum(0) == 0).sum())


def _most_error(largest: float, gap: float, k: int) -> float:
    """Return the residual that the bound allows for the k leading pairs."""
    return max(MOST_SINE * gap, ROUNDING * largest * k**0.5)


def _is_near(ritz: _Ritz, k: int) -> bool:
    """Whether the k leading pairs look as if they could be proved."""
    largest, gap = float(ritz.values[0]), ritz.gap(k)
    return gap > ROUNDING * largest * k**0.5 and ritz.error(k) < _most_error(largest, gap, k) / 2


def _proven_error(
    matrix: Tensor, ritz: _Ritz, vectors: Tensor, spectrum: Tensor | None
) -> float | None:
    """Return ``||R||_F`` of Ritz pairs that span the leading eigenvectors to the bound."""
    k = vectors.shape[1]
    values = ritz.values[:k].to(matrix.device)  # [k]
    ceiling = (float(values[-1]) + ritz.next_below(k)) / 2
    scaled = vectors * values  # [m, k]
    error = float(torch.linalg.vector_norm(matrix @ vectors - scaled))
    if error > _most_error(float(values[0]), float(values[-1]) - ceiling, k):
        return None
    if spectrum is not None:
        return error if spectrum[-k - 1] < ceiling else None
    rest = torch.addmm(matrix, scaled, vectors.mT, beta=-1)  # [m, m]
    rest.diagonal().add_(ceiling)
    return None if int(torch.linalg.cholesky_ex(rest)[1]) else error


def _kept(
    matrix: Tensor, wanted: Wanted, ritz: _Ritz, most: int, total: float, error: float
) -> tuple[int | None, Tensor | None]:
    """Return how many components to keep, at most `most`, and the spectrum if it was needed."""
    # The number is None where it is not certain. `error` bounds ``||R||_F`` of the leading pairs.
    values = ritz.values[:most]
    least = wanted.least * float(values[0])

    def that_count(k: int) -> int | None:
        certain = k <= most and float(values[k - 1]) - error > least * (1 + AT_THE_EDGE)
        return k if certain else None

    if wanted.share is None:
        return that_count(most), None
    rounding = (SUMMATION * total + most**0.5 * error) / wanted.share
    for low, high, spectrum in _uncounted(matrix, ritz.values, least, total):
        few = wanted.count(values, total - high - rounding)
        if few == wanted.count(values, total - low + rounding):
            return that_count(few), spectrum
    return None, None


def _uncounted(
    matrix: Tensor, values: Tensor, least: float, total: float
) -> Iterator[tuple[float, float, Tensor | None]]:
    """Yield bounds of the sum of the eigenvalues that do not count, the sharp and dear last."""
    # `values` are Ritz values, which are at most the eigenvalues in their places. The last bounds
    # come with the spectrum that they are of.
    top, bottom = least * (1 + AT_THE_EDGE), least * (1 - AT_THE_EDGE)
    counted = values[values > top]
    most = total - float(counted.sum())
    yield 0.0, min(most, top * (len(matrix) - len(counted))), None
    yield 0.0, min(most, top * _below(matrix, top)), None
    spectrum = torch.linalg.eigvalsh(matrix).clamp(min=0)  # [m], ascending
    low, high = (float(spectrum[spectrum < edge].sum()) for edge in (bottom, top))
    yield low, high, spectrum


def _below(matrix: Tensor, value: float) -> int:
    """Return the number of eigenvalues below a value: the inertia of an LDL' factorisation."""
    shifted = matrix.clone()
    shifted.diagonal().sub_(value)
    factors, pivots = torch.linalg.ldl_factor(shifted)
    # A negative pivot belongs to a 2 x 2 block, which has one eigenvalue of each sign.
    paired = pivots < 0
    return int((~paired & (factors.diagonal() < 0)).sum()) + int(paired.sum()) // 2
