"""Evaluate a model: layers, logits and metrics of a classifier, the perplexity of a decoder.

Every experiment evaluates its models here, whether their layers are complete, cut off, left out or
replaced.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from simlab.errors import UserError, argument
from simlab.models.architectures import LAST
from simlab.models.batches import batches, reads_padding
from simlab.models.load import (
    load_classifier,
    load_config,
    load_scored,
    load_tokenizer,
    load_weights,
)
from simlab.models.place import AUTO, moved, place
from simlab.models.recognise import classifier_token, without_cache
from simlab.models.sources import ModelSource, load_errors
from simlab.models.states import layer_states
from simlab.models.tokens import encode, encode_for_head
from simlab.results.results import pack_draws
from simlab.store.console import progress
from simlab.tasks.task import BELOW_ZERO, CORRELATIONS, score

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from simlab.tasks import Examples, Task

    # Of states [b, t, p] of a layer, their mask [b, t] and whether the layer is the last: [b, ...].
    OfLayer = Callable[[torch.Tensor, torch.Tensor, bool], torch.Tensor]

EVALUATION_BATCH = 64
EXAMPLE_DRAWS = 100  # of held-out examples, for the interval of a metric
_SAME = 1e-5  # outputs within this share of the largest output differ by float32 rounding only


def predict_logits(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Examples,
    max_length: int,
    description: str = "evaluating",
) -> np.ndarray:
    """Return the logits of every example in the order of `examples`, [n, labels] float32.

    The model computes on the device where it lies.
    """
    import torch

    model.eval()
    encoded = encode_for_head(model, tokenizer, examples, max_length)
    logits = np.empty((len(examples), cast(int, model.config.num_labels)), np.float32)
    with torch.inference_mode(), progress(description, len(examples)) as advance:
        alike = reads_padding(model, tokenizer, encoded, EVALUATION_BATCH)
        fed = batches(tokenizer, encoded, EVALUATION_BATCH, model.device, alike=alike)
        for rows, batch in fed:
            logits[rows] = model(**batch).logits.cpu().numpy()
            advance(len(rows))
    return logits


class LayerReader:
    """A classifier whose layers are read.

    With `new_head`, a new head is drawn (`seed` and `head` are as for `load_classifier`) in place
    of the model's own.
    """

    def __init__(
        self,
        source: ModelSource,
        task: Task,
        max_length: int,
        *,
        new_head: bool = False,
        seed: int = 0,
        head: str | None = None,
        device: str = AUTO,
        scratch: Path | None = None,
        in_blocks: bool = True,
    ) -> None:
        self.max_length = max_length
        self.device = place(source, None, device, in_blocks=in_blocks)
        if new_head:
            model = load_classifier(
                source, task, seed=seed, head=head, device=device, scratch=scratch
            )
        else:
            model = load_scored(source, task, device=device, scratch=scratch)
        self.model = moved(model, self.device)
        self.tokenizer = load_tokenizer(source)

    def gather(
        self, function: OfLayer, description: str, *examples: Examples
    ) -> list[torch.Tensor]:
        """Gather ``function(states, mask, is_last)`` of every layer and example.

        Each set of examples gives [layers + 1, n, ...] float32.
        """
        import torch

        with torch.no_grad(), progress(description, sum(map(len, examples))) as advance:
            return [self._gather(function, each, advance) for each in examples]

    def _gather(
        self, function: OfLayer, examples: Examples, advance: Callable[[int], None]
    ) -> torch.Tensor:
        import torch

        from simcore import free_memory

        encoded = encode_for_head(self.model, self.tokenizer, examples, self.max_length)
        alike = reads_padding(self.model, self.tokenizer, encoded, EVALUATION_BATCH)
        gathered = torch.empty(0)
        for rows, batch in batches(
            self.tokenizer, encoded, EVALUATION_BATCH, self.device, alike=alike
        ):
            states = layer_states(self.model, batch)
            for layer, hidden in enumerate(states):
                is_last = layer == len(states) - 1
                values = function(hidden, batch["attention_mask"], is_last).float().cpu()
                if not gathered.numel():
                    shape = (len(states), len(examples), *values.shape[1:])
                    if (size := 4 * math.prod(shape)) > (free := free_memory()):
                        raise UserError(
                            f"{argument('train_size')}: wanted examples whose vectors fit into "
                            f"memory, found {size:,} bytes of vectors and {free:,} bytes free"
                        )
                    gathered = torch.empty(shape)
                gathered[layer, torch.as_tensor(rows)] = values
            advance(len(rows))
        return gathered


def predictions_of(logits: np.ndarray, task: Task) -> np.ndarray:
    """Return the predicted class indices, or the outputs of a regressor, shape [n]."""
    return logits[:, 0] if task.is_regression else logits.argmax(axis=1)


def heldout_metrics(logits: np.ndarray, task: Task) -> dict[str, float]:
    """Return every metric of held-out logits ``[n, labels]``, the main metric first.

    A correlation is nan if all outputs are the same up to rounding. So are the outputs of a head on
    the embedding output, where the classifier token is the same vector in every text.
    """
    predictions, heldout = predictions_of(logits, task), task.heldout
    same = np.ptp(predictions) <= _SAME * np.abs(predictions).max()
    return {
        name: math.nan
        if same and name in CORRELATIONS
        else score(name, heldout.labels, predictions, heldout.questions)
        for name in task.all_metrics
    }


def heldout_columns(logits: np.ndarray, task: Task) -> list[dict[str, Any]]:
    """Return `metric_columns` of every metric of held-out logits ``[n, labels]``."""
    predictions, heldout = predictions_of(logits, task), task.heldout
    scores = heldout_metrics(logits, task)
    return [
        metric_columns(name, value, predictions, heldout.labels, heldout.questions)
        for name, value in scores.items()
    ]


def metric_columns(
    metric: str,
    value: float,
    predictions: np.ndarray,
    labels: np.ndarray,
    questions: np.ndarray | None = None,
) -> dict[str, Any]:
    """Return columns of the results table: a metric, and its 95 % interval over the examples.

    The interval is ``value -+ 1.96 s``, within the range of the metric, where s is the standard
    deviation of the metric in `EXAMPLE_DRAWS` draws of as many examples, with replacement. Where
    rows answer `questions`, whole questions are drawn, because the answers of one question are
    alike.
    """
    rng = np.random.default_rng(0)
    scores = []
    if math.isfinite(value):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of draws in which a metric is undefined
            for _ in range(EXAMPLE_DRAWS):
                rows, asked = _draw(rng, len(labels), questions)
                scores.append(score(metric, labels[rows], predictions[rows], asked))
    defined = [value for value in scores if math.isfinite(value)]
    drawn = "examples" if questions is None else "questions"
    deviation = float(np.std(defined, ddof=1)) if len(defined) > 1 else math.nan
    half = NormalDist().inv_cdf(0.975) * deviation
    return {
        "measure": metric,
        "value": value,
        "low": max(value - half, -1.0 if metric in BELOW_ZERO else 0.0),
        "high": min(value + half, 1.0),
        "resampling": json.dumps({drawn: EXAMPLE_DRAWS, "seed": 0}),
        "draws": pack_draws(
            scores, len(labels) if questions is None else len(np.unique(questions))
        ),
    }


def _draw(
    rng: np.random.Generator, count: int, questions: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Draw rows with replacement, or whole questions, each with a number of its own."""
    if questions is None:
        return rng.integers(count, size=count), None
    rows_of = [np.flatnonzero(questions == number) for number in np.unique(questions)]
    drawn = [rows_of[number] for number in rng.integers(len(rows_of), size=len(rows_of))]
    return np.concatenate(drawn), np.repeat(np.arange(len(drawn)), [len(rows) for rows in drawn])


def load_decoder(source: ModelSource) -> PreTrainedModel:
    """Load a decoder with its head for words, in evaluation mode and the precision of its files."""
    from transformers import AutoModelForCausalLM

    config = load_config(source)
    wanted = "a decoder with a head for words"
    if config.is_encoder_decoder or classifier_token(config) != LAST:
        raise UserError(f"model {source.name}: wanted {wanted}, found a {config.model_type}")
    with load_errors(source, wanted):
        model, fresh, _ = load_weights(AutoModelForCausalLM, source, config, "auto")
    if fresh:
        raise UserError(
            f"model {source.name}: wanted {wanted}, found no weights for {next(iter(fresh))}"
        )
    return model.eval()


def perplexity(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Examples,
    max_length: int,
    batch_size: int = 32,
    description: str = "perplexity",
) -> tuple[float, int]:
    """Return the perplexity of a decoder on texts, and the number of tokens that it predicts.

    The perplexity is exp of the mean of -log p(token | the tokens before it), over all tokens of
    all texts but the first token of each text.
    """
    import torch
    from torch.nn.functional import cross_entropy

    tokenizer.padding_side = "right"  # a token then sees nothing but the tokens before it
    encoded = encode(tokenizer, examples, max_length)
    total, count = 0.0, 0
    with (
        torch.inference_mode(),
        without_cache(model),
        progress(description, len(encoded)) as advance,
    ):
        alike = reads_padding(model, tokenizer, encoded, batch_size)
        fed = batches(tokenizer, encoded, batch_size, model.device, alike=alike)
        for rows, batch in fed:
            ids, mask = batch["input_ids"], batch["attention_mask"].bool()
            logits = model(**batch).logits[:, :-1].float()
            losses = cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
            predicted = mask[:, 1:] & mask[:, :-1]
            total += float(losses[predicted].double().sum())
            count += int(predicted.sum())
            advance(len(rows))
    if not count:
        raise UserError("texts: wanted a text of two tokens or more, found none")
    return math.exp(total / count), count
