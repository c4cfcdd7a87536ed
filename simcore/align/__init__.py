"""Maps from one representation to another, fitted on some rows and judged on others.

>>> import torch
>>> from simcore.align import LinearAligner
>>> x = torch.randn(100, 8)
>>> aligner = LinearAligner().fit(x[:80], x[:80] @ torch.ones(8, 4))
>>> aligner.errors(x[80:], x[80:] @ torch.ones(8, 4)).relative < 0.01
True
"""

from simcore.align._base import (
    Aligner,
    AlignmentError,
    ConstantRowsError,
    NotFittedError,
    TooFewRowsError,
)
from simcore.align._training import Log, Training
from simcore.align.canonical import CCAAligner, PWCCAAligner, SVCCAAligner
from simcore.align.grids import GridErrors, align_grid
from simcore.align.linear import GradientLinearAligner, LinearAligner
from simcore.align.neural import INNAligner, MLPAligner
from simcore.align.pairs import METHODS, PairResult, align_pairs
from simcore.align.published import REN2023

__all__ = [
    "METHODS",
    "REN2023",
    "Aligner",
    "AlignmentError",
    "CCAAligner",
    "ConstantRowsError",
    "GradientLinearAligner",
    "GridErrors",
    "INNAligner",
    "LinearAligner",
    "Log",
    "MLPAligner",
    "NotFittedError",
    "PWCCAAligner",
    "PairResult",
    "SVCCAAligner",
    "TooFewRowsError",
    "Training",
    "align_grid",
    "align_pairs",
]
