"""Real representations to benchmark with: MiniLM on movie reviews, in four stages of training."""

from __future__ import annotations

import torch
from torch import Tensor

MAX_LENGTH = 128
RESET = (0, 2, 4, 6)  # top layers that are initialised anew, one model each


def representations(count: int) -> Tensor:
    """Masked means of ``count`` sentences at all 7 layers of four models, ``[28, count, 384]``.

    Computed once a machine (a minute) and kept beside the model in the user's cache.
    """
    from simlab.store.assets import cache_folder

    path = cache_folder() / f"bench-minilm-reset-{count}.pt"
    if not path.exists():
        partial = path.with_suffix(".partial")
        torch.save(torch.cat([_model_layers(top, count) for top in RESET]), partial)
        partial.rename(path)
    layers: Tensor = torch.load(path)
    return layers


def _model_layers(top: int, count: int) -> Tensor:
    from simlab.models.batches import batches
    from simlab.models.load import load_encoder, load_tokenizer
    from simlab.models.sources import resolve
    from simlab.models.tokens import encode
    from simlab.tasks import load_task

    source = resolve("minilm")
    tokenizer, encoder = load_tokenizer(source), load_encoder(source)
    twin = load_encoder(source, random_init_seed=top)
    for index in range(len(encoder.encoder.layer) - top, len(encoder.encoder.layer)):
        encoder.encoder.layer[index] = twin.encoder.layer[index]
    examples = load_task("rt").split("train")
    encoded = encode(tokenizer, examples, MAX_LENGTH)[:count]
    layers = torch.empty(len(encoder.encoder.layer) + 1, count, encoder.config.hidden_size)
    with torch.inference_mode():
        for rows, batch in batches(tokenizer, encoded, 64, "cpu"):
            hidden = torch.stack(encoder(**batch, output_hidden_states=True).hidden_states)
            mask = batch["attention_mask"][None, :, :, None]
            layers[:, rows] = (hidden * mask).sum(2) / mask.sum(2)
    return layers
