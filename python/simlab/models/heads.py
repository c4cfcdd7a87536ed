"""Heads on cached classifier vectors: one for every layer, all trained at once.

A head reads one vector per example (or per choice): the classifier token's, or the mean over tokens
where the model pools so, after the final norm where there is one. Those vectors of all layers come
from one pass of the encoder. The head on them is the model's own (pooler, dense layer, classifier:
whatever `architectures` names), run by the model's own code on sequences of that one vector, with
all layers' parameters stacked and `torch.func.vmap` over them: products of the layers become
batched products, and one optimiser steps them all. Layers share nothing, so each ends as it would
alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simlab.errors import UserError
from simlab.models.families import family_of
from simlab.models.states import apply_head, encoder_output, layer_states

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel

Parameters = dict[str, "torch.Tensor"]
# How far the head on a vector may be from the head on the states, relative to its largest logit.
_ROUNDING = 1e-3
# A feature that varies by less than this share of the layer's largest value is taken for constant.
_CONSTANT = 1e-6


@dataclass(frozen=True)
class HeadRecipe:
    """How heads are trained: AdamW, no dropout, each layer's early stopping its own."""

    learning_rate: float = 1e-3
    batch_size: int = 64
    weight_decay: float = 0.01
    most_steps: int = 2000
    steps_between: int = 50  # looks at the loss on the rows kept from training
    patience: int = 5  # looks without a lower one
    validation_share: float = 0.1
    seed: int = 0


def classifier_vectors(
    model: PreTrainedModel, batch: Mapping[str, torch.Tensor], name: str = "model"
) -> torch.Tensor:
    """What the head would read of every layer, embedding output first.

    Returns
    -------
    Tensor
        ``[layers + 1, b, p]``; of multiple choice ``[layers + 1, b, choices, p]``.

    Raises
    ------
    UserError
        The head reads something else than the vector that its family names.
    """
    import torch

    mask = batch["attention_mask"]
    shape = mask.shape[:-1]
    vectors = []
    for hidden in layer_states(model, batch):
        vectors.append(_pooled(model, encoder_output(model, hidden, mask), mask.flatten(0, -2)))
    last = vectors[-1].unflatten(0, shape)
    wanted, found = apply_head(model, hidden, mask), head_logits(model, last)
    if not torch.allclose(found, wanted, atol=_ROUNDING * float(wanted.abs().max())):
        raise UserError(
            f"model {name}: wanted a head that reads one vector of a text, found architecture "
            f"{model.config.model_type!r}, whose head reads something else"
        )
    return torch.stack(vectors).unflatten(1, shape)


def head_logits(model: PreTrainedModel, vectors: torch.Tensor) -> torch.Tensor:
    """Logits of the model's own head on `vectors`, ``[b, p]`` or ``[b, choices, p]``."""
    import torch

    hidden = vectors.unsqueeze(-2)
    mask = torch.ones(hidden.shape[:-1], dtype=torch.long, device=hidden.device)
    with _encoder_gives(model, hidden.flatten(0, -3)):
        return apply_head(model, hidden, mask)


def stacked_logits(
    model: PreTrainedModel, parameters: Parameters, vectors: torch.Tensor
) -> torch.Tensor:
    """Logits of one head per layer.

    Parameters
    ----------
    parameters
        ``[layers, ...]`` each, by name (`head_parameters`, stacked).
    vectors
        ``[layers, b, p]`` or ``[layers, b, choices, p]``.

    Returns
    -------
    Tensor
        ``[layers, b, labels or choices]``.
    """
    from torch.func import functional_call, vmap

    module = _head_module(model)

    def one(chosen: Parameters, of_layer: torch.Tensor) -> torch.Tensor:
        return functional_call(module, chosen, (of_layer,))

    return vmap(one)({f"model.{name}": p for name, p in parameters.items()}, vectors)


def head_parameters(model: PreTrainedModel) -> Parameters:
    """The parameters of the model's head, by their names in the model."""
    modules = family_of(model).head(model).values()
    mine = {id(p) for module in modules for p in module.parameters()}
    return {name: p.detach() for name, p in model.named_parameters() if id(p) in mine}


def train_heads(
    model: PreTrainedModel,
    vectors: torch.Tensor,
    labels: torch.Tensor,
    recipe: HeadRecipe,
) -> Parameters:
    """Fine-tune one head per layer, each from the head that `model` has.

    A seeded part of the rows is kept from training; the head that a layer gets is the one with the
    lowest loss on them, its start included, up to `patience` looks in a row without a lower one.

    Parameters
    ----------
    vectors
        ``[layers, n, p]`` or ``[layers, n, choices, p]``, on any device.
    labels
        ``[n]``: classes (or the right choice) as int64, or float32 for regression.

    Returns
    -------
    dict
        ``[layers, ...]`` each, for `stacked_logits`.

    Raises
    ------
    UserError
        Fewer than two rows: one to learn from, one to decide when to stop.
    """
    import torch

    if len(labels) < 2:
        raise UserError(f"--train-size: wanted at least 2 rows to train heads, found {len(labels)}")
    generator = torch.Generator().manual_seed(recipe.seed)
    order = torch.randperm(len(labels), generator=generator)
    kept = max(1, round(recipe.validation_share * len(labels)))
    validation, training = order[:kept], order[kept:]

    def losses(parameters: Parameters, rows: torch.Tensor) -> torch.Tensor:
        scaled = scaling.scale(vectors[:, rows]).to(model.device)
        found = stacked_logits(model, parameters, scaled)
        return _losses(found, labels[rows].to(model.device))

    scaling = _Scaling(vectors[:, training])
    own = head_parameters(model)
    start = {name: p.expand(len(vectors), *p.shape) for name, p in own.items()}
    first = _reading_weight(own, vectors.shape[-1])
    start[first] = scaling.weight_in(start[first])
    current = {name: p.clone().requires_grad_() for name, p in start.items()}
    stopping = _Stopping(start, recipe.patience)
    optimiser = torch.optim.AdamW(
        current.values(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )

    def look() -> bool:
        with torch.no_grad():
            return stopping.update(losses(current, validation), current)

    for step, rows in enumerate(_batches(training, recipe, generator)):
        if step % recipe.steps_between == 0 and look():
            break
        optimiser.zero_grad()
        # The sum: every layer's gradient is that of its own mean over the batch.
        losses(current, rows).sum().backward()
        optimiser.step()
    else:
        look()  # what the last steps have learnt counts too
    stopping.best[first] = scaling.weight_out(stopping.best[first])
    return stopping.best


def _batches(
    rows: torch.Tensor, recipe: HeadRecipe, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    """Batches of shuffled rows, epoch after epoch: `most_steps` of them."""
    import torch

    done = 0
    while done < recipe.most_steps:
        shuffled = rows[torch.randperm(len(rows), generator=generator)]
        parts = shuffled.split(recipe.batch_size)[: recipe.most_steps - done]
        done += len(parts)
        yield from parts


class _Scaling:
    """An invertible map of each layer's vectors, after which they are easy to learn from.

    Low layers' classifier tokens differ by a thousandth of their mean, and what trains the head of
    one layer would leave another where it was. Vectors are divided by their standard deviation, and
    along their mean shrunk until that is a constant of ordinary size. The weight that reads them
    takes the inverse, so that a head is the same function before and after:
    ``u = A v`` and ``W v = (W inv(A)) u`` with ``A = (I - c d d') diag(1 / s)``, where d is the
    direction of the mean of ``v / s``. (A bias could take the mean, but not every head has one.)
    """

    def __init__(self, vectors: torch.Tensor) -> None:
        """Of ``[layers, n, p]`` or ``[layers, n, choices, p]``."""
        import torch

        flat = vectors.flatten(1, -2)
        spread = flat.std(1, correction=0)
        constant = spread <= _CONSTANT * flat.abs().amax((1, 2), keepdim=True)[:, 0]
        # float64: the way there and back is as exact as the float32 it ends in.
        self._spread = spread.masked_fill(constant, 1.0).double()
        mean = flat.mean(1).double() / self._spread
        length = torch.linalg.vector_norm(mean, dim=-1, keepdim=True)
        self._direction = mean / length.clamp(min=1e-30)
        # What is left of the mean: a vector as long as those of unit variance are.
        self._kept = (mean.shape[-1] ** 0.5 / length.clamp(min=1e-30)).clamp(max=1.0)

    def scale(self, vectors: torch.Tensor) -> torch.Tensor:
        """``A v`` for ``[layers, ..., p]``."""
        divided = vectors / self._like(self._spread, vectors)
        return self._along(divided, 1 - self._kept, -1).to(vectors.dtype)

    def weight_in(self, weight: torch.Tensor) -> torch.Tensor:
        """``W inv(A)`` for ``[layers, out, p]``."""
        multiplied = weight * self._like(self._spread, weight)
        return self._along(multiplied, (1 - self._kept) / self._kept, 1).to(weight.dtype)

    def weight_out(self, weight: torch.Tensor) -> torch.Tensor:
        """``W A``, which undoes `weight_in`."""
        shrunk = self._along(weight, 1 - self._kept, -1)
        return (shrunk / self._like(self._spread, weight)).to(weight.dtype)

    def _along(self, rows: torch.Tensor, share: torch.Tensor, sign: int) -> torch.Tensor:
        """Add or take `share` of what `rows` have in the direction of the mean."""
        direction = self._like(self._direction, rows)
        part = (rows * direction).sum(-1, keepdim=True)
        return rows + sign * self._like(share, rows) * part * direction

    @staticmethod
    def _like(of_layers: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        shape = (len(of_layers), *[1] * (rows.dim() - 2), of_layers.shape[-1])
        return of_layers.reshape(shape).to(rows.device)


def _reading_weight(parameters: Parameters, width: int) -> str:
    """The name of the weight that the vectors meet first: the first matrix as wide as they are."""
    return next(name for name, p in parameters.items() if p.dim() == 2 and p.shape[1] == width)


class _Stopping:
    """Early stopping of each layer by itself: its best parameters until its patience ends."""

    def __init__(self, start: Parameters, patience: int) -> None:
        import torch

        layers = len(next(iter(start.values())))
        device = next(iter(start.values())).device
        self.best = {name: p.clone() for name, p in start.items()}
        self._lowest = torch.full((layers,), float("inf"), device=device)
        self._waited = torch.zeros(layers, dtype=torch.long, device=device)
        self._patience = patience

    def update(self, losses: torch.Tensor, current: Parameters) -> bool:
        """Note a look's losses ``[layers]``; returns whether all layers have stopped."""
        better = (losses < self._lowest) & (self._waited < self._patience)
        self._lowest[better] = losses[better]
        self._waited = (self._waited + 1).masked_fill(better, 0)
        for name, best in self.best.items():
            best[better] = current[name].detach()[better]
        return bool((self._waited >= self._patience).all())


def _losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean loss of every layer, ``[layers]``: cross-entropy, or squared error of numbers."""
    from torch.nn.functional import cross_entropy

    if labels.is_floating_point():
        return (logits[..., 0] - labels).square().mean(-1)
    repeated = labels.expand(len(logits), -1)
    return cross_entropy(logits.transpose(1, 2), repeated, reduction="none").mean(-1)


def _pooled(model: PreTrainedModel, output: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The classifier token of `output` [b, t, p], or its mean where the model pools so."""
    import torch

    if getattr(model.config, "classifier_pooling", None) == "mean":  # ModernBERT
        weights = mask.unsqueeze(-1)
        return (output * weights).sum(1) / weights.sum(1)
    rows = torch.arange(len(output), device=output.device)
    return output[rows, family_of(model).token_index(mask)]


def _head_module(model: PreTrainedModel) -> nn.Module:
    from torch import nn

    class Head(nn.Module):
        """`head_logits` as a module, whose parameters can be given from outside."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, vectors: torch.Tensor) -> torch.Tensor:
            return head_logits(self.model, vectors)

    return Head()


@contextmanager
def _encoder_gives(model: PreTrainedModel, output: torch.Tensor) -> Iterator[None]:
    """The head is given `output` as it is: what was normed before is not normed again."""

    def replace(_module: nn.Module, _arguments: object, answer: object) -> object:
        answer.last_hidden_state = output
        return answer

    handle = model.base_model.register_forward_hook(replace)
    try:
        yield
    finally:
        handle.remove()
