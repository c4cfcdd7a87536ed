"""`Comparison`: a grid with the names of its layers, printed, drawn, indexed and stored."""

from __future__ import annotations

import html
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from simcore._grid.options import did_you_mean
from simcore._optional import import_optional

LABEL = 16  # letters of a printed name, such as encoder.layer.11; longer ones lose their beginning
STATISTICS = ("low", "high", "pvalue", "calibrated")
STORED = (*STATISTICS, "draws")
DARKEST = (31, 78, 121)  # the colour of like layers in HTML; white is unlike
HALFWAY = 0.55  # from here on, text on the colour is white


class LayerMatch(dict[str, str]):
    """The layer of the columns that each layer of the rows has, as `Comparison.match` finds it.

    Attributes
    ----------
    stability : dict of str to float, or None
        For each layer of the rows, in how many resamples of the examples it has the same layer, as
        a share of them; with ``bootstrap=``. Resamples in which a pair has no value do not count.
    """

    stability: dict[str, float] | None = None


@dataclass(frozen=True, eq=False)
class Comparison:
    """A grid of a measure with the names of its layers.

    Attributes
    ----------
    values : Tensor ``[len(rows), len(columns)]``
        float64, without gradients: those are of the grids, such as `simcore.cka_grid`.
    rows, columns : tuple of str
        Names of the layers of the first and of the second model.
    measure : str
        The name of the measure, with its estimator where it has several: ``"cka (biased)"``.
    n : int
        Number of rows of each layer.
    low, high : Tensor ``[len(rows), len(columns)]``, or None
        Ends of the 95 % intervals over examples, with ``bootstrap=``, see
        `simcore.stats.bootstrap_ci`.
    draws : Tensor ``[resamples, len(rows), len(columns)]``, or None
        The values of the resamples, with ``bootstrap=``.
    pvalue, calibrated : Tensor ``[len(rows), len(columns)]``, or None
        With ``permutations=``, see `simcore.stats.PermutationTest`.
    is_distance : bool
        Whether 0 is a layer with itself, and large values mean unlike layers.

    Examples
    --------
    >>> import numpy as np
    >>> from simcore import compare_layers
    >>> layers = dict(zip("abc", np.random.default_rng(0).standard_normal((3, 50, 8))))
    >>> result = compare_layers(layers)
    >>> result["a", "b"] == result[0, 1] == np.asarray(result)[0, 1]
    True
    """

    values: Tensor
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    measure: str
    n: int
    low: Tensor | None = None
    high: Tensor | None = None
    pvalue: Tensor | None = None
    calibrated: Tensor | None = None
    is_distance: bool = False
    draws: Tensor | None = None

    def __getitem__(self, pair: tuple[str | int, str | int]) -> float:
        """Return the value of two layers, each by its name or its place."""
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"wanted two layers, such as result['0', '1'], got {pair!r}")
        row, column = _place(pair[0], self.rows, "rows"), _place(pair[1], self.columns, "columns")
        return float(self.values[row, column])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the values as numpy makes an array of them."""
        return np.array(self.values.numpy(), dtype=dtype, copy=copy)

    def __str__(self) -> str:
        rows, columns = _short(self.rows), _short(self.columns)
        cells = self._cells()
        first = max(map(len, rows))
        width = max(6, *map(len, columns), *(len(cell) for line in cells for cell in line))
        intervals = "" if self.low is None else ", 95 % intervals in brackets"
        lines = [f"{self._title()}, n = {self.n}{intervals}"]
        lines.append(" ".join([" " * first, *(f"{label:>{width}}" for label in columns)]))
        for name, line in zip(rows, cells, strict=True):
            lines.append(" ".join([f"{name:{first}}", *(f"{cell:>{width}}" for cell in line)]))
        return "\n".join(lines)

    def _title(self) -> str:
        return f"{self.measure} (distance: 0 is alike)" if self.is_distance else self.measure

    def _repr_html_(self) -> str:
        """Return a table for notebooks: the darker a cell, the more alike are its layers."""
        finite = self.values[self.values.isfinite()]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
        lines = [f"<table><caption>{html.escape(self._title())}, n = {self.n}</caption>"]
        names = "".join(f"<th>{html.escape(name)}</th>" for name in _short(self.columns))
        lines.append(f"<tr><th></th>{names}</tr>")
        for name, cells, values in zip(
            _short(self.rows), self._cells(), self.values.tolist(), strict=True
        ):
            shades = [self._shade(value, low, high) for value in values]
            filled = "".join(
                f'<td style="{style}">{cell}</td>'
                for style, cell in zip(shades, cells, strict=True)
            )
            lines.append(f"<tr><th>{html.escape(name)}</th>{filled}</tr>")
        return "\n".join([*lines, "</table>"])

    def _shade(self, value: float, low: float, high: float) -> str:
        """Return the style of a cell; none where there is no value."""
        if not math.isfinite(value):
            return ""
        share = (value - low) / (high - low) if high > low else 1.0
        share = 1 - share if self.is_distance and high > low else share
        red, green, blue = (round(255 + share * (dark - 255)) for dark in DARKEST)
        text = "white" if share > HALFWAY else "black"
        return f"background: rgb({red}, {green}, {blue}); color: {text}"

    def match(self) -> LayerMatch:
        """Match each layer of the rows with a layer of the columns, in the order of both models.

        Of all maps that never step back, return the one with the highest mean similarity, or with
        the lowest mean distance; of several, one with early layers. Layers of the columns may be
        left out or taken again. With a student as rows and its teacher as columns, each layer of
        the student has the layer that it learns from.

        Returns
        -------
        LayerMatch
            A dictionary, whose ``stability`` says how sure each match is, with ``bootstrap=``.

        Raises
        ------
        ValueError
            A value is not finite, or two layers of the rows have one name.

        Examples
        --------
        >>> import numpy as np
        >>> from simcore import compare_layers
        >>> a, b, c, d = np.random.default_rng(0).standard_normal((4, 50, 8))
        >>> compare_layers({"0": a, "1": d}, {"0": a, "1": b, "2": c, "3": d}).match()
        {'0': '0', '1': '3'}
        """
        sign = -1 if self.is_distance else 1
        values = sign * self.values.numpy()
        if not np.isfinite(values).all():
            row, column = np.argwhere(~np.isfinite(values))[0]
            pair = f"{self.rows[row]!r}, {self.columns[column]!r}"
            raise ValueError(
                f"match: wanted finite values, got {self.values[row, column]} at {pair}"
            )
        if len(set(self.rows)) < len(self.rows):
            raise ValueError(f"match: wanted rows of different names, got {', '.join(self.rows)}")
        places = _monotone(values)
        found = LayerMatch({row: self.columns[j] for row, j in zip(self.rows, places, strict=True)})
        draws = self.draws
        if draws is not None and len(draws := draws[draws.isfinite().all(2).all(1)]) > 0:
            shares = np.mean([np.equal(_monotone(sign * d.numpy()), places) for d in draws], 0)
            found.stability = dict(zip(self.rows, shares.tolist(), strict=True))
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the values, the names and the statistics to a file, an archive of numpy's.

        Parameters
        ----------
        path : path
            The file, such as ``"base-tuned.npz"``; one that exists is replaced.
        """
        stored = {name: getattr(self, name) for name in STORED}
        arrays = {name: grid.numpy() for name, grid in stored.items() if grid is not None}
        arrays["values"] = self.values.numpy()
        arrays["facts"] = np.array([self.measure, str(self.n), str(int(self.is_distance))])
        arrays["rows"], arrays["columns"] = np.array(self.rows), np.array(self.columns)
        unfinished = f"{os.fspath(path)}.partial"  # a killed run leaves no half of the file
        with open(unfinished, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        os.replace(unfinished, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote.

        Raises
        ------
        ValueError
            The file is not one that `save` wrote.
        """
        try:
            with open(path, "rb") as file:
                read = dict(np.load(file, allow_pickle=False))
            measure, n, is_distance = map(str, read["facts"])
            rows, columns = (tuple(map(str, read[side])) for side in ("rows", "columns"))
            values = torch.from_numpy(read["values"])
        except (ValueError, TypeError, KeyError, EOFError, BadZipFile) as error:
            raise ValueError(f"path: wanted a file of Comparison.save, got {path}") from error
        grids = {name: torch.from_numpy(read[name]) for name in STORED if name in read}
        return cls(values, rows, columns, measure, int(n), is_distance=is_distance == "1", **grids)

    def _cells(self) -> list[list[str]]:
        """Return the printed values, each with its interval where there are intervals."""
        if self.low is None or self.high is None:
            return [[f"{value:.3f}" for value in line] for line in self.values.tolist()]
        grids = torch.stack([self.values, self.low, self.high], -1).tolist()
        return [[f"{v:.3f} [{low:.3f}, {high:.3f}]" for v, low, high in line] for line in grids]

    def to_pandas(self, *, long: bool = False) -> Any:
        """Return a pandas DataFrame of the values, with the names as index and columns.

        Parameters
        ----------
        long : bool
            Return a row for each pair of layers instead, with the columns ``row``, ``column``,
            ``value``, and of ``low``, ``high``, ``pvalue`` and ``calibrated`` the columns that are
            there.

        Raises
        ------
        ModuleNotFoundError
            pandas is not installed.
        """
        pandas = import_optional("pandas", "Comparison.to_pandas")
        if not long:
            return pandas.DataFrame(self.values.numpy(), list(self.rows), list(self.columns))
        grids = {"value": self.values, **self._statistics()}
        return pandas.DataFrame(
            {
                "row": np.repeat(self.rows, len(self.columns)),
                "column": np.tile(self.columns, len(self.rows)),
                **{name: grid.flatten().numpy() for name, grid in grids.items()},
            }
        )

    def plot(self, axes: Any = None, **options: Any) -> Any:
        """Draw the grid with matplotlib, the first layers at the bottom and on the left.

        Like layers are bright, of similarities and of distances.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            Where to draw. Default: a new figure.
        **options
            Of ``Axes.imshow``, such as ``vmin=0, vmax=1`` or ``cmap``.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ModuleNotFoundError
            matplotlib is not installed.
        """
        import_optional("matplotlib", "Comparison.plot")
        pyplot = import_module("matplotlib.pyplot")
        if axes is None:
            _, axes = pyplot.subplots(layout="constrained")
        colours = {"cmap": "viridis_r"} if self.is_distance else {}  # like layers are bright
        image = axes.imshow(self.values.numpy(), **{"origin": "lower", **colours, **options})
        axes.set_xticks(range(len(self.columns)), _short(self.columns), rotation=90)
        axes.set_yticks(range(len(self.rows)), _short(self.rows))
        axes.figure.colorbar(image, ax=axes, label=self._title())
        axes.set_title(f"{self.measure}, n = {self.n}")
        return axes

    def _statistics(self) -> dict[str, Tensor]:
        statistics = {name: getattr(self, name) for name in STATISTICS}
        return {name: grid for name, grid in statistics.items() if grid is not None}


def _monotone(values: np.ndarray) -> list[int]:
    """Return the column of each row, none before the one of the row above, of the largest sum."""
    sums = values.copy()  # sums[i, j]: of the best map of rows 0 to i whose last column is j
    for i in range(1, len(sums)):
        sums[i] += np.maximum.accumulate(sums[i - 1])
    places, end = [], values.shape[1]
    for line in sums[::-1]:
        end = int(line[:end].argmax()) + 1
        places.append(end - 1)
    return places[::-1]


def _place(name: str | int, names: Sequence[str], side: str) -> int:
    if isinstance(name, str):
        if name not in names:
            meant = did_you_mean(name, names)
            raise KeyError(f"{side}{meant}: wanted {', '.join(names)} or a place, got {name!r}")
        return names.index(name)
    if not -len(names) <= name < len(names):
        raise IndexError(f"{side}: wanted a place below {len(names)}, got {name}")
    return name


def _short(names: Sequence[str]) -> list[str]:
    """Return names without the parts that all begin with; no label begins with a number then."""
    parts = [name.split(".") for name in names]
    shared = 0
    while all(len(part) > shared + 1 and part[shared] == parts[0][shared] for part in parts):
        shared += 1
    while shared and any(part[shared][:1].isdigit() for part in parts):
        shared -= 1
    labels = [".".join(part[shared:]) for part in parts]
    cut = [label if len(label) <= LABEL else f"…{label[1 - LABEL :]}" for label in labels]
    return cut if len(set(cut)) == len(set(labels)) else labels
