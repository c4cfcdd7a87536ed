"""The cache of the hub's client: contents that are shared or wrong, and files that are missing."""

import shutil

import pytest
import torch

from simlab.errors import UserError
from simlab.models.hub import find_whole, in_hub_cache
from simlab.models.load import load_encoder, load_tokenizer
from simlab.models.sources import resolve
from simlab.store.hub import _quiet_client
from support.hubserver import Fault
from support.lab.hubs import publish

NAME = "google/multiberts-seed_0"


@pytest.fixture
def published(hub, tiny_bert):
    """The tiny BERT on the hub."""
    publish(hub, NAME, tiny_bert.path)
    return hub


@pytest.fixture
def off(monkeypatch):
    """A function that switches the network off."""
    from huggingface_hub import constants

    return lambda: monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def states(source):
    """The last hidden states of a text."""
    batch = load_tokenizer(source)("the film is wonderful", return_tensors="pt")
    with torch.inference_mode():
        return load_encoder(source)(**batch).last_hidden_state


def share(folder, *names):
    """Move the weights of a model to the store that repositories of the cache share, as Xet does.

    Each name is the folder of a repository whose weights become links into the store.
    """
    shared = pytest.importorskip(
        "huggingface_hub.utils._shared_blobs", reason="clients before 2.0 share no contents"
    )
    blob = (folder / "model.safetensors").resolve()
    size, cache = blob.stat().st_size, folder.parents[2]
    place = {"xet_hash": "ab" * 32, "cache_dir": cache, "expected_size": size}
    assert shared.publish_blob_to_shared_store(blob_path=str(blob), **place)
    for name in names:
        (cache / name / "blobs").mkdir(parents=True)
        other = cache / name / "blobs" / blob.name
        assert shared.try_link_from_shared_store(blob_path=str(other), **place)
    return shared.shared_blob_path(cache, "ab" * 32)


def test_weights_that_repositories_share_are_checked_by_their_own_hash(published, tiny_bert):
    publish(published, "a/twin", tiny_bert.path)
    twin = resolve("a/twin")
    store = share(twin.path, f"models--{NAME.replace('/', '--')}")
    source = resolve(NAME)
    assert (source.path / "model.safetensors").resolve() == store
    assert torch.equal(states(source), states(twin))
    assert in_hub_cache(source.path / "model.safetensors") == store
    store.write_bytes(bytes(store.stat().st_size))
    (source.path / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=f"content of model.safetensors, found .* in {store}; del"):
        resolve(NAME)
    assert (twin.path / "model.safetensors").resolve() == store
    assert store.is_file()
    store.unlink()
    assert torch.equal(states(resolve(NAME)), states(tiny_bert))


def test_what_an_interrupted_run_has_fetched_is_checked(published, tiny_bert):
    from huggingface_hub import hf_hub_download

    published.faults = [Fault("GET .*model.safetensors", times=1, zeros=True)]
    for file in ("config.json", "model.safetensors"):
        hf_hub_download(NAME, file)
    assert torch.equal(states(resolve(NAME)), states(tiny_bert))


def test_a_vocabulary_needs_the_settings_of_its_tokenizer(published, off, tiny_bert, tmp_path):
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    plain = tmp_path / "plain"
    shutil.copytree(tiny_bert.path, plain)
    (plain / "tokenizer_config.json").unlink()
    publish(published, "a/plain", plain)
    for name in (NAME, "a/plain"):
        for file in ("config.json", "model.safetensors", "tokenizer.json"):
            hf_hub_download(name, file)
        assert find_whole(name) is None
    with pytest.raises(EntryNotFoundError):
        hf_hub_download("a/plain", "tokenizer_config.json")
    assert find_whole("a/plain") is not None
    off()
    with pytest.raises(UserError, match="no such files in the hub's cache; unset it, or run"):
        resolve(NAME)


def test_without_a_hub_only_an_image_needs_no_tokenizer(published, off, tmp_path):
    from huggingface_hub import hf_hub_download
    from transformers import ViTConfig, ViTModel

    size = {"hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 8, "image_size": 16}
    ViTModel(ViTConfig(num_hidden_layers=1, **size)).save_pretrained(tmp_path / "vit")
    publish(published, "a/vit", tmp_path / "vit")
    for file in ("config.json", "model.safetensors"):
        hf_hub_download("a/vit", file)
    (resolve(NAME).path / "tokenizer_config.json").unlink()  # the cache's list has it
    off()
    assert resolve("a/vit").path.is_dir()
    with pytest.raises(UserError, match="HF_HUB_OFFLINE and no such files in the hub's cache"):
        resolve(NAME)


def test_a_tokenizer_of_bytes_has_settings_alone(hub, off, tmp_path):
    from huggingface_hub import hf_hub_download
    from transformers import CanineConfig, CanineModel, CanineTokenizer

    size = {"hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 8}
    CanineModel(CanineConfig(num_hidden_layers=1, **size)).save_pretrained(tmp_path)
    CanineTokenizer().save_pretrained(tmp_path)
    publish(hub, "a/canine", tmp_path)
    for file in ("config.json", "model.safetensors", "tokenizer_config.json"):
        hf_hub_download("a/canine", file)
    off()
    assert resolve("a/canine").path.is_dir()


@pytest.mark.parametrize(
    ("which", "base"),
    [({"allow_patterns": ["*"]}, "a/base"), ({"ignore_patterns": ["adapter*"]}, "its base model")],
    ids=["with", "without"],
)
def test_an_adapter_in_a_whole_cache(hub, off, tiny_bert, tmp_path, which, base):
    """Weights beside an adapter, which another program has fetched with or without it."""
    from huggingface_hub import snapshot_download

    folder = tmp_path / "both"
    shutil.copytree(tiny_bert.path, folder)
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "a/base"}')
    publish(hub, "a/both", folder)
    snapshot_download("a/both", **which)
    hub.log.clear()
    words = f"model a/both: .* found an adapter of {base} beside whole weights; merge them"
    with pytest.raises(UserError, match=words):
        resolve("a/both")
    assert hub.log == []
    off()
    with pytest.raises(UserError, match=words):
        resolve("a/both")


def test_a_commit_that_the_hub_has_no_more(published, tiny_bert, tmp_path):
    old = resolve(NAME).path
    (old / "tokenizer.json").unlink()
    other = tmp_path / "other"
    shutil.copytree(tiny_bert.path, other)
    (other / "added_tokens.json").write_text("{}")
    new = publish(published, NAME, other)
    with pytest.raises(UserError, match=f"files of commit {old.name}, .* delete {old}, and the sa"):
        resolve(NAME)
    shutil.rmtree(old)
    assert resolve(NAME).path.name == new


def test_a_repository_without_a_tokenizer(hub, tiny_bert, tmp_path, monkeypatch):
    bare = tmp_path / "bare"
    bare.mkdir()
    for file in ("config.json", "model.safetensors"):
        shutil.copy(tiny_bert.path / file, bare)
    publish(hub, "a/bare", bare)
    source = resolve("a/bare")
    with pytest.raises(UserError, match="found none in its repository; save the model and a tok"):
        load_tokenizer(source)
    # As `from_pretrained` leaves a cache.
    monkeypatch.setattr("simlab.models.hub._listed", lambda *_: None)
    words = "found none in the hub's cache; where there is a network, `simcore models a/bare` fetch"
    with pytest.raises(UserError, match=words):
        load_tokenizer(source)


def test_a_misspelt_name_is_answered_with_one_in_the_cache(published):
    resolve(NAME)
    published.log.clear()
    with pytest.raises(UserError, match=rf"did you mean '{NAME}'\?\): .* no such name"):
        resolve(NAME.replace("multi", "mult"))


def test_downloads_draw_no_bars_where_there_is_no_terminal(published, capsys):
    from huggingface_hub.utils import enable_progress_bars

    enable_progress_bars()
    _quiet_client.cache_clear()
    resolve(NAME)
    assert capsys.readouterr().err == ""
