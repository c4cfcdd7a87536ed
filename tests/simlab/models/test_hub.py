"""Models of the hub: which files are fetched, when the hub is asked, and what its errors say."""

import json
import shutil
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

from simlab import load_representations, load_task
from simlab.errors import UserError
from simlab.models.hub import cached_revision, find_whole
from simlab.models.load import load_encoder, load_tokenizer
from simlab.models.sources import ModelSource, resolve
from simlab.store.hub import HubError, _quiet_client
from support.hubserver import Fault
from support.lab.commandline import check_refused
from support.lab.hubs import publish, publish_data
from support.lab.tinymodels import tiny_config

NAME = "google/multiberts-seed_0"
INFO = rf"GET /api/models/{NAME}(/revision/main)?$"
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


@pytest.fixture
def folder(tmp_path, tiny_bert):
    """A copy of the tiny BERT that a test may change."""
    return shutil.copytree(tiny_bert.path, tmp_path / "bert")


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


def test_without_a_hub_a_cache_of_another_program_is_read(published, monkeypatch):
    from huggingface_hub import constants, hf_hub_download

    for file in ("config.json", "model.safetensors"):
        hf_hub_download(NAME, file)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    source = resolve(NAME)
    load_encoder(source)
    with pytest.raises(UserError, match=f"model {NAME}: wanted tokenizer files .* found none in "):
        load_tokenizer(source)
    with pytest.raises(
        HubError, match=r"model a/b: wanted a download from the hub, found .*HF_HUB_OFFLINE"
    ):
        resolve("a/b")


@pytest.mark.parametrize("command", ["extract", "finetune"])
def test_a_folder_without_a_tokenizer_is_refused(tmp_path, folder, reviews, simcore, command):
    for name in FILES - {"config.json", "model.safetensors"}:
        (folder / name).unlink()
    columns = ("--text-column", "body", "--label-column", "verdict")
    out = tmp_path / "out"
    result = simcore(command, folder, reviews, *columns, "--out", out)
    check_refused(result, f"model {folder}: wanted tokenizer files", f"found none in {folder}")
    assert not out.exists()


@pytest.mark.deep
def test_a_tokenizer_of_characters_needs_no_file(tmp_path):
    from transformers import CanineConfig, CanineTokenizer

    CanineTokenizer().save_pretrained(tmp_path)
    CanineConfig(num_hidden_layers=1).save_pretrained(tmp_path)
    tokenizer = load_tokenizer(ModelSource("canine", tmp_path))
    assert isinstance(tokenizer, CanineTokenizer)
    assert tokenizer("ab")["input_ids"] != tokenizer("cd")["input_ids"]


def test_shards_are_fetched_and_half_of_them_is_not_a_model(hub, tiny_bert, folder):
    from huggingface_hub import hf_hub_download

    names = shard(folder)
    publish(hub, NAME, folder)
    for file in ("config.json", "model.safetensors.index.json", names[0], "tokenizer.json"):
        hf_hub_download(NAME, file)
    assert find_whole(NAME) is None
    source = resolve(NAME)
    assert {path.name for path in source.path.iterdir()} >= {*names, "model.safetensors.index.json"}
    assert torch.equal(states(source), states(tiny_bert))
    (folder / names[1]).unlink()
    publish(hub, "a/half", folder)
    for name in (folder, "a/half"):
        with pytest.raises(
            UserError, match=f"^model {name}: wanted an encoder.* found: .*{names[1]}"
        ):
            load_encoder(resolve(name))


@pytest.mark.parametrize("legacy", [False, True])
def test_a_repository_of_pickles(hub, tiny_bert, folder, legacy):
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


def test_old_names_revisions_and_a_main_that_moves(hub, tiny_bert, folder):
    old = publish(hub, NAME, tiny_bert.path)
    hub.moved["multiberts"] = NAME
    assert resolve("multiberts").path.name == old
    assert resolve(NAME).path.name == old
    (folder / "added_tokens.json").write_text("{}")
    new = publish(hub, NAME, folder, "step1")
    assert resolve(f"{NAME}@step1").path.name == new
    publish(hub, NAME, folder)  # main moves; what the cache calls main is taken
    assert resolve(NAME).path.name == old
    with pytest.raises(UserError, match=f"model {NAME}@step2: .* Revision Not Found"):
        resolve(f"{NAME}@step2")


@pytest.fixture
def impatient(monkeypatch):
    """Let the client try again at once, which waits for many seconds by itself."""
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(min(seconds, 0.001)))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(INFO, status=401, code="RepoNotFound"), "Repository Not Found for url"),
        (Fault("config.json", status=403, code="GatedRepo"), "GatedRepoError"),
        (Fault(INFO, status=429), "429"),
        (Fault("/tree/", status=500), "500"),
        (Fault("GET .*model.safetensors", drop=100), "found "),
        (Fault("GET .*model.safetensors", short=100), "Consistency check failed"),
    ],
    ids=["name", "gated", "429", "500", "drop", "short"],
)
def test_a_fault_is_one_line_and_the_next_run_heals(published, simcore, fault, words, impatient):
    published.faults = [fault]
    check_refused(
        simcore("models", NAME), f"model {NAME}: wanted a download from the hub, found ", words
    )
    published.faults = []
    code, printed, errors = simcore("models", NAME)
    assert (code, errors) == (0, [])
    assert "bert" in printed


def test_a_drop_of_the_store_of_large_files_is_one_line(hub, tiny_bert, simcore, monkeypatch):
    publish(hub, NAME, tiny_bert.path)
    publish_data(hub, "a/set", task="imdb")

    def http_get(*arguments, **options):
        raise RuntimeError("Task error: File reconstruction error: CAS Client Error")

    monkeypatch.setattr("huggingface_hub.file_download.http_get", http_get)
    check_refused(simcore("models", NAME), f"model {NAME}: wanted a download", "Task error: File")
    with pytest.raises(HubError, match=r"task hub:a/set: wanted the data set .*Task error: File"):
        load_task("hub:a/set")


def test_a_commit_that_the_hub_has_no_more(published, folder):
    (resolve(NAME).path / "tokenizer.json").unlink()
    (folder / "added_tokens.json").write_text("{}")
    publish(published, NAME, folder)
    with pytest.raises(
        HubError, match=f"model {NAME}: wanted a download from the hub, found .*NotFound"
    ):
        resolve(NAME)


def test_a_misspelt_name_is_answered_with_one_in_the_cache(published):
    resolve(NAME)
    with pytest.raises(HubError, match=rf"did you mean '{NAME}'\?\): .* Repository Not Found"):
        resolve(NAME.replace("multi", "mult"))


def test_downloads_draw_no_bars_where_there_is_no_terminal(published, capsys):
    from huggingface_hub.utils import enable_progress_bars

    enable_progress_bars()
    _quiet_client.cache_clear()
    resolve(NAME)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("has_configuration", [False, True])
def test_an_adapter_on_the_hub_is_refused(hub, tiny_bert, tmp_path, has_configuration):
    """Also where whole weights stand beside it, which may have it in them or not."""
    adapter = tmp_path / "adapter"
    if has_configuration:
        shutil.copytree(tiny_bert.path, adapter)
    adapter.mkdir(exist_ok=True)
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "a/base"}')
    (adapter / "adapter_model.safetensors").write_text("")
    publish(hub, "a/adapter", adapter)
    for _ in range(2):
        with pytest.raises(UserError, match=r"found an adapter .*; download it into a folder"):
            resolve("a/adapter")
    assert not hub.asked("GET", ".safetensors")


def test_weights_of_another_library_and_quantised_ones(hub, tiny_bert, folder, tmp_path):
    (folder / "model.safetensors").rename(folder / "tf_model.h5")
    publish(hub, "a/tf", folder)
    for name in ("a/tf", folder):
        with pytest.raises(UserError, match=f"^model {name}: wanted .*no file named model.safeten"):
            load_encoder(resolve(name))
    assert not hub.asked("GET", "tf_model.h5")
    quantised = shutil.copytree(tiny_bert.path, tmp_path / "quantised")
    config = json.loads((quantised / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (quantised / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=f"^model {quantised}: wanted "):
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


def test_what_stands_in_place_of_weights_is_one_line(folder):
    (folder / "model.safetensors").unlink()
    for name in ("model.safetensors", "pytorch_model.bin"):
        for content in (None, bytes(5000), b"version https://git-lfs.github.com", b""):
            if content is None:
                _pickle_that_runs(folder / name)
            else:
                (folder / name).write_bytes(content)
            with pytest.raises(UserError, match=rf"^model {folder}: wanted an encoder, found: .+"):
                load_encoder(resolve(folder))
        (folder / name).unlink()
