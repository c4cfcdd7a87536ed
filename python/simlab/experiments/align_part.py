"""A part of an alignment study: the maps between two models, or the complexity of one."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError, argument
from simlab.experiments.align_rows import (
    Member,
    Split,
    Unit,
    examples_of,
    layer_matrix,
    split_rows,
    units_of,
)
from simlab.experiments.complexity import COMPLEXITIES, varies
from simlab.experiments.options import KEYS, StudyOptions, file_name
from simlab.experiments.tuning import SETTINGS, best_setting, third_split
from simlab.results.results import (
    ACROSS,
    ALIGNMENT,
    CHOSEN,
    COMPLEXITY,
    COMPONENT_MSE,
    COMPONENT_RELATIVE,
    HELDOUT,
    MSE,
    RELATIVE,
    TRAIN,
    ResultRow,
    ensure_results,
)
from simlab.store.console import progress, warnings_as_notes
from simlab.store.jobs import Outcome

if TYPE_CHECKING:
    from simcore.align import AlignmentError

NORMAL_95 = NormalDist().inv_cdf(0.975)
_HOW = ("heldout_share", "rows", "epochs", "steps", "seed")  # options that rows do not name

Pair = tuple[int, int]
Advance = Callable[[int], None]
Errors = dict[Pair, "tuple[AlignmentError, AlignmentError]"]  # on rows of the fit, on judged rows


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
        # The choices that the rows name.
        self.protocol = {} if kind == COMPLEXITY else options.protocol(kind, method, judged)
        if not self.x.fitted.is_attention:
            self.protocol.pop("attention_rows", None)
        keys = kind == ACROSS or options.attention_rows == KEYS
        self.heads = keys and kind != COMPLEXITY and self.x.fitted.is_attention

    @property
    def file_name(self) -> str:
        """Return the name of the results file of the part."""
        words = [self.kind, self.options.name, self.method, self.x.manifest["kind"]]
        return file_name([*words, *self._labels], self.protocol)

    @property
    def _labels(self) -> list[str]:
        return list(dict.fromkeys(side.manifest["label"] for side in (self.x, self.y)))

    def ensure(self, path: Path, *, overwrite: bool = False) -> Outcome:
        """Write the rows to `path`, unless a file of its folder has them."""
        members = (self.x,) if self.x is self.y else (self.x, self.y)
        inputs: dict[str, Any] = {
            "step": "align-study",
            "part": [self.kind, self.options.name, self.method],
            "data": [member.fitted.identity for member in members],
            "causal": self.options.causal,
        }
        if self.kind != COMPLEXITY:
            inputs["judged"] = [member.judged.identity for member in members]
            inputs["how"] = [getattr(self.options, name) for name in _HOW]
            inputs["protocol"] = self.protocol
        return ensure_results(path, inputs, self, replace=overwrite)

    def __call__(self) -> list[ResultRow]:
        """Compute the rows of the part."""
        if self.kind == COMPLEXITY:
            return self._complexities()
        split = split_rows(self.x, self.options, heads=self.heads)
        kind: dict[str, Any] = {"heads": self.heads, "causal": self.options.causal}
        x = units_of(self.x, split, **kind)
        y = x if self.y is self.x else units_of(self.y, split, **kind)
        pairs = list(product(range(len(x)), range(len(y))))
        if self.kind == ALIGNMENT:
            if len(x) != len(y):
                raise UserError(
                    f"{argument('attention_rows', KEYS)}: wanted models with as many heads, found "
                    f"{len(x)} in {self.x.fitted.folder} and {len(y)} in {self.y.fitted.folder}"
                )
            pairs = [(i, i) for i in range(len(x))]
        folders = " and ".join(str(side.fitted.folder) for side in (self.x, self.y))
        setting: dict[str, Any] = {}
        try:
            title = f"{self.method} on {' and '.join(self._labels)}"
            with warnings_as_notes(), progress(title, len(pairs)) as advance:
                if self.options.tune is not None:
                    setting = self._tuned(x, y, pairs, split)
                errors = self._errors(x, y, pairs, split, setting, advance)
        except ValueError as error:  # of an aligner, such as too few rows
            raise UserError(f"{folders}, {argument('methods', self.method)}: {error}") from None
        tuned = {} if self.options.tune is None else {CHOSEN: setting}
        return [
            row
            for i, j in pairs
            for row in self._rows_of(x[i], y[j], errors.get((i, j)), tuned, split)
        ]

    def _tuned(
        self, x: list[Unit], y: list[Unit], pairs: list[Pair], split: Split
    ) -> dict[str, Any]:
        """Return the setting with the least error on rows of the fit that it was not fitted on."""
        example = examples_of(self.x.fitted, self.options.causal, self.heads)[split.train]
        rows, validation = third_split(example, self.options.seed)
        fit_x, fit_y = (
            [replace(u, fitted=u.fitted[rows], judged=u.fitted[validation]) for u in side]
            for side in (x, y)
        )
        parts = Split(rows, validation, example[validation])

        def errors(setting: dict[str, Any]) -> list[float]:
            by_pair = self._errors(fit_x, fit_y, pairs, parts, setting, lambda _: None)
            return [judged.relative for _, judged in by_pair.values()]

        return best_setting(SETTINGS[self.method][: self.options.tune], errors)

    def _complexities(self) -> list[ResultRow]:
        stored = self.x.fitted
        return [
            self._row(
                self.method,
                COMPLEXITIES[self.method](layer_matrix(stored, number, self.options.causal)),
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
        setting: dict[str, Any],
        advance: Advance,
    ) -> Errors:
        """Return the errors of every pair whose rows vary; `at_once` maps are fitted together."""
        from simcore.align import align_grid, align_pairs

        errors: Errors = {}
        vary_x, vary_y = (
            [varies(unit.fitted) and varies(unit.judged) for unit in side] for side in (x, y)
        )
        advance(sum(not (vary_x[i] and vary_y[j]) for i, j in pairs))
        pairs = [(i, j) for i, j in pairs if vary_x[i] and vary_y[j]]
        if self.method == "linear" and self.kind != ALIGNMENT and not setting:
            # Every pair of units that vary: least squares factors each unit of X once.
            rows, columns = (sorted({pair[side] for pair in pairs}) for side in (0, 1))
            for some in _slices(rows, self.options.at_once):
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
        by_width: dict[Pair, list[Pair]] = defaultdict(list)
        for i, j in pairs:
            by_width[x[i].fitted.shape[1], y[j].fitted.shape[1]].append((i, j))
        params = self.options.params(self.method) | setting
        for of_width in by_width.values():
            for chunk in _slices(of_width, self.options.at_once):
                results = align_pairs(
                    [x[i].fitted for i, _ in chunk],
                    [y[j].fitted for _, j in chunk],
                    self.method,
                    X_heldout=[x[i].judged for i, _ in chunk],
                    Y_heldout=[y[j].judged for _, j in chunk],
                    groups_heldout=split.examples,
                    **params,
                )
                for pair, result in zip(chunk, results, strict=True):
                    errors[pair] = (result.train, result.heldout)
                advance(len(chunk))
        return errors

    def _rows_of(
        self,
        x: Unit,
        y: Unit,
        errors: tuple[AlignmentError, AlignmentError] | None,
        tuned: dict[str, Any],
        split: Split,
    ) -> Iterator[ResultRow]:
        """Yield the rows of one pair; nan where a side does not vary (CLS at layer 0)."""
        heads = {"head_x": x.head, "head_y": y.head} if self.heads else {}
        measures = [(MSE, "mse"), (RELATIVE, "relative")]
        if self.method == "svcca":
            measures += [(COMPONENT_MSE, "component_mse")]
            measures += [(COMPONENT_RELATIVE, "component_relative")]
        for number, part in enumerate((TRAIN, HELDOUT)):
            options = {"method": self.method, "rows": part, **self.protocol, **tuned, **heads}
            n = len((split.train, split.heldout)[number])
            for measure, name in measures:
                value = np.nan if errors is None else getattr(errors[number], name)
                row = self._row(measure, value, n, options, (x.layer, y.layer))
                if errors is not None and part == HELDOUT:
                    half = NORMAL_95 * getattr(errors[number].stderr, name)
                    low, high = max(row.value - half, 0.0), row.value + half
                    row = replace(row, low=low, high=high)
                yield row

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


def _slices(items: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))
