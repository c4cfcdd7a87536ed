"""Models of the hub: which files are fetched, when the hub is asked, and what its errors say."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from simlab import load_representations, load_task
from simlab.errors import UserError
from simlab.models.hub import cached_revision, find_whole
from simlab.models.load import load_encoder, load_tokenizer
from simlab.models.sources import ModelSource, resolve
from simlab.store import hub as store
from support.hubserver import Fault
from support.lab.commandline import check_refused
from support.lab.hubs import publish, publish_data
from support.lab.tinymodels import tiny_config

NAME = "google/multiberts-seed_0"
INFO = rf"GET /api/models/{NAME}$"
TEXTS = ["the film is wonderful", "the plot is dull"]
FILES = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


@pytest.fixture
def published(hub, tiny_bert):
    """The tiny BERT on the hub, beside files that nobody needs."""
    publish(hub, NAME, tiny_bert.path)
    folder = hub.folder(NAME)
    for name in ("README.md", "tf_model.h5", "onnx/model.safetensors", "coreml/config.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    return hub


def states(source):
    """The last hidden states of two texts."""
    batch = load_tokenizer(source)(TEXTS, return_tensors="pt", padding=True)
    with torch.inference_mode():
        return load_encoder(source)(**batch).last_hidden_state


def requests_of(hub):
    """The requests for models, without those that only fetch a file."""
    return hub.asked("/api/models/")


def shard(folder):
    """Write the weights of a folder as three shards with an index."""
    weights = load_file(folder / "model.safetensors")
    names = [f"model-{k:05}-of-00003.safetensors" for k in (1, 2, 3)]
    placed = {key: names[number % 3] for number, key in enumerate(sorted(weights))}
    for name in names:
        part = {key: weights[key] for key in weights if placed[key] == name}
        save_file(part, folder / name, {"format": "pt"})
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return names


def test_only_what_is_needed_is_fetched_and_once(published, tiny_bert):
    source = resolve(NAME)
    assert {path.name for path in source.path.iterdir()} == FILES
    assert torch.equal(states(source), states(tiny_bert))
    assert len(requests_of(published)) <= 2
    published.log.clear()
    assert resolve(NAME) == source
    assert published.log == []


def test_a_cache_that_is_filled_serves_without_a_hub(published, monkeypatch):
    from huggingface_hub import constants

    first = resolve(NAME)
    published.faults = [Fault(".", status=500)]
    assert resolve(NAME) == first
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert resolve(NAME) == first
    assert resolve(f"{NAME}@{first.path.name}").path == first.path


def test_a_cache_that_from_pretrained_filled_gets_its_tokenizer(published, simcore, tmp_path):
    from huggingface_hub import hf_hub_download

    for file in ("config.json", "model.safetensors"):
        hf_hub_download(NAME, file)
    assert cached_revision(NAME) is not None
    assert find_whole(NAME) is None
    text = tmp_path / "t.txt"
    text.write_text("\n".join(TEXTS))
    out = tmp_path / "reps"
    code, _, _ = simcore(*("extract", NAME, text, "--split", "all", "--kind", "mean", "--out", out))
    assert code == 0
    x, y = load_representations(out).layers[1]
    assert abs(x - y).max() > 0.01


@pytest.mark.parametrize("command", ["extract", "finetune"])
def test_a_folder_without_a_tokenizer_is_refused(tmp_path, tiny_bert, reviews, simcore, command):
    folder = tmp_path / "bert"
    shutil.copytree(tiny_bert.path, folder)
    for name in FILES - {"config.json", "model.safetensors"}:
        (folder / name).unlink()
    columns = ("--text-column", "body", "--label-column", "verdict")
    out = tmp_path / "out"
    result = simcore(command, folder, reviews, *columns, "--out", out)
    check_refused(result, f"model {folder}: wanted tokenizer files", f"found none in {folder}")
    assert not out.exists()


def test_a_tokenizer_of_characters_needs_no_file(tmp_path):
    from transformers import CanineConfig, CanineTokenizer

    CanineTokenizer().save_pretrained(tmp_path)
    CanineConfig(num_hidden_layers=1).save_pretrained(tmp_path)
    tokenizer = load_tokenizer(ModelSource("canine", tmp_path))
    assert isinstance(tokenizer, CanineTokenizer)
    assert tokenizer("ab")["input_ids"] != tokenizer("cd")["input_ids"]


def test_shards_are_fetched_and_half_of_them_is_not_a_model(hub, tiny_bert, tmp_path):
    from huggingface_hub import hf_hub_download

    folder = tmp_path / "sharded"
    shutil.copytree(tiny_bert.path, folder)
    names = shard(folder)
    publish(hub, NAME, folder)
    for file in ("config.json", "model.safetensors.index.json", names[0], "tokenizer.json"):
        hf_hub_download(NAME, file)
    assert find_whole(NAME) is None
    source = resolve(NAME)
    assert {path.name for path in source.path.iterdir()} >= {*names, "model.safetensors.index.json"}
    assert torch.equal(states(source), states(tiny_bert))
    (folder / names[1]).unlink()
    with pytest.raises(UserError, match=f"wanted whole weights, found no {names[1]} in "):
        resolve(folder)
    publish(hub, "a/half", folder)
    with pytest.raises(UserError, match=f"wanted whole weights on the hub, found no {names[1]}"):
        resolve("a/half")


@pytest.mark.parametrize("legacy", [False, True])
def test_a_repository_of_pickles(hub, tiny_bert, tmp_path, legacy):
    folder = tmp_path / "old"
    shutil.copytree(tiny_bert.path, folder)
    weights = load_file(folder / "model.safetensors")
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value
        for name, value in weights.items()
    }
    torch.save(renamed, folder / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    (folder / "model.safetensors").rename(folder / "consolidated.safetensors")
    publish(hub, NAME, folder)
    source = resolve(NAME)
    assert {path.name for path in source.path.iterdir()} == FILES - {"model.safetensors"} | {
        "pytorch_model.bin"
    }
    assert torch.equal(states(source), states(tiny_bert))


def test_old_names_revisions_and_a_main_that_moves(hub, tiny_bert, tmp_path):
    old = publish(hub, NAME, tiny_bert.path)
    hub.moved["multiberts"] = NAME
    assert resolve("multiberts").path.name == old
    assert resolve(NAME).path.name == old
    other = tmp_path / "other"
    shutil.copytree(tiny_bert.path, other)
    (other / "added_tokens.json").write_text("{}")
    new = publish(hub, NAME, other, "step1")
    assert resolve(f"{NAME}@step1").path.name == new
    publish(hub, NAME, other)  # main moves; what the cache calls main is taken
    assert resolve(NAME).path.name == old
    with pytest.raises(UserError, match=f"model {NAME}@step2: .* no such revision on the hub"):
        resolve(f"{NAME}@step2")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(INFO, status=401, code="RepoNotFound"), "no such name on the hub"),
        (Fault("config.json", status=403, code="GatedRepo"), "terms on the hub that you have not"),
        (Fault(INFO, status=403), "a refusal of the hub (403)"),
        (Fault(INFO, status=429), "too many requests to the hub (429), 3 times"),
        (Fault(INFO, status=500), "an error of the hub (500), 3 times"),
        (Fault("/tree/", status=500), "an error of the hub (500), 3 times"),
        (Fault("GET .*model.safetensors", drop=100), "a connection that dropped"),
        (Fault("GET .*model.safetensors", short=100), "a file of another size"),
        (Fault("GET .*model.safetensors", zeros=True), "a content of model.safetensors that is"),
        (Fault(INFO, status=429, headers={"Retry-After": "4000"}), "to wait 4000 s"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_is_one_line_and_the_next_run_heals(published, simcore, fault, words, monkeypatch):
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)
    published.faults = [fault]
    refused = simcore("models", NAME)
    check_refused(refused, f"model {NAME}: wanted a download, found ", words)
    assert len(refused[2][0]) < 320
    published.faults = []
    code, printed, errors = simcore("models", NAME)
    assert (code, errors) == (0, [])
    assert "bert" in printed


@pytest.mark.parametrize(
    "fault",
    [
        Fault(INFO, times=2, status=500),
        Fault("/tree/", times=1, status=500),
        Fault(INFO, times=1, status=429, headers={"Retry-After": "31"}),
        Fault(INFO, times=1, status=429, headers={"ratelimit": '"api";r=0;t=30'}),
        Fault(INFO, times=1, drop=0),  # files the client tries again by itself
        Fault("GET .*model.safetensors", times=1, drop=100),
        Fault("GET .*model.safetensors", times=2, short=100),
        Fault("GET .*model.safetensors", times=1, zeros=True),
    ],
    ids=["500", "list", "429", "limit", "drop", "drop file", "short", "zeros"],
)
def test_what_passes_is_tried_again(published, fault, monkeypatch):
    waited = []
    monkeypatch.setattr(store.time, "sleep", waited.append)
    published.faults = [fault]
    found = resolve(NAME).path
    assert {path.name for path in found.iterdir()} == FILES
    weights = published.folder(NAME) / "model.safetensors"
    assert (found / "model.safetensors").read_bytes() == weights.read_bytes()
    if fault.headers:
        assert 31.0 in waited


def test_a_hub_that_does_not_answer_is_one_line(published, monkeypatch, simcore):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    check_refused(simcore("models", NAME), "no answer of the hub http://127.0.0.1:9", ", 3 times; ")


@pytest.mark.parametrize("fault", [Fault("HEAD /$", delay=60), Fault("HEAD /$", status=405)])
def test_a_start_page_that_is_slow_or_refused_shuts_nobody_out(published, fault):
    publish_data(published, "nyu-mll/glue", "rte", "rte")
    published.faults = [fault]
    assert find_whole(NAME) is None
    assert resolve(NAME).path.is_dir()
    assert load_task("rte").heldout.texts
    assert "HEAD /" not in published.log


def test_an_adapter_a_quantised_model_and_one_of_another_library(hub, tiny_bert, tmp_path):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "a/base"}')
    (adapter / "adapter_model.safetensors").write_text("")
    publish(hub, "a/adapter", adapter)
    for name in ("a/adapter", adapter):
        with pytest.raises(UserError, match="found an adapter of a/base; merge them with peft"):
            resolve(name)
    (adapter / "config.json").write_text((tiny_bert.path / "config.json").read_text())
    publish(hub, "a/configured", adapter)
    for name in ("a/configured", adapter):
        with pytest.raises(UserError, match="found an adapter of a/base; merge them with peft"):
            resolve(name)
    shutil.copytree(tiny_bert.path, adapter, dirs_exist_ok=True)
    publish(hub, "a/both", adapter)
    for name in ("a/both", adapter):
        with pytest.raises(UserError, match=r"of a/base beside whole weights; .* weights alone"):
            resolve(name)
    other = tmp_path / "tf"
    other.mkdir()
    (other / "config.json").write_text((tiny_bert.path / "config.json").read_text())
    (other / "tf_model.h5").write_text("")
    publish(hub, "a/tf", other)
    with pytest.raises(UserError, match=r"on the hub, found tf_model\.h5, a file of an"):
        resolve("a/tf")
    quantised = tmp_path / "quantised"
    shutil.copytree(tiny_bert.path, quantised)
    config = json.loads((quantised / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (quantised / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="found weights quantised by gptq"):
        load_encoder(resolve(quantised))


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A vocabulary of sentencepiece, as DeBERTa-v3 and XLNet publish theirs."""
    import sentencepiece

    from support.lab.tinymodels import BAD, FILLER, GOOD

    folder = tmp_path_factory.mktemp("pieces")
    text = folder / "text.txt"
    text.write_text("\n".join(" ".join((a, b, c)) for a in FILLER for b in GOOD for c in BAD))
    special = ["[CLS]", "[SEP]", "[MASK]", "<cls>", "<sep>", "<mask>"]
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(folder / "spm"),
        vocab_size=80,
        hard_vocab_limit=False,
        user_defined_symbols=special,
        minloglevel=2,
    )
    return folder / "spm.model"


@pytest.mark.parametrize(
    ("kind", "name", "cls"),
    [
        ("deberta-v2", "spm.model", "DebertaV2Tokenizer"),
        ("xlnet", "spiece.model", "XLNetTokenizer"),
    ],
)
def test_a_vocabulary_of_sentencepiece_alone(hub, pieces, tmp_path, kind, name, cls):
    from transformers import AutoModel

    folder = tmp_path / kind
    AutoModel.from_config(tiny_config(kind, 64)).save_pretrained(folder)
    shutil.copy(pieces, folder / name)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": cls}))
    publish(hub, f"a/{kind}", folder)
    tokenizer = load_tokenizer(resolve(f"a/{kind}"))
    ids = tokenizer("wonderful plot")["input_ids"]
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "wonderful plot"


def _pickle_that_runs(path):
    import os
    import pickle

    class Runs:
        def __reduce__(self):
            return os.getcwd, ()

    path.write_bytes(pickle.dumps({"a": Runs()}, protocol=2))


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (_pickle_that_runs, "a pickle that runs posix.getcwd when it is read"),
        (lambda path: path.write_bytes(bytes(5000)), "zeros in place of weights"),
        (lambda path: path.write_text("<html>"), "a page of HTML in place of weights"),
        (
            lambda path: path.write_text("version https://git-lfs.github.com"),
            "a pointer of git-lfs",
        ),
        (lambda path: path.write_bytes(b""), "an empty file"),
    ],
    ids=["pickle", "zeros", "html", "lfs", "empty"],
)
def test_what_stands_in_place_of_weights_is_said(tmp_path, tiny_bert, write, words):
    folder = tmp_path / "bert"
    shutil.copytree(tiny_bert.path, folder)
    (folder / "model.safetensors").unlink()
    write(folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=rf"damaged weights in .*model\.bin: {words}"):
        load_encoder(resolve(folder))


def test_damaged_weights_in_the_cache_come_with_the_way_out(published):
    file = resolve(NAME).path / "model.safetensors"
    blob = file.resolve()
    blob.write_bytes(bytes(blob.stat().st_size))
    with pytest.raises(UserError, match=f"zeros in place of weights; delete {blob}"):
        load_encoder(resolve(NAME))
    blob.unlink()
    assert load_encoder(resolve(NAME)) is not None
