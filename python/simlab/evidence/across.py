"""Claims of Phang et al. 2021 on grids of a fine-tuned model with another model.

The other one is the model before fine-tuning (their figure 5), or a fine-tuned model of another
base (their figure 7).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from simlab.evidence.blocks import MEASURE, block_labels, own_grids, shared_scores
from simlab.evidence.claim import BELOW, Evidence
from simlab.evidence.intervals import value_of
from simlab.evidence.labels import TUNED
from simlab.evidence.phang import TOP_SHARE
from simlab.evidence.rows import TaskRows, first_variant
from simlab.evidence.wording import SLIGHT, number

if TYPE_CHECKING:
    import pandas as pd

_SWAPPED = {"x": "y", "y": "x", "layer_x": "layer_y", "layer_y": "layer_x"}


def top_unlike_any(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the top and the bottom layers with the pretrained layer that is most like each."""
    ends = {}
    for model, table in _before_tuning(rows):
        most = table[table.index > 0].max(axis=1).dropna()
        count = math.ceil(TOP_SHARE * len(most))
        if len(most) > count:
            ends[model] = float(most.tail(count).mean()), float(most.head(count).mean())
    if ends:
        top, bottom = np.mean(list(ends.values()), axis=0)
        yield Evidence(
            "CKA of the top quarter of the layers with the pretrained layer most like each, minus "
            "the same of the bottom quarter",
            [value_of(model, top - bottom) for model, (top, bottom) in ends.items()],
            -SLIGHT,
            BELOW,
            f"top {number(top)}, bottom {number(bottom)}",
        )


def _before_tuning(rows: TaskRows) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each fine-tuned model, and its CKA (rows) with all layers of the model that it was."""
    grids = rows.grids()
    grids = first_variant(grids[(grids["measure"] == MEASURE) & rows.tuning(grids)])
    is_first = grids["role_x"] == TUNED
    cells = ["x", "y", "layer_x", "layer_y", "value"]
    sides = [grids.loc[is_first, cells], grids.loc[~is_first, cells].rename(columns=_SWAPPED)]
    import pandas as pd

    for model, mine in pd.concat(sides).groupby("x", sort=False):
        # A joint grid has both directions, which are equal.
        yield str(model), mine.pivot_table("value", "layer_x", "layer_y")


def families_share_blocks(rows: TaskRows) -> Iterator[Evidence]:
    """Score two models' own blocks in the grid between them, if their bases differ."""
    splits = {model: block_labels(table) for model, table in own_grids(rows).items()}
    bases = {model: rows.who[model].architecture for model in splits}
    if values := shared_scores(rows, splits, bases, 2):
        named = sorted(
            {" and ".join(sorted(bases[model] for model in one.names)) for one in values}
        )
        yield Evidence(
            "score of the models' own blocks in grids between two base models",
            values,
            SLIGHT,
            note="; ".join(named),
        )
