"""
All tokens of a decoder, in bounded memory
==========================================

Every token of every layer of two decoders would take ten times the memory that is allowed here.
Streaming keeps one batch of them, and averages the unbiased estimator over batches.
"""

# %%
# Two decoders of Llama's shape. The weights are random, and so are the token numbers.
import torch
from matplotlib import pyplot as plt
from transformers import LlamaConfig, LlamaForCausalLM

from simcore import compare

LAYERS, WIDTH, BATCHES, BATCH, TOKENS = 8, 256, 12, 8, 64


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


models = decoder(0), decoder(1)
generator = torch.Generator().manual_seed(0)
loader = []
for _ in range(BATCHES):
    ids = torch.randint(3, 1000, (BATCH, TOKENS), generator=generator)
    loader.append({"input_ids": ids, "attention_mask": torch.ones_like(ids)})

# %%
# Without streaming, an error names the bytes before they are taken.

every = 2 * (LAYERS + 2) * BATCHES * BATCH * TOKENS * WIDTH * 4
allowed = every // 6
modules = ["model.embed_tokens", "model.layers.*", "model.norm"]
print(f"all tokens of all layers: {every / 2**20:.0f} MB; allowed: {allowed / 2**20:.0f} MB")
try:
    compare(*models, loader, modules, pool="tokens", max_memory=allowed)
except ValueError as error:
    print(error)

# %%
# With it, the rows of one batch are there at a time.

result = compare(*models, loader, modules, pool="tokens", max_memory=allowed, streaming=True)
print(result)

# %%
# From the second block on, any layer of one decoder is about as alike to any layer of the other:
# random blocks add little to the states that pass them.

figure, axes = plt.subplots(figsize=(4.5, 3.6), layout="constrained")
picture = axes.imshow(result.values, vmin=0, vmax=1, origin="lower")
axes.set(xlabel="module of the second decoder", ylabel="module of the first decoder")
figure.colorbar(picture, label="minibatch CKA")
plt.show()
