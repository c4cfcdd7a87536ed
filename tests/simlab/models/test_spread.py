"""`--device spread`: a model over the memory and the disk gives the rows of the whole model."""

import functools
import re

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel

from simlab.errors import UserError
from simlab.experiments.influence import influence
from simlab.experiments.skip import skip
from simlab.models.batches import pad
from simlab.models.hidden import HiddenStates
from simlab.models.load import load_encoder, random_twin
from simlab.models.sources import ModelSource, resolve
from simlab.models.spread import is_spread, loaded_weights
from simlab.representations.extract import extract
from simlab.representations.folder import load_representations
from simlab.store.reading import read_results
from support.lab.tinymodels import ARCHITECTURES, COLUMNS, save_tiny_model, tiny_tokenizer
from support.model_families import STATES, TEXT
from support.tolerance import assert_same_forward

REFUSED = ("xlm", "gemma3n_text", "albert")
FAMILIES = [f for f in TEXT if STATES not in f.without and f.model_type not in REFUSED]
each_text = functools.partial(
    pytest.mark.parametrize, "family", ids=lambda family: family.model_type
)
SMALL = {"batch_size": 5, "max_length": 24}


@pytest.fixture(scope="module")
def batch():
    tokenizer = tiny_tokenizer()
    texts = ("the film is a bright and moving one", "dull plot")
    rows = [{k: v for k, v in tokenizer(t).items() if k != "token_type_ids"} for t in texts]
    return pad(tokenizer, rows)


@pytest.fixture
def half(monkeypatch):
    """Return a function that lets four fifths of a model fit into memory."""

    def leave(folder):
        files = folder.glob("*.safetensors")
        size = sum(file.stat().st_size for file in files)
        monkeypatch.setattr("simcore.free_memory", lambda *_: size)

    return leave


def require_same(found, wanted):
    """Compare two folders; weights that accelerate reads lie otherwise in memory, and round so."""
    layers = [load_representations(folder).layers for folder in (found, wanted)]
    for one, other in zip(*layers, strict=True):
        flat = [torch.from_numpy(np.concatenate([*map(np.ravel, rows)])) for rows in (one, other)]
        assert_same_forward(*flat)


@pytest.mark.parametrize("architecture", [a for a in ARCHITECTURES if a != "albert"])
def test_rows_are_those_of_the_whole_model(architecture, tmp_path, review_task, monkeypatch, half):
    folder = save_tiny_model(tmp_path / architecture, architecture)
    half(folder)
    extract(folder, review_task, tmp_path / "a", kind="mean", device="spread", **SMALL)
    model = load_encoder(resolve(str(folder)), spread=tmp_path)
    assert is_spread(model)
    assert {"disk"} <= {*model.hf_device_map.values()} <= {"cpu", "disk"}
    assert any(p.is_meta for p in model.parameters())
    monkeypatch.undo()
    extract(folder, review_task, tmp_path / "b", kind="mean", device="cpu", **SMALL)
    require_same(tmp_path / "a", tmp_path / "b")
    assert [one.name for one in (tmp_path / "a").iterdir() if one.name.startswith(".")] == []


def test_weights_on_disk_are_those_of_the_files(tmp_path, half):
    folder = save_tiny_model(tmp_path / "xlnet", "xlnet")
    whole = load_encoder(resolve(str(folder)))
    half(folder)
    model = load_encoder(resolve(str(folder)), spread=tmp_path)
    wanted = dict(whole.named_parameters())
    found = dict(loaded_weights(model))
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_one_line_says_where_the_model_went(simcore, tmp_path, reviews, half):
    folder = save_tiny_model(tmp_path / "bert")
    half(folder)
    arguments = ("extract", folder, reviews, *COLUMNS, "--kind", "mean", "--device", "spread")
    code, _, told = simcore(*arguments, "--out", tmp_path / "reps")
    assert code == 0
    assert not any("meta device" in one for one in told)  # accelerate's own words
    line = next(one for one in told if "of weights" in one)
    assert re.search(r"0\.0 GB of weights: 0\.0 GB in memory, 0\.0 GB on disk$", line)


@pytest.mark.parametrize("options", [{"kind": "attention"}, {"weights": "bfloat16"}])
def test_attention_and_other_precisions(options, tmp_path, review_task, half, monkeypatch):
    folder = save_tiny_model(tmp_path / "bert")
    half(folder)
    extract(folder, review_task, tmp_path / "a", device="spread", **SMALL, **options)
    monkeypatch.undo()
    extract(folder, review_task, tmp_path / "b", device="cpu", **SMALL, **options)
    require_same(tmp_path / "a", tmp_path / "b")


def test_modules_and_influence(tmp_path, review_task, half, monkeypatch):
    folder = save_tiny_model(tmp_path / "llama", "llama")
    options = {"modules": "layers.*", "pool": "mean", **SMALL}
    half(folder)
    extract(folder, review_task, tmp_path / "a", device="spread", **options)
    influence(folder, review_task, tmp_path / "a.parquet", device="spread")
    monkeypatch.undo()
    extract(folder, review_task, tmp_path / "b", device="cpu", **options)
    influence(folder, review_task, tmp_path / "b.parquet", device="cpu")
    require_same(tmp_path / "a", tmp_path / "b")
    found, wanted = (read_results(tmp_path / f"{one}.parquet")["value"] for one in "ab")
    assert np.abs(found - wanted).max() < 1e-6


def test_a_weight_on_disk_that_is_not_finite_is_refused(tmp_path, half):
    folder = save_tiny_model(tmp_path / "bert")
    model = load_encoder(resolve(str(folder)))
    with torch.no_grad():
        model.encoder.layer[2].output.dense.weight[0, 0] = torch.nan
    model.save_pretrained(folder)
    half(folder)
    with pytest.raises(UserError, match=r"finite weights, found NaN in encoder\.layer\.2\."):
        load_encoder(resolve(str(folder)), spread=tmp_path)


@each_text(
    [
        f if f.model_type in ("bert", "llama", "t5") else pytest.param(f, marks=pytest.mark.deep)
        for f in FAMILIES
    ]
)
def test_states_of_every_family(family, tmp_path, half, batch):
    """DeBERTa reads its relative positions without a call, so that they may not lie on disk."""
    config = AutoConfig.for_model(family.model_type, **family.size)
    random_twin(AutoModel, config, 1).save_pretrained(tmp_path)
    source = ModelSource(family.model_type, tmp_path)
    whole = load_encoder(source)
    half(tmp_path)
    model = load_encoder(source, spread=tmp_path)
    assert any(p.is_meta for p in model.parameters())
    with torch.inference_mode():
        wanted, found = (HiddenStates(one)(batch) for one in (whole, model))
    for one, other in zip(found, wanted, strict=True):
        assert_same_forward(one, other)


def test_a_model_whose_blocks_share_their_weights_is_refused(tmp_path, half):
    folder = save_tiny_model(tmp_path / "albert", "albert")
    half(folder)
    with pytest.raises(UserError, match=r"^model .*albert: wanted .* GB in memory for one block"):
        load_encoder(resolve(str(folder)), spread=tmp_path)


def test_models_that_cannot_be_spread(tmp_path, tiny_bert, review_task):
    with pytest.raises(UserError, match=r"device='spread': wanted a model .* random_init_seed=1"):
        extract(tiny_bert, review_task, tmp_path / "a", device="spread", random_init_seed=1)
    with pytest.raises(UserError, match="device='spread': wanted auto, cpu, cuda, cuda:1 or off"):
        skip(tiny_bert, review_task, tmp_path / "x.parquet", device="spread")
