"""Values that others published of data in their repositories, which this one does not hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.io import loadmat

from simcore import Rdm, rsa_grid

NEURON_2008 = "demos/92imageData/Kriegeskorte_Neuron2008_supplementalData.mat"
SUBJECTS = "net2brain/tests/data/brain_data/fmri_{}_RDMs.npz"
# Net2Brain's noise_ceiling_log.json: lower and upper.
CEILINGS = {
    "EVC": (0.006817660885847111, 0.06397469419484077),
    "IT": (0.002784925615650058, 0.0647332511659806),
}


def human_and_monkey(folder: Path) -> list[tuple[str, float, float, float]]:
    """Return name, value here, published value and tolerance: Kriegeskorte et al. 2008, figure 1.

    Pearson's correlation of the dissimilarities of 92 images in human and in monkey IT.
    """
    pair = loadmat(folder / NEURON_2008)["RDMs_mIT_hIT_fig1"][0]
    monkey, human = ([Rdm(one["RDM"].ravel())] for one in pair)
    return [("human and monkey IT", rsa_grid(monkey, human).item(), 0.49, 0.005)]


def ceilings(folder: Path) -> list[tuple[str, float, float, float]]:
    """Return the same of four noise ceilings of 15 subjects and 78 images.

    Unlike `simcore.stats.noise_ceiling`, Net2Brain takes the mean of the subjects' dissimilarities
    as they are, and squares Spearman's correlation.
    """
    rows = []
    for region, published in CEILINGS.items():
        with np.load(folder / SUBJECTS.format(region)) as file:
            matrices = file["arr_0"].squeeze()
        subjects = [Rdm(one) for one in matrices]
        others = [Rdm(np.delete(matrices, i, axis=0).mean(0)) for i in range(len(matrices))]
        of_others = rsa_grid(subjects, others, correlation="spearman").diagonal()
        of_all = rsa_grid(subjects, [Rdm(matrices.mean(0))], correlation="spearman")
        for bound, found, wanted in zip(
            ("lower", "upper"), (of_others, of_all), published, strict=True
        ):
            value = float(np.square(found).mean())
            rows.append((f"{bound} noise ceiling of {region}", value, wanted, 1e-12))
    return rows


# The folder of a clone, and what is computed from it.
VALUES = {"rsatoolbox": human_and_monkey, "Net2Brain": ceilings}
