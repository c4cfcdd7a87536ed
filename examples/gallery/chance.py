"""
How high is chance?
===================

Layers that have nothing to do with each other do not have a similarity of 0. How far above it they
lie depends on the measure, on the number of examples n, and on the widths.
"""

# %%
# Two unrelated layers of 128 neurons each, of ever more examples.
import numpy as np
from matplotlib import pyplot as plt

import simcore

rng = np.random.default_rng(0)
counts = [64, 128, 256, 512, 1024]
layers = {n: [rng.normal(size=(n, 128)) for _ in range(2)] for n in counts}
measures = {
    "CKA, biased": lambda x, y: simcore.cka_grid([x], [y]),
    "CKA, unbiased": lambda x, y: simcore.cka_grid([x], [y], estimator="unbiased"),
    "SVCCA": lambda x, y: simcore.svcca_grid([x], [y]),
    "Procrustes": lambda x, y: simcore.procrustes_grid([x], [y]),
    "mutual neighbours": lambda x, y: simcore.knn_grid([x], [y]),
}
curves = {
    name: [float(measure(*layers[n]).item()) for n in counts] for name, measure in measures.items()
}

# %%
# Where n is not larger than the width, CCA finds a perfect correlation between any two layers.

figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, values in curves.items():
    axes.plot(counts, values, marker="o", label=name)
axes.set_xscale("log", base=2)
axes.set(xlabel="examples", ylabel="similarity of unrelated layers", ylim=(-0.05, 1.05))
axes.axvline(128, color="grey", linestyle=":")
axes.legend()
plt.show()

# %%
# A permutation test says whether a value is more than chance, and what is left of it when chance is
# taken away: of unrelated layers the calibrated value is about 0, whichever the measure.

x, y = layers[256]
related = x @ rng.normal(size=(128, 128)) + 8 * rng.normal(size=x.shape)
for measure in ("cka", "svcca"):
    test = simcore.stats.permutation_test([x], [y, related], measure=measure, permutations=100)
    for name, column in (("unrelated", 0), ("related", 1)):
        print(
            f"{measure}, {name}: {test.observed[0, column]:.2f}, calibrated "
            f"{test.calibrated[0, column]:.2f}, p = {test.pvalue[0, column]:.2f}"
        )
