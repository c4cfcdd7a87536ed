"""False discovery rates of the permutation tests in a results table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simlab.errors import UserError, argument
from simlab.results.results import GRIDS, SIDE

if TYPE_CHECKING:
    import pandas as pd

METHODS = ("bh", "by")


def false_discoveries(results: pd.DataFrame, method: str = "bh") -> pd.DataFrame:
    """Add the column `qvalue`: the false discovery rate at which a pair of layers is significant.

    All pairs of layers in the table are one family, over all of its grids: select rows first for
    another one. A layer compared with itself is significant by definition; such pairs would make
    room for others, and are left out with a `qvalue` of nan, as are rows without a p-value.

    Parameters
    ----------
    results
        A results table with p-values, as `read_results` returns it.
    method
        ``bh`` (Benjamini and Hochberg 1995) holds for independent tests and for many positively
        dependent ones; ``by`` (Benjamini and Yekutieli 2001) holds for all, with less power.

    Returns
    -------
    DataFrame
        The table with the column `qvalue`. Among the pairs with a `qvalue` of at most .05, a share
        of at most .05 is expected to be unrelated. P-values of K permutations are at least
        1 / (K + 1): a family of many pairs needs many permutations.

    Raises
    ------
    UserError
        An unknown method, or a table without p-values of grids.

    Examples
    --------
    >>> import numpy as np
    >>> from simlab import false_discoveries, grid, import_representations, read_results
    >>> np.savez("layers.npz", *np.random.default_rng(0).standard_normal((3, 50, 4)))
    >>> step = import_representations("layers.npz", "runs/reps/drawn", label="drawn")
    >>> step = grid("runs/reps/drawn", "runs/results/drawn.parquet", permutations=99)
    >>> table = false_discoveries(read_results("runs/results/drawn.parquet"))
    >>> int(table["qvalue"].isna().sum())  # a layer with itself, for both estimators
    6
    """
    from scipy.stats import false_discovery_control

    if method not in METHODS:
        raise UserError(f"{argument('method')}: wanted bh or by, found {method!r}")
    sides = [f"{name}_{side}" for name in ("layer", *SIDE) for side in "xy"]
    for name in ("experiment", "pvalue", *sides):
        if name not in results:
            raise UserError(f"results: wanted a table of read_results, found no column {name}")
    itself = results["layer_x"].eq(results["layer_y"]).fillna(False)
    for name in SIDE:
        x, y = results[f"{name}_x"], results[f"{name}_y"]
        itself &= x.eq(y).fillna(False) | (x.isna() & y.isna())
    tested = results["experiment"].isin(GRIDS) & results["pvalue"].notna() & ~itself
    if not tested.any():
        raise UserError(
            "results: wanted p-values of pairs of layers, found none; "
            f"{argument('permutations', 200, of='grid')} computes them"
        )
    table = results.assign(qvalue=float("nan"))
    pvalues = results.loc[tested, "pvalue"].to_numpy("float64")
    table.loc[tested, "qvalue"] = false_discovery_control(pvalues, method=method)
    return table
