"""Which layers of two models match, read from the rows of a grid, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simlab.similarity.catalogue import find_measure

if TYPE_CHECKING:
    import pandas as pd

_LARGEST_P = 0.05  # of layers that are closer than by chance
_INTERVAL, _CALIBRATED, _SAME = "95 % interval", "calibrated", "same layer"


@dataclass(frozen=True)
class Matches:
    """The layers of two models by one measure.

    Attributes
    ----------
    x, y, measure
        Labels of the models, and the measure with its estimator.
    x_layers, y_layers
        Numbers of the layers.
    values, low, high, pvalue, calibrated
        ``[x layers, y layers]``; nan where undefined or not computed.
    is_distance
        Whether close layers have small values.
    n
        Number of rows.
    """

    x: str
    y: str
    measure: str
    x_layers: tuple[int, ...]
    y_layers: tuple[int, ...]
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    pvalue: np.ndarray
    calibrated: np.ndarray
    is_distance: bool
    n: int

    @property
    def closest(self) -> dict[int, int]:
        """The closest layer of Y for each layer of X for which the measure is defined."""
        return {
            self.x_layers[i]: self.y_layers[j] for i, j in enumerate(_first(self._near)) if j >= 0
        }

    @property
    def same(self) -> list[int]:
        """The layers of equal numbers that match to two digits: 1.00, or 0.00 of a distance.

        Where there is an interval, its nearer end counts.
        """
        end, most, sign = (self.low, 0.005, 1) if self.is_distance else (self.high, -0.995, -1)
        ends = sign * np.where(np.isfinite(end), end, self.values)
        pairs = zip(self.x_layers, self.y_layers, range(len(ends)), strict=False)
        return [x for x, y, i in pairs if x == y and ends[i, i] <= most]

    @property
    def pairs(self) -> dict[int, int]:
        """Layers of X and of Y, each the other's closest.

        Where there are p-values, they are closer than by chance too (p <= 0.05).
        """
        back = _first(self._near.T)
        return {
            self.x_layers[i]: self.y_layers[j]
            for i, j in enumerate(_first(self._near))
            if j >= 0 and back[j] == i and not self.pvalue[i, j] > _LARGEST_P
        }

    @property
    def _near(self) -> np.ndarray:
        return -self.values if self.is_distance else self.values

    def __str__(self) -> str:
        names = ["layer", "closest", "value"]
        names += [_INTERVAL] if np.isfinite(self.low).any() else []
        names += [_CALIBRATED] if np.isfinite(self.calibrated).any() else []
        names += [_SAME] if self.x_layers == self.y_layers else []
        lines = [names, *(self._line(i, names) for i in range(len(self.x_layers)))]
        widths = [max(len(line[place]) for line in lines) for place in range(len(names))]
        table = ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in lines]
        head = f"{self.x} x {self.y}: {self.measure}, n = {self.n:,} rows"
        return "\n".join([head, *table, *self._sentences()])

    def _line(self, i: int, names: Sequence[str]) -> list[str]:
        layer = self.x_layers[i]
        same = [_number(self.values[i, i])] if _SAME in names else []
        if layer not in self.closest:
            return [str(layer), "-", "undefined", *[""] * (len(names) - 3 - len(same)), *same]
        j = self.y_layers.index(self.closest[layer])
        row = [str(layer), str(self.y_layers[j]), _number(self.values[i, j])]
        row += [self._interval(i, j)] if _INTERVAL in names else []
        row += [_number(self.calibrated[i, j])] if _CALIBRATED in names else []
        return [*row, *same]

    def _interval(self, i: int, j: int) -> str:
        return f"{_number(self.low[i, j])} to {_number(self.high[i, j])}"

    def _sentences(self) -> list[str]:
        lines = []
        if self.x_layers == self.y_layers:
            alike, apart = self.same, [n for n in self.x_layers if n not in self.same]
            lines.append(f"the same layers match to two digits: {_spans(alike)}")
            defined = [n for n in apart if n in self.closest]
            if defined:
                i = min((self.x_layers.index(n) for n in defined), key=lambda i: self._near[i, i])
                span = f" ({self._interval(i, i)})" if np.isfinite(self.low[i, i]) else ""
                most = f"{self.x_layers[i]}: {_number(self.values[i, i])}{span}"
                lines.append(f"the same layers differ: {_spans(defined)}, most in {most}")
        found = self.pairs
        others = [f"{x} and {y}" for x, y in found.items() if x != y]
        own = [x for x, y in found.items() if x == y]
        texts = [_spans(own), *others] if own or not others else others
        lines.append(f"each other's closest: {', '.join(texts)}")
        for name, layers, matched in (
            (self.x, self.x_layers, {*found}),
            (self.y, self.y_layers, {*found.values()}),
        ):
            if lone := [layer for layer in layers if layer not in matched]:
                lines.append(f"nobody's closest in return: {_spans(lone)} of {name}")
        return lines


def find_matches(rows: pd.DataFrame, x: str, y: str) -> Matches:
    """Return the matches of the models with these labels from the rows of one grid of theirs."""
    rows = rows[(rows["label_x"] == x) & (rows["label_y"] == y)]
    first = rows.iloc[0]

    def table(name: str) -> np.ndarray:
        grid = rows.pivot(index="layer_x", columns="layer_y", values=name)
        return grid.sort_index().sort_index(axis=1).to_numpy(float)

    def layers(side: str) -> tuple[int, ...]:
        return tuple(sorted(map(int, rows[f"layer_{side}"].unique())))

    estimator = first["estimator"]
    return Matches(
        x,
        y,
        first["measure"] + (f" ({estimator})" if isinstance(estimator, str) else ""),
        layers("x"),
        layers("y"),
        values=table("value"),
        low=table("low"),
        high=table("high"),
        pvalue=table("pvalue"),
        calibrated=table("calibrated"),
        is_distance=find_measure(first["measure"]).distance,
        n=int(first["n"]),
    )


def _first(near: np.ndarray) -> list[int]:
    """Return the place of the largest value of each row, -1 where all are nan."""
    filled = np.where(np.isnan(near), -np.inf, near)
    return np.where(np.isnan(near).all(1), -1, filled.argmax(1)).tolist()


def _spans(layers: Sequence[int]) -> str:
    """Return numbers as text, runs of them as ``0-3``.

    >>> _spans([0, 1, 2, 4, 6, 7])
    '0-2, 4, 6-7'
    """
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return ", ".join(texts) or "none"


def _number(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.3f}"
