"""Tiny models, a word tokenizer and a data set that a bag of words can learn."""

from __future__ import annotations

import random
from pathlib import Path

from simlab.store.runtime import quiet_libraries

GOOD = ("wonderful", "moving", "bright", "fresh", "funny")
BAD = ("dull", "tedious", "awful", "flat", "noisy")
FILLER = ("the", "film", "plot", "cast", "is", "a", "and", "with", "some", "scenes", "of", "music")
PIECES = ("un", "##believ", "##able", "##ly", "film", "##s", "don", "'", "t")
# Pieces of which any word can be made.
LETTERS = tuple(end + one for end in ("", "##") for one in "abcdefghijklmnopqrstuvwxyz0123456789")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
COLUMNS = ("--text-column", "body", "--label-column", "verdict")
ENCODERS = (
    "bert",
    "roberta",
    "electra",
    "distilbert",
    "albert",
    "mpnet",
    "deberta-v2",
    "modernbert",
)
LLAMAS = ("llama", "mistral", "qwen2", "qwen3")
DECODERS = ("gpt2", "openai-gpt", *LLAMAS)
ARCHITECTURES = (*ENCODERS, "xlnet", *DECODERS)
# Every block the same module, the classifier token last, states by keyword, a norm that follows.
PLAIN = ("bert", "albert", "xlnet", "gpt2")
LAYERS = 3
# What tokenizers make of white space, as `piece_tokenizer` builds them.
TOKENIZERS = {
    "Metaspace": "XLM-RoBERTa, T5: the text is split at each space",
    "Prepend": "the file of Llama 2: a normaliser marks spaces, and nothing splits the text",
    "LlamaTokenizer": "Llama 2, Mistral",
    "GemmaTokenizer": "Gemma: a pre-tokenizer looks for spaces that the normaliser has replaced",
}
END = "<|endoftext|>"  # as in GPT-2 and Qwen, whose tokenizers would add it otherwise


def each(names=ARCHITECTURES, quick=PLAIN):
    """Return names as parameters of a test, of which all that are not `quick` are deep."""
    import pytest

    return [name if name in quick else pytest.param(name, marks=pytest.mark.deep) for name in names]


def tiny_config(architecture: str, vocabulary: int = len(SPECIAL + GOOD + BAD + FILLER)):
    """Configuration of a three-block model of width 24; two attention heads."""
    from transformers import AutoConfig

    size = {"hidden_size": 24, "num_hidden_layers": LAYERS, "num_attention_heads": 2}
    size |= {"intermediate_size": 32, "max_position_embeddings": 70, "embedding_size": 24}
    special = {"pad_token_id": 0}
    if architecture == "distilbert":
        size = {"dim": 24, "n_layers": LAYERS, "n_heads": 2, "hidden_dim": 32}
        size |= {"max_position_embeddings": 70}
    elif architecture == "xlnet":
        size = {"d_model": 24, "n_layer": LAYERS, "n_head": 2, "d_inner": 32}
    elif architecture in LLAMAS:
        size |= {"num_key_value_heads": 1, "head_dim": 12}
        special = {}  # real configurations name no padding
    elif architecture in DECODERS:
        size = {"n_embd": 24, "n_layer": LAYERS, "n_head": 2, "n_positions": 70}
        special = {}  # real configurations name no padding either
    elif architecture == "longformer":
        size |= {"attention_window": 8}  # a model lists it for each layer, and saves the list
    elif architecture == "gpt_neo":
        size = {"hidden_size": 24, "num_layers": LAYERS, "num_heads": 2, "window_size": 4}
        size |= {"attention_types": [[["global", "local"], 1], [["global"], 1]]}
    elif architecture == "modernbert":  # every second layer attends to its neighbours only
        size |= {"global_attn_every_n_layers": 2, "local_attention": 8}
        special |= {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
    return AutoConfig.for_model(architecture, vocab_size=vocabulary, **size, **special)


def tiny_tokenizer(pieces: tuple[str, ...] = (), architecture: str = "bert"):
    """A word-piece tokenizer of the words of `review` and further `pieces`.

    The tokenizer of XLNet puts the CLS token at the end. Decoders have `byte_level_tokenizer`.
    """
    from transformers import BertTokenizer

    words = dict.fromkeys(SPECIAL + GOOD + BAD + FILLER + pieces)
    if architecture in DECODERS:
        return byte_level_tokenizer([" ".join(words)])
    tokenizer = BertTokenizer(vocab={word: index for index, word in enumerate(words)})
    tokenizer.model_max_length = 64
    return _with_cls_last(tokenizer) if architecture == "xlnet" else tokenizer


def _with_cls_last(tokenizer):
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    backend = tokenizer.backend_tokenizer
    backend.post_processor = TemplateProcessing(
        single="$A [SEP] [CLS]",
        pair="$A [SEP] $B:1 [SEP]:1 [CLS]",
        special_tokens=[(word, backend.token_to_id(word)) for word in ("[CLS]", "[SEP]")],
    )
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    special = {name: getattr(tokenizer, name) for name in names}
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=64, **special)


def save_tiny_model(
    folder: Path,
    architecture: str = "bert",
    pieces: tuple[str, ...] = (),
    initializer_range: float | None = None,
) -> Path:
    """Write a randomly initialised model and `tiny_tokenizer` with `save_pretrained`.

    At an ``initializer_range`` of 1 its heads have preferences, and no component of its CLS vectors
    is as small as their rounding.
    """
    import torch
    from transformers import AutoModel

    quiet_libraries()
    folder.mkdir(parents=True)
    tokenizer = tiny_tokenizer(pieces, architecture)
    tokenizer.save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        config = tiny_config(architecture, len(tokenizer))
        if initializer_range is not None:
            config.initializer_range = initializer_range
        AutoModel.from_config(config).save_pretrained(folder)
    return folder


def save_tiny_classifier(folder, architecture, task, seed=5):
    """Save a checkpoint with a head, of random weights large enough to tell inputs apart."""
    import torch

    from simlab.models.load import load_classifier
    from simlab.models.sources import resolve

    source = resolve(str(save_tiny_model(folder, architecture)))
    model = load_classifier(source, task, seed=seed, random_init=True)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(5)
    model.save_pretrained(folder)
    return resolve(str(folder))


def byte_level_tokenizer(texts: list[str]):
    """A byte-level BPE tokenizer as GPT-2's, without special tokens in its output."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, model_max_length=64)


def piece_tokenizer(how: str, pieces: tuple[str, ...] = ()):
    """A tokenizer of letters, the pairs of letters and words in `FILLER`, and further `pieces`.

    `how` is a class of transformers, or what a file says of white space: ``Prepend`` is as in Llama
    2's own file, a normaliser without a pre-tokenizer, and ``Metaspace`` splits the text.
    """
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    words = [*pieces, *(f"▁{word}" for word in FILLER)]
    merges = dict.fromkeys((word[:end], word[end]) for word in words for end in range(1, len(word)))
    letters = dict.fromkeys("▁abcdefghijklmnopqrstuvwxyz\t\n")
    special = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<s>", "</s>")
    pieces = dict.fromkeys((*special, *letters, *map("".join, merges)))
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    if hasattr(transformers, how):
        return getattr(transformers, how)(vocab=vocabulary, merges=list(merges))
    backend = Tokenizer(models.BPE(vocabulary, list(merges), unk_token="<unk>"))
    if how == "Metaspace":
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
    else:
        marks = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        backend.normalizer = normalizers.Sequence(marks)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>", model_max_length=64
    )


def save_tiny_decoder(folder: Path, texts: list[str]) -> Path:
    """Write a randomly initialised two-block GPT-2 of width 24 and its tokenizer."""
    import torch
    from transformers import GPT2Config, GPT2Model

    tokenizer = byte_level_tokenizer(texts)
    tokenizer.save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        size = {"n_embd": 24, "n_layer": 2, "n_head": 2, "n_positions": 64}
        GPT2Model(GPT2Config(vocab_size=len(tokenizer), **size)).save_pretrained(folder)
    return folder


def review(rng: random.Random, positive: bool) -> str:
    """A sentence of 3 to 20 words with one to three words that decide its label."""
    words = rng.choices(FILLER, k=rng.randint(2, 17))
    words += rng.choices(GOOD if positive else BAD, k=rng.randint(1, 3))
    rng.shuffle(words)
    return " ".join(words)


def write_reviews(path: Path, count: int = 160) -> Path:
    """Write a csv file with columns ``body`` and ``verdict``, half of it good."""
    rng = random.Random(3)
    rows = [(review(rng, row % 2 == 0), ("good", "bad")[row % 2]) for row in range(count)]
    path.write_text("body,verdict\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return path


def fill_padding(model):
    """Give padding an embedding that is not zero, as that of trained checkpoints is not."""
    for module in model.modules():
        if getattr(module, "padding_idx", None) is not None and hasattr(module, "weight"):
            rows = module.weight.data
            rows[module.padding_idx] = 2 * rows.std()
