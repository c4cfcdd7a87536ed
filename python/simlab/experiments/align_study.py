"""Alignment studies (Ren et al. 2023, section 5 and appendix B.2) over stored representations.

For a set of models, a study has up to four parts: the error of the map from each layer of a model
to the same layer of another model (figures 2, 4 and 5); from each layer, or head of attention, of a
model to each of another model (figures 6 and 8); from each layer to each other layer of the same
model (figure 3); and the complexity of every layer, its nuclear norm (B.2). Maps are fitted on some
examples and judged on others. In representations of attention, word pairs are rows and heads are
columns (`simcore.distributed_attention`); for single heads see `align_rows.units_of`.

A study is a folder of results files, one file for each ordered pair of models and method. So an
interrupted study continues where it was.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from simlab.bounds import replaced
from simlab.errors import UserError, argument
from simlab.experiments.align_rows import (
    COMPLEXITIES,
    Member,
    Split,
    Unit,
    examples_of,
    layer_matrix,
    load_members,
    note_few_rows,
    split_rows,
    units_of,
    varies,
)
from simlab.experiments.options import (
    KEYS,
    SETTINGS,
    StudyOptions,
    best_setting,
    drawn_pairs,
    file_name,
    third_split,
)
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
    WITHIN,
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
Errors = dict[Pair, "tuple[AlignmentError, AlignmentError]"]  # on rows of the fit, on judged rows


def align_study(
    folders: Sequence[str | Path],
    out: str | Path,
    options: StudyOptions | None = None,
    *,
    judge: Sequence[str | Path] = (),
    overwrite: bool = False,
    **changes: Any,
) -> list[Outcome]:
    """Write the errors of maps from every model to every other, and the complexity of every layer.

    Parameters
    ----------
    folders
        Representation folders (`extract`), one for each model, with the same rows and kind.
    out
        The folder for the results files, one for each ordered pair of models and method.
    options, **changes
        How to align; keywords replace fields of `StudyOptions`, such as
        ``methods=("linear", "inn")`` or ``within=True``.
    judge
        Representation folders of other examples, or folders of such folders: maps are fitted on the
        rows of `folders` and judged on the rows of the folder with the same label. By default a
        share of the examples of `folders` is held out.
    overwrite
        Replace results files that were made from other inputs; if False, raise an error instead.

    Returns
    -------
    list of Outcome
        Paths of the results files, and whether they were there before; `read_results` reads them.

    Raises
    ------
    UserError
        A folder has no representations, two folders differ in their rows or numbers of layers or
        have the same label, a model has no folder to judge on, there are too few examples or pairs,
        or `out` has files that `overwrite` would replace.

    Examples
    --------
    >>> from simlab import TaskOptions, align_study, extract
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> pair = ["runs/tokens/orig", "runs/tokens/random"]
    >>> tokens = {"kind": "token", "split": "train", "task_options": few}
    >>> step = extract("minilm", "rt", pair[0], label="ORIG", **tokens)
    >>> step = extract("minilm", "rt", pair[1], label="RANDOM", random_init_seed=0, **tokens)
    >>> steps = align_study(pair, "runs/results/alignment", methods=("linear",))
    >>> len(steps)  # both directions of the pair, and two measures of the complexity of each
    6
    """
    options = replaced(options or StudyOptions(), changes)
    options.check()
    members = load_members(folders, judge, options)
    drawn = drawn_pairs(len(members), options.pairs, options.pair_seed, options.directions)
    pairs: list[tuple[Member, ...]] = [(members[i], members[j]) for i, j in drawn]
    note_few_rows(members[0], options)
    # The cheapest first.
    alone: list[tuple[Member, ...]] = [(member,) for member in members]
    kinds = [(COMPLEXITY, alone), (ALIGNMENT, pairs)]
    kinds += [(WITHIN, alone)] if options.within else []
    kinds += [(ACROSS, pairs)] if options.across_layers else []
    parts = [
        Part(kind, method, models, options)
        for kind, several in kinds
        for models in several
        for method in (COMPLEXITIES if kind == COMPLEXITY else options.methods)
    ]
    return [part.ensure(Path(out) / part.file_name, overwrite=overwrite) for part in parts]


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
        self.labels = list(dict.fromkeys(side.manifest["label"] for side in (self.x, self.y)))

    @property
    def file_name(self) -> str:
        """Return the name of the results file of the part."""
        words = [self.kind, self.options.name, self.method, self.x.manifest["kind"]]
        return file_name([*words, *self.labels], self.protocol)

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
        how: dict[str, Any] = {"heads": self.heads, "causal": self.options.causal}
        x = units_of(self.x, split, **how)
        y = x if self.y is self.x else units_of(self.y, split, **how)
        pairs = list(product(range(len(x)), range(len(y))))
        if self.kind == ALIGNMENT:
            if len(x) != len(y):
                raise UserError(
                    f"{argument('attention_rows', KEYS)}: wanted models with as many heads, found "
                    f"{len(x)} in {self.x.fitted.folder} and {len(y)} in {self.y.fitted.folder}"
                )
            pairs = [(i, i) for i in range(len(x))]
        setting: dict[str, Any] = {}
        try:
            title = f"{self.method} on {' and '.join(self.labels)}"
            with warnings_as_notes(), progress(title, len(pairs)) as advance:
                if self.options.tune is not None:
                    setting = self._tuned(x, y, pairs, split)
                errors = self._errors(x, y, pairs, split, setting, advance)
        except ValueError as error:  # of an aligner, such as too few rows
            folders = " and ".join(str(side.fitted.folder) for side in (self.x, self.y))
            raise UserError(f"{folders}, {argument('methods', self.method)}: {error}") from None
        tuned = {} if self.options.tune is None else {CHOSEN: setting}
        return [
            row
            for i, j in pairs
            for row in self._rows_of(x[i], y[j], errors.get((i, j)), tuned, split)
        ]

    def _complexities(self) -> list[ResultRow]:
        stored, measure = self.x.fitted, COMPLEXITIES[self.method]
        layers = [layer_matrix(stored, k, self.options.causal) for k in range(len(stored.layers))]
        return [
            self._row(self.method, measure(rows), stored.manifest["n"], {}, (layer, None))
            for layer, rows in enumerate(layers, stored.first_layer)
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
        third = Split(rows, validation, example[validation])

        def errors(setting: dict[str, Any]) -> list[float]:
            by_pair = self._errors(fit_x, fit_y, pairs, third, setting, lambda _: None)
            return [judged.relative for _, judged in by_pair.values()]

        return best_setting(SETTINGS[self.method][: self.options.tune], errors)

    def _errors(
        self,
        x: list[Unit],
        y: list[Unit],
        pairs: list[Pair],
        split: Split,
        setting: dict[str, Any],
        advance: Callable[[int], None],
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
            for chunk in _slices(rows, self.options.at_once):
                fits = align_grid(
                    [x[i].fitted for i in chunk],
                    [y[j].fitted for j in columns],
                    X_heldout=[x[i].judged for i in chunk],
                    Y_heldout=[y[j].judged for j in columns],
                    groups_heldout=split.examples,
                )
                for (a, i), (b, j) in product(enumerate(chunk), enumerate(columns)):
                    errors[i, j] = (fits.train[a][b], fits.heldout[a][b])
                advance(len(chunk) * len(columns))
            return errors
        by_width: dict[Pair, list[Pair]] = defaultdict(list)
        for i, j in pairs:
            by_width[x[i].fitted.shape[1], y[j].fitted.shape[1]].append((i, j))
        params = self.options.params(self.method, setting)
        for same_width in by_width.values():
            for chunk in _slices(same_width, self.options.at_once):
                results = align_pairs(
                    [x[i].fitted for i, _ in chunk],
                    [y[j].fitted for _, j in chunk],
                    cast(Any, self.method),
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
        for number, (rows, n) in enumerate(
            ((TRAIN, len(split.train)), (HELDOUT, len(split.heldout)))
        ):
            options = {"method": self.method, "rows": rows, **self.protocol, **tuned, **heads}
            for measure, name in measures:
                value = np.nan if errors is None else getattr(errors[number], name)
                row = self._row(measure, value, n, options, (x.layer, y.layer))
                if errors is not None and rows == HELDOUT:
                    half = NORMAL_95 * getattr(errors[number].stderr, name)
                    row = replace(row, low=max(row.value - half, 0.0), high=row.value + half)
                yield row

    def _row(
        self,
        measure: str,
        value: float,
        n: int,
        options: dict[str, Any],
        layers: tuple[int, int | None],
    ) -> ResultRow:
        if self.options.causal:
            options = {**options, "causal": True}
        return ResultRow(
            experiment=self.kind,
            comparison=self.options.name,
            measure=measure,
            kind=self.x.manifest["kind"],
            options=json.dumps(options) if options else None,
            **self.x.fitted.side.columns("x"),
            **({} if layers[1] is None else self.y.fitted.side.columns("y")),
            layer_x=layers[0],
            layer_y=layers[1],
            value=float(value),
            n=n,
            task=self.x.manifest["task"],
        )


def _slices(items: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))
