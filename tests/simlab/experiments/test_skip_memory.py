"""Memory of a sweep over skipped spans, measured in a process of its own."""

import pytest

from tools.peak import in_subprocess

MB = 2**20
# Pages of libraries touched for the first time, and what the allocator keeps.
SLACK = 16 * MB

PROGRAM = """
import torch
from transformers import AutoModelForSequenceClassification, BertConfig
from simlab.experiments.skip import plan_skip, skip_logits
from simlab.models.chain import LayerChain
from tools.peak import peak_during
torch.set_num_threads(1)
config = BertConfig(vocab_size=100, hidden_size=192, num_hidden_layers={layers},
                    num_attention_heads=12, intermediate_size=768, num_labels=2)
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


# With no limit these take 130 MB and more.
@pytest.mark.parametrize(
    ("layers", "examples", "tokens", "limit"),
    [(12, 32, 64, 48 * MB), (6, 2, 448, 48 * MB), (6, 32, 64, 24 * MB)],
)
def test_max_memory_is_obeyed(layers, examples, tokens, limit):
    program = PROGRAM.format(layers=layers, examples=examples, tokens=tokens, limit=limit)
    assert int(in_subprocess(program)) <= limit + SLACK
