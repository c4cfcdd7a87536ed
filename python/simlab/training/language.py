"""Language modelling: words, rows of tokens, their masks, the Trainer, and the loss.

Math: an encoder predicts a share of the tokens, which are masked (of these, 80 % become the mask
token, 10 % another word, 10 % stay); the loss is the mean cross-entropy over them (Devlin et al.
2019, section 3.1). The logits of the other tokens are not computed: they do not enter the loss, and
are most of the work of a small encoder. A decoder predicts every token from the tokens before it,
special tokens excepted.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import BertTokenizer, DataCollatorForLanguageModeling, TrainerCallback

from simlab.errors import UserError, argument
from simlab.models.sources import step_name
from simlab.models.tokens import tokenised
from simlab.training.trainer import ResumableTrainer, generator_of

if TYPE_CHECKING:
    from transformers import (
        PreTrainedModel,
        PreTrainedTokenizerBase,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )

_TEXTS_AT_ONCE = 1000
_IGNORED = -100  # the label of a token that is not predicted
_CONTINUED = "##"  # the beginning of a piece that continues a word
DECODER = "gpt2"  # the type of the model that predicts the next token


def common_words(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], size: int
) -> PreTrainedTokenizerBase:
    """Return a tokenizer with the `size` words of `tokenizer` that the texts use most.

    A small corpus uses a part of BERT's 30,522 words, and the others would take most of a small
    model's parameters and time. The special tokens and every letter of the texts stay, at the
    beginning of a word and within it, so that a word that goes becomes shorter pieces, and nothing
    becomes unknown. A `size` of 0 returns `tokenizer`.
    """
    # The words are chosen by counting alone: the same texts give the same words on every machine,
    # which a tokenizer that is trained anew does not promise.
    if not size:
        return tokenizer
    if not isinstance(tokenizer, BertTokenizer):
        raise UserError(
            f"{argument('vocabulary', size)}: wanted a tokenizer of BERT, found "
            f"{type(tokenizer).__name__}; 0 keeps all its words"
        )
    words = tokenizer.get_vocab()
    bare = {word: word.removeprefix(_CONTINUED) for word in words}
    counts = token_counts(tokenizer, texts)
    special = set(tokenizer.all_special_ids)
    used = (bare[word] for word, i in words.items() if counts[i] and i not in special)
    letters = set().union(*used)
    kept = special | {i for word, i in words.items() if bare[word] in letters}
    if size < len(kept):
        raise UserError(
            f"{argument('vocabulary')}: wanted at least {len(kept)} words, the special tokens and "
            f"the letters of these texts, found {size}"
        )
    others = [int(i) for i in np.argsort(-counts, kind="stable") if counts[i] and i not in kept]
    kept |= set(others[: size - len(kept)])
    in_order = [word for word, i in sorted(words.items(), key=lambda word: word[1]) if i in kept]
    return BertTokenizer(
        vocab={word: number for number, word in enumerate(in_order)},
        do_lower_case=tokenizer.do_lower_case,
        tokenize_chinese_chars=tokenizer.tokenize_chinese_chars,
        strip_accents=tokenizer.strip_accents,
    )


def token_counts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> np.ndarray:
    """Return how often each word of a tokenizer comes in the texts, int64 [words]."""
    counts = np.zeros(len(tokenizer), np.int64)
    for encoded in _encoded(tokenizer, texts, add_special_tokens=False):
        ids = np.fromiter(chain.from_iterable(encoded), np.int64)
        counts += np.bincount(ids, minlength=len(counts))
    return counts


def _encoded(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], **how: Any
) -> Iterator[list[list[int]]]:
    """Yield the numbers of the tokens of some texts at a time."""
    how |= {"return_attention_mask": False, "return_token_type_ids": False}
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        part = list(texts[start : start + _TEXTS_AT_ONCE])
        yield tokenised(tokenizer, part, **how)["input_ids"]


def windows(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int
) -> list[dict[str, Any]]:
    """Return texts as rows of at most `max_length` tokens, each between special tokens.

    A longer text becomes several rows. Each row has its tokens and its number.
    """
    how = {"truncation": True, "max_length": max_length, "return_overflowing_tokens": True}
    encoded = chain.from_iterable(_encoded(tokenizer, texts, **how))
    # Arrays take a tenth of the memory of lists.
    return [{"input_ids": np.array(ids, np.int32), "row": row} for row, ids in enumerate(encoded)]


@dataclass
class Masking(DataCollatorForLanguageModeling):
    """Make a batch of rows of `windows`; if `mlm` is set, mask tokens of it.

    The masks depend on the seed and on the rows of the batch alone. transformers draws them from a
    generator whose state no checkpoint holds, so a resumed run would continue with other masks.
    """

    def torch_call(self, examples: list[Any]) -> dict[str, Any]:
        """Return the inputs of the model and ``labels``, -100 where a token is not predicted."""
        self.generator = generator_of(self.seed or 0, *(example["row"] for example in examples))
        batch = super().torch_call(
            [{"input_ids": example["input_ids"].tolist()} for example in examples]
        )
        if not self.mlm:
            special = torch.tensor(self.tokenizer.all_special_ids)
            batch["labels"][torch.isin(batch["input_ids"], special)] = _IGNORED
        return batch


class LanguageTrainer(ResumableTrainer):
    """A Trainer that computes the logits of the predicted tokens alone."""

    # The collator reads the numbers of rows, which the model does not take.
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
    rows: Sequence[Mapping[str, Any]],
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
    for start in range(0, len(rows), batch_size):
        batch = collator(list(rows[start : start + batch_size]))
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


class KeepSteps(TrainerCallback):
    """Write the model and its tokenizer at some steps, into the folder of the Trainer.

    They are copied from there when the training has ended. So they stay exactly if the Trainer's
    checkpoint stays, at which an interrupted run continues: a step before it is kept already, a
    step after it is written again.
    """

    def __init__(
        self, steps: Collection[int], tokenizer: PreTrainedTokenizerBase, trainer: Path
    ) -> None:
        self.steps, self.tokenizer, self.trainer = frozenset(steps), tokenizer, trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep step 0, which is before the first step."""
        if state.global_step == 0:
            self.on_step_end(args, state, control, **kwargs)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep the model after a step."""
        if state.global_step not in self.steps:
            return
        out = kept_folder(self.trainer, state.global_step)
        partial = out.with_suffix(".partial")
        for earlier in (out, partial):  # of a run that ended before the Trainer's next checkpoint
            shutil.rmtree(earlier, ignore_errors=True)
        kwargs["model"].save_pretrained(partial)
        self.tokenizer.save_pretrained(partial)
        partial.rename(out)


def kept_folder(trainer: Path, step: int) -> Path:
    """Return the folder of a step that is kept, beside the Trainer's own checkpoints."""
    return trainer / "kept" / step_name(step)
