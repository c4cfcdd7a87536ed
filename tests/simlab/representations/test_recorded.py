"""Extraction by modules: any model, texts or images, one file of rows for all modules."""

import numpy as np
import pytest
import torch
from torch import nn

import simcore.recording as simcore_record
from simcore.recording.storage import Budget
from simlab import TaskOptions, extract, grid, load_representations, load_task, read_results
from simlab.errors import UserError
from simlab.models.batches import pad
from simlab.models.built import build_model
from simlab.models.load import load_encoder, load_tokenizer
from simlab.models.sources import resolve
from simlab.models.tokens import encode
from simlab.tasks.files import Picture
from support.lab.tinymodels import LAYERS, save_tiny_model, tiny_tokenizer
from support.tolerance import assert_same_forward

# Every module that gives a hidden state of a decoder, from the embeddings on; the last is the norm.
DECODERS = {
    "gpt2": ("drop", "h.[01]", "ln_f"),
    **dict.fromkeys(("llama", "mistral", "qwen3"), ("embed_tokens", "layers.[01]", "norm")),
}

NETS = """
import functools

import torch
from torch import nn

def net():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3, 2), nn.Flatten())

def prepared():
    return nn.Sequential(nn.Conv2d(3, 4, 3)), lambda image: torch.ones(3, 5, 5) * image.size[0]

def words():
    from transformers import AutoModel, AutoTokenizer

    return AutoModel.from_pretrained("bert"), AutoTokenizer.from_pretrained("bert")

def half():
    return net().bfloat16()

def decoder():
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained("gpt2")
    tokenizer.pad_token = None
    return AutoModel.from_pretrained("gpt2", dtype=torch.bfloat16), tokenizer

class Strict(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.turned = nn.Conv2d(1, 4, 3), nn.Sequential(nn.LayerNorm(4))
        self.whole = nn.Identity()

    def forward(self, images):
        assert images.shape[-1] > 7, f"Input height {images.shape[-1]} is too small"
        self.whole(images.long())
        return self.turned(self.conv(images).movedim(1, -1))

class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.mixed = nn.Embedding(99, 4), nn.Identity()

    def forward(self, input_ids, **_):
        states = self.words(input_ids)
        self.mixed(states + states.roll(-1, 1))
        return states[:, 0]

def mixed():
    torch.manual_seed(0)
    return Mixed(), words()[1]

def wide(width):
    return nn.Linear(width, 2)

def no_net():
    return 7

narrow, partial = functools.partial(wide), functools.partial(net)
"""


@pytest.fixture(scope="module")
def nets(tmp_path_factory):
    """A folder with functions that build models, and a tiny BERT."""
    folder = tmp_path_factory.mktemp("nets")
    (folder / "nets.py").write_text(NETS)
    save_tiny_model(folder / "bert")
    save_tiny_model(folder / "gpt2", "gpt2")
    return folder


@pytest.fixture(autouse=True)
def _working_directory(nets, monkeypatch):
    monkeypatch.chdir(nets)


def states_of(source, examples):
    """Return the hidden states of the model itself, [b, t, p], and the mask."""
    tokenizer, model = load_tokenizer(source), load_encoder(source)
    batch = pad(tokenizer, encode(tokenizer, examples, 64))
    with torch.inference_mode():
        return model(**batch, output_hidden_states=True).hidden_states, batch["attention_mask"]


@pytest.mark.parametrize("architecture", DECODERS)
def test_a_decoder_s_modules_are_its_hidden_states(tmp_path, review_task, architecture):
    source = resolve(str(save_tiny_model(tmp_path / "model", architecture)))
    examples, modules = review_task.heldout.head(9), DECODERS[architecture]
    common = {"modules": modules, "limit": 9, "batch_size": 4}
    last = extract(source, review_task, tmp_path / "last", pool="last", **common).path
    every = extract(source, review_task, tmp_path / "tokens", pool="tokens", **common).path
    states, mask = states_of(source, examples)
    assert len(states) == LAYERS + 1
    ends = mask.sum(1) - 1
    for layer, wanted in zip(load_representations(last).layers, states, strict=True):
        assert_same_forward(layer, wanted[torch.arange(9), ends])
    found = load_representations(every)
    for layer, wanted in zip(found.layers, states, strict=True):
        assert_same_forward(layer, wanted[mask.bool()])
    assert len(found.ids) == int(mask.sum())
    tokens = load_tokenizer(source).tokenize(examples.texts[0])
    first = examples.ids[0]
    assert found.ids[: len(tokens)] == [f"{first}:{i}:{token}" for i, token in enumerate(tokens)]


@pytest.mark.parametrize("architecture", ["t5", "bart"])
def test_of_an_encoder_decoder_the_encoder_is_recorded(tmp_path, review_task, architecture):
    from transformers import AutoConfig, AutoModel

    folder, tokenizer = tmp_path / "model", tiny_tokenizer()
    size = {"d_model": 24, "num_heads": 2, "num_layers": 2, "d_ff": 32, "d_kv": 12}
    if architecture == "bart":
        halves = ("encoder", "decoder")
        size = {f"{half}_{name}": 2 for half in halves for name in ("layers", "attention_heads")}
        size |= {"d_model": 24, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
        size |= {"max_position_embeddings": 70}
    special = {"vocab_size": len(tokenizer), "pad_token_id": 0, "decoder_start_token_id": 0}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModel.from_config(AutoConfig.for_model(architecture, **size, **special)).eval()
    model.save_pretrained(folder)
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.save_pretrained(folder)
    # The last hidden state of T5 is that of its final norm.
    first, last = {
        "t5": ("block.0", "final_layer_norm"), "bart": ("layers.0", "layers.1"),
    }[architecture]  # fmt: skip
    how = {"modules": [first, last], "pool": "tokens", "limit": 9}
    step = extract(str(folder), review_task, tmp_path / "reps", **how)
    batch = pad(tokenizer, encode(tokenizer, review_task.heldout.head(9), 64))
    with torch.inference_mode():
        output = model.get_encoder()(**batch, output_hidden_states=True)
    found, mask = load_representations(step.path), batch["attention_mask"].bool()
    assert found.manifest["names"] == [first, last]
    for layer, wanted in zip(found.layers, output.hidden_states[1:], strict=True):
        assert_same_forward(layer, wanted[mask])
    with pytest.raises(UserError, match=r"found an encoder-decoder; modules records its encoder"):
        extract(str(folder), review_task, tmp_path / "no", kind="mean", limit=9)


def test_a_model_of_a_function_runs_in_its_own_precision(tmp_path, review_task):
    how = {"modules": "[02]", "pool": "spatial-mean", "limit": 5}
    whole, half = (
        extract(f"nets:{name}", "digits", tmp_path / name, **how) for name in ("net", "half")
    )
    for x, y in zip(
        load_representations(whole.path).layers, load_representations(half.path).layers, strict=True
    ):
        assert not np.array_equal(x, y)
        np.testing.assert_allclose(x, y, atol=0.02)
    how = {"modules": "h.*", "pool": "last", "limit": 5}
    found = load_representations(extract("nets:decoder", review_task, tmp_path / "x", **how).path)
    wanted = load_representations(extract("gpt2", review_task, tmp_path / "y", **how).path)
    for x, y in zip(found.layers, wanted.layers, strict=True):
        assert not np.array_equal(x, y)
        np.testing.assert_allclose(x, y, atol=0.1)


@pytest.mark.assets
def test_the_means_of_a_real_model_are_those_of_the_kind(tmp_path, minilm):
    task = load_task("rt", TaskOptions(train_size=1, heldout_size=8))
    step = extract(minilm, task, tmp_path / "x", modules="encoder.layer.*", pool="mean")
    x, y = (
        load_representations(step.path),
        load_representations(extract(minilm, task, tmp_path / "y", kind="mean-all").path),
    )
    for layer, wanted in zip(x.layers, y.layers[1:], strict=True):
        assert_same_forward(layer, wanted)
    assert x.manifest["names"] == [f"encoder.layer.{layer}" for layer in range(6)]
    assert (x.manifest["kind"], x.ids) == ("modules-mean", y.ids)
    frame = read_results(grid([step.path, tmp_path / "y"], tmp_path / "grid.parquet").path)
    same = frame[(frame["layer_x"] == frame["layer_y"]) & (frame["estimator"] == "biased")]
    assert same["layer_x"].tolist() == [1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose(same["value"], 1, atol=1e-4)


def test_a_text_model_of_a_function_brings_its_tokenizer(tmp_path, nets, review_task):
    how = {"modules": ["encoder.layer.*"], "pool": "first", "limit": 5}
    x, y = (
        load_representations(extract(model, review_task, tmp_path / name, **how).path)
        for name, model in (("x", "nets:words"), ("y", nets / "bert"))
    )
    for layer, wanted in zip(x.layers, y.layers, strict=True):
        np.testing.assert_array_equal(layer, wanted)


def test_rows_of_a_module_do_not_depend_on_padding_that_the_output_hides(tmp_path, review_task):
    how = {"modules": "mixed", "pool": "mean"}
    steps = [
        extract("nets:mixed", review_task, tmp_path / str(size), batch_size=size, **how)
        for size in (32, 1)
    ]
    batched, alone = (load_representations(step.path).layers[0] for step in steps)
    np.testing.assert_allclose(batched, alone, rtol=1e-5, atol=1e-6)


def naive_outputs(model, images):
    """Return the output of every module of a Sequential."""
    outputs, states = [], images
    with torch.inference_mode():
        for module in model:
            states = module(states)
            outputs.append(states)
    return outputs


POOLS = {
    "spatial-mean": lambda states: states.mean((2, 3)) if states.ndim == 4 else states,
    "flatten": lambda states: states.flatten(1),
    "positions": lambda states: states.permute(0, 2, 3, 1).flatten(0, 2),
}


@pytest.mark.parametrize("pool", POOLS)
def test_images_of_the_digits_through_a_net_of_a_function(tmp_path, pool):
    task = load_task("digits")
    modules = "[01]" if pool == "positions" else "*"
    step = extract(
        "nets:net", task, tmp_path / "reps", modules=modules, pool=pool, limit=11, batch_size=4
    )
    found = load_representations(step.path)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3, 2), nn.Flatten())
    images = torch.from_numpy(np.stack([one.array() for one in task.heldout.images[:11]]))
    outputs = naive_outputs(model, images)[: 2 if pool == "positions" else 4]
    for layer, states in zip(found.layers, outputs, strict=True):
        assert_same_forward(layer, POOLS[pool](states))
    ids = task.heldout.ids[:11]
    wanted = [f"{one}:{place}" for one in ids for place in range(36)]
    assert found.ids == (wanted if pool == "positions" else list(ids))
    again = extract("nets:net", task, tmp_path / "reps", modules=modules, pool=pool, limit=11)
    assert again.skipped


def test_other_weights_or_another_file_are_another_model(tmp_path, nets, monkeypatch):
    first, again, other = (build_model("nets:net", seed).fingerprint for seed in (0, None, 1))
    assert first == again != other
    (tmp_path / "other_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    how = {"modules": "*", "pool": "flatten", "limit": 3}
    keys = [extract("other_nets:net", "digits", tmp_path / "a", **how).key]
    keys.append(extract("other_nets:net", "digits", tmp_path / "b", **how, random_init_seed=1).key)
    (tmp_path / "other_nets.py").write_text(NETS + "\n# the same net\n")
    keys.append(extract("other_nets:net", "digits", tmp_path / "c", **how).key)
    assert len(set(keys)) == 3


def test_what_a_function_says_prepares_the_images(tmp_path):
    how = {"modules": "0", "pool": "spatial-mean", "limit": 2}
    step = extract("nets:prepared", "digits", tmp_path / "reps", **how)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        convolution = nn.Conv2d(3, 4, 3)
    wanted = convolution(torch.full((2, 3, 5, 5), 8.0)).mean((2, 3)).detach()
    assert_same_forward(load_representations(step.path).layers[0], wanted)


@pytest.mark.parametrize("prepared", [False, True])
def test_a_vision_transformer_of_transformers(tmp_path, prepared):
    from transformers import AutoConfig, AutoModel, ViTImageProcessorPil

    size = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    size |= {"intermediate_size": 32, "patch_size": 4, "num_channels": 3 if prepared else 1}
    size |= {"image_size": 16 if prepared else 8}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModel.from_config(AutoConfig.for_model("vit", **size)).eval()
    model.save_pretrained(tmp_path / "vit")
    task = load_task("digits")
    pictures = task.heldout.images[:3]
    batch = torch.from_numpy(np.stack([one.array() for one in pictures]))
    if prepared:
        processor = ViTImageProcessorPil(size={"height": 16, "width": 16})
        processor.save_pretrained(tmp_path / "vit")
        images = [one.image() for one in pictures]
        batch = processor(images, return_tensors="pt")["pixel_values"]
    how = {"modules": "layers.*", "pool": "first", "limit": 3}
    step = extract(str(tmp_path / "vit"), task, tmp_path / "reps", **how)
    with torch.inference_mode():
        states = model(pixel_values=batch, output_hidden_states=True).hidden_states
    layers = load_representations(step.path).layers
    for layer, wanted in zip(layers, states[1:], strict=True):
        assert_same_forward(layer, wanted[:, 0])


def test_what_does_not_fit_is_refused(tmp_path, nets):
    net, bert = "nets:net", str(nets / "bert")
    text = tmp_path / "texts.txt"
    text.write_text("a film\nthe plot\n")
    for model, task, options, message in (
        (net, "digits", {}, "model nets:net: wanted modules, because only"),
        (net, "digits", {"modules": "9"}, "modules: wanted '9' to match a module .* no match"),
        (net, "digits", {"modules": "0"}, r"pool: wanted 'spatial-mean', .* \(2, 4, 6, 6\)"),
        (net, "digits", {"modules": "0", "pool": "sum"}, "pool='sum': wanted one of first, last"),
        (net, "digits", {"pool": "mean"}, "pool='mean': wanted modules, found none"),
        (net, "digits", {"modules": "0", "kind": "mean"}, "kind='mean': wanted none with mod"),
        (
            net, "digits", {"modules": "*", "pool": "positions"},
            "pool='positions': wanted modules that all give 72 rows for 2 examples, found 8 rows",
        ),
        ("nets:no", "digits", {"modules": "0"}, "wanted a function no in nets, found net, pr"),
        ("nets:wide", "digits", {"modules": "0"}, "a function without arguments, .* 'width'"),
        ("nets:narrow", "digits", {"modules": "0"}, "a function without arguments, .* 'width'"),
        ("nets:Strict", "digits", {"modules": "whole"}, "takes these .* the output of 'whole': w"),
        (
            "nets:Strict", "digits", {"modules": "turned", "pool": "positions"},
            r"^pool: wanted the channels .*, whose last axis is as wide as layers inside",
        ),
        (net, "digits", {"modules": "0"}, "^pool: wanted .* 'flatten' for the output"),
        ("no_nets:net", "digits", {"modules": "0"}, "wanted a module no_nets in the working dir"),
        ("nets:no_net", "digits", {"modules": "0"}, "found one that returns int"),
        (net, text, {"modules": "0", "split": "all"}, "a tokenizer beside .* found none"),
        (bert, "digits", {"modules": "encoder.layer.*", "pool": "mean"}, "a model that takes"),
        (bert, "digits", {"kind": "mean"}, r"wanted texts, found images \(digits-360, ...\)"),
        (bert, "digits", {}, r"wanted texts, found images"),
        (
            bert, text, {"modules": "no", "split": "all"},
            "modules: wanted 'no' to match a module",
        ),
    ):  # fmt: skip
        with pytest.raises(UserError, match=message) as caught:
            extract(model, task, tmp_path / "reps", limit=2, **options)
        assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]
    with pytest.raises(UserError, match="nets:net: wanted a model of transformers, found a name"):
        resolve("nets:net")


def test_errors_of_a_model_and_of_memory_are_of_the_command(tmp_path, nets, monkeypatch):
    monkeypatch.setattr(Picture, "array", lambda self: np.zeros((1, 4, 4), np.float32))
    message = "nets:Strict: wanted a model that takes these examples, found: Input height 4 is too"
    with pytest.raises(UserError, match=message):
        extract("nets:Strict", "digits", tmp_path / "x", modules="conv", limit=2)
    monkeypatch.undo()
    monkeypatch.chdir(nets)
    monkeypatch.setattr(simcore_record.tape, "Budget", lambda _: Budget(100))
    message = "^batch_size: wanted room for 1152 bytes of recorded rows, got 100, after 0 rows"
    with pytest.raises(UserError, match=message):
        extract("nets:net", "digits", tmp_path / "x", modules="0", pool="flatten", limit=2)
    assert not list(tmp_path.iterdir())


def test_a_partial_function_is_a_function(tmp_path):
    how = {"modules": "0", "pool": "spatial-mean", "limit": 2}
    found = [
        extract(f"nets:{name}", "digits", tmp_path / name, **how) for name in ("net", "partial")
    ]
    x, y = (load_representations(step.path) for step in found)
    assert x.manifest["model_sha256"] == y.manifest["model_sha256"]


def test_a_paper_s_rows_of_hidden_states_do_not_reach_modules(tmp_path, nets, simcore):
    text = tmp_path / "texts.txt"
    text.write_text("a film\nthe plot\n")
    arguments = ("bert", text, "--module", "encoder.layer.*", "--pool", "mean")
    code, out, _ = simcore("extract", *arguments, "--paper", "wu2020", "--out", tmp_path / "reps")
    assert (code, out.partition(" (")[0]) == (
        0, f"{tmp_path}/reps: 3 layers of 2 x 24, texts cut at 512 tokens"
    )  # fmt: skip


def test_the_command(tmp_path, simcore):
    arguments = ("nets:net", "digits", "--module", "0", "--module", "2", "--pool", "spatial-mean")
    code, out, _ = simcore("extract", *arguments, "--limit", 5, "--out", tmp_path / "reps")
    assert (code, out.partition(" (")[0]) == (0, f"{tmp_path}/reps: 2 layers of 5 x 4 to 6")
    code, _, errors = simcore("extract", *arguments, "--kind", "mean", "--out", tmp_path / "no")
    assert (code, len(errors)) == (2, 1)
