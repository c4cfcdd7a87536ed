"""The number of tokens per example that a checkpoint was trained with, which later steps keep.

`simcore finetune` cuts texts at the length of its recipe and writes the recipe into
``evaluation.json``. A model that reads more or fewer tokens than in its fine-tuning has other
layers and another metric, so a later step keeps the length unless an option names another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simlab.errors import argument
from simlab.store.console import note
from simlab.store.files import read_json
from simlab.store.jobs import RECORD
from simlab.tasks.trained_splits import read_own_evaluation

DEFAULT_MAX_LENGTH = 64  # of models that simlab did not fine-tune


def trained_length(folder: Path) -> int | None:
    """Return the number of tokens per example of the last fine-tuning of a model folder.

    Return None if simlab did not fine-tune the model, or if neither ``evaluation.json`` nor the
    record of the job has the length. A shortened model has no recipe, but ``max_length``, which
    earlier versions did not write.
    """
    evaluation = read_own_evaluation(folder)
    if evaluation is None:
        return None
    job = folder / RECORD
    inputs = read_json(job)["inputs"] if job.is_file() else {}
    for found in (evaluation, evaluation.get("recipe", {}), inputs.get("recipe", {})):
        if "max_length" in found:
            return found["max_length"]
    return None


def chosen_length(checkpoints: Sequence[Path], given: int | None) -> int:
    """Return the number of tokens to keep per example, for models that may have been fine-tuned.

    Parameters
    ----------
    checkpoints
        Model folders.
    given
        The length that the user named. If it is None, the length is that of the first folder whose
        record has one; if no folder has one, it is `DEFAULT_MAX_LENGTH`.
    """
    if given is not None:
        return given
    known = (trained_length(folder) for folder in checkpoints)
    return next((length for length in known if length is not None), DEFAULT_MAX_LENGTH)


def length_of(checkpoints: Sequence[Path], given: int | None) -> int:
    """Return `chosen_length`, and print a note for each checkpoint that may not fit this length.

    Such a checkpoint was fine-tuned with another length; or its record has no length, and the user
    named none.
    """
    chosen = chosen_length(checkpoints, given)
    for folder in dict.fromkeys(checkpoints):
        trained = trained_length(folder)
        if trained not in (None, chosen):
            note(
                f"{folder} was fine-tuned on texts of at most {trained} tokens, and reads at most "
                f"{chosen} now ({argument('max_length', chosen)})"
            )
        elif trained is None and given is None and read_own_evaluation(folder) is not None:
            note(
                f"{folder} does not say at how many tokens its texts were cut in fine-tuning (an "
                f"earlier version wrote it): it reads at most {chosen} now, unless "
                f"{argument('max_length')} says otherwise"
            )
    return chosen
