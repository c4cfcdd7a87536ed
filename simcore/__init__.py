"""Similarity of neural representations, computed for all layer pairs at once.

>>> import numpy as np
>>> from simcore import cka_grid
>>> rng = np.random.default_rng(0)
>>> layers = [rng.standard_normal((100, width)) for width in (32, 48, 64)]
>>> cka_grid(layers).shape
(3, 3)

Importing simcore registers its operators; the modules of its names are imported when a name is
first used.
"""

import warnings as _warnings
from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

from simcore import _extension as _extension  # first: it says why the extension is not there
from simcore import _kernels as _kernels  # registers the choice of kernels, after the operators
from simcore import _ops as _ops  # registers the operators
from simcore._grid.memory import free_memory as free_memory  # kernels ask for it

if TYPE_CHECKING:
    from simcore import align as align
    from simcore import nn as nn
    from simcore import stats as stats
    from simcore import testing as testing
    from simcore._grid.matrices import Gram as Gram
    from simcore._grid.matrices import Rdm as Rdm
    from simcore._grid.neighbours import Neighbours as Neighbours
    from simcore._kernels.doctor import build_info as build_info
    from simcore.attention import attention_grid as attention_grid
    from simcore.attention import distributed_attention as distributed_attention
    from simcore.basis import Basis as Basis
    from simcore.basis import bases as bases
    from simcore.cca import cca_grid as cca_grid
    from simcore.cca import linreg_grid as linreg_grid
    from simcore.cca import procrustes_grid as procrustes_grid
    from simcore.cca import pwcca_grid as pwcca_grid
    from simcore.cca import svcca_grid as svcca_grid
    from simcore.cka import cka_grid as cka_grid
    from simcore.cka import hsic_grid as hsic_grid
    from simcore.cka import plan_cka as plan_cka
    from simcore.distances import distance_correlation_grid as distance_correlation_grid
    from simcore.distances import rsm_difference_grid as rsm_difference_grid
    from simcore.gallery import KnnCurve as KnnCurve
    from simcore.gallery import knn_curve as knn_curve
    from simcore.imd import imd_estimate as imd_estimate
    from simcore.imd import imd_grid as imd_grid
    from simcore.knn import cknna_grid as cknna_grid
    from simcore.knn import knn_grid as knn_grid
    from simcore.knn import neighbours as neighbours
    from simcore.layer_descriptors import descriptor_grid as descriptor_grid
    from simcore.layer_descriptors import descriptors as descriptors
    from simcore.matching import aligned_cosine_grid as aligned_cosine_grid
    from simcore.matching import matching_grid as matching_grid
    from simcore.matching import neuron_matches as neuron_matches
    from simcore.measures import measures as measures
    from simcore.minibatch import MinibatchCKA as MinibatchCKA
    from simcore.neurons import localization_score as localization_score
    from simcore.neurons import mixedsim_grid as mixedsim_grid
    from simcore.neurons import neuron_partners as neuron_partners
    from simcore.neurons import neuronsim_grid as neuronsim_grid
    from simcore.recording import Comparison as Comparison
    from simcore.recording import Tape as Tape
    from simcore.recording import Track as Track
    from simcore.recording import compare as compare
    from simcore.recording import compare_layers as compare_layers
    from simcore.recording import lightning_callback as lightning_callback
    from simcore.recording import record as record
    from simcore.rowwise import cosine_grid as cosine_grid
    from simcore.rowwise import disagreement_grid as disagreement_grid
    from simcore.rowwise import output_divergence_grid as output_divergence_grid
    from simcore.rsa import rsa_grid as rsa_grid
    from simcore.subspaces import eigenspace_overlap_grid as eigenspace_overlap_grid
    from simcore.subspaces import gulp_grid as gulp_grid
    from simcore.topology import rtd_estimate as rtd_estimate
    from simcore.topology import rtd_grid as rtd_grid

# Modules, and the names that each gives. Type checkers do not run `__getattr__`, but read the
# imports above.
_MODULES = {
    "align": "",
    "attention": "attention_grid distributed_attention",
    "basis": "Basis bases",
    "cca": "cca_grid linreg_grid procrustes_grid pwcca_grid svcca_grid",
    "cka": "cka_grid hsic_grid plan_cka",
    "distances": "distance_correlation_grid rsm_difference_grid",
    "gallery": "KnnCurve knn_curve",
    "_grid.matrices": "Gram Rdm",
    "_grid.neighbours": "Neighbours",
    "imd": "imd_estimate imd_grid",
    "_kernels.doctor": "build_info",
    "knn": "cknna_grid knn_grid neighbours",
    "layer_descriptors": "descriptor_grid descriptors",
    "matching": "aligned_cosine_grid matching_grid neuron_matches",
    "measures": "",
    "minibatch": "MinibatchCKA",
    "neurons": "localization_score mixedsim_grid neuron_partners neuronsim_grid",
    "nn": "",
    "recording": "Comparison Tape Track compare compare_layers lightning_callback record",
    "rowwise": "cosine_grid disagreement_grid output_divergence_grid",
    "rsa": "rsa_grid",
    "stats": "",
    "subspaces": "eigenspace_overlap_grid gulp_grid",
    "testing": "",
    "topology": "rtd_estimate rtd_grid",
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}

if _extension.PURE:
    _warnings.warn(_extension.why_pure(), stacklevel=2)

__version__ = _version("simcore")
__all__ = sorted(
    ["__version__", "align", "free_memory", "measures", "nn", "stats", "testing", *_PLACES]
)

if not TYPE_CHECKING:  # with `__getattr__`, type checkers would take any name

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
