"""A model whose blocks lie on the disk takes a part of the memory of its weights."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModel

from simlab import extract, load_representations
from simlab.models.load import random_twin
from simlab.models.place import weight_bytes
from simlab.models.sources import ModelSource
from support.lab.tinymodels import save_tiny_model

LAYERS = 24
SHARD = "20MB"

SCRIPT = """
import sys
from bench.peak import peak_during
from simlab import extract
model, tiny, texts, out, device = sys.argv[1:]
how = {"kind": "mean", "split": "all", "device": device, "batch_size": 2}
extract(tiny, texts, out + "-tiny", **how)  # loads every library
print(peak_during(lambda: extract(model, texts, out, **how)))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A model of about 100 MB in shards of 20 MB, and a file of texts."""
    folder = save_tiny_model(tmp_path_factory.mktemp("models") / "llama", "llama")
    save_tiny_model(folder.parent / "tiny", "llama")
    config = AutoConfig.from_pretrained(folder)
    config.hidden_size, config.intermediate_size = 256, 1024
    config.num_hidden_layers, config.num_attention_heads = LAYERS, 4
    config.num_key_value_heads, config.head_dim = 4, 64
    (folder / "model.safetensors").unlink()
    random_twin(AutoModel, config, 1).save_pretrained(folder, max_shard_size=SHARD)
    texts = folder.parent / "texts.txt"
    texts.write_text("the unbelievable film\na dull plot\nsome wonderful scenes\nbright music\n")
    return folder, texts


def peak(folder, texts, out, device):
    """Return the rise of the resident set, pages of mapped files included."""
    arguments = [str(one) for one in (folder, folder.parent / "tiny", texts, out, device)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    environment["MALLOC_MMAP_THRESHOLD_"] = "65536"  # freed blocks leave the process at once
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_blocks_on_the_disk_take_little_memory(large, tmp_path):
    folder, texts = large
    assert len(list(folder.glob("model-*.safetensors"))) > 4
    size = weight_bytes(ModelSource("llama", folder), "float32")
    assert peak(folder, texts, tmp_path / "whole", "cpu") > 0.8 * size
    assert peak(folder, texts, tmp_path / "disk", "offload") < 0.5 * size
    torch.set_num_threads(1)
    extract(folder, texts, tmp_path / "free", kind="mean", split="all", batch_size=2)
    found, wanted = (load_representations(tmp_path / name) for name in ("disk", "free"))
    assert len(found.layers) == LAYERS + 1
    assert found.manifest["data_sha256"] == wanted.manifest["data_sha256"]
