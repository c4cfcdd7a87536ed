"""Which model a model was made of, and at which stage it is, as rows of results say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simlab.models.evaluate import has_head
from simlab.models.sources import ModelSource
from simlab.store.results import FT, ORIG, RANDOM, Side
from simlab.tasks.trained_splits import read_own_evaluation

if TYPE_CHECKING:
    from simlab.models.built import BuiltModel


def side_of(
    source: ModelSource | BuiltModel,
    label: str,
    seed: int | None = None,
    random_init_seed: int | None = None,
) -> Side:
    """Return how rows name a model.

    A checkpoint of `simcore finetune` names its base. The base of another model with a head for a
    task is unknown, as is that of a checkpoint that was trained from random weights. Any other
    model is a base itself.

    Parameters
    ----------
    random_init_seed
        Seed of the random weights of a random twin of `source`.
    """
    if random_init_seed is not None:
        return Side(label, seed, source.name, RANDOM)
    if not isinstance(source, ModelSource):
        return Side(label, seed, source.name, ORIG)
    evaluation = read_own_evaluation(source.path)
    if evaluation is not None:
        drawn = evaluation.get("recipe", {}).get("random_init")
        return Side(label, seed, None if drawn else evaluation.get("model"), FT)
    if has_head(source.path):
        return Side(label, seed, None, FT)
    return Side(label, seed, source.name, ORIG)
