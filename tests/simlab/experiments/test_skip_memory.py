"""Memory of a sweep over skipped spans, measured in a process of its own."""

import pytest

from bench.peak import in_subprocess

MB = 2**20
# Pages of libraries touched for the first time, and what the allocator keeps.
SLACK = 16 * MB

PROGRAM = """
import torch
from bench import skip
from bench.peak import peak_during
torch.set_num_threads(1)
skip.MEMORY = {limit}
model = skip.encoder({layers}, 192)
ids = torch.ones({examples}, {tokens}, dtype=torch.long)
with torch.inference_mode():
    skip.sweep(model, ids[:1, :4])
    print(peak_during(lambda: skip.sweep(model, ids)))
"""


# With no limit these take 130 MB and more.
@pytest.mark.parametrize(
    ("layers", "examples", "tokens", "limit"),
    [(12, 32, 64, 48 * MB), (6, 2, 448, 48 * MB), (6, 32, 64, 24 * MB)],
)
def test_max_memory_is_obeyed(layers, examples, tokens, limit):
    program = PROGRAM.format(layers=layers, examples=examples, tokens=tokens, limit=limit)
    assert int(in_subprocess(program)) <= limit + SLACK
