"""A layer as the right values need it: numbers, spectrum, rank, distances, neighbours."""

from __future__ import annotations

from functools import cached_property
from math import inf

import numpy as np
from scipy.spatial.distance import pdist, squareform

Long = np.longdouble
UNIT = 2.0**-24  # of float32
INPUT = {"bfloat16": 2.0**-9, "float16": 2.0**-12}


class Layer:
    """A layer ``[n, p]`` of numbers that were rounded to a dtype, and what depends on it alone.

    ``floor``: whether singular values that a float64 covariance does not resolve count as 0.
    """

    def __init__(self, x, dtype="float64", floor=True, centred=None, scale=1.0):
        self.x = np.asarray(x, np.float64)
        self.n, self.p = self.x.shape
        self.dtype, self.floor = dtype, floor
        if dtype == "float64" and np.array_equal(np.float32(self.x), self.x):
            self.dtype = "float32"
        self.mean = self.x.astype(Long).mean(0)
        self.centred = np.float64(self.x - self.mean) if centred is None else centred
        self.entries = self.x * scale
        self.lengths = np.linalg.norm(self.entries, axis=0)
        self._memory = {}

    def once(self, key, make):
        """Return what a key stands for, made at the first call alone."""
        if key not in self._memory:
            self._memory[key] = make()
        return self._memory[key]

    @cached_property
    def loose(self):
        """The layer without a floor."""
        return Layer(self.x, self.dtype, floor=False)

    @cached_property
    def svd(self):
        return np.linalg.svd(self.centred, full_matrices=False)

    def thresholds(self, s, u, vt):
        """Return what a singular value has to exceed, for each component."""
        if self.dtype == "float64":
            return np.full_like(s, max(self.n, self.p) * 2.0**-52 * s[0])
        unit = 16 * UNIT + 2 * INPUT.get(self.dtype, 0.0)
        tau = unit * np.sqrt(np.square(vt * self.lengths).sum(1))
        noise = np.square(u.T) @ np.square(self.entries) * np.square(vt)
        tau = np.minimum(tau, unit * np.sqrt(self.n * noise.sum(1)))
        least = 2 * s[0] * np.sqrt(min(self.n, self.p) * 2.0**-52) if self.floor else 0.0
        return np.maximum(tau, least)

    @cached_property
    def kept(self):
        u, s, vt = self.svd
        return s > self.thresholds(s, u, vt)

    @cached_property
    def ratios(self):
        """The singular values in units of their thresholds."""
        u, s, vt = self.svd
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.nan_to_num(s / self.thresholds(s, u, vt))

    @cached_property
    def nearest(self):
        """The least factor between a singular value and its threshold."""
        some = self.ratios[self.ratios > 0]
        return np.maximum(some, 1 / some).min(initial=inf)

    @cached_property
    def margin(self):
        """How many times the kept values lie above the dropped ones, in units of thresholds."""
        ratio = self.ratios
        dropped = ratio[~self.kept].max(initial=0.0)
        return ratio[self.kept].min(initial=inf) / dropped if dropped else inf

    @cached_property
    def condition(self):
        """The largest singular value over the least that is kept."""
        s = self.svd[1][self.kept]
        return s[0] / s[-1] if len(s) else 1.0

    def basis(self, truncation=None):
        """Left singular vectors of the kept components, or of the leading ones of these."""
        u, s, _ = self.svd
        u, s = u[:, self.kept], s[self.kept]
        return u[:, : leading(s, truncation)]

    def gap(self, truncation):
        """The relative gap of the kept singular values at the cut, infinite where none is cut."""
        s = self.svd[1][self.kept]
        cut = leading(s, truncation)
        return 1 - s[cut] / s[cut - 1] if 0 < cut < len(s) else inf

    @cached_property
    def standard(self):
        deviation = self.centred.std(0)
        scale = np.divide(1.0, deviation, out=np.zeros(self.p), where=np.ptp(self.x, axis=0) > 0)
        return Layer(self.x, self.dtype, self.floor, self.centred * scale, scale)

    @cached_property
    def varying(self):
        columns = self.centred[:, np.ptp(self.x, axis=0) > 0]
        columns = columns / np.abs(columns).max(0)
        return columns / np.linalg.norm(columns, axis=0)

    @cached_property
    def space(self):
        """An orthonormal basis of the columns, not centred."""
        u, s, vt = np.linalg.svd(self.x, full_matrices=False)
        return u[:, s > self.thresholds(s, u, vt)]

    @cached_property
    def about_medians(self):
        """The layer about its medians, which no far row moves; unbiased HSIC ignores the centre."""
        wide = self.n**2 * self.p > 1e8  # products in long double take seconds
        return self.x.astype(np.float64 if wide else Long) - np.median(self.x, axis=0)

    @cached_property
    def gram(self):
        return product(self.about_medians)

    @cached_property
    def inner(self):
        """Inner products of all rows, in units of the largest entry."""
        rows = (self.x / np.abs(self.x).max()).astype(Long)
        return rows @ rows.T

    @cached_property
    def distances(self):
        """Euclidean distances of all rows, from their differences."""
        scale = 2.0 ** np.frexp(np.abs(self.x).max())[1]
        return squareform(pdist(self.x / scale)) * scale

    def rbf(self, bandwidth):
        """The RBF kernel less 1, which keeps its digits where it is nearly constant."""

        def kernel():
            width = bandwidth**2 * np.median(np.square(self.distances))
            if not width:
                return np.full_like(self.distances, np.nan)
            return np.expm1(-np.square(self.distances.astype(Long)) / (2 * Long(width)))

        return self.once(("rbf", bandwidth), kernel)

    @cached_property
    def unit_rows(self):
        rows = self.x / np.maximum(np.abs(self.x).max(1, keepdims=True), 5e-324)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)

    @cached_property
    def cosine_distances(self):
        """1 - cosine of all rows, from their differences; rows of zeros are at 1 from others."""
        d = squareform(pdist(self.unit_rows, "sqeuclidean")) / 2
        zero = ~self.x.any(1)
        d[zero] = d[:, zero] = 1.0
        np.fill_diagonal(d, 0.0)
        return d

    def order_keys(self, metric):
        """What neighbours are sorted by, ``[n, n]``; digits that are rounding are cut."""
        if metric == "inner":
            rows = self.x / 2.0 ** np.frexp(np.abs(self.x).max())[1]
            return self.once(metric, lambda: -np.einsum("ip,jp->ij", rows, rows))
        if metric == "euclidean":
            return self.distances
        # Roots have one rounding, whatever their size.
        return self.once(metric, lambda: np.round(np.sqrt(self.cosine_distances), 13))

    def neighbours(self, k, metric="cosine", itself=False):
        """The k nearest other rows of each row; the lower index first where distances are equal."""

        def order():
            d = self.order_keys(metric).copy()
            if not itself:
                np.fill_diagonal(d, inf)
            return np.argsort(d, axis=1, kind="stable")

        return self.once((metric, itself), order)[:, :k]

    def ties(self, k, metric="cosine"):
        """How many rows have their k-th and their next neighbour at one distance."""
        d = self.order_keys(metric).copy()
        np.fill_diagonal(d, inf)
        d.sort(1)
        return int((d[:, k] == d[:, k - 1]).sum()) if k < self.n - 1 else 0


def product(rows):
    """Return ``rows rows'`` with a diagonal of zeros."""
    gram = rows @ rows.T
    np.fill_diagonal(gram, 0)
    return gram


def leading(s, truncation):
    if truncation is None or isinstance(truncation, int):
        return min(truncation or len(s), len(s))
    shares = np.cumsum(s**2) / np.sum(s**2) if len(s) else s
    return min(int(np.sum(shares < truncation)) + 1, len(s))
