"""Intervals, p-values and calibrated values of a grid, by resampling whole examples.

An *example* is a text of the task. Words and tokens of a text, pairs of its words, and the choices
of a question are rows that belong together, so whole examples are drawn.

* `low`, `high`: the 95 % interval of the expected value of the measure for this number of examples,
  from `Resampling.bootstrap` halves of the examples, drawn without replacement
  (`simcore.stats.bootstrap_ci`).
* `pvalue`: of the test that the rows of the two layers are unrelated: the examples of Y change
  places, `Resampling.permutations` times (`simcore.stats.permutation_test`). Examples of several
  rows change places only with examples that have the same number of rows, so that each row keeps
  its place in its example.
* `calibrated`: ``(value - chance) / (1 - chance)``, of distances ``1 - value / chance``, where
  chance is the mean value of permuted grids; examples of several rows are permuted as often again
  for it, so that none keeps its place. It is 1 for equal layers, and 0 for layers that are as alike
  as unrelated examples make them.

Intervals of measures that decompose layers (CCA, SVCCA, PWCCA, linear regression, mixedsim) are
nan, with a note, where the kept components of a layer span all rows of a half
(`simcore.stats.few_rows`).

CKA forms its Gram matrices once for all draws, if they fit into memory; every other measure is
computed anew for each draw.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError, argument
from simlab.models.place import CPU
from simlab.representations.folder import MORE_ROWS, Representations
from simlab.results.results import pack_draws
from simlab.similarity.layers import arrays_of, as_array, too_large
from simlab.store.console import err, note

if TYPE_CHECKING:
    import torch

    from simcore._measures.record import Measure

Grids = Mapping[str, np.ndarray]
_NOTED = 0.05  # share of the rows from which on a note says that they keep their places


@dataclass(frozen=True)
class Resampling:
    """The numbers of draws; 0 draws nothing."""

    bootstrap: int = 0  # halves of the examples, for intervals
    permutations: int = 0  # of the examples, for p-values and calibrated values
    seed: int = 0

    def check(self) -> None:
        """Raise UserError for a single half, of which there is no deviation."""
        if self.bootstrap == 1:
            raise UserError(f"{argument('bootstrap')}: wanted 0, or 2 halves or more, found 1")

    @property
    def inputs(self) -> dict[str, Any]:
        """Return what a results file depends on: nothing if nothing is drawn."""
        return asdict(self) if self.bootstrap or self.permutations else {}

    @property
    def record(self) -> str | None:
        """Return the value of column `resampling`."""
        return json.dumps(self.inputs, sort_keys=True) if self.inputs else None


NONE = Resampling()


@dataclass(frozen=True)
class Call:
    """A call of a grid function: all that a draw repeats with other rows."""

    measure: Measure
    # All options of the measure (`catalogue.settings`), one estimator of CKA.
    chosen: Mapping[str, Any]
    x_layers: list[Any]
    y_layers: list[Any] | None  # None if layers are compared with themselves
    side: Representations  # all layers have the rows of these representations
    where: str  # the folders, for messages
    device: str = CPU  # where the layers lie

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of the function."""
        options = {**self.measure.fixed, **self.chosen}
        if self.measure.takes_representations:
            options.pop("causal", None)  # `simcore.distributed_attention` has used this option
        if hasattr(self.x_layers[0], "spectrum"):  # a basis, for which columns were standardised
            options.pop("standardize", None)
        return options


def statistics(call: Call, values: np.ndarray, resampling: Resampling) -> Grids:
    """Return the grids of the columns `STATISTICS` that `resampling` wants, [x layers, y layers].

    `values` is the grid of the measure itself.
    """
    columns: dict[str, np.ndarray] = {}
    if resampling.bootstrap:
        drawn = {"resamples": resampling.bootstrap, "seed": resampling.seed}
        interval = _run(call, "bootstrap_ci", "bootstrap", **drawn, return_draws=True)
        # Values of stored bases differ from the observed ones by rounding.
        lowest, highest = call.measure.lowest, call.measure.highest
        columns["low"] = np.minimum(values, np.maximum(interval.low, lowest))
        columns["high"] = np.maximum(values, np.minimum(interval.high, highest))
        examples = len(np.unique(row_groups(call)))
        # The deviation of all examples as a share of the deviation of halves of them: as in
        # `simcore.stats.bootstrap_ci`, the variance of halves of an odd number is larger.
        half = examples // 2
        draws = np.sqrt(half / (examples - half)) * interval.draws  # [draws, x layers, y layers]
        texts = np.empty(values.shape, object)
        for place in np.ndindex(values.shape):
            texts[place] = pack_draws(draws[:, *place], examples)
        columns["draws"] = texts
    if resampling.permutations:
        drawn = {"permutations": resampling.permutations, "seed": resampling.seed}
        test = _run(call, "permutation_test", "permutations", **drawn)
        _note_places(call)
        columns["pvalue"] = test.pvalue
        best = 0.0 if call.measure.distance else 1.0
        none = np.isnan(test.calibrated)  # no value for equal layers to calibrate to
        room = np.where(none, np.nan, best - test.null_mean)
        columns["calibrated"] = (values - test.null_mean) / room
    return columns


def _run(call: Call, statistic: str, option: str, **how: Any) -> Any:
    import torch

    from simcore import stats
    from simcore.stats.few_rows import FewRowsWarning
    from simcore.stats.grams import GramsTooLargeError

    run = getattr(stats, statistic)
    how = {**how, "groups": row_groups(call), "progress": err.is_terminal}
    layers: tuple[Any, Any] = (call.x_layers, call.y_layers)
    options = call.options
    measure: str | Callable[..., Any] = call.measure.function.removesuffix("_grid")
    if "measure" in options:  # `permutation_test` has a name for each measure of neighbours
        measure = f"{measure}-{options['measure']}"
        options = {name: value for name, value in options.items() if name != "measure"}
    if not call.measure.takes_representations:
        measure, layers, options = _of_sentences(call), _sentence_rows(call), {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")  # the grid itself has given the same warnings
        warnings.simplefilter("always", FewRowsWarning)
        try:
            try:
                result = run(*layers, measure=measure, **how, **options)
            except GramsTooLargeError:
                import simcore

                result = run(*layers, measure=simcore.cka_grid, **how, **options)
        except (ValueError, ImportError) as error:
            raise UserError(f"{call.where}: {argument(option)}: {error}; {MORE_ROWS}") from None
        except torch.OutOfMemoryError:
            raise too_large(call.device) from None
    result = arrays_of(result)
    for warning in caught:
        note(f"{call.where}: {argument(option)}: {warning.message}; {MORE_ROWS}")
    return result


def row_groups(call: Call) -> np.ndarray:
    """Return the number of the example of every row, int64 [n].

    A text is an example where rows are pairs of words. Where sentences are the rows of an attention
    measure, the rows here are their words (`_sentence_rows`).
    """
    pairs, causal = call.measure.takes_representations, bool(call.chosen.get("causal"))
    return call.side.row_examples(pairs=pairs, causal=causal)


def _note_places(call: Call) -> None:
    """Say how many rows no permutation moves, if they are many."""
    groups = row_groups(call)
    sizes = np.bincount(groups)
    lengths, counts = np.unique(sizes[sizes > 0], return_counts=True)
    share = lengths[counts == 1].sum() / len(groups)
    if share >= _NOTED:
        note(
            f"{call.where}: {argument('permutations')} leaves {share:.0%} of the rows in place, "
            "because texts change places only with texts that have the same number of rows: "
            f"calibrated values are too low, and the test has less power; {MORE_ROWS}"
        )


def _sentence_rows(call: Call) -> tuple[list[np.ndarray], list[np.ndarray] | None]:
    """Return layers whose rows are the numbers of words, for resampling in whole sentences."""
    words = np.arange(sum(call.side.manifest["lengths"]), dtype=np.float32)[:, None]
    y = None if call.y_layers is None else [words] * len(call.y_layers)
    return [words] * len(call.x_layers), y


def _of_sentences(call: Call) -> Callable[..., Any]:
    """Return the attention measure as a function of the numbers of words."""
    import simcore

    lengths = call.side.manifest["lengths"]
    sentences = np.repeat(np.arange(len(lengths)), lengths)
    function = getattr(simcore, call.measure.function)

    def taken(words: torch.Tensor) -> np.ndarray:
        """Return the sentences of these words, which stand together, in order."""
        numbers = sentences[words[:, 0].long().numpy()]
        return numbers[np.flatnonzero(np.diff(numbers, prepend=-1))]

    def measure(x: Sequence[torch.Tensor], y: Sequence[torch.Tensor]) -> Any:
        of_x, of_y = taken(x[0]), taken(y[0])
        rows = _reordered(call.x_layers, of_x)
        if call.y_layers is None and np.array_equal(of_x, of_y):
            return as_array(function(rows, **call.options))
        columns = call.x_layers if call.y_layers is None else call.y_layers
        return as_array(function(rows, _reordered(columns, of_y), **call.options))

    return measure


def _reordered(layers: list[list[np.ndarray]], sentences: np.ndarray) -> list[list[np.ndarray]]:
    return [[layer[sentence] for sentence in sentences] for layer in layers]
