"""The rows of one task as claims read them: curves, grids and alignment errors by model.

`simlab.evidence.labels` says which models are fine-tuned and which are pretrained. Models of
truncation, skipping and freezing are always fine-tuned. Models with random weights are left out.

If a measure was computed in several ways (estimator, kernel, options, kind of rows), the first way
in the results counts. The embedding output (layer 0) is left out wherever depth matters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError
from simlab.evidence.labels import PRETRAINED, TUNED, role_columns, who_is_who
from simlab.evidence.options import ClaimOptions
from simlab.evidence.studies import (
    ERROR,
    alike_in_protocol,
    distinct,
    mean_over_heads,
    of_one_study,
)
from simlab.similarity.catalogue import MEASURES
from simlab.store.labels import run_names
from simlab.store.results import (
    ALIGNMENT,
    DRAWS,
    FREEZING,
    GRIDS,
    LOCALIZATION,
    RANDOM,
)
from simlab.tasks.metrics import METRICS

if TYPE_CHECKING:
    import pandas as pd

_SIDES = ("x", "y")
# Rows of a grid that differ in one of these columns were computed in different ways.
VARIANT = ("estimator", "kernel", "bandwidth", "options", "kind", "n")

# Copies of all columns would be slow.
_OF_ERRORS = [*ERROR, "layer_y", "head", "protocol", "left_out", "role_x", "role_y"]


class TaskRows:
    """The rows of one task.

    `frame` has the names of the models in columns ``x`` and ``y``, their roles (`TUNED`,
    `PRETRAINED` or "") in ``role_x`` and ``role_y``, and their base models in ``base_x`` and
    ``base_y``. `who` has the facts of each model by its name, and `read` says which rows have been
    given to a claim.
    """

    def __init__(self, task: str, frame: pd.DataFrame, options: ClaimOptions) -> None:
        self.task, self.options = task, options
        untrained = frame["stage_x"].eq(RANDOM) | frame["stage_y"].eq(RANDOM)
        frame = frame[~untrained.fillna(False).astype(bool)]
        # Two jobs may have made the same rows, as of a baseline.
        frame = frame.drop_duplicates([name for name in frame if name not in ("grid", DRAWS)])
        frame = frame.reset_index(drop=True)
        names, roles = _names(frame), role_columns(frame, options)
        self.frame = frame.assign(**names, **roles)
        families = {f"family_{side}": roles[f"base_{side}"] for side in _SIDES}
        self.who = who_is_who(self.frame.assign(**families, **frame[["base_x", "base_y"]]), task)
        self.read = np.zeros(len(frame), bool)
        self._tables: dict[tuple[Any, ...], pd.DataFrame] = {}  # of `_table`

    @property
    def origins(self) -> dict[str, str]:
        """Return the pretrained model that each model comes from."""
        return {name: one.origin for name, one in self.who.items()}

    def tuning(self, some: pd.DataFrame) -> pd.Series:
        """Return which rows compare a fine-tuned model with the pretrained model that it was."""
        roles = some["role_x"] + "," + some["role_y"]
        origin_x, origin_y = (some[side].map(self.origins) for side in _SIDES)
        between = roles.isin([f"{TUNED},{PRETRAINED}", f"{PRETRAINED},{TUNED}"])
        return between & (origin_x == origin_y)

    def by_base(self) -> Iterator[tuple[str, TaskRows]]:
        """Yield each base model, and the rows of models of this base alone."""
        base_x, base_y = self.frame["base_x"], self.frame["base_y"]
        for base in dict.fromkeys(base_x):
            alone = (base_x == base) & ((base_y == base) | self.frame["y"].isna())
            if alone.any():
                yield base, self._changed(self.frame[alone].reset_index(drop=True))

    def with_values(self, values: np.ndarray) -> TaskRows:
        """Return the same rows with other values, nan where they were, none of them read yet."""
        changed = self._changed(self.frame.assign(value=values))
        changed._tables = self._tables
        return changed

    def read_before(self, measures: Collection[str]) -> TaskRows:
        """Return the rows of these measures and of metrics that a claim has read."""
        measure = self.frame["measure"]
        wanted = measure.isin(list(measures)) | measure.isin(list(METRICS))
        return self._changed(self.frame[wanted & self.read].reset_index(drop=True))

    def _changed(self, frame: pd.DataFrame) -> TaskRows:
        changed = copy(self)
        changed.frame, changed.read = frame, np.zeros(len(frame), bool)
        changed.who, changed._tables = dict(self.who), {}
        return changed

    def read_rows(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Note that a claim reads these rows, and return them."""
        self.read[rows.index] = True
        return rows

    def _table(self, select: Callable[..., pd.DataFrame], *choices: Any) -> pd.DataFrame:
        """Return rows with their values, and note that a claim reads them.

        Which rows `select` gives does not depend on the values, so it is asked once for all values.
        """
        key = (select.__name__, *choices)
        if key not in self._tables:
            self._tables[key] = select(*choices)
        rows = self._tables[key]
        return self.read_rows(rows.assign(value=self.frame["value"].to_numpy()[rows.index]))

    def metrics(self, *experiments: str) -> pd.DataFrame:
        """Return the rows of experiments whose value is the metric of the task.

        Two rows that give one model two values raise a UserError.
        """
        return self._table(self._metrics, *experiments)

    def _metrics(self, *experiments: str) -> pd.DataFrame:
        scored = self.frame["measure"].isin(list(METRICS))
        rows = self.frame[self.frame["experiment"].isin(experiments) & scored]
        # Freezing trains a whole model.
        unnamed = rows[rows["layer_x"].isna() & rows["experiment"].ne(FREEZING)]
        if len(unnamed):
            first = unnamed.iloc[0]
            raise UserError(
                f"results, task {self.task}: wanted column 'layer_x' in rows of "
                f"{first['experiment']}, found nothing for {first['x']}"
            )
        keys = ["experiment", "label_x", "seed_x", "layer_x", "layer_y"]
        repeated = rows.duplicated(keys)
        if repeated.any():
            first = rows[repeated].iloc[0]
            raise UserError(
                f"results, task {self.task}: wanted one {first['measure']} of "
                f"{first['experiment']} for {first['x']}, found several at a layer; choose fewer "
                "results"
            )
        return rows[["x", "value", *keys]]  # the rest is slow to copy

    def curves(self, experiment: str) -> pd.DataFrame:
        """Return the metric by layer (rows, the embedding output first) and model (columns)."""
        rows = self.metrics(experiment)
        return rows.pivot(index="layer_x", columns="x", values="value").sort_index()

    def grids(self) -> pd.DataFrame:
        """Return all rows of grids, with one row for each cell of each measure and kind."""
        return self._table(self._grids)

    def _grids(self) -> pd.DataFrame:
        rows = self.frame[self.frame["experiment"].isin(GRIDS)]
        return rows.drop_duplicates(["measure", *VARIANT, "x", "y", "layer_x", "layer_y"])

    def localization(self) -> Iterator[tuple[str, pd.DataFrame]]:
        """Yield each definition of the score and its rows, the embedding output left out.

        Joint grids of pretrained models alone come before the others, and among them, as among
        the others, larger numbers of models first.
        """
        rows = self.frame[self.frame["experiment"] == LOCALIZATION]
        rows = rows[rows["layer_x"] > 0].dropna(subset="value")
        for definition, some in rows.groupby("options", dropna=False, sort=False):
            standardized = isinstance(definition, str)
            some = first_variant(some).drop_duplicates(["comparison", "x", "layer_x"])
            company = some["comparison"].fillna("")
            mixed = company.map((some["role_x"] == TUNED).groupby(company).any())
            models = company.map(some["x"].groupby(company).nunique())
            order = np.lexsort((-models, mixed))
            yield (
                "standardized localization" if standardized else "localization",
                self.read_rows(some.iloc[order]),
            )

    def alignment(
        self, *, attention_too: bool = False, methods: Collection[str] = ()
    ) -> pd.DataFrame:
        """Return errors of maps between models at equal layers, the embedding output left out.

        Each kind and roles have the rows of one study (`simlab.evidence.studies`), which has all
        `methods` that are to be compared. If `attention_too`, its protocol must be one in which
        attention and hidden states were studied.
        """
        return mean_over_heads(self._table(self._alignment, attention_too, *methods))

    def _alignment(self, attention_too: bool, *methods: str) -> pd.DataFrame:
        rows = self.frame[self.frame["experiment"] == ALIGNMENT]
        rows = rows[(rows["layer_x"] > 0) & rows["value"].notna()]
        rows = alike_in_protocol(rows) if attention_too else rows
        return distinct(of_one_study(rows, methods))[_OF_ERRORS]


def first_variant(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that were computed in the same way as the first."""
    ways = rows.groupby(list(VARIANT), dropna=False, sort=False).ngroup()
    return rows[ways == 0]


def by_measure(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the name of each similarity in rows of grids, and the rows of its first variant.

    Distances are left out: their values are small where a similarity is large.
    """
    for measure, of_measure in rows.groupby("measure", sort=False):
        known = MEASURES.get(str(measure))
        if known is None or not known.distance:
            yield str(measure), first_variant(of_measure)


def at_last_steps(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose models are at the last step of their training, or have no steps."""
    import pandas as pd

    sides = {
        side: pd.DataFrame(
            {
                "run": run_names(frame[f"label_{side}"]),
                "seed": frame[f"seed_{side}"],
                "base": frame[f"base_{side}"],
                "step": frame[f"step_{side}"],
            }
        )
        for side in _SIDES
    }
    every = pd.concat(sides.values(), ignore_index=True)
    if every["step"].isna().all():
        return frame
    last = every.groupby(["run", "seed", "base"], dropna=False)["step"].max().rename("last")
    kept = pd.Series(True, index=frame.index)
    for models in sides.values():
        ends = models.merge(last, how="left", on=["run", "seed", "base"])["last"].to_numpy()
        steps = models["step"]
        kept &= (steps.isna() | (steps == ends)).fillna(False).to_numpy(bool)
    return frame[kept]


def layer_table(rows: pd.DataFrame, *, embeddings: bool = False) -> pd.DataFrame:
    """Return the rows of one grid of two models as a table, layers of x by layers of y."""
    cells = rows if embeddings else rows[(rows["layer_x"] > 0) & (rows["layer_y"] > 0)]
    return cells.pivot(index="layer_x", columns="layer_y", values="value")


def unordered(rows: pd.DataFrame) -> Iterator[tuple[frozenset[str], list[pd.DataFrame]]]:
    """Yield each pair of different models, and its rows in each direction."""
    rows = rows[rows["x"] != rows["y"]]
    pairs: dict[frozenset[str], list[pd.DataFrame]] = {}
    for (x, y), of_pair in rows.groupby(["x", "y"], sort=False):
        pairs.setdefault(frozenset([str(x), str(y)]), []).append(of_pair)
    yield from pairs.items()


def depth_trend(layers: Sequence[int], values: Sequence[float] | np.ndarray) -> float:
    """Return Spearman's correlation of `values` with depth; nan for fewer than three layers."""
    return float(depth_trends(layers, np.asarray(values, float)[None])[0])


def depth_trends(layers: Sequence[int], curves: np.ndarray) -> np.ndarray:
    """Return `depth_trend` of each of several curves [curves, layers], all at once."""
    from scipy.stats import rankdata

    depths, finite = np.asarray(layers, float), np.isfinite(curves)
    trends = np.full(len(curves), np.nan)
    for defined in np.unique(finite, axis=0):
        if defined.sum() < 3:
            continue
        some = (finite == defined).all(axis=1)
        ranks = [rankdata(one[..., defined], axis=-1) for one in (depths, curves[some])]
        depth, height = (one - one.mean(axis=-1, keepdims=True) for one in ranks)
        norms = np.sqrt((depth**2).sum() * (height**2).sum(axis=1))
        trends[some] = np.divide(
            height @ depth, norms, np.full_like(norms, np.nan), where=norms > 0
        )
    return trends


def _names(frame: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the names of the models: labels, with the seed where a label has several seeds."""
    import pandas as pd

    sides = {side: (frame[f"label_{side}"], frame[f"seed_{side}"]) for side in _SIDES}
    labels, seeds = (
        pd.concat(both, ignore_index=True) for both in zip(*sides.values(), strict=True)
    )
    counts = seeds.groupby(labels).nunique()
    several = counts.index[counts > 1]
    return {
        side: label.mask(
            label.isin(several) & seed.notna(), label + " (seed " + seed.astype("string") + ")"
        )
        for side, (label, seed) in sides.items()
    }
