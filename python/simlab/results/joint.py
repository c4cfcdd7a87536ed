"""Joint grids of a results table as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


@dataclass(frozen=True)
class Layer:
    """A layer of a model: a row and a column of a joint grid."""

    model: str
    seed: int | None
    number: int


def joint_table(rows: pd.DataFrame) -> tuple[list[Layer], np.ndarray]:
    """Return the layers and the grid [layers, layers] of a joint comparison, in stored order.

    The rows are those of one comparison and one measure with one set of options.
    """
    import pandas as pd

    first = rows.drop_duplicates(["label_x", "layer_x"])
    columns = (first[name] for name in ("label_x", "seed_x", "layer_x"))
    layers = [
        Layer(str(model), None if pd.isna(seed) else int(seed), int(number))
        for model, seed, number in zip(*columns, strict=True)
    ]
    keys = [(layer.model, layer.number) for layer in layers]
    table = rows.pivot(index=["label_x", "layer_x"], columns=["label_y", "layer_y"], values="value")
    return layers, table.loc[keys, keys].to_numpy()
