"""Which measure finds the layers that correspond, on values that others published?

    python examples/studies/published_layers.py tests/reference/published/ding2021.csv

The criteria of `identification.py` on a table of distances between layers: columns ``seed1``,
``layer1``, ``seed2``, ``layer2`` (seeds from 1, layers from 0, each pair once) and one column for
each measure. Rows land in ``examples/studies/results/published-layers.csv``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from judging import criteria
from publish import RESULTS

TABLE = RESULTS / "published-layers.csv"
PAIR = ("seed1", "layer1", "seed2", "layer2")
CRITERIA = {"identification": criteria.identification, "order": criteria.order}


def similarities(pairs: pd.DataFrame, measure: str) -> np.ndarray:
    """Return minus the distances of all layers of all networks, ``[S, L, S, L]``.

    Raises
    ------
    ValueError
        The table lacks a pair of layers.
    """
    seeds, layers = int(pairs["seed1"].max()), int(pairs["layer1"].max()) + 1
    first = (pairs["seed1"] - 1) * layers + pairs["layer1"]
    second = (pairs["seed2"] - 1) * layers + pairs["layer2"]
    joint = np.full((seeds * layers, seeds * layers), np.nan)
    joint[first, second] = joint[second, first] = pairs[measure]
    if np.isnan(joint).any():
        raise ValueError(f"{measure}: wanted all pairs of layers, found {len(pairs)} rows")
    return -joint.reshape(seeds, layers, seeds, layers)


def judged(pairs: pd.DataFrame, measures: list[str]) -> pd.DataFrame:
    """Return a row for each measure and criterion."""
    rows = []
    for measure in measures:
        s = similarities(pairs, measure)
        for name, criterion in CRITERIA.items():
            found = criterion(s)
            chance = 1 / s.shape[1] if name == "identification" else 0.5
            rows.append({"measure": measure, "criterion": name, **vars(found), "chance": chance})
    return pd.DataFrame(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path, help="the published distances (.csv)")
    parser.add_argument("--measure", action="append", help="a column; default: all distances")
    options = parser.parse_args()
    published = pd.read_csv(options.table)
    others = [name for name in published if name not in PAIR and not name.endswith("_diff")]
    table = judged(published, options.measure or others)
    table.to_csv(TABLE, index=False, float_format="%.5g")
    print(table.to_string(index=False, float_format="%.3f"))
