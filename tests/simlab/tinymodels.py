"""Tiny models, a word tokenizer and a data set that a bag of words can learn."""

from __future__ import annotations

import random
from pathlib import Path

GOOD = ("wonderful", "moving", "bright", "fresh", "funny")
BAD = ("dull", "tedious", "awful", "flat", "noisy")
FILLER = ("the", "film", "plot", "cast", "is", "a", "and", "with", "some", "scenes", "of", "music")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
COLUMNS = ("--text-column", "body", "--label-column", "verdict")
ARCHITECTURES = ("bert", "roberta", "electra", "distilbert", "albert", "mpnet", "deberta-v2")
LAYERS = 3


def tiny_config(architecture: str):
    """Configuration of a three-block encoder of width 24; two attention heads."""
    from transformers import AutoConfig

    size = {"vocab_size": len(SPECIAL + GOOD + BAD + FILLER), "pad_token_id": 0}
    size |= {"hidden_size": 24, "num_hidden_layers": LAYERS, "num_attention_heads": 2}
    size |= {"intermediate_size": 32, "max_position_embeddings": 70, "embedding_size": 24}
    if architecture == "distilbert":
        size |= {"dim": 24, "n_layers": LAYERS, "n_heads": 2, "hidden_dim": 32}
        for name in ("hidden_size", "num_hidden_layers", "num_attention_heads"):
            size.pop(name)
    return AutoConfig.for_model(architecture, **size)


def save_tiny_model(folder: Path, architecture: str = "bert") -> Path:
    """Write a randomly initialised encoder and a word tokenizer with `save_pretrained`."""
    import torch
    from transformers import AutoModel, BertTokenizer

    folder.mkdir(parents=True)
    words = SPECIAL + GOOD + BAD + FILLER
    tokenizer = BertTokenizer(vocab={word: index for index, word in enumerate(words)})
    tokenizer.model_max_length = 64
    tokenizer.save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        AutoModel.from_config(tiny_config(architecture)).save_pretrained(folder)
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
