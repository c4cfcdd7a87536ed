"""
MiniLM beside a random twin
===========================

How much of the similarity between layers comes from training, and how much from the architecture
and the words alone? The twin has the architecture of MiniLM and random weights.
"""

# %%
# The model and the sentences are those that ``make assets`` fetches. `simlab` loads both; with
# models and sentences of your own, plain `transformers` does.
from matplotlib import pyplot as plt

from simcore import compare
from simlab import load_task
from simlab.models.batches import batches
from simlab.models.load import load_encoder, load_tokenizer
from simlab.models.sources import resolve
from simlab.models.tokens import encode

source = resolve("minilm")
tokenizer = load_tokenizer(source)
trained, twin = load_encoder(source), load_encoder(source, random_init_seed=0)
encoded = encode(tokenizer, load_task("rt").split("train"), 64)[:200]
loader = [batch for _, batch in batches(tokenizer, encoded, 50, "cpu")]

# %%
# A row is the mean over the tokens of a sentence. The model with itself, and with its twin:

modules = ["embeddings", "encoder.layer.*"]
itself = compare(trained, None, loader, modules, pool="mean", estimator="unbiased")
random = compare(trained, twin, loader, modules, pool="mean", estimator="unbiased")
print(random)

# %%
# The layers of the twin are nearly one representation, and the layers of MiniLM leave it one by
# one: the rows of the grid on the right hardly depend on the column.

figure, panels = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained", sharey=True)
for axes, grid, other in zip(panels, (itself, random), ("MiniLM", "random twin"), strict=True):
    picture = axes.imshow(grid.values, vmin=0, vmax=1, origin="lower")
    axes.set(xlabel=f"layer of {other}", ylabel="layer of MiniLM")
figure.colorbar(picture, ax=panels, label="CKA, unbiased")
plt.show()

# %%
# Inside a block: attention and feed-forward outputs, streamed, so that one batch is in memory.

inner = ["encoder.layer.*.attention", "encoder.layer.*.output"]
print(compare(trained, None, loader, inner, pool="mean", streaming=True))
