"""The options of an extraction."""

from __future__ import annotations

from dataclasses import dataclass

from simlab.bounds import Count, Length, check_fields
from simlab.errors import UserError, argument, did_you_mean, one_of, require_known
from simlab.models.place import AUTO, PRECISIONS, check_device
from simlab.representations.folder import DTYPES
from simlab.representations.kinds import CLS, KINDS
from simlab.representations.words import WORD_SOURCES

BATCH_SIZE = 64
SHARED = ("batch_size", "dtype", "weights", "device")  # options that modules have too
OF_STATES = (
    "kind",
    "words",
    "special_tokens",
    "batch_tokens",
)  # options that rows of modules have not


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
        Examples per forward pass.
    batch_tokens
        Tokens per forward pass, padding included: batches of short texts have more of them, at most
        `batch_size`. None is no limit. A batch that does not fit into memory runs in halves.
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
    batch_tokens: Count | None = None
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
