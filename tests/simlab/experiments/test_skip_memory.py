"""Memory of a sweep over skipped spans, measured in a process of its own."""

import pytest

from support.forks import in_fork

pytestmark = pytest.mark.slow

MB = 2**20
# Pages of libraries touched for the first time, and memory that the allocator keeps.
SLACK = 8 * MB

MODULES = "torch, transformers.models.bert, simlab.experiments.skip"
PROGRAM = """
import torch
from transformers import AutoModelForSequenceClassification, BertConfig
from simlab.experiments.skip import plan_skip, skip_logits
from simlab.models.states import LayerChain
from bench.peak import peak_during
torch.set_num_threads(1)
config = BertConfig(vocab_size=100, hidden_size={width}, num_hidden_layers={layers},
                    num_attention_heads={heads}, intermediate_size=4 * {width}, num_labels=2)
model = AutoModelForSequenceClassification.from_config(config).eval()
def sweep(ids):
    batch = dict(input_ids=ids, attention_mask=torch.ones_like(ids))
    plan = plan_skip(model, {layers}, batch, {limit})
    for part in ids.split(plan.examples):
        batch = dict(input_ids=part, attention_mask=torch.ones_like(part))
        skip_logits(LayerChain(model, batch), plan.states)
ids = torch.ones({examples}, {tokens}, dtype=torch.long)
with torch.inference_mode():
    sweep(ids[:1, :4])
    print(peak_during(lambda: sweep(ids)))
"""


# Without a limit these sweeps take 65 MB and more.
@pytest.mark.parametrize(
    ("layers", "width", "heads", "examples", "tokens", "limit"),
    [(6, 96, 4, 12, 448, 32 * MB), (6, 48, 4, 192, 64, 24 * MB)],
)
def test_max_memory_is_obeyed(layers, width, heads, examples, tokens, limit):
    shape = {"layers": layers, "width": width, "heads": heads}
    program = PROGRAM.format(examples=examples, tokens=tokens, limit=limit, **shape)
    assert int(in_fork(program, modules=MODULES)) <= limit + SLACK
