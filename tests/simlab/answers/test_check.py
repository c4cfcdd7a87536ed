"""Planted faults are found at their layer, and harmless changes are not; wrong calls are named."""

import copy
import json

import pytest
import torch
from safetensors.torch import save_file

from simlab import check
from simlab.answers.subjects import read_texts
from simlab.errors import UserError
from simlab.models.load import load_encoder, load_tokenizer
from simlab.models.sources import resolve
from support.lab.tinymodels import LETTERS, each, save_tiny_model

BLOCK = 3  # where faults are planted; its output is layer 4
TEXTS = list(read_texts(None, [], None, 40).heldout.texts[::5])


@pytest.fixture(scope="module")
def real():
    """The real MiniLM, which no test changes, and its tokenizer."""
    source = resolve("minilm")
    return load_encoder(source), load_tokenizer(source)


def attention(model):
    return model.encoder.layer[BLOCK].attention


def smaller_eps(model):
    attention(model).output.LayerNorm.eps = 1e-5


def transposed(model):
    weight = attention(model).self.query.weight
    weight.copy_(weight.T.clone())


def swapped_heads(model):
    for one in (attention(model).self.query, attention(model).self.key):
        for part in (one.weight, one.bias):
            part[:64] = part[:64].roll(32, 0)


def without_scale(model):
    attention(model).self.scaling = 1.0


def in_half(model):
    dense = model.encoder.layer[BLOCK].output.dense

    def forward(x):
        return torch.nn.functional.linear(x.half(), dense.weight.half(), dense.bias.half()).float()

    dense.forward = forward


def whole_numbers(model):
    for module in model.encoder.layer[BLOCK].modules():
        if isinstance(module, torch.nn.Linear):
            step = module.weight.abs().amax(1, keepdim=True) / 127
            module.weight.copy_((module.weight / step).round() * step)


FAULTS = (smaller_eps, swapped_heads, transposed, without_scale, in_half, whole_numbers)
HARMLESS = ("bfloat16", "batches of 3", "2 threads", "eager", "float64")


@pytest.mark.assets
@pytest.mark.parametrize("fault", each(FAULTS, FAULTS[:2]))
def test_a_fault_is_found_at_its_layer(real, fault):
    model, tokenizer = real
    other = copy.deepcopy(model)
    with torch.no_grad():
        fault(other)
    result = check(model, other, TEXTS, tokenizer=tokenizer)
    first = result.first("rotated")
    assert (first.name, first.verdict) == (f"layer.{BLOCK + 1}", "different")
    assert result.first() == first


@pytest.mark.assets
@pytest.mark.parametrize("harmless", each(HARMLESS, ("bfloat16",)))
def test_a_harmless_change_is_noise(real, harmless):
    model, tokenizer = real
    other, how = copy.deepcopy(model), {"batch_size": 3 if harmless == "batches of 3" else 8}
    if harmless == "eager":
        other.set_attn_implementation("eager")
    elif harmless in {"bfloat16", "float64"}:
        other.to(getattr(torch, harmless))
    threads = torch.get_num_threads()
    torch.set_num_threads(2 if harmless == "2 threads" else threads)
    try:
        assert check(model, other, TEXTS, tokenizer=tokenizer, **how).is_alike()
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Folder of a tiny BERT and of a tiny Llama, which has rotary positions."""
    folder = tmp_path_factory.mktemp("tiny")
    for name, architecture in (("bert", "bert"), ("llama", "llama")):
        save_tiny_model(folder / name, architecture, LETTERS, initializer_range=0.3)
    return folder


def opened(folder):
    source = resolve(str(folder))
    return load_encoder(source), load_tokenizer(source)


def test_another_base_of_rotary_positions_is_found_in_the_first_block(tiny):
    model, tokenizer = opened(tiny / "llama")
    other = copy.deepcopy(model)
    other.rotary_emb.inv_freq *= 0.9
    first = check(model, other, TEXTS, tokenizer=tokenizer).first("rotated")
    assert (first.name, first.verdict) == ("layer.1", "different")


def test_a_folder_that_pads_on_the_wrong_side_is_found(tiny, tmp_path):
    model, tokenizer = opened(tiny / "bert")
    model.save_pretrained(tmp_path / "left")
    tokenizer.save_pretrained(tmp_path / "left")
    file = tmp_path / "left" / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"padding_side": "left"}))
    first = check(tiny / "bert", tmp_path / "left", TEXTS).first("rotated")
    assert (first.name, first.verdict) == ("layer.0", "different")


def test_rotated_states_are_the_same_where_that_is_allowed(tiny, tmp_path, simcore):
    model, tokenizer = opened(tiny / "bert")
    turn = torch.linalg.qr(torch.randn(24, 24, generator=torch.Generator().manual_seed(3)))[0]
    states, ids = dumped(model, tokenizer, turn)
    save_file({"input_ids": ids, **states}, tmp_path / "turned.safetensors")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    words = (tiny / "bert", tmp_path / "turned.safetensors", tmp_path / "texts.txt")
    code, printed, _ = simcore("check", *map(str, words), "--json")
    found = json.loads(printed)
    assert (code, found["alike"], found["verdict"]) == (1, False, "rotated")
    code, printed, _ = simcore("check", *map(str, words), "--allow", "rotated")
    assert code == 0
    assert printed.startswith("alike: all 4 layers")


def dumped(model, tokenizer, turn=None):
    """Return the states of all tokens by another way than simlab, text by text, and the ids."""
    layers, ids = {}, []
    with torch.no_grad():
        for text in TEXTS:
            batch = tokenizer([text], return_tensors="pt", truncation=True, max_length=64)
            ids.append(batch["input_ids"][0])
            every = model(**batch, output_hidden_states=True).hidden_states
            for number, states in enumerate(every):
                rows = states[0] if turn is None else states[0] @ turn
                layers.setdefault(f"layer.{number}", []).append(rows)
    return {name: torch.cat(rows) for name, rows in layers.items()}, torch.cat(ids)


def test_files_of_another_engine_are_read_with_and_without_padding(tiny, tmp_path):
    model, tokenizer = opened(tiny / "bert")
    states, ids = dumped(model, tokenizer)
    save_file({"token_ids": ids, **states}, tmp_path / "flat.safetensors")
    assert check(tiny / "bert", tmp_path / "flat.safetensors", TEXTS).is_alike()
    found = {}
    for side in ("right", "left"):
        batch = tokenizer(TEXTS, padding=True, padding_side=side, return_tensors="pt")
        with torch.no_grad():
            every = model(**batch, output_hidden_states=True).hidden_states
        layers = {f"h.{number}": one for number, one in enumerate(every)}
        tokens = {name: batch[name] for name in ("input_ids", "attention_mask")}
        save_file(tokens | layers, tmp_path / f"{side}.safetensors")
        found[side] = check(tiny / "bert", tmp_path / f"{side}.safetensors", TEXTS)
    assert found["right"].is_alike()
    first = found["left"].first("rotated")
    assert (first.label, first.verdict) == ("layer.0 ~ h.0", "different")


def test_layers_that_are_off_by_one_are_named_as_such(tiny, tmp_path):
    states, ids = dumped(*opened(tiny / "bert"))
    shifted = {f"h.{number}": states[f"layer.{number + 1}"] for number in range(3)}
    save_file({"input_ids": ids, **shifted}, tmp_path / "off.safetensors")
    result = check(tiny / "bert", tmp_path / "off.safetensors", TEXTS)
    assert not result.is_alike()
    assert "1 place earlier: 'layer.1' of A is 'h.0' of B" in result.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda states, ids: {"ids": ids, **states}, "wanted input_ids or token_ids, found ids"),
        (lambda states, ids: {"input_ids": ids.flip(0), **states}, "from token 0 of text-0 on"),
        (
            lambda states, ids: {"input_ids": ids[:-1], **{n: s[:-1] for n, s in states.items()}},
            "and the end",
        ),
        (lambda states, ids: {"input_ids": ids[None], **states}, "wanted attention_mask"),
        (
            lambda states, ids: {"input_ids": ids, "layer.0": ids.float()},
            "wanted .* as in input_ids",
        ),
    ],
    ids=["no ids", "other tokens", "fewer tokens", "no mask", "shape"],
)
def test_a_file_that_does_not_fit_is_refused(tiny, tmp_path, change, message):
    states, ids = dumped(*opened(tiny / "bert"))
    save_file(change(states, ids), tmp_path / "b.safetensors")
    with pytest.raises(UserError, match=message):
        check(tiny / "bert", tmp_path / "b.safetensors", TEXTS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bert",), "wanted two models, A and B, found 1"),
        (("b.safetensors", "bert"), "wanted a model as A"),
        (("bert", "nowhere.safetensors"), "wanted a safetensors file, found"),
        (("bert", "llama"), "wanted the tokens that"),
        (("bert", "bert", "--allow", "turned"), "--allow turned: wanted one of scaled"),
        (("bert", "bert", "nowhere.txt"), "nowhere.txt: wanted a file of texts"),
    ],
)
def test_a_wrong_call_exits_with_2(tiny, monkeypatch, simcore, words, message):
    monkeypatch.chdir(tiny)
    code, _, errors = simcore("check", *words)
    assert code == 2
    assert message in errors[-1]


def test_models_without_names_want_a_tokenizer(tiny):
    model, _ = opened(tiny / "bert")
    with pytest.raises(UserError, match="wanted the tokenizer"):
        check(model, model, TEXTS)


def test_noise_that_hides_faults_is_told(tiny, capfd):
    model, tokenizer = opened(tiny / "bert")

    def shifted(_module, arguments):
        return (arguments[0] + len(arguments[0]) / 10, *arguments[1:])

    model.encoder.layer[1].register_forward_pre_hook(shifted)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.encoder.layer[1].output.dense.weight.mul_(1.01)
    assert check(model, other, TEXTS[:1] * 8, tokenizer=tokenizer).is_alike()
    assert "faults that are smaller are not seen" in capfd.readouterr().err
