"""Parameters with which aligners do what published code does."""

from __future__ import annotations

from typing import Any

from simcore.align._training import Training

# Adam's steps of a rate that falls by 1 % a batch move a weight by 1e-4 in all, or by 1e-4 times
# the number of layers where one map takes a step for each layer of a batch.
_TRAINING = Training(
    optimizer="adam",
    learning_rate=1e-6,
    weight_decay=0.0,
    schedule="exponential",
    decay=0.99,
    max_steps=3000,
    batch_size=64,
    shuffle=False,
    validation_share=0.0,
    normalize=False,
    init="xavier",
)

_FLOW: dict[str, Any] = {
    "n_blocks": 1,
    "block": "pair",
    "hidden": None,
    "depth": 2,
    "activation": "selu",
}

REN2023: dict[str, dict[str, Any]] = {
    "linear-gd": {"training": _TRAINING},
    "mlp": {"training": _TRAINING, "hidden": None},
    "inn": {"training": _TRAINING, **_FLOW},
    "pwcca": {"weight_share": 1.0},
}
"""Parameters by method, as in the code that Ren et al. 2023 published.

Adam with a learning rate of 1e-6, which is multiplied by .99 after every batch, 3,000 batches of 64
rows in their stored order, no rows held out, columns neither centred nor scaled, all weights drawn
from Xavier's normal distribution. The flow is a single block of the package INN (INNLab), whose
networks have two hidden layers of four times the columns. A method that is not listed has its
defaults.

>>> from simcore.align import REN2023, GradientLinearAligner
>>> GradientLinearAligner(**REN2023["linear-gd"]).training.learning_rate
1e-06
"""
