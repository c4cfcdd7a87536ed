"""Models with a head: their classes, new heads, and whether the head of a checkpoint fits a task.

jiant (https://github.com/nyu-mll/jiant, version 2) has one head for all encoders. It reads the
pooler's output where the encoder has a pooler, else the first token: dropout, a dense layer, tanh,
dropout, and a linear layer to the classes, to the value of a regression, or to the score of a
choice. The pooler is a part of the encoder, and not of the head. transformers has another head for
each architecture. The configuration of a checkpoint says which head it has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from simlab.errors import UserError, argument
from simlab.models.architectures import FIRST
from simlab.models.place import is_spread
from simlab.models.recognise import classifier_token
from simlab.store.console import note, note_once
from simlab.tasks.labels import SCORES, same_name

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel

    from simlab.models.sources import ModelSource
    from simlab.tasks import Task

_SEVERAL = "multi_label_classification"  # the `problem_type` of heads for several classes a text
HEADS = TRANSFORMERS, JIANT = ("transformers", "jiant")
_KEY = "simlab_head"  # of a configuration
_DROPOUT = "hidden_dropout_prob"


def head_of(config: PreTrainedConfig) -> str:
    """Return which of `HEADS` a model of this configuration has."""
    return getattr(config, _KEY, TRANSFORMERS)


def set_head(config: PreTrainedConfig, task: Task, head: str) -> None:
    """Let a configuration have one of `HEADS`, of the size that `task` wants."""
    if head == JIANT and (classifier_token(config) != FIRST or not hasattr(config, _DROPOUT)):
        raise UserError(
            f"{argument('head', head)}: wanted an encoder whose first token is the classifier "
            f"token and whose configuration has {_DROPOUT} (BERT, RoBERTa, ALBERT, ELECTRA), found "
            f"{config.model_type!r}"
        )
    if head != head_of(config):
        setattr(config, _KEY, head)
    if task.is_regression:
        config.num_labels = 1
        config.problem_type = "regression"
        return
    names = task.label_names  # for multiple choice, the numbers of the choices
    config.id2label = dict(enumerate(names))  # sets num_labels too
    config.label2id = {name: index for index, name in enumerate(names)}
    config.problem_type = "single_label_classification"


def is_multiple_choice(config: PreTrainedConfig, task: Task | None) -> bool:
    """Return whether `task` is multiple choice; without a task, whether the checkpoint is."""
    if task is not None:
        return task.is_multiple_choice
    return any(name.endswith("ForMultipleChoice") for name in config.architectures or ())


def classifier_class(config: PreTrainedConfig, task: Task | None) -> tuple[Any, str]:
    """Return the class of a model for `task`, or for the checkpoint, and the words for its kind."""
    import transformers

    several = is_multiple_choice(config, task)
    auto_class: Any = transformers.AutoModelForSequenceClassification
    mapping: Any = transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
    wanted = "a sequence classifier"
    if several:
        auto_class = transformers.AutoModelForMultipleChoice
        mapping = transformers.MODEL_FOR_MULTIPLE_CHOICE_MAPPING
        wanted = "a multiple-choice model"
    if head_of(config) == JIANT:
        auto_class = _with_jiant_head(mapping[type(config)], several)
    return auto_class, wanted


def read_by_jiant(answer: Any) -> torch.Tensor:
    """Return the vectors that the head of jiant reads, [b, p], from the answer of an encoder."""
    pooled = getattr(answer, "pooler_output", None)
    return answer.last_hidden_state[:, 0] if pooled is None else pooled


def replace_head(
    model: PreTrainedModel, fresh: dict[str, str], name: str, seed: int
) -> dict[str, str]:
    """Let a model have a new head, also where its files have one, and return all weights drawn.

    The classifier, the last module of a head, tells such a head from modules of pretraining that
    the head of a task takes over, such as ModernBERT's. `fresh` are the weights that are not in the
    files (`load.load_weights`).
    """
    prefix = f"{model.base_model_prefix}."
    head = [weight for weight in model.state_dict() if not weight.startswith(prefix)]
    if fresh.get(head[-1], "in the files") == "":
        note(f"{name}: its files have no head for the task; seed {seed} draws one")
        if is_spread(model):  # loading drew other numbers before the head's
            _draw_weights(model, fresh)
        return fresh
    note(f"{name}: the head of its checkpoint is not kept; seed {seed} draws a new one")
    fresh = dict.fromkeys(head, "") | fresh
    _draw_weights(model, fresh)
    return fresh


def _draw_weights(model: PreTrainedModel, names: Iterable[str]) -> None:
    """Draw the weights `names` as transformers draws weights that files lack."""
    from accelerate.utils import set_module_tensor_to_device

    weights, names = model.state_dict(), set(names)
    devices = {name: weights[name].device for name in names}
    for name in names:  # on every device as on the CPU
        set_module_tensor_to_device(model, name, "cpu")
    for module in model.modules():
        module.__dict__.pop("_is_hf_initialized", None)
    for name, weight in model.state_dict(keep_vars=True).items():
        weight._is_hf_initialized = name not in names
    model.initialize_weights()
    for name, device in devices.items():
        set_module_tensor_to_device(model, name, device)


def is_quantised(weight: torch.Tensor) -> bool:
    """Return whether a weight has integers for numbers, in torch's form or a library's own."""
    import torch

    plain = type(weight) in (torch.Tensor, torch.nn.Parameter)
    return not (plain and weight.is_floating_point())


def require_floats(head: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights of a head, and raise UserError for quantised ones: none can be trained."""
    if found := [name for name, weight in head.items() if is_quantised(weight)]:
        raise UserError(
            f"head: wanted weights that can be trained, found quantised ones in {found[0]}; "
            "modules_to_not_convert of the quantisation leaves a head as it is"
        )
    return head


def match_head(model: PreTrainedModel, source: ModelSource, task: Task) -> None:
    """Check that the head of `model` fits `task`, and give its logits the order of the classes.

    Configuration and weights stay as they are in the files, so that an export keeps them. Names of
    classes are equal up to case, and numbers if they are the same number. Names on one side alone
    that count from 0 (``LABEL_0`` or ``0``) are taken in the order of the other side, which a note
    says.
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
        # The head of jiant, which is also called without its model, returns logits alone.
        def in_order(_module: object, _arguments: object, answer: Any) -> Any:
            if not hasattr(answer, "logits"):
                return answer[..., order]
            answer.logits = answer.logits[..., order]
            return answer

        called: Any = model.classifier if head_of(model.config) == JIANT else model
        called.register_forward_hook(in_order)


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
            note_once(
                f"model {source.name}: the outputs of its head ({', '.join(labels)}) are matched "
                "by name"
            )
        return order
    numbers = [str(index) for index in range(len(labels))]
    if (list(theirs) == numbers) == (list(ours) == numbers):
        raise UserError(
            f"model {source.name}: task {task.name} wanted a head with labels "
            f"{', '.join(task.label_names)}, found {', '.join(labels)}"
        )
    pairs = zip(labels, task.label_names, strict=True)
    taken = ", ".join(f"{label} is {name}" for label, name in pairs)
    note_once(
        f"model {source.name}: labels of its head are taken in the order of the task: {taken}"
    )
    return list(range(len(labels)))


@cache
def _with_jiant_head(base: Any, several: bool) -> Any:
    """Return a class as `base` is, a class of transformers, with the head of jiant."""
    import torch
    import transformers
    from torch import nn
    from torch.nn.functional import cross_entropy, mse_loss

    class WithJiantHead(base):  # type: ignore[misc]
        def __init__(self, config: PreTrainedConfig) -> None:
            super(base, self).__init__(config)  # without the head that `base` makes
            self.num_labels = config.num_labels
            encoder: Any = transformers.MODEL_MAPPING[type(config)]
            setattr(self, self.base_model_prefix, encoder(config))
            width, outputs = config.hidden_size, 1 if several else int(config.num_labels or 0)
            dropout = nn.Dropout(getattr(config, _DROPOUT))
            head = OrderedDict[str, nn.Module](before=dropout, dense=nn.Linear(width, width))
            head |= {"tanh": nn.Tanh(), "dropout": dropout}
            self.classifier = nn.Sequential(head | {"out_proj": nn.Linear(width, outputs)})
            self.post_init()

        @classmethod
        def from_config(cls, config: PreTrainedConfig, **how: Any) -> Any:
            return cls._from_config(config, **how)

        @torch.no_grad()
        def _init_weights(self, module: Any) -> None:
            if module in (self.classifier.dense, self.classifier.out_proj):
                module.reset_parameters()  # jiant keeps torch's initialisation
            else:
                super()._init_weights(module)

        def forward(
            self,
            input_ids: torch.Tensor,
            attention_mask: torch.Tensor | None = None,
            token_type_ids: torch.Tensor | None = None,
            labels: torch.Tensor | None = None,
            output_hidden_states: bool = False,
        ) -> Any:
            inputs = {"attention_mask": attention_mask, "token_type_ids": token_type_ids}
            flat = {name: t.flatten(0, -2) for name, t in inputs.items() if t is not None}
            how = {"return_dict": True, "output_hidden_states": output_hidden_states}
            read = self.base_model(input_ids=input_ids.flatten(0, -2), **flat, **how)
            logits = self.classifier(read_by_jiant(read))
            if several:
                logits = logits.view(input_ids.shape[:-1])
            loss = None
            if labels is not None and self.config.problem_type == "regression":
                loss = mse_loss(logits.squeeze(-1), labels.to(logits.dtype))
            elif labels is not None:
                loss = cross_entropy(logits, labels)
            return transformers.modeling_outputs.SequenceClassifierOutput(
                loss=loss, logits=logits, hidden_states=read.hidden_states
            )

    # `save_pretrained` writes the name, and the task is read there.
    WithJiantHead.__name__ = base.__name__
    return WithJiantHead
