"""The options of an extraction; run a model over examples, and write the rows of its layers.

Rows that cannot be right are refused: one row for all texts in every layer, though texts differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.bounds import Count, Length, check_fields
from simlab.errors import UserError, argument, did_you_mean, one_of, require_known
from simlab.models.architectures import text_config
from simlab.models.batches import Halving, batches, reads_padding
from simlab.models.load import load_config, load_encoder, load_tokenizer
from simlab.models.place import AUTO, PRECISIONS, check_device, moved, place
from simlab.models.recognise import blocks_of, classifier_token
from simlab.models.sources import ModelSource
from simlab.models.states import HiddenStates
from simlab.models.tokens import letters, texts_of
from simlab.representations.folder import DTYPES, LayerWriter
from simlab.representations.kinds import (
    ATTENTION,
    CLS,
    KINDS,
    WORD_SOURCES,
    Rows,
    find_rows,
    membership,
    pool_attention,
    pool_states,
)
from simlab.store.console import progress

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from simlab.tasks import Examples

BATCH_SIZE = 64
SHARED = ("batch_size", "dtype", "weights", "device")  # options that modules have too
OF_STATES = ("kind", "words", "special_tokens")  # options that rows of modules have not
# Kinds with one row for each text. Words and tokens repeat, and attention may be uniform.
_WITH_A_ROW = (CLS, "mean", "mean-all")
_ROUNDING = 16 * np.finfo(np.float32).eps


@dataclass(frozen=True)
class ExtractOptions:
    """Options of an extraction.

    Attributes
    ----------
    kind
        Kind of rows: ``cls``, ``mean``, ``mean-all``, ``mean-padded``, ``token``, ``word-last``,
        ``word-mean`` or ``attention``.
    split
        Split: ``heldout``; ``train``; ``test``: the test split of a named task, without labels and
        without texts of the other splits; or ``all``: every text of the task, repeated texts too;
        the task may then be a .txt file or a table without labels.
    max_length
        Tokens kept per example; None is as in the fine-tuning of the model, else 64.
    batch_size
        Examples per forward pass. A batch that does not fit into memory runs in halves.
    random_init_seed
        Draw random weights with this seed (a random twin), in place of the weights of the model.
    words
        Split texts into words by the ``tokenizer`` or at ``spaces``; None is ``spaces`` for texts
        that are lists of words, else ``tokenizer``.
    special_tokens
        Let the model read special tokens (such as [CLS]) around a text.
    limit
        Number of examples, from the first; None is all.
    weights
        Precision in which the model computes: ``float32``, ``bfloat16`` or ``float16`` for half the
        memory, or ``auto``, as in the model's files.
    dtype
        Type of the stored values: ``float32``, or for half the room ``float16`` (up to 65,504) or
        ``bfloat16`` (any value, with fewer digits).
    device
        Where the model runs: ``cpu``, ``cuda``, ``cuda:1``; ``auto`` is a GPU if there is one;
        ``spread``: all GPUs, then memory, then the disk, for a model that is larger than each of
        them; or ``offload``, for a model that is larger than memory: its blocks are read one at a
        time.
    """

    kind: str = CLS
    split: str = "heldout"
    max_length: Length | None = None
    batch_size: Count = BATCH_SIZE
    random_init_seed: int | None = None
    words: str | None = None
    limit: Count | None = None
    special_tokens: bool = True
    weights: str = PRECISIONS[0]
    dtype: str = DTYPES[0]
    device: str = AUTO

    def check(self) -> None:
        """Raise UserError for an unknown name, or for an option that does not suit the kind."""
        check_fields(self)
        check_device(self.device, spreads=True, in_blocks=True)
        if self.kind not in KINDS:
            meant = did_you_mean(self.kind, KINDS)
            raise UserError(f"{argument('kind', self.kind)}{meant}: wanted {one_of(KINDS, meant)}")
        if self.words not in (None, *WORD_SOURCES):
            raise UserError(f"{argument('words', self.words)}: wanted {' or '.join(WORD_SOURCES)}")
        require_known("weights", self.weights, PRECISIONS)
        require_known("dtype", self.dtype, DTYPES)
        if not self.special_tokens and self.kind == CLS:
            raise UserError(
                f"{argument('special_tokens', False)}: wanted a {argument('kind')} that needs no "
                f"classifier token, found {CLS}"
            )
        if self.words == WORD_SOURCES[1] and not KINDS[self.kind].has_words:
            kinds = ", ".join(name for name, kind in KINDS.items() if kind.has_words)
            raise UserError(
                f"{argument('words', self.words)}: wanted {argument('kind')} {kinds}, found "
                f"{self.kind}"
            )


def forward_layers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Rows,
    options: ExtractOptions,
    description: str,
    device: str = "cpu",
) -> Iterator[tuple[np.ndarray, list[torch.Tensor]]]:
    """Run every example once, and yield the rows of every layer batch by batch.

    A batch is the numbers of its examples [b], and for each layer their rows [b, R, p]
    ([b, H, R, R] for attention). An example with fewer than R rows fills the first of them.
    """
    import torch

    moved(model, device).eval()
    states_of, halving = HiddenStates(model), Halving()

    def pool(examples: np.ndarray, batch: dict[str, Any]) -> list[torch.Tensor]:
        groups = [rows.groups[example] for example in examples]
        member = membership(groups, batch["attention_mask"])
        if KINDS[options.kind].pads:
            member = torch.ones_like(member)
        if options.kind == ATTENTION:
            return [pool_attention(layer, member) for layer in _attentions(model, batch)]
        return states_of(batch, partial(pool_states, member=member))

    with torch.inference_mode(), progress(description, len(rows.encoded)) as advance:
        for examples, batch in _batches(model, tokenizer, rows, options, device):
            for part, pooled in halving.run(pool, examples, batch):
                yield part, pooled
                advance(len(part))


def _batches(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Rows,
    options: ExtractOptions,
    device: str,
) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
    length = None
    if KINDS[options.kind].pads:
        assert options.max_length is not None
        length = min(options.max_length, tokenizer.model_max_length)
    size = options.batch_size
    alike = reads_padding(model, tokenizer, rows.encoded, size, length=length)
    return batches(tokenizer, rows.encoded, size, device, length, alike=alike)


def _attentions(
    model: PreTrainedModel, batch: Mapping[str, torch.Tensor]
) -> Sequence[torch.Tensor]:
    """Return the attention weights of every block, [b, H, t, t] each."""
    weights = getattr(model(**batch, output_attentions=True), "attentions", None) or ()
    blocks = len(blocks_of(model)) or getattr(text_config(model.config), "num_hidden_layers", 0)
    size, tokens = batch["attention_mask"].shape
    shapes = [None if one is None else tuple(one.shape) for one in weights]
    if not shapes or any(s is None or (s[0], *s[2:]) != (size, tokens, tokens) for s in shapes):
        described = "none" if not shapes or None in shapes else f"shape {shapes[0]}"
    elif blocks and len(shapes) != blocks:  # blocks of another kind, as Mamba has
        described = f"those of {len(shapes)} of {blocks} blocks"
    else:
        return weights
    raise UserError(
        f"{argument('kind', ATTENTION)}: wanted weights [batch, heads, tokens, tokens] of every "
        f"block, found {described} in a model of type {model.config.model_type!r}"
    )


def extract_to(
    folder: Path,
    source: ModelSource,
    examples: Examples,
    options: ExtractOptions,
    identity: dict[str, Any],
) -> None:
    """Run a model on all examples, and write the rows of its layers into a folder."""
    assert options.max_length is not None
    assert options.words is not None
    if load_config(source).is_encoder_decoder:
        raise UserError(
            f"model {source.name}: wanted an encoder, found an encoder-decoder; "
            f"{argument('modules')} records its encoder"
        )
    tokenizer = load_tokenizer(source)
    rows = find_rows(
        options.kind,
        tokenizer,
        examples,
        options.max_length,
        options.words,
        source.name,
        classifier_token(load_config(source)),
        options.special_tokens,
    )
    require_other_tokens(options.kind, rows, examples, source.name)
    twin = options.random_init_seed is not None
    device = place(source, options.weights, options.device, random_init=twin)
    writer = LayerWriter(folder, options.kind, rows.counts, options.dtype)
    description = f"extracting {identity['label']}"
    same = SameRows(options.kind, twin, rows)
    with TemporaryDirectory(prefix=".weights-", dir=folder) as scratch:
        model = load_encoder(
            source,
            options.random_init_seed,
            attention=options.kind == ATTENTION,
            weights=options.weights,
            device=options.device,
            scratch=Path(scratch),
        )
        for of, every in forward_layers(model, tokenizer, rows, options, description, device):
            layers_of = [layer.cpu().numpy() for layer in every]
            for number, values in enumerate(layers_of):
                same.see(number, values)
            writer.put(of, layers_of)
    same.refuse(source.name, len(rows.encoded))
    ids = [row for example in rows.ids for row in example]
    writer.finish(ids, identity, rows.row_examples)


def require_other_tokens(kind: str, rows: Rows, examples: Examples, model: str) -> None:
    """Check that texts of different letters have different tokens, if `kind` has a row per text.

    Two texts may share their tokens. That all texts do shows a vocabulary that does not know them,
    or a limit of tokens within what they share; their rows would be the same.
    """
    if kind not in _WITH_A_ROW or _differ(rows):
        return
    examples = examples.each_choice()
    texts = dict(zip(examples.ids, texts_of(examples), strict=True))
    written = {"".join(letters(texts[example])) for (example,) in rows.ids}
    if len(written - {""}) > 1:
        tokens = rows.encoded[0]["input_ids"]
        raise UserError(
            f"model {model}: wanted tokens that differ between texts, found the same {len(tokens)} "
            f"for all {len(rows.encoded):,} texts, whose letters differ; does its tokenizer know "
            f"their language, and does {argument('max_length')} reach to where they differ?"
        )


def _differ(rows: Rows) -> bool:
    """Return whether some text has other tokens than the first, whatever their order."""
    tokens = (sorted(example["input_ids"]) for example in rows.encoded)
    first = next(tokens, [])
    return any(other != first for other in tokens)


class SameRows:
    """Looks at the rows of every batch, and refuses an extraction whose texts have one row.

    A network that ignores the order of tokens, a text that is repeated, and a random twin, whose
    layers may pass nothing on, are none of these: texts count as different if their tokens do,
    whatever their order. The classifier token alone differs between texts only after a block.
    """

    def __init__(self, kind: str, random: bool, rows: Rows) -> None:
        self._kind = kind
        self._same = kind in _WITH_A_ROW and not random and _differ(rows)
        self._first: dict[int, np.ndarray] = {}

    def see(self, layer: int, rows: np.ndarray) -> None:
        """Compare the rows [b, 1, p] of a layer of a batch with its first row."""
        if self._same:
            first = self._first.setdefault(layer, rows[:1, :1].copy())
            limit = _ROUNDING * np.abs(first).max()
            self._same = bool((np.abs(rows - first) <= limit).all())

    def refuse(self, model: str, texts: int) -> None:
        """Raise a UserError if all texts had the same row in every layer."""
        blocks = len(self._first) - 1
        if self._same and (blocks or self._kind != CLS):
            raise UserError(
                f"model {model}: wanted rows that differ between texts of different tokens, found "
                f"one row for all {texts:,} texts in every layer; do its weights belong to its "
                "configuration and tokenizer?"
            )
