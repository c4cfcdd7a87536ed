"""The operators of csrc/torch/schema.cpp by family: names, shapes of results and derivatives.

A family has the same name in csrc/torch, csrc/cpu and csrc/cuda. Importing this package loads the
extension and registers the fake kernels and derivatives of its operators.
"""

import torch  # noqa: F401 - first: it brings the libraries that the extension needs

import simcore._C  # noqa: F401 - loading it registers the operators
from simcore._ops import attention as attention
from simcore._ops import coupling as coupling
from simcore._ops import hsic as hsic
from simcore._ops import hsic_batched as hsic_batched
from simcore._ops import hsic_derivatives as hsic_derivatives
from simcore._ops import neighbours as neighbours
from simcore._ops import neurons as neurons
from simcore._ops import rsa as rsa
from simcore._ops import spectral as spectral
