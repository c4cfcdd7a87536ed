"""A decoder of Llama's shape, streamed: every token of every layer, in bounded memory.

    python examples/record_decoder.py

The weights are random, and so are the token numbers. All tokens of all layers would take more than
ten times the memory that is allowed; streaming keeps one batch of them.
"""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from simcore import compare

LAYERS, WIDTH, BATCHES, BATCH, TOKENS = 8, 256, 24, 8, 64
MODULES = ["model.embed_tokens", "model.layers.*", "model.norm"]


def decoder(seed: int) -> LlamaForCausalLM:
    """Return a decoder of random weights."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=WIDTH,
        intermediate_size=3 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=8,
        num_key_value_heads=2,
    )
    return LlamaForCausalLM(config).eval()


def main() -> None:
    """Compare with and without streaming, and print."""
    generator = torch.Generator().manual_seed(0)
    loader = []
    for _ in range(BATCHES):
        ids = torch.randint(3, 1000, (BATCH, TOKENS), generator=generator)
        loader.append({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    every = 2 * (LAYERS + 2) * BATCHES * BATCH * TOKENS * WIDTH * 4
    allowed = every // 10
    print(f"all tokens of all layers: {every / 2**20:.0f} MB; allowed: {allowed / 2**20:.0f} MB")
    models = decoder(0), decoder(1)
    try:
        compare(*models, loader, MODULES, pool="tokens", max_memory=allowed)
    except ValueError as error:
        print(error)
    print(compare(*models, loader, MODULES, pool="tokens", max_memory=allowed, streaming=True))


if __name__ == "__main__":
    main()
