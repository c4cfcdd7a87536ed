"""Compare models that are named: grids, matches of layers, a picture and a page for all pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.answers.subjects import (
    Subject,
    Texts,
    extract_all,
    file_name,
    open_subjects,
    read_texts,
    rows_of,
    split_words,
)
from simlab.bounds import Count, FromZero, bounded
from simlab.errors import UserError
from simlab.figures.draw import plot
from simlab.models.checkpoint import length_of
from simlab.models.place import AUTO, PRECISIONS
from simlab.report.write import write_report
from simlab.representations.passes import ExtractOptions
from simlab.results.reading import read_results
from simlab.similarity.catalogue import find_measure
from simlab.similarity.grids import grid
from simlab.store.console import note

if TYPE_CHECKING:
    import pandas as pd

    from simlab.tasks import TaskOptions

_DRAWS = 100  # of measures that draw fast
_SMALL = 0.1  # three decimals of distances without a larger one say too little
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

        Distances have units of their own: they count as shares of the largest in the grid. Where
        there is an interval, its nearer end counts.
        """
        end, most, sign = self.high, -0.995, -1
        if self.is_distance:
            end, most, sign = self.low, 0.005 * self._largest, 1
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
    def _largest(self) -> float:
        return float(np.nanmax(self.values, initial=0.0))

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
        same = [self._number(self.values[i, i])] if _SAME in names else []
        if layer not in self.closest:
            return [str(layer), "-", "undefined", *[""] * (len(names) - 3 - len(same)), *same]
        j = self.y_layers.index(self.closest[layer])
        row = [str(layer), str(self.y_layers[j]), self._number(self.values[i, j])]
        row += [self._interval(i, j)] if _INTERVAL in names else []
        row += [self._number(self.calibrated[i, j])] if _CALIBRATED in names else []
        return [*row, *same]

    def _number(self, value: float) -> str:
        small = self.is_distance and 0 < self._largest < _SMALL
        return "-" if np.isnan(value) else f"{value:.2e}" if small else f"{value:.3f}"

    def _interval(self, i: int, j: int) -> str:
        return f"{self._number(self.low[i, j])} to {self._number(self.high[i, j])}"

    def _sentences(self) -> list[str]:
        lines = []
        if self.x_layers == self.y_layers:
            alike, apart = self.same, [n for n in self.x_layers if n not in self.same]
            lines.append(f"the same layers match to two digits: {_spans(alike)}")
            defined = [n for n in apart if n in self.closest]
            if defined:
                i = min((self.x_layers.index(n) for n in defined), key=lambda i: self._near[i, i])
                span = f" ({self._interval(i, i)})" if np.isfinite(self.low[i, i]) else ""
                most = f"{self.x_layers[i]}: {self._number(self.values[i, i])}{span}"
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


@dataclass(frozen=True)
class Compared:
    """What `compare` found; its text says which layers match and which differ.

    Attributes
    ----------
    rows
        What a row of the layers is, and why.
    matches
        One `Matches` for each pair of models and each measure.
    results
        The rows of all grids, as `simlab.read_results` gives them.
    files
        The pictures, the results files and the page.
    """

    rows: str
    matches: tuple[Matches, ...]
    results: pd.DataFrame
    files: tuple[Path, ...]

    def __str__(self) -> str:
        return "\n\n".join([self.rows, *map(str, self.matches)])


@bounded
def compare(
    *models: str | Path,
    texts: str | Path | None = None,
    out: str | Path = Path("runs/compare"),
    measures: Sequence[str] = ("cka",),
    kind: str | None = None,
    limit: Count = 200,
    max_length: Count | None = None,
    weights: str = PRECISIONS[0],
    bootstrap: FromZero | None = None,
    permutations: FromZero | None = None,
    device: str = AUTO,
    task_options: TaskOptions | None = None,
    overwrite: bool = False,
) -> Compared:
    """Compare all layers of two models or more, by their names, and say which layers match.

    Layers of equal number match if their values are 1.00 to two digits, or their distances 0.00 of
    the largest in the grid, at the nearer end of the interval. Other layers are paired where each
    is the other's closest layer, and closer than by chance.

    Parameters
    ----------
    models
        Two models or more: names of the hub, folders, checkpoints, revisions (``name@revision``),
        or folders of stored layers; behind them the texts, if they are a file or a named task.
    texts
        A file of texts, or a task, of which held-out texts are read, `limit` at most; in
        Python also a list of texts. None is a sample of 195 sentences that ships.
    out
        Folder for the layers, the results, the figures and the page.
    measures
        Names of measures, as `simcore grid` lists them; CKA is unbiased.
    kind
        Kind of rows, as for `extract`; None is ``token`` where the tokenizers of all models give
        the same tokens, else ``word-mean``, or ``mean`` where tokens have letters of two words.
    limit
        Number of texts, from the first.
    max_length
        Tokens kept per text; None is as in the fine-tuning of the first model that was, else 64.
    weights
        Precision in which models compute: ``float32``, ``bfloat16``, ``float16``, or ``auto``, as
        in their files.
    bootstrap
        Draws of texts for 95 % intervals; None is 100 for CKA, and none for other measures, which
        compute the grid anew for each.
    permutations
        Permutations for p-values and calibrated values; None is as for `bootstrap`.
    device
        Where models and grids run: ``cpu``, ``cuda``; ``auto`` is a GPU if there is one.
    task_options
        Columns and split of the texts.
    overwrite
        As for `truncate`.

    Returns
    -------
    Compared
        The matches of each pair as text, the results as a table, and the files.

    Raises
    ------
    UserError
        A model, measure or task is unknown, there are fewer than two models, stored layers have
        other rows, or `out` has other content and `overwrite` is False.

    Examples
    --------
    >>> from simlab import compare, extract
    >>> step = extract("minilm", "rt", "runs/reps/twin", random_init_seed=1, limit=30, kind="mean")
    >>> found = compare("minilm", "runs/reps/twin", "rt", limit=30, permutations=0, bootstrap=0)
    >>> found.matches[0].values.shape
    (7, 7)
    """
    names, texts = split_words(models, texts)
    if len(names) < 2:
        found = ", ".join(map(str, names)) or "none"
        raise UserError(f"models: wanted two models or more, found {found}")
    measures = [find_measure(name).name for name in measures]
    subjects = open_subjects(names)
    folder = Path(out)
    layers, rows = _layers_of(
        subjects,
        texts,
        folder,
        kind,
        limit,
        max_length,
        task_options,
        overwrite,
        weights=weights,
        device=device,
    )
    files, matches = [], []
    for measure in measures:
        for (x, x_layers), (y, y_layers) in combinations(zip(subjects, layers, strict=True), 2):
            name = "-".join(file_name(one) for one in (x.label, y.label, measure))
            path = folder / "results" / f"{name}.parquet"
            how = _draws(measure, bootstrap, permutations)
            both, comparison = [x_layers, y_layers], f"{x.label} x {y.label}"
            given = {"measure": measure, "comparison": comparison, "device": device, **how}
            grid(both, path, overwrite=overwrite, **given)
            files.append(path)
            matches.append(find_matches(read_results(path), x.label, y.label))
    if left := sorted({*(folder / "results").glob("*.parquet")} - {*files}):
        names = ", ".join(path.name for path in left)
        note(f"{folder / 'results'} holds results of other comparisons too: {names}")
    pictures = plot(files, folder / "figures", formats=("png",))
    title = " x ".join(subject.label for subject in subjects)
    page = write_report(files, folder / "report.html", title=title)
    return Compared(rows, tuple(matches), read_results(files), (*pictures, *files, page))


def _layers_of(
    subjects: Sequence[Subject],
    texts: Texts | None,
    folder: Path,
    kind: str | None,
    limit: int,
    max_length: int | None,
    task_options: TaskOptions | None,
    overwrite: bool,
    **options: Any,
) -> tuple[list[Path], str]:
    """Return the folders of all layers, and what their rows are."""
    models = [subject.model for subject in subjects if subject.model]
    if not models:
        return [one.stored for one in subjects if one.stored], "rows are as they were stored"
    task = read_texts(texts, models, task_options, limit)
    length = length_of(models, max_length)
    chosen = ExtractOptions(kind=kind or "", max_length=length, **options)
    chosen, rows = rows_of(subjects, task, chosen)
    return extract_all(subjects, task, folder / "layers", chosen, overwrite), rows


def _draws(measure: str, bootstrap: int | None, permutations: int | None) -> dict[str, Any]:
    """Return estimator and draws of a measure."""
    options = find_measure(measure).options
    draws = _DRAWS if measure == "cka" else 0
    return {
        "bootstrap": draws if bootstrap is None else bootstrap,
        "permutations": draws if permutations is None else permutations,
        **({"estimator": "unbiased"} if "estimator" in options else {}),
    }
