"""Autocast leaves every measure alone: it would put half-precision products into their values."""

import pytest
import torch
from torch.utils._pytree import tree_leaves

from support.traced import ROWS

# Modules and aligners train, which autocast is made for.
MEASURES = [name for name in ROWS if not name.startswith(("nn.", "align."))]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MEASURES)
def test_values_are_those_without(name, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for row in ROWS[name]:
            inputs = tuple(t.detach().float() for t in row.inputs(24))
            plain = tree_leaves(row.function(*inputs))
            with torch.autocast("cpu", torch.bfloat16):
                autocast = tree_leaves(row.function(*inputs))
            assert all(map(torch.equal, plain, autocast))
    finally:
        torch.set_num_threads(before)
