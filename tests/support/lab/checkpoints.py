"""Records of fine-tunings, for tests that need no training."""

from simlab.models.checkpoint import EVALUATION
from simlab.store.files import write_json


def evaluation_of(**changes):
    """Return the content of ``evaluation.json`` of a fine-tuning, with fields replaced."""
    record = {
        "model": "minilm",
        "task": "reviews",
        "metric": "accuracy",
        "scores": {"accuracy": 0.5},
        "n": 20,
        "splits": [],
        "recipe": {"max_length": 64},
    }
    return record | changes


def write_evaluation(folder, **changes):
    """Write `evaluation_of` into a model folder."""
    write_json(folder / EVALUATION, evaluation_of(**changes))
