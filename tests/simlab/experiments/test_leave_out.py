"""A decoder without a span of layers: its weights and its perplexity."""

import json
import math

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, SmolLM3Config

from simlab import influence, leave_out, read_results
from simlab.errors import UserError
from simlab.experiments.shorten import LEFT_OUT
from simlab.models.evaluate import load_decoder
from simlab.models.load import load_tokenizer
from simlab.models.sources import resolve
from support.lab.commandline import check_refused
from support.lab.tinyclassifiers import SHAKING
from support.lab.tinymodels import LAYERS, LLAMAS, each, save_tiny_model, tiny_config
from support.model_families import DECODERS
from support.tolerance import assert_same_forward

TEXTS = ("the unbelievable film is a bright and moving one", "dull plot", "some wonderful scenes")


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    return tmp_path / "texts.txt"


def save_decoder(folder, architecture="llama", dtype=torch.float32, config=None):
    """Write a decoder with a head for words, whose layers all matter, and its tokenizer."""
    save_tiny_model(folder, architecture)
    config = config or tiny_config(architecture, len(load_tokenizer(resolve(str(folder)))))
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(3)
        model = AutoModelForCausalLM.from_config(config)
        for parameter in model.parameters():
            parameter.add_(SHAKING * torch.randn(parameter.shape))
    model.to(dtype).save_pretrained(folder)
    return folder


def naive_perplexity(folder, texts):
    """Return the perplexity on texts by hand, one token after the other."""
    source = resolve(str(folder))
    model, tokenizer = load_decoder(source), load_tokenizer(source)
    losses = []
    with torch.inference_mode():
        for text in texts:
            ids = tokenizer(text)["input_ids"]
            for t in range(1, len(ids)):
                logits = model(torch.tensor([ids[:t]])).logits[0, -1].double()
                losses.append(float(logits.logsumexp(0) - logits[ids[t]]))
    return math.exp(sum(losses) / len(losses)), len(losses)


@pytest.mark.parametrize("architecture", each(["gpt2", "gpt_neo", *LLAMAS], ("gpt_neo", "llama")))
def test_the_folder_is_the_model_without_the_span(architecture, tmp_path, texts):
    folder = save_decoder(tmp_path / "whole", architecture)
    leave_out(folder, texts, tmp_path / "out", start=1, end=2, split="all", batch_size=2)
    whole, shorter = (AutoModelForCausalLM.from_pretrained(f) for f in (folder, tmp_path / "out"))
    ids = torch.tensor([load_tokenizer(resolve(str(folder)))(TEXTS[0])["input_ids"]])
    layers = whole.base_model.h if architecture.startswith("gpt") else whole.base_model.layers
    neo = architecture == "gpt_neo"
    layers[1].forward = lambda states, *_, **__: (states,) if neo else states
    wanted, found = (model(ids, use_cache=False).logits for model in (whole, shorter))
    assert_same_forward(found, wanted)
    assert shorter.config.num_hidden_layers == LAYERS - 1
    assert shorter.generate(ids, max_new_tokens=2, do_sample=False).shape[1] == ids.shape[1] + 2


def test_layers_keep_what_the_configuration_says_of_each(tmp_path, texts):
    """SmolLM3 has layers without rotary positions, which the configuration counts."""
    size = {"hidden_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1}
    size |= {"num_hidden_layers": 4, "intermediate_size": 32, "vocab_size": 600}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = SmolLM3Config(**size, **tokens, no_rope_layers=[1, 1, 0, 1])
    folder = save_decoder(tmp_path / "whole", config=config)
    leave_out(folder, texts, tmp_path / "out", start=0, end=1, split="all")
    whole, shorter = (AutoModelForCausalLM.from_pretrained(f) for f in (folder, tmp_path / "out"))
    assert shorter.config.no_rope_layers == [1, 0, 1]
    ids = torch.tensor([load_tokenizer(resolve(str(folder)))(TEXTS[0])["input_ids"]])
    whole.base_model.layers[0].forward = lambda states, *_, **__: states
    wanted, found = (model(ids, use_cache=False).logits for model in (whole, shorter))
    assert_same_forward(found, wanted)


def test_layers_that_compute_by_their_number_are_refused(tmp_path, texts):
    config = tiny_config("gpt2", 600)
    config.scale_attn_by_inverse_layer_idx = True
    folder = save_decoder(tmp_path / "whole", "gpt2", config=config)
    with pytest.raises(UserError, match="type 'gpt2': wanted layers that compute alike at every"):
        leave_out(folder, texts, tmp_path / "out", start=0, end=1, split="all")
    leave_out(folder, texts, tmp_path / "out", start=2, end=3, split="all")


def moe(tmp_path, **setting):
    """Write a decoder of experts, of which a setting says which layers have them."""
    size = next(family.size for family in DECODERS if family.model_type == "qwen3_moe")
    tokens = {"vocab_size": 600, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return save_decoder(tmp_path / "whole", config=Qwen3MoeConfig(**size | tokens | setting))


def test_numbers_of_layers_are_counted_anew(tmp_path, texts):
    folder = moe(tmp_path, mlp_only_layers=[2])
    for start, wanted in ((0, [1]), (2, [])):
        leave_out(folder, texts, tmp_path / str(start), start=start, end=start + 1, split="all")
        written = json.loads((tmp_path / str(start) / "config.json").read_text())
        assert written["mlp_only_layers"] == wanted


def test_layers_that_are_made_by_their_number_are_refused(tmp_path, texts):
    folder = moe(tmp_path, decoder_sparse_step=2)
    words = (
        r"whole without layers 1 to 1: wanted a decoder .*, found no weights for model\.layers\.0"
    )
    with pytest.raises(UserError, match=words):
        leave_out(folder, texts, tmp_path / "out", start=0, end=1, split="all")
    assert not list(tmp_path.glob("out*"))


def test_a_refused_export_leaves_no_results(tmp_path, texts, simcore, monkeypatch):
    folder, results = save_decoder(tmp_path / "whole", "gpt2"), tmp_path / "x.parquet"
    arguments = ("influence", folder, texts, "--split", "all", "--out", results, "--export")
    for layers in (0, 3):
        refused = simcore(*arguments, layers, tmp_path / "none")
        check_refused(refused, f"--export {layers}: wanted 1 to 2 layers to leave out")
    monkeypatch.setattr("simlab.experiments.shorten._ROUNDING", -1)  # no span can go
    refused = simcore(*arguments, 2, tmp_path / "none")
    check_refused(refused, "type 'gpt2': wanted layers that compute alike at every position")
    (tmp_path / "other").mkdir()
    taken = simcore(*arguments, 1, tmp_path / "other")
    assert taken[0] == 2
    assert f"--export {tmp_path / 'other'}: wanted a new folder" in taken[2][-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "texts.txt", "whole"]


def test_perplexity_is_that_of_every_token_after_the_first(tmp_path, texts):
    folder = save_decoder(tmp_path / "whole")
    out = leave_out(folder, texts, tmp_path / "out", start=0, end=2, split="all").path
    record = json.loads((out / LEFT_OUT).read_text())
    assert record["span"] == [0, 2]
    for name, place in (("whole", folder), ("without", out)):
        wanted, tokens = naive_perplexity(place, TEXTS)
        assert record["perplexity"][name] == pytest.approx(wanted, rel=1e-4)
        assert record["tokens"] == tokens
    single = tmp_path / "single.txt"
    single.write_text("a\nb\n")
    with pytest.raises(UserError, match="wanted a text of two tokens or more"):
        leave_out(folder, single, tmp_path / "other", start=0, end=2, split="all")


def test_the_precision_stays(tmp_path, texts):
    folder = save_decoder(tmp_path / "whole", dtype=torch.bfloat16)
    out = leave_out(folder, texts, tmp_path / "out", start=1, end=2, split="all").path
    assert AutoModelForCausalLM.from_pretrained(out, dtype="auto").dtype == torch.bfloat16


def test_the_command_leaves_out_the_span_that_turns_states_least(tmp_path, texts, simcore):
    folder, out = save_decoder(tmp_path / "whole"), tmp_path / "x.parquet"
    arguments = ("influence", folder, texts, "--split", "all", "--out", out)
    code, printed, _ = simcore(*arguments, "--export", 2, tmp_path / "short")
    assert code == 0
    frame = read_results(out).set_index(["layer_x", "layer_y"])["value"]
    start, end = min([(0, 2), (1, 3)], key=lambda span: frame[span])
    assert f"written without layers {start + 1} to {end} of 3; perplexity " in printed
    record = json.loads((tmp_path / "short" / LEFT_OUT).read_text())["perplexity"]
    assert f"{record['without']:.2f}, of the whole model {record['whole']:.2f}" in printed
    found = influence(tmp_path / "short", texts, tmp_path / "y.parquet", split="all")
    assert len(read_results(found.path)) == 1
    twin = simcore(*arguments, "--export", 1, tmp_path / "none", "--random-init-seed", 1)
    check_refused(twin, "--export: wanted a model with its weights, found --random-init-seed 1")


def test_what_cannot_be_left_out(tmp_path, texts, tiny_bert):
    with pytest.raises(UserError, match="wanted a decoder with a head for words, found a bert"):
        leave_out(tiny_bert, texts, tmp_path / "out", start=0, end=1, split="all")
    bare = save_tiny_model(tmp_path / "llama", "llama")
    with pytest.raises(UserError, match=r"head for words, found no weights for lm_head\.weight"):
        leave_out(bare, texts, tmp_path / "out", start=0, end=1, split="all")
    folder = save_decoder(tmp_path / "whole")
    for start, end in ((0, 3), (2, 2), (2, 1), (-1, 1), (2, 4)):
        with pytest.raises(UserError, match=f"start={start}: wanted a span within the 3 layers"):
            leave_out(folder, texts, tmp_path / "out", start=start, end=end, split="all")
    with pytest.raises(UserError, match="device='offload': wanted a device that holds the whole"):
        leave_out(folder, texts, tmp_path / "out", start=0, end=1, device="offload")
    assert not (tmp_path / "out").exists()
