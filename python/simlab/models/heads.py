"""Heads on cached classifier vectors: one head for every layer, all trained together.

A head reads one vector per example (or per choice): the vector of the classifier token, or the mean
over tokens in a model that pools so, after the final norm if the model has one. The head of jiant
reads the pooler's output where the encoder has a pooler. One pass of the encoder gives these
vectors for all layers. The head is the model's own (the modules that `architectures` names: pooler,
dense layer, classifier), and the model's own code runs it on sequences of one vector. The
parameters of all layers' heads are stacked, and `torch.func.vmap` runs over the layers, so the
matrix products become batched products and one optimiser trains all heads. The heads share no
parameters, so each ends as it would if trained alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from simlab.errors import UserError, argument
from simlab.models.architectures import POOLER
from simlab.models.classes import JIANT, head_of, read_by_jiant, require_floats
from simlab.models.recognise import architecture_of
from simlab.models.states import apply_head, encoder_output
from simlab.store.console import note

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel

Parameters = dict[str, "torch.Tensor"]
# Largest difference of the head's logits on vectors and on states, relative to the largest logit.
_ROUNDING = 1e-3
# A feature whose spread is at most this share of the layer's largest value counts as constant.
_CONSTANT = 1e-6


@dataclass(frozen=True)
class HeadRecipe:
    """How heads are trained: by AdamW, without dropout, with early stopping for each layer.

    Attributes
    ----------
    learning_rate
        Peak learning rate of heads.
    batch_size
        Examples per training step of heads.
    weight_decay
        Weight decay of AdamW for heads.
    most_steps
        Most training steps of heads; fewer if all layers stop earlier.
    steps_between
        Steps between two validations of heads.
    patience
        Validations without a lower loss before the head of a layer stops.
    validation_share
        Share of the training rows on which the best head of each layer is chosen; 0 trains heads on
        all rows, and takes the heads of the last step.
    seed
        Seed of new heads, of the rows for validation and of the order of the others.
    warmup
        Warm-up steps of heads, in which the learning rate rises from 0; a value below 1 is a share
        of the steps.
    decay
        Let the learning rate of heads fall linearly to 0 after the warm-up.
    scale
        Bring the vectors of each layer to one scale before heads read them.
    """

    learning_rate: float = 1e-3
    batch_size: int = 64
    weight_decay: float = 0.01
    most_steps: int = 2000
    steps_between: int = 50
    patience: int = 5
    validation_share: float = 0.1
    seed: int = 0
    warmup: float = 0.0
    decay: bool = False
    scale: bool = True

    def check(self) -> None:
        """Raise UserError if a value is out of range."""
        for name in ("batch_size", "most_steps", "steps_between", "patience"):
            self._check(name, "more than 0", getattr(self, name) > 0)
        for name in ("learning_rate", "weight_decay", "seed", "warmup"):
            self._check(name, "0 or more", getattr(self, name) >= 0)
        self._check("validation_share", "0 or more, and below 1", 0 <= self.validation_share < 1)

    def _check(self, name: str, wanted: str, holds: bool) -> None:
        value = getattr(self, name)
        if not (holds and math.isfinite(value)):
            raise UserError(f"{argument(f'head_{name}')}: wanted {wanted}, found {value}")

    def note_long_warmup(self) -> None:
        """Say so if training ends before the warm-up does."""
        if self.warmup > self.most_steps:
            note(
                f"{argument('head_warmup', self.warmup)}: heads are trained for {self.most_steps} "
                f"steps, up to {self.most_steps / self.warmup:.1%} of the learning rate"
            )

    def record(self) -> dict[str, Any]:
        """Return the fields as results store them."""
        return asdict(self)

    @property
    def most_rows(self) -> int:
        """Return how many rows the steps read and validate on at most."""
        return math.ceil(self.most_steps * self.batch_size / (1 - self.validation_share))

    def rate(self, step: int) -> float:
        """Return the factor of the learning rate at `step`, which counts from 0."""
        rising = round(self.warmup if self.warmup >= 1 else self.warmup * self.most_steps)
        if step < rising:
            return step / rising
        left = self.most_steps - step
        return left / max(self.most_steps - rising, 1) if self.decay else 1.0


def classifier_vectors(
    model: PreTrainedModel,
    hidden: torch.Tensor,
    mask: torch.Tensor,
    is_last: bool,
    name: str = "model",
) -> torch.Tensor:
    """Return the vector of each text that the head would read of a layer.

    From states [b, t, p] and a mask [b, t] the vectors are [b, p]; for multiple choice, b of the
    states counts all choices, the mask is [b, choices, t], and the vectors are [b, choices, p]. On
    the vectors of the last layer (`is_last`), the head must give the model's logits.
    """
    import torch

    answer = encoder_output(model, hidden, mask)
    vectors = _pooled(model, answer, mask.flatten(0, -2)).unflatten(0, mask.shape[:-1])
    if is_last:
        wanted, found = apply_head(model, hidden, mask), head_logits(model, vectors)
        if not torch.allclose(found, wanted, atol=_ROUNDING * float(wanted.abs().max())):
            raise UserError(
                f"model {name}: wanted a head that reads one vector of a text, found architecture "
                f"{model.config.model_type!r}, whose head reads something else; "
                f"{argument('modes', 'untuned')} keeps the head as it is"
            )
    return vectors


def head_logits(model: PreTrainedModel, vectors: torch.Tensor) -> torch.Tensor:
    """Return the logits of the model's own head on `vectors`, [b, p] or [b, choices, p]."""
    import torch

    if head_of(model.config) == JIANT:
        logits: torch.Tensor = cast("nn.Module", model.classifier)(vectors)
        return logits[..., 0] if vectors.dim() == 3 else logits  # the scores of choices
    hidden = vectors.unsqueeze(-2)
    mask = torch.ones(hidden.shape[:-1], dtype=torch.long, device=hidden.device)
    with _encoder_gives(model, hidden.flatten(0, -3)):
        return apply_head(model, hidden, mask)


def stacked_logits(
    model: PreTrainedModel, parameters: Parameters, vectors: torch.Tensor
) -> torch.Tensor:
    """Return the logits of every layer's own head, [layers, b, labels or choices].

    `parameters` are stacked `head_parameters` by name, [layers, ...] each, and `vectors` are
    [layers, b, p] or [layers, b, choices, p].
    """
    from torch import nn
    from torch.func import functional_call, vmap

    class Head(nn.Module):
        """`head_logits` as a module, so that `functional_call` can replace its parameters."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, vectors: torch.Tensor) -> torch.Tensor:
            return head_logits(self.model, vectors)

    module = Head()

    named = {f"model.{name}": p for name, p in parameters.items()}
    return vmap(lambda chosen, layer: functional_call(module, chosen, (layer,)))(named, vectors)


def head_parameters(model: PreTrainedModel) -> Parameters:
    """Return the parameters of the model's head, by their names in the model.

    The pooler is not among them where the head is that of jiant, whose encoder has it: "we
    fine-tune only the output head" (Phang et al. 2021, section 4).
    """
    modules = architecture_of(model).head(model)
    if head_of(model.config) == JIANT:
        modules.pop(POOLER, None)
    mine = {id(p) for module in modules.values() for p in module.parameters()}
    return {name: p.detach() for name, p in model.named_parameters() if id(p) in mine}


def train_heads(
    model: PreTrainedModel, vectors: torch.Tensor, labels: torch.Tensor, recipe: HeadRecipe
) -> Parameters:
    """Fine-tune a head for each layer, starting from the head of `model`, for `stacked_logits`.

    `vectors` are [layers, n, p] or [layers, n, choices, p], on any device, and `labels` [n] int64
    classes or right choices, or float32 values of a regression. Each layer gets the head with the
    lowest loss on a random part of the rows, the start included, or without such rows its last
    head.
    """
    # Training of a layer stops after `patience` validations in a row without a lower loss.
    import torch

    if len(labels) < 2:
        raise UserError(
            f"{argument('train_size')}: wanted at least 2 rows to train heads, found {len(labels)}"
        )
    generator = torch.Generator().manual_seed(recipe.seed)
    order = torch.randperm(len(labels), generator=generator)
    held = max(1, round(recipe.validation_share * len(labels))) if recipe.validation_share else 0
    validation, training = order[:held], order[held:]

    def losses(parameters: Parameters, rows: torch.Tensor) -> torch.Tensor:
        read = vectors[:, rows] if scaling is None else scaling.scale(vectors[:, rows])
        logits = stacked_logits(model, parameters, read.to(device))
        return _losses(logits, labels[rows].to(device))

    scaling = _Scaling(vectors[:, training]) if recipe.scale else None
    head = require_floats(head_parameters(model))
    device = next(iter(head.values())).device
    start = {name: p.expand(len(vectors), *p.shape) for name, p in head.items()}
    # The weight that reads the vectors: the first matrix of their width.
    width = vectors.shape[-1]
    first = next(name for name, p in head.items() if p.dim() == 2 and p.shape[1] == width)
    if scaling is not None:
        start[first] = scaling.weight_in(start[first])
    current = {name: p.clone().requires_grad_() for name, p in start.items()}
    stopping = _Stopping(start, recipe.patience)
    optimiser = torch.optim.AdamW(
        current.values(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, recipe.rate)

    def validate() -> bool:
        with torch.no_grad():
            if not held:
                return stopping.take(current)
            return stopping.update(losses(current, validation), current)

    for step, rows in enumerate(_batches(training, recipe, generator)):
        if held and step % recipe.steps_between == 0 and validate():
            break
        optimiser.zero_grad()
        # The gradient of the sum is, for every layer, the gradient of its own mean loss.
        losses(current, rows).sum().backward()
        optimiser.step()
        schedule.step()
    else:
        validate()  # the heads after the last step may be the best
    if scaling is not None:
        stopping.best[first] = scaling.weight_out(stopping.best[first])
    return stopping.best


def _batches(
    rows: torch.Tensor, recipe: HeadRecipe, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    """Yield `most_steps` batches of shuffled rows, epoch after epoch."""
    import torch

    done = 0
    while done < recipe.most_steps:
        shuffled = rows[torch.randperm(len(rows), generator=generator)]
        parts = shuffled.split(recipe.batch_size)[: recipe.most_steps - done]
        done += len(parts)
        yield from parts


class _Scaling:
    """An invertible linear map for each layer, which makes its vectors easy to learn from.

    In low layers, the classifier tokens of different texts differ by a thousandth of their mean, so
    a learning rate that suits one layer would not change the head of another. The map divides the
    vectors by their standard deviation, and then shrinks them along their mean until the mean is as
    long as a vector of unit variance. The first weight of the head takes the inverse map, so the
    head stays the same function: ``u = A v`` and ``W v = (W inv(A)) u`` with
    ``A = (I - c d d') diag(1 / s)``, where d is the direction of the mean of ``v / s``. (A bias
    could absorb the mean, but not every head has a bias.)
    """

    def __init__(self, vectors: torch.Tensor) -> None:
        """Fit the maps to `vectors`, [layers, n, p] or [layers, n, choices, p]."""
        import torch

        flat = vectors.flatten(1, -2)
        spread = flat.std(1, correction=0)
        constant = spread <= _CONSTANT * flat.abs().amax((1, 2), keepdim=True)[:, 0]
        # In float64, so that the map and its inverse add no error to float32 weights.
        self._spread = spread.masked_fill(constant, 1.0).double()
        mean = flat.mean(1).double() / self._spread
        length = torch.linalg.vector_norm(mean, dim=-1, keepdim=True)
        self._direction = mean / length.clamp(min=1e-30)
        # Share of the mean that is kept, so that it is as long as a vector of unit variance.
        self._kept = (mean.shape[-1] ** 0.5 / length.clamp(min=1e-30)).clamp(max=1.0)

    def scale(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return ``A v`` for vectors [layers, ..., p]."""
        divided = vectors / self._like(self._spread, vectors)
        return self._along(divided, 1 - self._kept, -1).to(vectors.dtype)

    def weight_in(self, weight: torch.Tensor) -> torch.Tensor:
        """Return ``W inv(A)`` for weights [layers, out, p]."""
        multiplied = weight * self._like(self._spread, weight)
        return self._along(multiplied, (1 - self._kept) / self._kept, 1).to(weight.dtype)

    def weight_out(self, weight: torch.Tensor) -> torch.Tensor:
        """Return ``W A``, which undoes `weight_in`."""
        shrunk = self._along(weight, 1 - self._kept, -1)
        return (shrunk / self._like(self._spread, weight)).to(weight.dtype)

    def _along(self, rows: torch.Tensor, share: torch.Tensor, sign: int) -> torch.Tensor:
        """Add (or, with `sign` -1, subtract) `share` of the part of `rows` along the mean."""
        direction = self._like(self._direction, rows)
        part = (rows * direction).sum(-1, keepdim=True)
        return rows + sign * self._like(share, rows) * part * direction

    @staticmethod
    def _like(of_layers: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        shape = (len(of_layers), *[1] * (rows.dim() - 2), of_layers.shape[-1])
        return of_layers.reshape(shape).to(rows.device)


class _Stopping:
    """Early stopping for each layer: `best` holds the parameters with the lowest loss so far."""

    def __init__(self, start: Parameters, patience: int) -> None:
        import torch

        layers = len(next(iter(start.values())))
        device = next(iter(start.values())).device
        self.best = {name: p.clone() for name, p in start.items()}
        self._lowest = torch.full((layers,), float("inf"), device=device)
        self._waited = torch.zeros(layers, dtype=torch.long, device=device)
        self._patience = patience

    def take(self, current: Parameters) -> bool:
        """Take `current` as the best of every layer; no layer stops."""
        self.best = {name: p.detach().clone() for name, p in current.items()}
        return False

    def update(self, losses: torch.Tensor, current: Parameters) -> bool:
        """Take the validation losses ``[layers]``, and return whether all layers have stopped."""
        better = (losses < self._lowest) & (self._waited < self._patience)
        self._lowest[better] = losses[better]
        self._waited = (self._waited + 1).masked_fill(better, 0)
        for name, best in self.best.items():
            best[better] = current[name].detach()[better]
        return bool((self._waited >= self._patience).all())


def _losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of every layer, [layers]: cross-entropy, or squared error of numbers."""
    from torch.nn.functional import cross_entropy

    if labels.is_floating_point():
        return (logits[..., 0] - labels).square().mean(-1)
    repeated = labels.expand(len(logits), -1)
    return cross_entropy(logits.transpose(1, 2), repeated, reduction="none").mean(-1)


def _pooled(model: PreTrainedModel, answer: Any, mask: torch.Tensor) -> torch.Tensor:
    """Return the vectors, [b, p], that the head reads of what the encoder returns."""
    import torch

    if head_of(model.config) == JIANT:
        return read_by_jiant(answer)
    output = answer.last_hidden_state
    if getattr(model.config, "classifier_pooling", None) == "mean":  # of ModernBERT
        weights = mask.unsqueeze(-1)
        return (output * weights).sum(1) / weights.sum(1)
    rows = torch.arange(len(output), device=output.device)
    return output[rows, architecture_of(model).token_index(mask)]


@contextmanager
def _encoder_gives(model: PreTrainedModel, output: torch.Tensor) -> Iterator[None]:
    """Make the encoder return `output` inside the block, without a second final norm."""

    def replace(_module: nn.Module, _arguments: object, answer: Any) -> Any:
        answer.last_hidden_state = output
        return answer

    with model.base_model.register_forward_hook(replace):
        yield
