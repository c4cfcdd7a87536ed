"""The search for the setting of a map: which settings there are, and which one is best.

Ren et al. 2023 (section 4.4) tune every method on a validation set and do not say between which
settings. Here the settings of a method stand in a list, the default first. Maps with each of them
are fitted on a part of the rows of the fit, and judged on the others, which come from other
examples. The setting with the least relative error, averaged over the layers, fits the map anew on
all rows of the fit. The rows that maps are judged on at the end take no part in this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from simlab.errors import UserError, argument
from simlab.representations.folder import MORE_ROWS

VALIDATION_SHARE = 0.2  # of the examples of the fit
_LEARNT: tuple[dict[str, Any], ...] = ({"max_epochs": 300}, {"learning_rate": 5e-4})
SETTINGS: Mapping[str, Sequence[dict[str, Any]]] = {
    "linear": ({}, {"ridge": 1.0}, {"ridge": 10.0}, {"ridge": 100.0}, {"ridge": 1000.0}),
    "linear-gd": ({}, *_LEARNT, {"weight_decay": 0.1}, {"learning_rate": 1e-2}),
    "cca": ({},),
    "svcca": ({}, {"truncation": 0.999}, {"truncation": 0.95}, {"truncation": 0.9}),
    "pwcca": ({}, {"weight_share": 1.0}, {"weight_share": 0.95}, {"weight_share": 0.9}),
    "mlp": ({}, *_LEARNT, {"weight_decay": 0.1}, {"hidden": 128}, {"hidden": 1024}),
    "inn": (
        {},
        *_LEARNT,
        {"n_blocks": 8},
        {"n_blocks": 2},
        {"hidden": 64},
        {"hidden": 1024},
        {"weight_decay": 0.1},
    ),
}


def third_split(example: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of rows of the fit to fit on, and of rows to validate on.

    `example` is the example of each row, int64 [n]; no example has rows in both.
    """
    names = np.unique(example)
    count = round(VALIDATION_SHARE * len(names))
    if min(count, len(names) - count) < 2:
        raise UserError(
            f"{argument('tune')}: wanted 2 examples or more to validate on, found {count} of "
            f"{len(names)}; {MORE_ROWS}"
        )
    draw = np.random.default_rng([seed, 1])
    validation = np.isin(example, draw.permutation(names)[:count])
    return np.flatnonzero(~validation), np.flatnonzero(validation)


def best_setting(
    settings: Sequence[dict[str, Any]], errors: Callable[[dict[str, Any]], Sequence[float]]
) -> dict[str, Any]:
    """Return the setting with the least mean error; of equal ones, the first.

    ``errors`` gives the errors of a setting, of every pair. A pair without a finite error under one
    setting counts against this setting before all means; a pair without one under any setting
    counts for nothing.
    """
    if len(settings) == 1:
        return settings[0]
    table = np.array([errors(setting) for setting in settings], dtype=np.float64)
    lost = ~np.isfinite(table)  # [settings, pairs]
    counts = np.maximum((~lost).sum(1), 1)
    means = np.where(lost, 0, table).sum(1) / counts
    return settings[min(range(len(settings)), key=lambda k: (lost[k].sum(), means[k]))]
