"""The head of a checkpoint on a task: whether it fits, and its outputs in the order of the classes.

Every step that scores a checkpoint with its own head asks here. Classes are matched by their names.
The configuration and the weights stay as they are in the files, so that an export keeps them; the
logits of the loaded model have the order of the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from simlab.errors import UserError, argument
from simlab.models.classes import JIANT, head_of, is_multiple_choice
from simlab.models.load import load_classifier
from simlab.store.console import note_once
from simlab.tasks.labels import SCORES, same_name

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

    from simlab.models.sources import ModelSource
    from simlab.tasks import Task

_SEVERAL = "multi_label_classification"  # the `problem_type` of heads for several classes a text


def load_scored(source: ModelSource, task: Task, **where: Any) -> PreTrainedModel:
    """Load a checkpoint with its own head, and match the head with `task` (`match_head`).

    `where` are `device` and `scratch` of `load_classifier`.
    """
    model = load_classifier(source, **where)
    match_head(model, source, task)
    task.note_taken()
    return model


def match_head(model: PreTrainedModel, source: ModelSource, task: Task) -> None:
    """Check that the head of `model` fits `task`, and give its logits the order of the classes.

    Names are equal up to case, and numbers if they are the same number. Names that are the numbers
    of their own places (``LABEL_0`` or ``0``, then ``LABEL_1`` or ``1``) on one side alone are
    taken for the places of the other side's, which a note says.
    """
    kind = "multiple-choice" if task.is_multiple_choice else "classifier"
    found = "multiple-choice" if is_multiple_choice(model.config, None) else "classifier"
    if kind != found:
        raise UserError(
            f"model {source.name}: task {task.name} wanted a {kind} head, found a {found} head"
        )
    wanted = 1 if task.is_regression else len(task.label_names)
    if model.config.num_labels != wanted:
        other = model.config.num_labels == 1
        hint = f"; {argument('labels', SCORES)} takes numbers as scores" if other else ""
        raise UserError(
            f"model {source.name}: task {task.name} wanted a head with {wanted} outputs, found "
            f"{model.config.num_labels}{hint}"
        )
    if kind != "classifier" or task.is_regression:
        return
    if getattr(model.config, "problem_type", None) == _SEVERAL:
        note_once(
            f"model {source.name}: its head was trained to give a text several classes "
            f"({_SEVERAL}); the class with the largest output is taken for the one of the task"
        )
    order = _order(model.config, source, task)
    if order != sorted(order):
        # The head of jiant is also called without its model.
        called: Any = model.classifier if head_of(model.config) == JIANT else model
        called.register_forward_hook(partial(_in_order, order))


def _order(config: PreTrainedConfig, source: ModelSource, task: Task) -> list[int]:
    """Return the output of the head that belongs to each class of `task`."""
    stated = cast("dict[int, str]", config.id2label)
    labels = [str(stated.get(index)) for index in range(len(stated))]
    theirs, ours = labels, [*task.label_names]
    if {*theirs} != {*ours}:  # names may differ in case alone
        theirs, ours = ([same_name(name) for name in names] for names in (labels, ours))
    if len({*theirs}) == len(theirs) and {*theirs} == {*ours}:
        order = [theirs.index(name) for name in ours]
        if order != sorted(order):
            listed = ", ".join(labels)
            note_once(
                f"model {source.name}: the outputs of its head ({listed}) are matched by name"
            )
        return order
    if _are_places(theirs) == _are_places(ours):
        raise UserError(
            f"model {source.name}: task {task.name} wanted a head with labels "
            f"{', '.join(task.label_names)}, found {', '.join(labels)}"
        )
    pairs = zip(labels, task.label_names, strict=True)
    order = ", ".join(f"{found} is {wanted}" for found, wanted in pairs)
    note_once(
        f"model {source.name}: labels of its head are taken in the order of the task: {order}"
    )
    return list(range(len(labels)))


def _are_places(names: Sequence[str]) -> bool:
    return list(names) == [str(place) for place in range(len(names))]


def _in_order(order: list[int], _module: object, _arguments: object, answer: Any) -> Any:
    """Return the answer of a head or of a model with its logits in another order."""
    if not hasattr(answer, "logits"):
        return answer[..., order]
    answer.logits = answer.logits[..., order]
    return answer
