"""Invertible networks of affine couplings, one map or a batch of independent maps at a time.

>>> import torch
>>> from simcore.nn import CouplingINN
>>> inn = CouplingINN(dim=8, n_blocks=4, hidden=16)
>>> x = torch.randn(100, 8)
>>> inn(x).shape, inn.log_abs_det(x).shape
(torch.Size([100, 8]), torch.Size([100]))
"""

from simcore.nn.coupling import AffineCoupling
from simcore.nn.inn import CouplingINN
from simcore.nn.mlp import ACTIVATIONS, BatchedLinear, BatchedMLP

__all__ = ["ACTIVATIONS", "AffineCoupling", "BatchedLinear", "BatchedMLP", "CouplingINN"]
