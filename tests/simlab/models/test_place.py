"""Where a model runs: one over memory and disk gives the rows of the whole model."""

import re

import pytest
import torch
from transformers import AutoConfig, AutoModel

from simlab import extract, skip
from simlab.errors import UserError
from simlab.models.batches import pad, reads_padding
from simlab.models.hub import WEIGHTS
from simlab.models.load import load_config, load_encoder, random_twin
from simlab.models.place import is_spread, loaded_weights, place, weight_bytes
from simlab.models.sources import ModelSource, resolve
from simlab.models.states import HiddenStates
from support.lab.commandline import check_refused
from support.lab.tinymodels import COLUMNS, LAYERS, save_tiny_model, tiny_tokenizer
from support.model_families import STATES, TEXT
from support.tolerance import assert_same_forward

REFUSED = ("xlm", "squeezebert")  # without a list of blocks, and whose parts of blocks are called
FAMILIES = [f for f in TEXT if STATES not in f.without and f.model_type not in REFUSED]
# Those that differ the most: shared blocks, a convolution after block 1, time first, experts.
QUICK = ("bert", "albert", "deberta-v2", "xlnet", "longformer", "llama", "mixtral", "mamba")
TEXTS = ("the film is a bright and moving one", "dull plot")


@pytest.fixture(scope="module")
def batch():
    tokenizer = tiny_tokenizer()
    rows = [{k: v for k, v in tokenizer(t).items() if k != "token_type_ids"} for t in TEXTS]
    return pad(tokenizer, rows)


@pytest.fixture
def half(monkeypatch):
    """Return a function that lets four fifths of a model fit into memory."""

    def leave(folder):
        files = folder.glob("*.safetensors")
        size = sum(file.stat().st_size for file in files)
        monkeypatch.setattr("simcore.free_memory", lambda *_: size)

    return leave


@pytest.mark.parametrize("device", ["spread", "offload"])
@pytest.mark.parametrize(
    "family",
    [f if f.model_type in QUICK else pytest.param(f, marks=pytest.mark.deep) for f in FAMILIES],
    ids=lambda family: family.model_type,
)
def test_states_of_every_family(family, device, tmp_path, half, batch):
    """DeBERTa reads its relative positions without a call, so that they may not lie on disk."""
    config = AutoConfig.for_model(family.model_type, **family.size)
    random_twin(AutoModel, config, 1).save_pretrained(tmp_path)
    source = ModelSource(family.model_type, tmp_path)
    whole = load_encoder(source)
    if device == "spread":
        half(tmp_path)
    if (family.model_type, device) == ("albert", "spread"):  # all blocks are one
        with pytest.raises(UserError, match=r"^model albert: wanted .* GB in memory for one block"):
            load_encoder(source, device=device, scratch=tmp_path)
        return
    model = load_encoder(source, device=device, scratch=tmp_path)
    assert is_spread(model)
    assert {*model.hf_device_map.values()} == {"cpu", "disk"}
    assert any(p.is_meta for p in model.parameters())
    with torch.inference_mode():
        wanted, found = (HiddenStates(one)(batch) for one in (whole, model))
    assert len(found) == LAYERS + 1
    for layer, states in zip(found, wanted, strict=True):
        assert_same_forward(layer, states)  # chunks of Longformer lie otherwise in memory


@pytest.mark.parametrize("device", ["spread", "offload"])
def test_weights_on_disk_are_those_of_the_files(tmp_path, half, device):
    folder = save_tiny_model(tmp_path / "xlnet", "xlnet")
    whole = load_encoder(resolve(str(folder)))
    half(folder)
    model = load_encoder(resolve(str(folder)), device=device)
    wanted = dict(whole.named_parameters())
    found = dict(loaded_weights(model))
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_texts_are_tried_on_the_first_block_alone(tmp_path, monkeypatch):
    """The others would be read from the disk for each of them."""
    folder = save_tiny_model(tmp_path / "llama", "llama")
    model = load_encoder(resolve(str(folder)), device="offload")
    ran = []
    for layer in model.layers:
        layer.register_forward_pre_hook(lambda module, _: ran.append(module))
    encoded = [dict(tiny_tokenizer()(text)) for text in TEXTS]
    assert not reads_padding(model, tiny_tokenizer(), encoded, 2)
    assert set(ran) == {model.layers[0]}


def test_one_line_says_where_the_model_went(simcore, tmp_path, reviews, half):
    folder = save_tiny_model(tmp_path / "bert")
    half(folder)
    arguments = ("extract", folder, reviews, *COLUMNS, "--kind", "mean", "--device", "spread")
    code, _, told = simcore(*arguments, "--out", tmp_path / "reps")
    assert code == 0
    assert not any("meta device" in one for one in told)  # accelerate's own words
    line = next(one for one in told if "of weights" in one)
    assert re.search(r"0\.0 GB of weights: 0\.0 GB in memory, 0\.0 GB on disk$", line)


def test_a_weight_on_disk_that_is_not_finite_is_refused(tmp_path):
    folder = save_tiny_model(tmp_path / "bert")
    model = load_encoder(resolve(str(folder)))
    with torch.no_grad():
        model.encoder.layer[2].output.dense.weight[0, 0] = torch.nan
    model.save_pretrained(folder)
    with pytest.raises(UserError, match=r"finite weights, found NaN in encoder\.layer\.2\."):
        load_encoder(resolve(str(folder)), device="offload")


def test_weights_that_do_not_fit_are_refused_as_in_a_whole_model(tmp_path):
    """A weight that is missing, and a weight of another shape."""
    source = ModelSource("bert", save_tiny_model(tmp_path / "bert"))
    config = load_config(source)
    changes = ((LAYERS + 1, 0, r"encoder\.layer\.3\."), (LAYERS, 1, r"embeddings\.word_embedd"))
    for layers, more, name in changes:
        config.num_hidden_layers, config.vocab_size = layers, config.vocab_size + more
        config.save_pretrained(source.path)
        for device in (None, "offload"):
            with pytest.raises(UserError, match=rf"found no weights, .* for {name}"):
                load_encoder(source, device=device, scratch=tmp_path)


def test_models_that_cannot_be_spread(tmp_path, tiny_bert, review_task):
    for device in ("spread", "offload"):
        wanted = rf"device='{device}': wanted a model whose weights .* random_init_seed=1"
        with pytest.raises(UserError, match=wanted):
            extract(tiny_bert, review_task, tmp_path / "a", device=device, random_init_seed=1)
    with pytest.raises(UserError, match="device='spread': wanted auto, cpu, cuda, cuda:1 or off"):
        skip(tiny_bert, review_task, tmp_path / "x.parquet", device="spread")
    family = next(family for family in TEXT if family.model_type == "xlm")
    config = AutoConfig.for_model("xlm", **family.size)
    random_twin(AutoModel, config, 1).save_pretrained(tmp_path / "xlm")
    with pytest.raises(UserError, match="device='offload': wanted a model with one list of blocks"):
        load_encoder(ModelSource("xlm", tmp_path / "xlm"), device="offload")


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "offloaded"])
def test_unknown_devices(device, tmp_path, tiny_bert, review_task):
    with pytest.raises(UserError, match=f"device='{device}': wanted "):
        extract(tiny_bert, review_task, tmp_path / "reps", device=device)


def test_a_model_larger_than_memory_is_one_line(simcore, monkeypatch, tmp_path, tiny_bert, reviews):
    """The bytes are read from headers; nothing is loaded."""
    monkeypatch.setattr("simcore.free_memory", lambda *_: 1_000)
    command = ("extract", tiny_bert.path, reviews, *COLUMNS, "--out", tmp_path / "reps")
    outcome = simcore(*command)
    size = sum(4 * p.numel() for p in load_encoder(tiny_bert).parameters())
    check_refused(outcome, f"wanted {size / 1e9:.1f} GB of weights, found 0.0 GB of memory free on")
    assert "use --device offload" in outcome[2][0]
    check_refused(simcore(*command, "--device", "offload"), "0.00 GB in memory for one block and")


def test_bytes_of_weights(tiny_bert):
    count = sum(p.numel() for p in load_encoder(tiny_bert).parameters())
    sizes = [weight_bytes(tiny_bert, one) for one in ("float32", "bfloat16", "auto")]
    assert sizes == [4 * count, 2 * count, 4 * count]


def test_bytes_of_pickled_weights_are_those_of_the_precision(monkeypatch, tmp_path):
    folder = save_tiny_model(tmp_path / "bert")
    source = ModelSource("bert", folder)
    weights = load_encoder(source).bfloat16().state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / WEIGHTS[1])
    count = sum(one.numel() for one in weights.values())
    assert weight_bytes(source, "float32") == 4 * count
    assert weight_bytes(source, "auto") == 2 * count
    monkeypatch.setattr("simcore.free_memory", lambda *_: 4 * count)
    assert place(source, "float32", "cpu") == "cpu"
    monkeypatch.setattr("simcore.free_memory", lambda *_: 4 * count - 1)
    with pytest.raises(UserError, match="; use device='offload'"):
        place(source, "float32", "cpu")
    with pytest.raises(UserError, match="; use weights='bfloat16'"):
        place(source, "float32", "cpu", in_blocks=False)
