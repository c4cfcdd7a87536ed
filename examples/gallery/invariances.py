"""
What each measure ignores
=========================

A measure is chosen by what it should not see. Here one layer of MiniLM is changed in seven ways,
and each measure compares it with itself: 1 is "the same".
"""

# %%
# Mean tokens of the last layer, 1,000 sentences.
import torch
from matplotlib import pyplot as plt

import simcore
from simcore import record
from simlab import load_task
from simlab.models.batches import batches
from simlab.models.load import load_encoder, load_tokenizer
from simlab.models.sources import resolve
from simlab.models.tokens import encode

source = resolve("minilm")
tokenizer, model = load_tokenizer(source), load_encoder(source)
encoded = encode(tokenizer, load_task("rt").split("train"), 64)[:1000]
with record(model, "encoder.layer.5", pool="mean") as tape, torch.inference_mode():
    for _, batch in batches(tokenizer, encoded, 100, "cpu"):
        model(**batch)
layer = tape.layers()["encoder.layer.5"].double()
n, width = layer.shape

# %%
# The changes. The linear map has columns of very different sizes; the noise has the variance of the
# layer itself.

generator = torch.Generator().manual_seed(0)
noise = torch.randn(n, width, generator=generator, dtype=torch.float64)
rotation = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64)).Q
order = torch.randperm(width, generator=generator)
changed = {
    "shift": layer + 3,
    "scale": 5 * layer,
    "neurons in another order": layer[:, order],
    "rotation": layer @ rotation,
    "linear map": layer @ (rotation * torch.logspace(-1, 1, width, dtype=torch.float64)),
    "noise": layer + layer.std(0) * noise,
    "rows in another order": layer[torch.randperm(n, generator=generator)],
}

# %%
# The measures. Every one is a grid of the layer with all changed ones at once.

measures = {
    "CKA": simcore.cka_grid,
    "CCA": simcore.cca_grid,
    "SVCCA": simcore.svcca_grid,
    "Procrustes": simcore.procrustes_grid,
    "linear regression": simcore.linreg_grid,
    "RSA": simcore.rsa_grid,
    "best neurons": simcore.neuronsim_grid,
    "mutual neighbours": simcore.knn_grid,
}
rows = list(changed.values())
values = torch.stack([measure([layer], rows)[0] for measure in measures.values()])

# %%
# CCA and regression ignore any linear map, and so see no difference where CKA does; neighbours by
# cosine notice a shift, best neurons a rotation. Only the last two columns should be low for all.

figure, axes = plt.subplots(figsize=(7.5, 4.6), layout="constrained")
axes.imshow(values, vmin=0, vmax=1)
axes.set_xticks(range(len(changed)), changed, rotation=35, ha="right")
axes.set_yticks(range(len(measures)), measures)
for i, j in torch.cartesian_prod(torch.arange(len(measures)), torch.arange(len(changed))).tolist():
    value = float(values[i, j])
    axes.text(j, i, f"{value:.2f}", ha="center", va="center", color="black" if value > 0.6 else "w")
plt.show()
