"""Similarity of neural representations, computed for all layer pairs at once.

>>> import numpy as np
>>> from simcore import cka_grid
>>> rng = np.random.default_rng(0)
>>> layers = [rng.standard_normal((100, width)) for width in (32, 48, 64)]
>>> cka_grid(layers).shape
(3, 3)
"""

import warnings as _warnings
from importlib.metadata import version as _version

from simcore import _extension as _extension  # first: it says why the extension is not there
from simcore import _kernels as _kernels  # registers the choice of kernels, after the operators
from simcore import _ops as _ops  # registers the operators
from simcore import align as align
from simcore import nn as nn
from simcore import stats as stats
from simcore._grid.matrices import Gram, Rdm
from simcore._grid.memory import free_memory
from simcore._grid.neighbours import Neighbours
from simcore._kernels.doctor import build_info
from simcore.attention import attention_grid, distributed_attention
from simcore.basis import Basis, bases
from simcore.cca import cca_grid, linreg_grid, procrustes_grid, pwcca_grid, svcca_grid
from simcore.cka import cka_grid, hsic_grid, plan_cka
from simcore.distances import distance_correlation_grid, rsm_difference_grid
from simcore.gallery import KnnCurve, knn_curve
from simcore.imd import imd_grid
from simcore.knn import cknna_grid, knn_grid, neighbours
from simcore.layer_descriptors import descriptor_grid, descriptors
from simcore.matching import aligned_cosine_grid, matching_grid
from simcore.minibatch import MinibatchCKA
from simcore.neurons import localization_score, mixedsim_grid, neuronsim_grid
from simcore.recording import Comparison, Tape, Track, compare, compare_layers, record
from simcore.rowwise import cosine_grid, disagreement_grid, output_divergence_grid
from simcore.rsa import rsa_grid
from simcore.subspaces import eigenspace_overlap_grid, gulp_grid
from simcore.topology import rtd_grid

if _extension.PURE:
    _warnings.warn(_extension.why_pure(), stacklevel=2)

__version__ = _version("simcore")
__all__ = [
    "Basis",
    "Comparison",
    "Gram",
    "KnnCurve",
    "MinibatchCKA",
    "Neighbours",
    "Rdm",
    "Tape",
    "Track",
    "__version__",
    "align",
    "aligned_cosine_grid",
    "attention_grid",
    "bases",
    "build_info",
    "cca_grid",
    "cka_grid",
    "cknna_grid",
    "compare",
    "compare_layers",
    "cosine_grid",
    "descriptor_grid",
    "descriptors",
    "disagreement_grid",
    "distance_correlation_grid",
    "distributed_attention",
    "eigenspace_overlap_grid",
    "free_memory",
    "gulp_grid",
    "hsic_grid",
    "imd_grid",
    "knn_curve",
    "knn_grid",
    "linreg_grid",
    "localization_score",
    "matching_grid",
    "mixedsim_grid",
    "neighbours",
    "neuronsim_grid",
    "nn",
    "output_divergence_grid",
    "plan_cka",
    "procrustes_grid",
    "pwcca_grid",
    "record",
    "rsa_grid",
    "rsm_difference_grid",
    "rtd_grid",
    "stats",
    "svcca_grid",
]
