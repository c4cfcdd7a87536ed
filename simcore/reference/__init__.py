"""The float64 twins: every measure written exactly as its definition, in numpy alone.

These functions may be slow. They share no code with the compiled operators, which the tests compare
with them. The header comment of each kernel names its twin here.

Notation: a representation ``x`` is ``[n, p]``, n examples by p neurons; ``H = I - 11'/n``.
"""

from simcore.reference.attention import attention_grid, distributed_attention
from simcore.reference.cca import (
    basis,
    canonical_correlations,
    cca_grid,
    linreg_grid,
    procrustes_grid,
    pwcca_grid,
    svcca_grid,
)
from simcore.reference.coupling import couple, soft_clamp
from simcore.reference.distances import distance_correlation_grid, rsm_difference_grid
from simcore.reference.hsic import (
    center,
    cka,
    cka_grid,
    gram,
    hsic,
    hsic_biased,
    hsic_grid,
    hsic_unbiased,
    minibatch_cka,
    rbf_width,
    squared_distances,
)
from simcore.reference.imd import imd_grid
from simcore.reference.matching import aligned_cosine_grid, matching_grid
from simcore.reference.neighbours import (
    cknna_grid,
    knn_grid,
    neighbour_lists,
)
from simcore.reference.neurons import (
    best_partners,
    localization_score,
    mixedsim_grid,
    neuronsim_grid,
)
from simcore.reference.rowwise import (
    cosine_grid,
    descriptor_grid,
    descriptors,
    disagreement_grid,
    output_divergence_grid,
)
from simcore.reference.rsa import rank_moments, rsa_grid
from simcore.reference.subspaces import eigenspace_overlap_grid, gulp_grid

__all__ = [
    "aligned_cosine_grid",
    "attention_grid",
    "basis",
    "best_partners",
    "canonical_correlations",
    "cca_grid",
    "center",
    "cka",
    "cka_grid",
    "cknna_grid",
    "cosine_grid",
    "couple",
    "descriptor_grid",
    "descriptors",
    "disagreement_grid",
    "distance_correlation_grid",
    "distributed_attention",
    "eigenspace_overlap_grid",
    "gram",
    "gulp_grid",
    "hsic",
    "hsic_biased",
    "hsic_grid",
    "hsic_unbiased",
    "imd_grid",
    "knn_grid",
    "linreg_grid",
    "localization_score",
    "matching_grid",
    "minibatch_cka",
    "mixedsim_grid",
    "neighbour_lists",
    "neuronsim_grid",
    "output_divergence_grid",
    "procrustes_grid",
    "pwcca_grid",
    "rank_moments",
    "rbf_width",
    "rsa_grid",
    "rsm_difference_grid",
    "soft_clamp",
    "squared_distances",
    "svcca_grid",
]
