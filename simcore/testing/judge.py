"""Two sets of layers and the noise of the first, paired and judged: no models here."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from simcore._grid.inputs import Array, as_layer
from simcore._grid.options import check_number
from simcore.matching import neuron_matches
from simcore.testing.verdicts import (
    DIFFERENT,
    EQUAL_BITS,
    MISSING,
    PERMUTED,
    ROTATED,
    SCALED,
    WITHIN_NOISE,
    AlikeResult,
    LayerVerdict,
)

States = Mapping[str, Array]
LIMIT = 4.0  # two independent errors are sqrt(2) of one, and single rows scatter about the noise
LEAST_SHARE = 0.03  # of the noise of the layer, that every row and every column has
WORST_ROWS = 5
Pairs = list[tuple[str | None, str | None]]
FURTHEST = 3  # places by which layers are looked for


def judge_alike(
    a: States,
    b: States,
    noise: Mapping[str, States] | None = None,
    *,
    limit: float = LIMIT,
    labels: Sequence[str] = (),
) -> AlikeResult:
    """Judge layer by layer whether two models gave the same states.

    Parameters
    ----------
    a, b : dict of str to array ``[n, p]``
        The layers of A and of B by name, in their order, with the same rows. Any mapping, which is
        asked for one layer at a time. Layers pair by name where both have the same names, or those
        of one are among those of the other; otherwise by place. The rows of two layers of one
        mapping may be of different numbers.
    noise : dict of str to such dicts, optional
        For each circumstance that should make no difference (``"batch size 1"``, ``"float64"``,
        ...), the layers of A under it, with the names and the rows of `a`. Without, or where A is
        the same under all of them, the noise is one rounding of the less precise dtype of A and B.
    limit : float
        The largest difference, in units of the noise, that is noise.
    labels : sequence of str
        Names of the rows, for the report; used where a layer has as many rows.

    Returns
    -------
    AlikeResult

    Raises
    ------
    TypeError, ValueError
        No layers, or layers that are no arrays ``[n, p]`` of floating point; other numbers of rows
        in A and B in every pair; a layer of A, or of A under a circumstance, that has NaN or
        infinite entries; a circumstance without a layer of A, or with another shape; `limit` is
        not positive.

    Notes
    -----
    The noise of an entry is ``c_j r_i / s``, or its own if that is more: c, r and s are the root
    mean squares of the noise over the column, the row and the layer, so that columns and rows of
    huge entries hide no others. The circumstance with the largest noise of an entry counts. A row
    is as far as the root mean square of its differences in these units, and a layer as far as
    its furthest row. Layers that are further than `limit` are compared after a multiplication, the
    best permutation of neurons (`simcore.matching_grid`) and the best orthogonal map (Procrustes),
    none of them centred. The rows of layers under an orthogonal map are measured as a whole.

    Examples
    --------
    >>> import torch
    >>> from simcore.testing import judge_alike
    >>> a = {"0": torch.randn(50, 8), "1": torch.randn(50, 8)}
    >>> b = {**a, "1": a["1"].flip(1)}
    >>> [layer.verdict for layer in judge_alike(a, b).layers]
    ['equal bits', 'permuted']
    """
    check_number(limit, "limit", "a positive number", lambda value: value > 0)
    noise = noise or {}
    for side, states in (("a", a), ("b", b), *((f"noise[{n!r}]", s) for n, s in noise.items())):
        if not isinstance(states, Mapping) or not states:
            got = "none" if isinstance(states, Mapping) else type(states).__name__
            raise TypeError(f"{side}: wanted a dictionary of layers, got {got}")

    @functools.cache
    def apart(name: str, name_b: str) -> float:
        """Return how far two layers are apart, for the search for a shift."""
        x, y = _read(a, "a", name), _read(b, "b", name_b)
        if x.shape != y.shape or not y.isfinite().all():
            return math.inf
        return _Noise(x, y, *_circumstances(a, noise, name)).apart(x, y)

    # Layers of one place or name, or of a shift that noise explains.
    pairs, message = pair_layers(list(a), list(b), lambda *names: apart(*names) <= limit)
    known = [(x, y) for x, y in pairs if x is not None and y is not None]
    rows = [(len(a[x]), len(b[y])) for x, y in known]
    if rows and all(n != m for n, m in rows):
        (x, y), (n, m) = known[0], rows[0]
        raise ValueError(f"b[{y!r}]: wanted n = {n} rows as in a[{x!r}], got {m}")
    layers = []
    for name, name_b in pairs:
        if name is None or name_b is None:
            missing_in = "B" if name_b is None else "A"
            note = f"{missing_in} has no such layer"
            layers.append(LayerVerdict(name, name_b, MISSING, math.nan, math.nan, note=note))
        else:
            layers.append(_judge(a, b, noise, (name, name_b), limit))
    return AlikeResult(tuple(layers), tuple(noise), limit, message, tuple(labels))


def _judge(
    a: States, b: States, noise: Mapping[str, States], names: tuple[str, str], limit: float
) -> LayerVerdict:
    x, y = _read(a, "a", names[0]), _read(b, "b", names[1])
    far = math.inf, math.inf, math.inf
    # What needs no noise: shapes, equal bits, and values that are not finite.
    if len(x) != len(y):
        note = f"{len(x)} rows in A, {len(y)} in B: name layers that belong together"
        return LayerVerdict(*names, DIFFERENT, *far, note=note, n=len(x))
    if x.shape != y.shape:
        note = f"{x.shape[1]} columns in A, {y.shape[1]} in B"
        return LayerVerdict(*names, DIFFERENT, *far, note=note, n=len(x))
    if x.dtype == y.dtype and torch.equal(x, y):
        return LayerVerdict(*names, EQUAL_BITS, n=len(x))
    broken = ~y.isfinite().all(1)
    if broken.any():
        rows = tuple(broken.nonzero()[:WORST_ROWS, 0].tolist())
        note = f"NaN or infinite entries in {int(broken.sum())} of {len(y)} rows of B"
        return LayerVerdict(*names, DIFFERENT, *far, rows=rows, note=note, n=len(x))
    # Distances in units of the noise; beyond the limit, a map may explain them.
    unit = _Noise(x, y, *_circumstances(a, noise, names[0]))
    x, y = x.double(), y.double()
    distances = unit.rows(x, y)
    ratio = float(distances.max())
    verdict, residual, scale = WITHIN_NOISE, ratio, 1.0
    if ratio > limit:
        verdict, residual, scale = _mapped(x, y, unit, ratio, limit)
    length = float(x.norm())
    return LayerVerdict(
        *names,
        verdict,
        ratio,
        residual,
        float((x - y).norm()) / length if length else math.inf,
        unit.size / length if length else 0.0,
        unit.source,
        scale,
        tuple(distances.argsort(descending=True)[:WORST_ROWS].tolist()),
        n=len(x),
    )


def _read(states: States, side: str, name: str) -> Tensor:
    where = f"{side}[{name!r}]"
    layer = as_layer(states[name], where).detach()
    if not len(layer):
        raise ValueError(f"{where}: wanted at least 1 row, got none")
    return layer.cpu()


def _circumstances(
    a: States, noise: Mapping[str, States], name: str
) -> tuple[list[str], list[Tensor]]:
    """Return the names of the circumstances, and the layer of A under each."""
    wanted = _read(a, "a", name)
    _check_finite(wanted, f"a[{name!r}]")
    layers = []
    for circumstance, states in noise.items():
        side = f"noise[{circumstance!r}]"
        if name not in states:
            raise ValueError(f"{side}: wanted the layer {name!r} of a, got {list(states)}")
        layer = _read(states, side, name)
        if layer.shape != wanted.shape:
            raise ValueError(
                f"{side}[{name!r}]: wanted shape {tuple(wanted.shape)} as in a, got "
                f"{tuple(layer.shape)}"
            )
        _check_finite(layer, f"{side}[{name!r}]")
        layers.append(layer)
    return list(noise), layers


def _check_finite(layer: Tensor, where: str) -> None:
    broken = layer.numel() - int(layer.isfinite().sum())
    if broken:
        raise ValueError(
            f"{where}: wanted finite values, got {broken} NaN or infinite of {layer.numel()}"
        )


class _Noise:
    """How much the entries of a layer ``x [n, p]`` of A differ without a reason."""

    def __init__(self, x: Tensor, y: Tensor, names: list[str], others: list[Tensor]) -> None:
        wide = x.double()
        unit = max(torch.finfo(dtype).eps for dtype in (x.dtype, y.dtype)) / 2
        runs = {name: other.double() - wide for name, other in zip(names, others, strict=True)}
        runs["rounding"] = wide * unit
        sizes = {name: float(run.norm()) for name, run in runs.items()}
        self.source = max(sizes, key=lambda name: sizes[name])
        self.size = sizes[self.source]
        self.entries = torch.stack([_entrywise(run) for run in runs.values()]).amax(0)  # [n, p]

    def rows(self, x: Tensor, y: Tensor) -> Tensor:
        """Return how far the rows are apart, ``[n]``, entry by entry."""
        return _quotient(x.double() - y.double(), self.entries).square().mean(1).sqrt()

    def apart(self, x: Tensor, y: Tensor) -> float:
        """Return how far the row that is furthest is."""
        return float(self.rows(x, y).max())

    def apart_as_wholes(self, differences: Tensor) -> float:
        """Return the same from the lengths of the differences ``[n]``, for any basis."""
        lengths = self.entries.square().sum(1).sqrt()
        return float(_quotient(differences, lengths).max())


def _entrywise(run: Tensor) -> Tensor:
    """Return how large the noise of each entry is: as in its row and its column, or as it was."""
    squares = run.square()
    whole = squares.mean()
    if not whole:
        return run  # zeros
    columns = squares.mean(0).clamp(min=LEAST_SHARE**2 * whole)  # [p]
    rows = squares.mean(1, keepdim=True).clamp(min=LEAST_SHARE**2 * whole)  # [n, 1]
    return torch.maximum((columns * rows / whole).sqrt(), run.abs())


def _quotient(differences: Tensor, units: Tensor) -> Tensor:
    """Return ``differences / units``, and 0 where the difference is 0."""
    return torch.where(differences == 0, 0.0, differences.abs() / units)


def _mapped(
    x: Tensor, y: Tensor, unit: _Noise, ratio: float, limit: float
) -> tuple[str, float, float]:
    """Return the verdict of unequal layers, what is left after its map, and its factor."""
    # The lengths of the rows decide first: none of the maps changes more than all of them at once.
    scale = _factor(x, y)
    left = unit.apart(x, scale * y)
    if left <= limit:
        return SCALED, left, scale
    if len(x) == 1:  # any two rows are a rotation and a factor apart
        return DIFFERENT, ratio, 1.0
    lengths = x.norm(dim=1), y.norm(dim=1)
    longer = _factor(*lengths)
    if unit.apart_as_wholes(lengths[0] - longer * lengths[1]) > limit:
        return DIFFERENT, ratio, 1.0
    order = _order(x, y)
    left, scale = _after(unit, x, y[:, order], limit)
    if left <= limit:
        return PERMUTED, left, scale
    left, scale = _rotated(unit, x, y, limit)
    return (ROTATED, left, scale) if left <= limit else (DIFFERENT, ratio, 1.0)


def _factor(x: Tensor, y: Tensor) -> float:
    """Return the positive factor of y that brings it nearest to x; 1 if there is none."""
    product, square = float((x * y).sum()), float(y.square().sum())
    return product / square if product > 0 and square > 0 else 1.0


def _after(unit: _Noise, x: Tensor, y: Tensor, limit: float) -> tuple[float, float]:
    """Return how far layers are apart, and the factor: 1 if they are equal without one."""
    plain = unit.apart(x, y)
    if plain <= limit:
        return plain, 1.0
    scale = _factor(x, y)
    return unit.apart(x, scale * y), scale


def _order(x: Tensor, y: Tensor) -> Tensor:
    """Return the order of y's neurons that brings them nearest to the neurons of x."""
    scaled = y * (float(x.norm()) / max(float(y.norm()), 1e-300))
    order = neuron_matches([x], [scaled], score="distance").matches[0][0]
    assert isinstance(order, Tensor)
    return order


def _rotated(unit: _Noise, x: Tensor, y: Tensor, limit: float) -> tuple[float, float]:
    """Return how far layers are apart after the best orthogonal map, and the factor."""
    if x.shape[0] < x.shape[1]:  # the rows of each span no more dimensions than there are rows
        x, y = (torch.linalg.qr(layer.T, mode="r")[1].T for layer in (x, y))  # [n, n]
    u, s, vt = torch.linalg.svd(y.T @ x)
    y = y @ (u @ vt)
    plain = unit.apart_as_wholes((x - y).norm(dim=1))
    if plain <= limit:
        return plain, 1.0
    scale = float(s.sum() / y.square().sum())
    return unit.apart_as_wholes((x - scale * y).norm(dim=1)), scale


def pair_layers(
    a: Sequence[str], b: Sequence[str], equal: Callable[[str, str], bool]
) -> tuple[Pairs, str]:
    """Return the pairs of layers in the order of A, and what is odd about them.

    Layers pair by name if all names of one side are among those of the other, otherwise by place.
    A shift is taken if it makes more layers equal: at least two and half of those that can be, or
    the first ones and no other, which is how a fault in one layer looks from there on.
    """
    by_name = set(a) <= set(b) or set(b) <= set(a)
    pairs: Pairs = [(name, name if name in b else None) for name in a]
    pairs += [(None, name) for name in b if name not in a]
    if not by_name:
        pairs = _by_place(a, b, 0)
    message = ""
    if len(a) != len(b):
        message = f"A has {len(a)} layers, B has {len(b)}"
    if len(a) == len(b) and all(x and y and equal(x, y) for x, y in pairs[:1]):
        return pairs, message
    shift, shifted = _best_shift(a, b, pairs, equal)
    if shift:
        pairs = shifted
        x, y = next((x, y) for x, y in pairs if x is not None and y is not None)
        places = f"{abs(shift)} place{'s' * (abs(shift) > 1)} {'later' if shift > 0 else 'earlier'}"
        told = f"the layers of A are those of B {places}: {x!r} of A is {y!r} of B"
        message = f"{message}; {told}" if message else f"shifted: {told}"
    return pairs, message


def _best_shift(
    a: Sequence[str], b: Sequence[str], pairs: Pairs, equal: Callable[[str, str], bool]
) -> tuple[int, Pairs]:
    """Return the places by which the layers of B are later than those of A, and the pairs."""
    best, most = (0, pairs), _equals(pairs, equal)
    for size in range(1, FURTHEST + 1):
        for shift in (size, -size):
            shifted = _by_place(a, b, shift)
            met = sum(x is not None and y is not None for x, y in shifted)
            count = _equals(shifted, equal)
            both = [pair for pair in shifted if None not in pair]
            of_the_first = _equals(both[:count], equal) == count
            if count > most and (count >= max(2, met / 2) or of_the_first):
                best, most = (shift, shifted), count
    return best


def _equals(pairs: Pairs, equal: Callable[[str, str], bool]) -> int:
    return sum(x is not None and y is not None and equal(x, y) for x, y in pairs)


def _by_place(a: Sequence[str], b: Sequence[str], shift: int) -> Pairs:
    """Pair layer i of A with layer i + shift of B; layers without a partner stand alone."""
    pairs: Pairs = []
    for i in range(min(0, -shift), max(len(a), len(b) - shift)):
        x = a[i] if 0 <= i < len(a) else None
        y = b[i + shift] if 0 <= i + shift < len(b) else None
        if x is not None or y is not None:
            pairs.append((x, y))
    return pairs
