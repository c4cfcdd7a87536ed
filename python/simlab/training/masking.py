"""Language modelling: rows of tokens, their masks, the Trainer, and the loss.

Math: an encoder predicts a share of the tokens, which are masked (of these, 80 % become the mask
token, 10 % another word, 10 % stay); the loss is the mean cross-entropy over them (Devlin et al.
2019, section 3.1). The logits of the other tokens are not computed: they do not enter the loss, and
are most of the work of a small encoder. A decoder predicts every token from the tokens before it,
special tokens excepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset
from transformers import DataCollatorForLanguageModeling

from simlab.training.trainer import ResumableTrainer, generator_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_TEXTS_AT_ONCE = 1000
_IGNORED = -100  # the label of a token that is not predicted
DECODER = "gpt2"  # the type of the model that predicts the next token


class Windows(Dataset[Any]):
    """Texts as rows of at most `max_length` tokens, with special tokens at both ends of each.

    A longer text becomes several rows. The tokens of all rows are one array, which takes a tenth of
    the memory of lists.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int
    ) -> None:
        self.special = frozenset(tokenizer.all_special_ids)
        rows: list[np.ndarray] = []
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            encoded = tokenizer(
                list(texts[start : start + _TEXTS_AT_ONCE]),
                truncation=True,
                max_length=max_length,
                return_overflowing_tokens=True,
                return_attention_mask=False,
                return_token_type_ids=False,
            )
            rows += [np.array(row, np.int32) for row in encoded["input_ids"]]
        self.ids = np.concatenate(rows)
        self.ends = np.cumsum([len(row) for row in rows])

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def lengths(self) -> list[int]:
        """Return the number of tokens of every row."""
        return np.diff(self.ends, prepend=0).tolist()

    def __getitem__(self, row: int) -> dict[str, Any]:
        start = self.ends[row - 1] if row else 0
        ids = self.ids[start : self.ends[row]].tolist()
        special = [int(number in self.special) for number in ids]
        return {"input_ids": ids, "special_tokens_mask": special, "row": row}


@dataclass
class Masking(DataCollatorForLanguageModeling):
    """Make a batch of rows of `Windows`; if `mlm` is set, mask tokens of it.

    The masks depend on the seed and on the rows of the batch alone. transformers draws them from a
    generator whose state no checkpoint holds, so a resumed run would continue with other masks.
    """

    def torch_call(self, examples: list[Any]) -> dict[str, Any]:
        """Return the inputs of the model and ``labels``, -100 where a token is not predicted."""
        rows = [example["row"] for example in examples]
        self.generator = generator_of(self.seed or 0, *rows)
        batch = super().torch_call(
            [{name: example[name] for name in example if name != "row"} for example in examples]
        )
        if not self.mlm:
            special = torch.tensor(self.tokenizer.all_special_ids)
            batch["labels"][torch.isin(batch["input_ids"], special)] = _IGNORED
        return batch


class LanguageTrainer(ResumableTrainer):
    """A Trainer that computes the logits of the predicted tokens alone."""

    # The collator reads the special tokens and numbers of rows, which the model does not take.
    more_arguments = MappingProxyType({"remove_unused_columns": False})

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        """Return the mean loss over the predicted tokens of a batch."""
        logits, labels = predicted_logits(self.accelerator.unwrap_model(model), inputs)
        loss = cross_entropy(logits, labels, reduction="sum") / max(len(labels), 1)
        return (loss, {"logits": logits}) if return_outputs else loss


def predicted_logits(
    model: PreTrainedModel, batch: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits [m, words] of the m predicted tokens of a batch, and the tokens [m].

    The logits of a decoder are read at the token before.
    """
    inputs = {name: values for name, values in batch.items() if name != "labels"}
    states, labels = model.base_model(**inputs).last_hidden_state, batch["labels"]
    head = "cls"
    if model.config.model_type == DECODER:
        head, states, labels = "lm_head", states[:, :-1], labels[:, 1:]
    predicted = labels != _IGNORED
    return model.get_submodule(head)(states[predicted]), labels[predicted]


@torch.inference_mode()
def prediction_scores(
    model: PreTrainedModel,
    windows: Windows,
    collator: Masking,
    batch_size: int,
    counts: np.ndarray,
) -> dict[str, Any]:
    """Return the mean loss and accuracy over the predicted tokens of all rows.

    ``unigram_loss`` is the loss of the frequencies of words in the training texts (`counts`
    [words], each plus one) on the same tokens: a model that reads nothing reaches this loss.
    """
    model.eval()
    frequencies = torch.log(torch.from_numpy((counts + 1) / (counts + 1).sum()))
    loss = unigram = 0.0
    right = masked = 0
    for start in range(0, len(windows), batch_size):
        rows = range(start, min(start + batch_size, len(windows)))
        batch = collator([windows[row] for row in rows])
        logits, labels = predicted_logits(
            model, {name: values.to(model.device) for name, values in batch.items()}
        )
        loss += cross_entropy(logits.double(), labels, reduction="sum").item()
        unigram -= frequencies[labels.cpu()].sum().item()
        right += int((logits.argmax(-1) == labels).sum())
        masked += len(labels)
    return {
        "loss": loss / max(masked, 1),
        "unigram_loss": unigram / max(masked, 1),
        "accuracy": right / max(masked, 1),
        "n": masked,
    }
