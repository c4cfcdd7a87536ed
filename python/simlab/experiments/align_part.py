"""A part of an alignment study: the maps between two models, or the complexity of one."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError, argument
from simlab.experiments.align_options import KEYS, SHARED, StudyOptions
from simlab.experiments.align_rows import (
    Member,
    Split,
    Unit,
    examples_of,
    head_units,
    layer_matrix,
    layer_units,
    split_member,
)
from simlab.experiments.complexity import COMPLEXITIES, varies
from simlab.experiments.tuning import best_setting, parted, settings_of, third_split
from simlab.representations.folder import MORE_ROWS
from simlab.store.console import note, progress, warnings_as_notes
from simlab.store.jobs import Outcome
from simlab.store.results import (
    ACROSS,
    ALIGNMENT,
    CHOSEN,
    COMPLEXITY,
    COMPONENT_MSE,
    COMPONENT_RELATIVE,
    HELDOUT,
    LEARNT,
    MSE,
    RELATIVE,
    TRAIN,
    WITHIN,
    ResultRow,
    ensure_results,
)

if TYPE_CHECKING:
    from simcore.align import AlignmentError

NORMAL_95 = NormalDist().inv_cdf(0.975)
_HOW = ("heldout_share", "rows", "epochs", "steps", "seed")  # options that rows do not name
MANY = 1000  # maps of a part: more are refused within a model, and said of learnt ones elsewhere

Pair = tuple[int, int]
Advance = Callable[[int], None]
Errors = dict[Pair, "tuple[AlignmentError, AlignmentError]"]


class Part:
    """A part of a study; calling it computes the rows of its results file.

    `members` are the model to map from and the model to map to, or the only model. `method` is the
    kind of map, or the measure of complexity.
    """

    def __init__(
        self, kind: str, method: str, members: Sequence[Member], options: StudyOptions
    ) -> None:
        self.kind, self.method, self.options = kind, method, options
        self.x, self.y = members[0], members[-1]
        judged = self.x.other is not None
        # The choices that the rows name; see `StudyOptions.protocol`.
        self.protocol = {} if kind == COMPLEXITY else options.protocol(kind, method, judged)
        if not self.x.fitted.is_attention:
            self.protocol.pop("attention_rows", None)
        keys = kind == ACROSS or options.attention_rows == KEYS
        self.heads = keys and kind != COMPLEXITY and self.x.fitted.is_attention
        self.chosen: dict[str, Any] = {}
        self._check_count()

    def ensure(self, path: Path, *, replace: bool = False) -> Outcome:
        """Write the rows to `path`, unless a file of its folder has them."""
        return ensure_results(path, self._inputs, self, replace=replace)

    def _check_count(self) -> None:
        """Refuse to fit a map of its own for every pair of many heads of one model."""
        fitted_apart = self.method != "linear" and self.options.map != SHARED
        heads = sum(self.x.manifest["widths"]) if self.heads else 0
        if self.kind == WITHIN and fitted_apart and heads**2 > MANY:
            raise UserError(
                f"{argument('within')}, {argument('attention_rows', KEYS)}: wanted at most "
                f"{MANY:,} maps of {self.method}, found {heads**2:,} pairs of the {heads} heads of "
                f"{self.x.fitted.folder}; {argument('methods', 'linear')} fits any number"
            )

    @property
    def _inputs(self) -> dict[str, Any]:
        members = (self.x,) if self.x is self.y else (self.x, self.y)
        inputs: dict[str, Any] = {
            "step": "align-study",
            "part": [self.kind, self.options.name, self.method],
            "data": [member.fitted.identity for member in members],
            "causal": self.options.causal,
        }
        if self.kind == COMPLEXITY:
            return inputs
        judged = [member.judged.identity for member in members]
        how = [getattr(self.options, name) for name in _HOW]
        return {**inputs, "judged": judged, "how": how, "protocol": self.protocol}

    def __call__(self) -> list[ResultRow]:
        """Compute the rows of the part."""
        if self.kind == COMPLEXITY:
            return self._complexities()
        split = split_member(self.x, self.options, heads=self.heads)
        units = head_units if self.heads else layer_units
        x = units(self.x, split, self.options.causal)
        y = x if self.y is self.x else units(self.y, split, self.options.causal)
        pairs = list(product(range(len(x)), range(len(y))))
        if self.kind == ALIGNMENT:
            if len(x) != len(y):
                raise UserError(
                    f"{argument('attention_rows', KEYS)}: wanted models with as many heads, found "
                    f"{len(x)} in {self.x.fitted.folder} and {len(y)} in {self.y.fitted.folder}"
                )
            pairs = [(i, i) for i in range(len(x))]
        labels = dict.fromkeys(side.manifest["label"] for side in (self.x, self.y))
        with progress(f"{self.method} on {' and '.join(labels)}", len(pairs)) as advance:
            if self.options.tune is not None:
                self.chosen = self._tuned(x, y, pairs, split)
            errors = self._errors(x, y, pairs, split, advance)
        return [row for pair in pairs for row in self._rows_of(pair, x, y, errors, split)]

    def _tuned(
        self, x: list[Unit], y: list[Unit], pairs: list[Pair], split: Split
    ) -> dict[str, Any]:
        """Return the setting with the least error on rows of the fit that it was not fitted on."""
        example = examples_of(self.x.fitted, self.options.causal, self.heads)[split.train]
        parts = third_split(example, self.options.seed)
        fit_x, fit_y = (parted(units, parts) for units in (x, y))

        def errors(setting: dict[str, Any]) -> list[float]:
            self.chosen = setting
            by_pair = self._errors(fit_x, fit_y, pairs, parts, lambda _: None)
            return [judged.relative for _, judged in by_pair.values()]

        return best_setting(settings_of(self.method, self.options.tune or 1), errors)

    def _complexities(self) -> list[ResultRow]:
        stored, causal = self.x.fitted, self.options.causal
        measure = COMPLEXITIES[self.method]
        return [
            self._row(
                self.method,
                measure(layer_matrix(stored, number, causal)),
                stored.manifest["n"],
                {},
                (stored.first_layer + number, None),
            )
            for number in range(len(stored.layers))
        ]

    def _errors(
        self,
        x: list[Unit],
        y: list[Unit],
        pairs: list[Pair],
        split: Split,
        advance: Advance,
    ) -> Errors:
        """Return the errors on fitted and judged rows of every pair whose rows vary."""
        vary_x, vary_y = ([_varies(unit) for unit in side] for side in (x, y))
        defined = [(i, j) for i, j in pairs if vary_x[i] and vary_y[j]]
        advance(len(pairs) - len(defined))
        with self._explained(split), warnings_as_notes():
            if self.options.map == SHARED:
                return self._shared(x, y, defined, split, advance)
            if self.method == "linear" and self.kind != ALIGNMENT and not self.chosen:
                return self._grid(x, y, defined, split, advance)
            if self.method in LEARNT and len(defined) >= MANY:
                note(f"{self.method}: {len(defined):,} maps are trained")
            return self._apart(x, y, defined, split, advance)

    def _apart(
        self, x: list[Unit], y: list[Unit], pairs: list[Pair], split: Split, advance: Advance
    ) -> Errors:
        """Fit a map for every pair, `at_once` together."""
        from simcore.align import align_pairs

        errors: Errors = {}
        for chunk in self._chunks(x, y, pairs):
            results = align_pairs(
                [x[i].fitted for i, _ in chunk],
                [y[j].fitted for _, j in chunk],
                self.method,
                X_heldout=[x[i].judged for i, _ in chunk],
                Y_heldout=[y[j].judged for _, j in chunk],
                groups_heldout=split.examples,
                **self._params(),
            )
            for pair, result in zip(chunk, results, strict=True):
                errors[pair] = (result.train, result.heldout)
            advance(len(chunk))
        return errors

    def _chunks(self, x: list[Unit], y: list[Unit], pairs: list[Pair]) -> Iterator[list[Pair]]:
        """Yield `at_once` pairs of units of equal widths."""
        groups: dict[Pair, list[Pair]] = defaultdict(list)
        for i, j in pairs:
            groups[x[i].fitted.shape[1], y[j].fitted.shape[1]].append((i, j))
        for group in groups.values():
            for start in range(0, len(group), self.options.at_once):
                yield group[start : start + self.options.at_once]

    def _grid(
        self, x: list[Unit], y: list[Unit], pairs: list[Pair], split: Split, advance: Advance
    ) -> Errors:
        """Fit least-squares maps from every unit of X to all units of Y together."""
        from simcore.align import align_grid

        errors: Errors = {}
        rows, columns = (sorted({pair[side] for pair in pairs}) for side in (0, 1))
        for start in range(0, len(rows), self.options.at_once):
            some = rows[start : start + self.options.at_once]
            fits = align_grid(
                [x[i].fitted for i in some],
                [y[j].fitted for j in columns],
                X_heldout=[x[i].judged for i in some],
                Y_heldout=[y[j].judged for j in columns],
                groups_heldout=split.examples,
            )
            for (a, i), (b, j) in product(enumerate(some), enumerate(columns)):
                errors[i, j] = (fits.train[a][b], fits.heldout[a][b])
            advance(len(some) * len(columns))
        return errors

    def _shared(
        self, x: list[Unit], y: list[Unit], pairs: list[Pair], split: Split, advance: Advance
    ) -> Errors:
        """Fit one map on the rows of all units, each with its counterpart, and judge every pair."""
        from simcore.align import METHODS

        for side, units in ((self.x, x), (self.y, y)):
            widths = sorted({unit.fitted.shape[1] for unit in units})
            if len(widths) > 1:
                raise UserError(
                    f"{argument('map', SHARED)}: wanted layers of one width, found {widths[0]} and "
                    f"{widths[-1]} in {side.fitted.folder}"
                )
        params = self._params()
        batch = _batches_of_layers(params, len(x[0].fitted), len(x))
        fitted = (_side_by_side([unit.fitted for unit in units], batch) for units in (x, y))
        aligner = METHODS[self.method](**params).fit(*fitted)
        errors: Errors = {}
        for i, j in pairs:
            judged = aligner.errors(x[i].judged, y[j].judged, groups=split.examples)
            errors[i, j] = (aligner.errors(x[i].fitted, y[j].fitted), judged)
            advance(1)
        return errors

    @contextmanager
    def _explained(self, split: Split) -> Iterator[None]:
        """Turn the errors of aligners into errors that name options and folders."""
        from simcore.align import TooFewRowsError

        where = " and ".join(str(side.fitted.folder) for side in (self.x, self.y))
        options = self.options
        try:
            yield
        except TooFewRowsError as error:
            option, more = argument("rows", options.rows), ""
            if len(split.train) < options.rows:
                more = f"; {MORE_ROWS}"
                option = argument("heldout_share", options.heldout_share)
                if self.x.other is not None:
                    option = "align-study"
            raise UserError(
                f"{option}, {argument('methods', self.method)}: {where}: {error}{more}"
            ) from None
        except ValueError as error:
            raise UserError(f"{where}: {self.method}: {error}") from None

    def _params(self) -> dict[str, Any]:
        return self.options.params(self.method) | self.chosen

    def _rows_of(
        self, pair: Pair, x: list[Unit], y: list[Unit], errors: Errors, split: Split
    ) -> Iterator[ResultRow]:
        """Yield the rows of one pair; nan where a side does not vary (CLS at layer 0)."""
        one, other = x[pair[0]], y[pair[1]]
        heads = {"head_x": one.head, "head_y": other.head} if self.heads else {}
        cell = errors.get(pair)
        tuned = {} if self.options.tune is None else {CHOSEN: self.chosen}
        for number, part in enumerate((TRAIN, HELDOUT)):
            options = {"method": self.method, "rows": part, **self.protocol, **tuned, **heads}
            n = len((split.train, split.heldout)[number])
            for measure, name in self._measures():
                value = np.nan if cell is None else getattr(cell[number], name)
                row = self._row(measure, value, n, options, (one.layer, other.layer))
                if cell is not None and part == HELDOUT:
                    row = _with_interval(row, getattr(cell[number].stderr, name))
                yield row

    def _measures(self) -> Iterable[tuple[str, str]]:
        """Return the measures of the method, and the attribute of the error that each is."""
        yield MSE, "mse"
        yield RELATIVE, "relative"
        if self.method == "svcca":
            yield from (
                (COMPONENT_MSE, "component_mse"),
                (COMPONENT_RELATIVE, "component_relative"),
            )

    def _row(
        self,
        measure: str,
        value: float,
        n: int,
        options: dict[str, Any],
        layers: tuple[int, int | None],
    ) -> ResultRow:
        x = self.x.manifest
        other = {} if layers[1] is None else self.y.fitted.side.columns("y")
        if self.options.causal:
            options = {**options, "causal": True}
        return ResultRow(
            experiment=self.kind,
            comparison=self.options.name,
            measure=measure,
            kind=x["kind"],
            options=json.dumps(options) if options else None,
            **self.x.fitted.side.columns("x"),
            **other,
            layer_x=layers[0],
            layer_y=layers[1],
            value=float(value),
            n=n,
            task=x["task"],
        )


def _with_interval(row: ResultRow, stderr: float) -> ResultRow:
    """Return the row of an error with its 95 % interval over the examples."""
    half = NORMAL_95 * stderr
    return dataclasses.replace(row, low=max(row.value - half, 0.0), high=row.value + half)


def _varies(unit: Unit) -> bool:
    return varies(unit.fitted) and varies(unit.judged)


def _batches_of_layers(params: dict[str, Any], rows: int, layers: int) -> int | None:
    """Change the parameters of a trained map to fit one map that all layers share.

    With the rows in their stored order, a batch of examples is a group of steps, one for each
    layer. Return the number of its examples then, and None where rows are shuffled.
    """
    if params.get("max_steps") is not None:
        params["max_steps"] *= layers
    if params.get("shuffle", True):
        return None
    batch: int = min(params["batch_size"], rows)
    params |= {"batch_size": batch, "group": layers}
    return batch


def _side_by_side(layers: list[np.ndarray], batch: int | None) -> np.ndarray:
    """Return the rows of all layers as one matrix.

    With `batch`, the matrix has a batch of the first layer, the same examples of the second layer,
    and so on, then the next batch. Rows that do not fill a last batch are left out.
    """
    if batch is None:
        return np.concatenate(layers)
    whole = len(layers[0]) // batch * batch
    starts = range(0, whole, batch)
    return np.concatenate([layer[start : start + batch] for start in starts for layer in layers])
