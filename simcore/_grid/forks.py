"""A forked child of a process that has computed grids works on one thread.

A child of ``fork`` has the thread that called it alone. OpenMP, on which torch's threads run, does
not see that: the child would wait without end for the threads of its parent, as with plain torch.
`multiprocessing` forks by default before Python 3.14.
"""

import os

import torch

_has_computed = False


def computes() -> None:
    """Say that this process computes a grid, on however many threads."""
    global _has_computed
    _has_computed = True


def _alone() -> None:
    if _has_computed:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_alone)
