"""The verdict of each layer, and of all layers together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

# From the strictest on. The first two need no permission, the next three are `ALLOWED`.
EQUAL_BITS, WITHIN_NOISE = "equal bits", "equal within noise"
Allow = Literal["scaled", "permuted", "rotated"]
SCALED, PERMUTED, ROTATED = ALLOWED = get_args(Allow)
DIFFERENT, MISSING = "different", "missing"
VERDICTS = (EQUAL_BITS, WITHIN_NOISE, *ALLOWED, DIFFERENT, MISSING)
OUTPUT = "(the output)"  # of the model as a whole, whose name is ""
_WIDE = 1e4  # from here on, ratios are printed with an exponent


@dataclass(frozen=True)
class LayerVerdict:
    """How a layer of B relates to the layer of A.

    Attributes
    ----------
    name, name_b : str, or None
        The layer of A and the layer of B; None where it is missing.
    verdict : str
        ``"equal bits"``, ``"equal within noise"``, ``"scaled"`` (equal within noise after a
        multiplication with `scale`), ``"permuted"`` and ``"rotated"`` (the same after a permutation
        or an orthogonal map of the neurons, and a multiplication with `scale`), ``"different"`` or
        ``"missing"``.
    ratio : float
        How far A and B are apart, elementwise, in units of the noise: root mean square over the
        entries of the row that is furthest. inf for entries that are not finite, and for layers of
        different shapes; nan for a missing layer.
    residual : float
        The same after the map of the verdict; `ratio` where there is no map.
    difference : float
        ``||A - B||_F / ||A||_F``, elementwise.
    noise : float
        The noise of the layer, relative to ``||A||_F``.
    noise_from : str
        The circumstance under which A differed most from itself, or ``"rounding"`` where one
        rounding of the dtype is more.
    scale : float
        The factor that brings B nearest to A under the map of the verdict; 1 where there is no map.
    rows : tuple of int
        The rows that are furthest apart, the furthest first; at most 5, empty for equal layers.
    note : str
        Why layers differ whose entries cannot be compared.
    n : int
        The number of rows; 0 for a missing layer.
    """

    name: str | None
    name_b: str | None
    verdict: str
    ratio: float = 0.0
    residual: float = 0.0
    difference: float = 0.0
    noise: float = 0.0
    noise_from: str = ""
    scale: float = 1.0
    rows: tuple[int, ...] = ()
    note: str = ""
    n: int = 0

    @property
    def label(self) -> str:
        """The name of the layer, of both models where the names differ."""
        names = [OUTPUT if name == "" else name for name in (self.name, self.name_b)]
        return " ~ ".join(dict.fromkeys(name for name in names if name is not None))

    def is_within(self, allow: Allow | None) -> bool:
        """Whether the layers are equal, or as alike as `allow` says."""
        allowed = () if allow is None else ALLOWED[: ALLOWED.index(allow) + 1]
        return self.verdict in (EQUAL_BITS, WITHIN_NOISE, *allowed)

    def __str__(self) -> str:
        if self.verdict == EQUAL_BITS:
            return f"{self.label}: {EQUAL_BITS}"
        if self.note:
            return f"{self.label}: {self.verdict} ({self.note})"
        apart = f"{_ratio(self.ratio)} times the noise of {self.noise:.1e} ({self.noise_from})"
        if self.verdict in ALLOWED:
            factor = f" by {self.scale:.6g}" if self.verdict == SCALED else ""
            times = (
                f", times {self.scale:.6g}" if self.verdict != SCALED and self.scale != 1 else ""
            )
            return (
                f"{self.label}: {self.verdict}{factor}{times}: {_ratio(self.residual)} times the "
                f"noise after that, {_ratio(self.ratio)} before"
            )
        return f"{self.label}: {self.verdict}: {apart}, {self.difference:.1e} of the layer"


@dataclass(frozen=True)
class AlikeResult:
    """The verdicts of all layers, in the order of A.

    Attributes
    ----------
    layers : tuple of LayerVerdict
        One for each pair of layers, and one for each layer that only one model has.
    circumstances : tuple of str
        Under which the noise was measured; empty where it was not.
    limit : float
        The largest ratio that counts as noise.
    message : str
        Layers that only one model has, and a shift of the layers; empty if there is none.
    labels : tuple of str
        Names of the rows; empty if they have none.
    """

    layers: tuple[LayerVerdict, ...]
    circumstances: tuple[str, ...]
    limit: float
    message: str = ""
    labels: tuple[str, ...] = ()

    def first(self, allow: Allow | None = None) -> LayerVerdict | None:
        """Return the first layer that is not equal within noise, nor as `allow` says.

        Parameters
        ----------
        allow : {"scaled", "permuted", "rotated"}, optional
            What layers may be besides equal; each contains those before it.
        """
        check_allow(allow)
        return next((layer for layer in self.layers if not layer.is_within(allow)), None)

    def is_alike(self, allow: Allow | None = None) -> bool:
        """Return whether all layers are equal within noise, or as `allow` says; see `first`."""
        return self.first(allow) is None

    @property
    def verdict(self) -> str:
        """The worst verdict of the layers."""
        return max((layer.verdict for layer in self.layers), key=VERDICTS.index)

    def report(self, allow: Allow | None = None) -> str:
        """Return a line for each layer, with the first that diverges on top; see `first`."""
        first = self.first(allow)
        head = [self.message] if self.message else []
        both = [layer for layer in self.layers if layer.verdict != MISSING]
        if first is None:
            head.append(f"alike: all {len(self.layers)} layers, the worst: {self.verdict}")
        elif both and all(layer.is_within(allow) for layer in both):
            worst = max((layer.verdict for layer in both), key=VERDICTS.index)
            lone = len(self.layers) - len(both)
            head.append(
                f"not alike: {first.label}: {first.note}"
                f"{f', nor {lone - 1} more' if lone > 1 else ''}; all {len(both)} that both have "
                f"are alike, the worst: {worst}"
            )
        else:
            place = self.layers.index(first)
            head.append(f"first that diverges, {place + 1} of {len(self.layers)}: {first}")
            if first.rows:
                head.append("  rows that differ most: " + ", ".join(self._rows(first)))
        noise = ", ".join(self.circumstances) or "not measured: one rounding of the dtype"
        head.append(f"noise: {noise}; up to {self.limit:g} times the noise is equal")
        return "\n".join([*head, *map(str, self.layers)])

    __str__ = report

    def to_dict(self) -> dict[str, Any]:
        """Return the result as dictionaries, lists, texts and numbers for JSON; inf, nan are None.

        Returns
        -------
        dict
            ``alike`` (bool), ``verdict``, ``first`` (place of the first layer that diverges, or
            None), ``message``, ``circumstances``, ``limit``, ``layers`` (a dictionary of the
            attributes of each `LayerVerdict`), and ``labels``.
        """
        first = self.first()
        return {
            "alike": first is None,
            "verdict": self.verdict,
            "first": None if first is None else self.layers.index(first),
            "message": self.message,
            "circumstances": list(self.circumstances),
            "limit": self.limit,
            "layers": [
                {name: _plain(value) for name, value in vars(layer).items()}
                for layer in self.layers
            ],
            "labels": list(self.labels),
        }

    def _rows(self, layer: LayerVerdict) -> list[str]:
        named = len(self.labels) == layer.n
        return [f"{row} ({self.labels[row]})" if named else str(row) for row in layer.rows]


def check_allow(allow: Allow | None) -> None:
    """Raise a ValueError unless `allow` is None or one of `ALLOWED`."""
    if allow is not None and allow not in ALLOWED:
        wanted = ", ".join(map(repr, ALLOWED))
        raise ValueError(f"allow: wanted {wanted} or None, got {allow!r}")


def _ratio(value: float) -> str:
    return f"{value:.1f}" if value < _WIDE else f"{value:.1e}"


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
