"""
Maps from one model to another
==============================

A grid says how alike two layers are; a map turns the one into the other, and its error on rows that
it has not seen says how much of the layer it reaches. Here the layers of MiniLM are mapped to those
of a copy whose last layers were disturbed.
"""

# %%
# The mean tokens of 800 sentences, and a copy with noise in the weights of its upper half.
import copy

import torch
from matplotlib import pyplot as plt

from simcore import cka_grid, record
from simcore.align import Training, align_pairs
from simlab import load_task
from simlab.models.batches import batches
from simlab.models.load import load_encoder, load_tokenizer
from simlab.models.sources import resolve
from simlab.models.tokens import encode

source = resolve("minilm")
tokenizer, model = load_tokenizer(source), load_encoder(source)
disturbed = copy.deepcopy(model)
torch.manual_seed(0)
with torch.no_grad():
    for block in disturbed.encoder.layer[3:]:
        for weight in block.parameters():
            weight.add_(0.5 * weight.std() * torch.randn_like(weight) if weight.ndim > 1 else 0)

encoded = encode(tokenizer, load_task("rt").split("train"), 32)[:800]
modules = ["embeddings", "encoder.layer.*"]
a, b = record(model, modules, pool="mean"), record(disturbed, modules, pool="mean")
with a, b, torch.inference_mode():
    for _, batch in batches(tokenizer, encoded, 100, "cpu"):
        model(**batch), disturbed(**batch)
xs, ys = a.layers(), b.layers()

# %%
# A linear map and an invertible network of each layer. The relative error is 0 for a perfect map,
# and 1 for one that knows the mean alone.

errors = {
    "linear": align_pairs(xs, ys, "linear"),
    "invertible network": align_pairs(
        xs, ys, "inn", n_blocks=1, hidden=32, training=Training(max_epochs=4)
    ),
}
cka = cka_grid(xs, ys).diagonal()
for name, results in errors.items():
    print(name, [round(result.heldout.relative, 3) for result in results])

# %%
# The lower half is the same model; from layer 4 on, both the similarity falls and the error rises.

figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
for name, results in errors.items():
    axes.plot([result.heldout.relative for result in results], marker="o", label=f"error, {name}")
axes.plot(1 - cka, marker="s", linestyle="--", label="1 - CKA")
axes.set(xlabel="layer", ylabel="on held-out rows", ylim=(0, None))
axes.legend()
plt.show()
