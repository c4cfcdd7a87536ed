"""Alignment studies (Ren et al. 2023, section 5 and appendix B.2) over stored representations.

For a set of models, a study has three parts: the error of the map from each layer of a model to the
same layer of another model, in both directions (figures 2, 4 and 5); the error of the map from each
layer to each other layer of the same model (figure 3); and the complexity of every layer, its
nuclear norm (B.2). Maps are fitted on some examples and judged on others. In representations of
attention, word pairs are rows and heads are columns (`simcore.distributed_attention`).

A study is a folder of results files, one file for each ordered pair of models and method. So an
interrupted study continues where it was.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np

from simlab.errors import UserError
from simlab.experiments.complexity import nuclear_norm, varies
from simlab.experiments.options import check_counts, check_methods, map_params
from simlab.experiments.study_files import file_name, remove_old_files
from simlab.representations.folder import (
    MORE_ROWS,
    Representations,
    load_representations,
    note_other_lengths,
    require_same_examples,
)
from simlab.store.console import progress, warnings_as_notes
from simlab.store.jobs import Outcome
from simlab.store.results import (
    ALIGNMENT,
    COMPLEXITY,
    FITTED,
    HELDOUT,
    MSE,
    NUCLEAR,
    RELATIVE,
    TRAIN,
    WITHIN,
    ResultRow,
    ensure_results,
)


@dataclass(frozen=True)
class StudyOptions:
    """Options of an alignment study.

    Attributes
    ----------
    name
        Name of this set of models in results.
    methods
        Names in `simcore.align.METHODS`.
    within
        Whether to align also every layer of each model with every other layer of that model.
    heldout_share
        Share of the examples that maps are judged on.
    rows
        Most rows that a map is fitted on, and most rows that it is judged on.
    at_once
        Number of maps that are trained in one batched loop.
    epochs
        Passes over the rows for maps that are trained; None is the default of the aligners.
    seed
        Seed of the split and of maps that are trained.
    causal
        Whether to leave out the word pairs that decoders mask; for attention only.
    """

    name: str = "models"
    methods: tuple[str, ...] = ("inn",)
    within: bool = False
    heldout_share: float = 0.5
    rows: int = 20_000
    at_once: int = 16
    epochs: int | None = None
    seed: int = 0
    causal: bool = False

    def check(self) -> None:
        """Raise UserError if a method is unknown or a number is out of range."""
        check_methods(self.methods, FITTED)
        if not 0 < self.heldout_share < 1:
            raise UserError(f"--heldout-share {self.heldout_share}: wanted a share in (0, 1)")
        check_counts(self, "rows", "epochs", "at_once")


@dataclass(frozen=True)
class Split:
    """Numbers of the rows that maps are fitted on and judged on, from different examples."""

    train: np.ndarray
    heldout: np.ndarray


def align_study(
    folders: Sequence[str | Path],
    out: str | Path,
    options: StudyOptions | None = None,
    *,
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
    overwrite
        Replace results files that were made from other inputs, and remove files that an earlier
        version wrote for a study of this name; if False, raise an error instead.

    Returns
    -------
    list of Outcome
        Paths of the results files, and whether they were there before; `read_results` reads them.

    Raises
    ------
    UserError
        A folder has no representations, two folders differ in their rows or numbers of layers or
        have the same label, there are too few examples, or `out` has files that `overwrite` would
        replace or remove.

    Examples
    --------
    >>> from simlab import TaskOptions, align_study, extract
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> pair = ["runs/tokens/orig", "runs/tokens/random"]
    >>> tokens = {"kind": "token", "split": "train", "task_options": few}
    >>> step = extract("minilm", "rt", pair[0], label="ORIG", **tokens)
    >>> step = extract("minilm", "rt", pair[1], label="RANDOM", random_init_seed=0, **tokens)
    >>> steps = align_study(pair, "runs/results/alignment", methods=("linear",))
    >>> len(steps)  # both directions of the pair, and the complexity of each
    4
    """
    options = dataclasses.replace(options or StudyOptions(), **changes)
    options.check()
    out = Path(out)
    models = [load_representations(folder) for folder in folders]
    _check(models, options)
    note_other_lengths(models)
    split = split_rows(models[0], options)
    remove_old_files(out, options.name, replace=overwrite)
    outcomes = []
    for kind, members in _parts(models, options):
        for method in options.methods if kind != COMPLEXITY else (NUCLEAR,):
            labels = [model.manifest["label"] for model in members]
            rows = models[0].manifest["kind"]
            file = out / file_name(kind, options.name, method, rows, labels)
            inputs = {
                "step": "align-study",
                "part": [kind, options.name, method],
                "data": [[m.manifest[key] for key in _IDENTITY] for m in members],
                "how": [options.heldout_share, options.rows, options.epochs, options.seed],
                **({"causal": True} if options.causal else {}),
            }
            make = _Part(kind, method, members, split, options)
            outcomes.append(ensure_results(file, inputs, make, replace=overwrite))
    return outcomes


_IDENTITY = ("data_sha256", "label", "seed", "task")


def split_rows(model: Representations, options: StudyOptions) -> Split:
    """Split the rows by example, at random with `options.seed`.

    Raises
    ------
    UserError
        There are fewer than two examples on a side of the split.
    """
    example = _examples(model, options.causal)
    count = int(example.max()) + 1
    heldout = round(options.heldout_share * count)
    if min(heldout, count - heldout) < 2:
        raise UserError(
            f"--heldout-share {options.heldout_share}: wanted 2 examples or more on each side, "
            f"found {heldout} of {count} held out in {model.folder}; {MORE_ROWS}"
        )
    draw = np.random.default_rng(options.seed)
    judged = np.zeros(count, bool)
    judged[draw.permutation(count)[:heldout]] = True
    order = draw.permutation(len(example))
    on_judged = judged[example[order]]
    return Split(order[~on_judged][: options.rows], order[on_judged][: options.rows])


def _examples(model: Representations, causal: bool) -> np.ndarray:
    """Return the number of the example that each row belongs to, int64 [n]."""
    if model.is_attention:
        lengths = np.array(model.manifest["lengths"])
        pairs = lengths * (lengths + 1) // 2 if causal else lengths**2
        return np.repeat(np.arange(len(lengths)), pairs)
    # Rows of tokens and words are called "example:number:text".
    names = [row.partition(":")[0] for row in model.ids]
    return np.unique(names, return_inverse=True)[1]


def _check(models: list[Representations], options: StudyOptions) -> None:
    labels = [model.manifest["label"] for model in models]
    if len(set(labels)) < len(labels):
        raise UserError(f"align-study: wanted folders with different labels, found {labels}")
    if len(models) < 2 and not options.within:
        raise UserError(f"align-study: wanted 2 folders or more, or --within, found {len(models)}")
    first = models[0]
    if options.causal and not first.is_attention:
        raise UserError(
            f"--causal: wanted kind attention in {first.folder}, found {first.manifest['kind']}"
        )
    for other in models[1:]:
        if other.manifest["kind"] != first.manifest["kind"]:
            raise UserError(
                f"{other.folder}: wanted kind {first.manifest['kind']} as in {first.folder}, found "
                f"{other.manifest['kind']}"
            )
        require_same_examples(first, other)
        if len(other.layers) != len(first.layers):
            raise UserError(
                f"{other.folder}: wanted {len(first.layers)} layers as in {first.folder}, found "
                f"{len(other.layers)}"
            )


def _parts(
    models: list[Representations], options: StudyOptions
) -> Iterator[tuple[str, tuple[Representations, ...]]]:
    """Yield the parts of a study, the cheapest first: the kind of part, and its models."""
    for model in models:
        yield COMPLEXITY, (model,)
    for pair in permutations(models, 2):
        yield ALIGNMENT, pair
    if options.within:
        for model in models:
            yield WITHIN, (model,)


class _Part:
    """A part of a study; calling it computes the rows of its results file."""

    def __init__(
        self,
        kind: str,
        method: str,
        members: tuple[Representations, ...],
        split: Split,
        options: StudyOptions,
    ) -> None:
        self.kind, self.method, self.split, self.options = kind, method, split, options
        self.x, self.y = members[0], members[-1]

    def __call__(self) -> list[ResultRow]:
        if self.kind == COMPLEXITY:
            return [
                self._row(NUCLEAR, nuclear_norm(self._matrix(self.x, layer)), (layer, None))
                for layer in range(len(self.x.layers))
            ]
        layers = range(len(self.x.layers))
        pairs = list(product(layers, layers)) if self.kind == WITHIN else [(i, i) for i in layers]
        self.cut_x = [self._cut(self.x, layer) for layer in layers]
        self.cut_y = [self._cut(self.y, layer) for layer in layers]
        rows: list[ResultRow] = []
        names = " and ".join(dict.fromkeys(m.manifest["label"] for m in (self.x, self.y)))
        with progress(f"{self.method} on {names}", len(pairs)) as advance:
            for defined, chunk in self._chunks(pairs):
                rows += self._aligned(chunk) if defined else self._undefined(chunk)
                advance(len(chunk))
        return rows

    def _cut(self, model: Representations, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of a layer that maps are fitted on, and the rows they are judged on."""
        matrix = self._matrix(model, layer)
        return matrix[self.split.train], matrix[self.split.heldout]

    def _matrix(self, model: Representations, layer: int) -> np.ndarray:
        """Return stored layer number `layer`, counted from 0, as [rows, columns] float32."""
        import simcore

        stored = model.layers[layer]
        if not model.is_attention:
            return stored
        causal = self.options.causal
        return np.asarray(simcore.distributed_attention(stored, causal=causal), np.float32)

    def _chunks(self, pairs: list[tuple[int, int]]) -> Iterator[tuple[bool, list[tuple[int, int]]]]:
        """Yield `at_once` pairs of layers of equal widths, and whether all their layers vary."""
        groups: dict[Any, list[tuple[int, int]]] = defaultdict(list)
        for i, j in pairs:
            x, y = self.cut_x[i], self.cut_y[j]
            defined = all(varies(rows) for rows in (*x, *y))
            groups[x[0].shape[1], y[0].shape[1], defined].append((i, j))
        for (_, _, defined), group in groups.items():
            for start in range(0, len(group), self.options.at_once):
                yield defined, group[start : start + self.options.at_once]

    def _undefined(self, pairs: list[tuple[int, int]]) -> Iterator[ResultRow]:
        """Yield rows with value nan for pairs with a constant layer (CLS at layer 0)."""
        for pair, (measure, part) in product(pairs, _ERRORS):
            yield self._error_row(measure, part, np.nan, pair)

    def _aligned(self, pairs: list[tuple[int, int]]) -> Iterator[ResultRow]:
        from simcore.align import TooFewRowsError, align_pairs

        learnt, judged = (
            ([self.cut_x[i][part] for i, _ in pairs], [self.cut_y[j][part] for _, j in pairs])
            for part in (0, 1)
        )
        heldout = dict(zip(("X_heldout", "Y_heldout"), judged, strict=True))
        where = " and ".join(str(side.folder) for side in (self.x, self.y))
        try:
            with warnings_as_notes():
                results = align_pairs(*learnt, self.method, **heldout, **self._params())
        except TooFewRowsError as error:
            option, more = f"--rows {self.options.rows}", ""
            if len(self.split.train) < self.options.rows:
                option, more = f"--heldout-share {self.options.heldout_share}", f"; {MORE_ROWS}"
            raise UserError(f"{option}, --method {self.method}: {where}: {error}{more}") from None
        except ValueError as error:
            raise UserError(f"{where}: {self.method}: {error}") from None
        for pair, result in zip(pairs, results, strict=True):
            for part, errors in ((TRAIN, result.train), (HELDOUT, result.heldout)):
                yield self._error_row(MSE, part, errors.mse, pair)
                yield self._error_row(RELATIVE, part, errors.relative, pair)

    def _params(self) -> dict[str, Any]:
        return map_params(self.method, seed=self.options.seed, epochs=self.options.epochs)

    def _error_row(self, measure: str, part: str, value: float, pair: tuple[int, int]) -> ResultRow:
        return self._row(measure, value, pair, {"method": self.method, "rows": part})

    def _row(
        self,
        measure: str,
        value: float,
        pair: tuple[int, int | None],
        options: dict[str, Any] | None = None,
    ) -> ResultRow:
        x, y, first = self.x.manifest, self.y.manifest, self.x.first_layer
        alone = pair[1] is None
        if self.options.causal:
            options = {**(options or {}), "causal": True}
        part = (options or {}).get("rows")
        return ResultRow(
            comparison=f"{self.kind}: {self.options.name}",
            measure=measure,
            kind=x["kind"],
            options=json.dumps(options) if options else None,
            model_x=x["label"],
            model_y=None if alone else y["label"],
            seed_x=x["seed"],
            seed_y=None if alone else y["seed"],
            layer_x=first + pair[0],
            layer_y=None if alone else first + pair[1],
            value=float(value),
            n=len(getattr(self.split, part)) if part else x["n"],
            task=x["task"],
        )


_ERRORS = tuple(product((MSE, RELATIVE), (TRAIN, HELDOUT)))
