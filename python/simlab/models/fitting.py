"""Whether the head of a model fits a task: its kind, its size and the order of its labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from simlab.errors import UserError
from simlab.store.console import note

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

    from simlab.models.sources import ModelSource
    from simlab.tasks import Task


def require_head(model: PreTrainedModel, source: ModelSource, task: Task) -> None:
    """Check that the head of `model` fits `task`.

    Raises
    ------
    UserError
        The head is of another kind, its number of outputs is not the task's number of labels, or it
        names other labels or the same labels in another order.
    """
    kind = "multiple-choice" if task.is_multiple_choice else "classifier"
    found = "multiple-choice" if is_multiple_choice(model.config, None) else "classifier"
    if kind != found:
        raise UserError(
            f"model {source.name}: task {task.name} wanted a {kind} head, found a {found} head"
        )
    wanted = 1 if task.is_regression else len(task.label_names)
    if model.config.num_labels != wanted:
        raise UserError(
            f"model {source.name}: task {task.name} wanted a head with {wanted} outputs, found "
            f"{model.config.num_labels}"
        )
    if kind == "classifier" and not task.is_regression:
        _require_labels(model.config, source, task)


def _require_labels(config: PreTrainedConfig, source: ModelSource, task: Task) -> None:
    """Raise UserError if the labels of the head are not the labels of `task`, in the same order.

    A label whose name is only a number (``LABEL_0``, ``0``) fits every label of this number, which
    a note says.
    """
    names = cast("dict[int, str]", config.id2label)
    labels = [str(names.get(index)) for index in range(len(names))]
    numbered = False
    for index, pair in enumerate(zip(task.label_names, labels, strict=True)):
        said = {name.casefold() for name in pair if name not in (f"LABEL_{index}", str(index))}
        if len(said) > 1:
            raise UserError(
                f"model {source.name}: task {task.name} wanted a head with labels "
                f"{', '.join(task.label_names)}, found {', '.join(labels)}"
            )
        numbered |= bool(said) and pair[0].casefold() != pair[1].casefold()
    if numbered:
        pairs = zip(labels, task.label_names, strict=True)
        order = ", ".join(f"{found} is {wanted}" for found, wanted in pairs)
        note(f"model {source.name}: labels of its head are taken in the order of the task: {order}")


def is_multiple_choice(config: PreTrainedConfig, task: Task | None) -> bool:
    """Return whether `task` is multiple choice; without a task, whether the checkpoint is."""
    if task is not None:
        return task.is_multiple_choice
    return any(name.endswith("ForMultipleChoice") for name in config.architectures or ())
