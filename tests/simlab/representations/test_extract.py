"""Extraction: the model's own states, whatever the batches; rows keep their ids."""

import numpy as np
import pytest
import torch

from simcore import cka_grid
from simlab import TaskOptions, extract, load_representations, load_task
from simlab.errors import UserError
from simlab.models.load import load_encoder, load_tokenizer
from simlab.models.sources import resolve
from simlab.models.tokens import encode
from simlab.representations.folder import require_same_examples
from simlab.representations.passes import ExtractOptions
from simlab.tasks import Examples, Task
from support.lab.tinymodels import PIECES, byte_level_tokenizer, save_tiny_decoder, save_tiny_model
from support.tolerance import ATTENTION_ROW_SUM, assert_same_forward

TEXTS = (
    "the unbelievable film",
    "films don't",
    "a dull plot with unbelievably flat music and some tedious scenes",
    "un",
)


def one_by_one(source, examples, max_length, random_init_seed=None):
    """Return every layer's position 0, one unpadded example at a time, from the model itself."""
    import torch

    tokenizer = load_tokenizer(source)
    model = load_encoder(source, random_init_seed)
    rows = []
    with torch.inference_mode():
        for example in encode(tokenizer, examples, max_length):
            batch = tokenizer.pad([example], return_tensors="pt")
            hidden = model(**batch, output_hidden_states=True).hidden_states
            rows.append([states[0, 0].numpy() for states in hidden])
    return [np.stack(layer) for layer in zip(*rows, strict=True)]


def test_layers_equal_the_models_hidden_states(tmp_path, tiny_bert, review_task):
    extract(tiny_bert, review_task, tmp_path / "reps", ExtractOptions(max_length=16))
    found = load_representations(tmp_path / "reps")
    expected = one_by_one(tiny_bert, review_task.heldout, 16)
    assert len(found.layers) == 4  # embedding output and three blocks
    assert found.ids == list(review_task.heldout.ids)
    for layer, wanted in zip(found.layers, expected, strict=True):
        assert_same_forward(layer, wanted)


@pytest.mark.assets
def test_real_minilm_has_seven_layers_that_padding_does_not_change(tmp_path, minilm):
    task = load_task("rt", TaskOptions(train_size=1, heldout_size=8))
    extract(minilm, task, tmp_path / "reps", ExtractOptions(batch_size=8))
    found = load_representations(tmp_path / "reps")
    assert [layer.shape for layer in found.layers] == [(8, 384)] * 7
    for layer, wanted in zip(found.layers, one_by_one(minilm, task.heldout, 128), strict=True):
        assert_same_forward(layer, wanted)


def test_batch_size_does_not_change_rows(tmp_path, tiny_bert, review_task):
    for size in (1, 5, 64):
        extract(tiny_bert, review_task, tmp_path / str(size), ExtractOptions(batch_size=size))
    one, *others = [load_representations(tmp_path / str(size)) for size in (1, 5, 64)]
    for other in others:
        for layer, wanted in zip(other.layers, one.layers, strict=True):
            assert_same_forward(layer, wanted)


def test_random_twin_is_seeded_and_unlike_the_model(tmp_path, tiny_bert, review_task):
    for name, seed in {"a": 0, "again": 0, "b": 1, "model": None}.items():
        options = ExtractOptions(random_init_seed=seed)
        extract(tiny_bert, review_task, tmp_path / name, options)
    last = {
        name: load_representations(tmp_path / name).layers[-1]
        for name in ("a", "again", "b", "model")
    }
    assert np.array_equal(last["a"], last["again"])
    assert not np.allclose(last["a"], last["b"])
    assert not np.allclose(last["a"], last["model"])


def test_manifest_says_where_the_rows_come_from(tmp_path, tiny_bert, review_task):
    extract(tiny_bert, review_task, tmp_path / "reps", label="ORIG", seed=3)
    manifest = load_representations(tmp_path / "reps").manifest
    assert manifest["label"] == "ORIG"
    assert manifest["seed"] == 3
    assert manifest["model_sha256"] == tiny_bert.fingerprint
    assert manifest["examples_sha256"] == review_task.heldout.text_fingerprint
    assert manifest["widths"] == [24] * 4
    assert "torch" in manifest["versions"]


def test_a_model_without_cls_is_refused_and_leaves_nothing(tmp_path, review_task):
    many = tuple(f"word{number}" for number in range(300))  # embeddings for every byte-level token
    folder = save_tiny_model(tmp_path / "bert", pieces=many)
    for file in folder.glob("tokenizer*"):
        file.unlink()
    byte_level_tokenizer(list(review_task.train.texts)).save_pretrained(folder)
    with pytest.raises(UserError, match="wanted a CLS token at position 0, found none there"):
        extract(resolve(str(folder)), review_task, tmp_path / "reps")
    assert not list(tmp_path.glob("reps*"))


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A three-block BERT whose tokenizer cuts words into pieces."""
    folder = tmp_path_factory.mktemp("models") / "pieces"
    return resolve(str(save_tiny_model(folder, pieces=PIECES)))


def text_task(texts=TEXTS, pairs=None):
    """A task of hand-made texts."""
    ids = tuple(f"e{row}" for row in range(len(texts)))
    examples = Examples(ids, tuple(texts), pairs, np.zeros(len(texts), np.int64))
    return Task("texts", examples, examples, ("good", "bad"))


def naive_rows(kind, states, words):
    """Return rows of an unpadded example, [t, p], by a loop; `words`: each token's word or None."""
    text = [position for position, word in enumerate(words) if word is not None]
    if kind == "mean":
        return [states[text].mean(0)]
    if kind == "mean-all":
        return [states.mean(0)]
    if kind == "token":
        return [states[position] for position in text]
    groups = [
        [p for p in text if words[p] == word] for word in dict.fromkeys(words[p] for p in text)
    ]
    return [states[group[-1]] if kind == "word-last" else states[group].mean(0) for group in groups]


def naive_attention(weights, words):
    """Return [H, w, w] of a text's [H, t, t]: drop, renormalise, sum to, average from."""
    text = [position for position, word in enumerate(words) if word is not None]
    groups = [
        [p for p in text if words[p] == word] for word in dict.fromkeys(words[p] for p in text)
    ]
    rows = weights / weights[:, :, text].sum(-1, keepdims=True)
    return np.array(
        [[[head[np.ix_(to, at)].sum(1).mean() for at in groups] for to in groups] for head in rows]
    )


def single_outputs(source, texts, how=None, **wanted):
    """Return (word ids, model output) of each text, alone in its batch, tokenised as `how` says."""
    import torch

    tokenizer, model = load_tokenizer(source), load_encoder(source, attention=True)
    with torch.inference_mode():
        for text in texts:
            encoded = tokenizer([text], return_tensors="pt", **(how or {}))
            yield encoded.word_ids(0), model(**encoded, **wanted)


def check_rows(kind, source, task, folder, how=None, **options):
    extract(source, task, folder, ExtractOptions(kind=kind, batch_size=3, **options))
    kind = kind.replace("padded", "all")  # the padding is among the tokens of `how`
    expected = []
    texts = task.heldout.texts
    for words, output in single_outputs(source, texts, how, output_hidden_states=True):
        layers = [states[0].double().numpy() for states in output.hidden_states]
        expected.append([naive_rows(kind, layer, words) for layer in layers])
    found = load_representations(folder).layers
    for layer, wanted in zip(found, zip(*expected, strict=True), strict=True):
        assert_same_forward(layer, np.concatenate(wanted))


def check_attention(source, task, folder, how=None, **options):
    extract(source, task, folder, ExtractOptions(kind="attention", batch_size=3, **options))
    layers = load_representations(folder).layers
    outputs = single_outputs(source, task.heldout.texts, how, output_attentions=True)
    for sentence, (words, output) in enumerate(outputs):
        for layer, weights in zip(layers, output.attentions, strict=True):
            found = layer[sentence]
            wanted = naive_attention(weights[0].double().numpy(), words)
            assert_same_forward(found, wanted)
            np.testing.assert_allclose(found.sum(-1), 1, rtol=0, atol=ATTENTION_ROW_SUM)


@pytest.mark.parametrize("kind", ["mean", "mean-all", "token", "word-last", "word-mean"])
def test_rows_are_those_of_each_text_alone(tmp_path, pieces, kind):
    check_rows(kind, pieces, text_task(), tmp_path / "reps")


def test_a_mean_over_padding_is_that_of_texts_of_one_length(tmp_path, pieces):
    length = 32
    padded = {"padding": "max_length", "max_length": length}
    check_rows("mean-padded", pieces, text_task(), tmp_path / "reps", padded, max_length=length)
    extract(pieces, text_task(), tmp_path / "all", kind="mean-all")
    last = [load_representations(tmp_path / name).layers[-1] for name in ("reps", "all")]
    assert np.abs(last[0] - last[1]).max() > 0.1  # the model's states at the padding count


@pytest.mark.parametrize("kind", ["mean", "mean-all", "word-last"])
def test_rows_without_special_tokens_are_those_of_the_text_alone(tmp_path, pieces, kind):
    alone = {"add_special_tokens": False}
    task = text_task((*TEXTS, "film"))
    check_rows(kind, pieces, task, tmp_path / "reps", alone, special_tokens=False)
    extract(pieces, task, tmp_path / "with", kind=kind)
    x, y = (load_representations(tmp_path / name) for name in ("reps", "with"))
    require_same_examples(x, y)
    assert np.abs(x.layers[-1] - y.layers[-1]).max() > 0.1
    assert x.manifest["special_tokens"] is False


def test_attention_without_special_tokens_is_that_between_words(tmp_path, pieces):
    check_attention(
        pieces, text_task(), tmp_path / "reps", {"add_special_tokens": False}, special_tokens=False
    )
    (words, output), *_ = single_outputs(
        pieces, ["film"], {"add_special_tokens": False}, output_attentions=True
    )
    assert words == [0]
    assert output.attentions[0].shape[-1] == 1  # no renormalisation: the word is all there is


def test_texts_without_a_token_are_left_out(tmp_path, pieces):
    task = text_task(("", "the film", ""))
    options = ExtractOptions(kind="word-last", special_tokens=False, batch_size=1)
    extract(pieces, task, tmp_path / "words", options)
    assert load_representations(tmp_path / "words").ids == ["e1:0:the", "e1:1:film"]
    with pytest.raises(UserError, match="example e0: kind='mean-all' wanted a token, found none"):
        extract(pieces, task, tmp_path / "all", kind="mean-all", special_tokens=False)


def test_attention_is_that_of_each_text_alone(tmp_path, pieces):
    check_attention(pieces, text_task(), tmp_path / "reps")
    manifest = load_representations(tmp_path / "reps").manifest
    assert (manifest["n"], manifest["layers"], manifest["widths"]) == (4, 3, [2, 2, 2])
    assert manifest["lengths"] == [3, 4, 11, 1]  # don't is don ' t


@pytest.mark.assets
def test_words_of_the_real_minilm(tmp_path, minilm):
    task = load_task("rt", TaskOptions(train_size=1, heldout_size=3))
    check_rows("word-mean", minilm, task, tmp_path / "reps")


@pytest.mark.assets
@pytest.mark.deep
def test_word_attention_of_the_real_minilm(tmp_path, minilm):
    task = load_task("rt", TaskOptions(train_size=1, heldout_size=3))
    check_attention(minilm, task, tmp_path / "reps")


def test_row_ids_name_example_word_and_text(tmp_path, pieces):
    for kind, wanted in {
        "mean": ["e0", "e1"],
        "token": ["e0:0:the", "e0:1:un", "e0:2:##believ", "e0:3:##able", "e0:4:film", "e1:0:film"],
        "word-last": ["e0:0:the", "e0:1:unbelievable", "e0:2:film", "e1:0:films", "e1:1:don"],
    }.items():
        options = ExtractOptions(kind=kind, limit=2)
        extract(pieces, text_task(), tmp_path / kind, options)
        assert load_representations(tmp_path / kind).ids[: len(wanted)] == wanted


@pytest.mark.parametrize("kind", ["word-last", "attention"])
def test_models_with_other_tokenizers_agree_on_words_between_spaces_only(tmp_path, pieces, kind):
    task = text_task()
    decoder = resolve(str(save_tiny_decoder(tmp_path / "gpt2", [*TEXTS, "the film"])))
    for words in ("tokenizer", "spaces"):
        options = ExtractOptions(kind=kind, words=words)
        for name, source in (("bert", pieces), ("gpt2", decoder)):
            extract(source, task, tmp_path / f"{name}-{words}", options)
    bert, gpt2 = (load_representations(tmp_path / f"{name}-spaces") for name in ("bert", "gpt2"))
    require_same_examples(bert, gpt2)
    assert bert.ids[3:5] == ["e1:0:films", "e1:1:don't"]
    bert, gpt2 = (load_representations(tmp_path / f"{name}-tokenizer") for name in ("bert", "gpt2"))
    with pytest.raises(UserError, match=r"wanted the same rows.*\"e1:2:'\""):
        require_same_examples(bert, gpt2)


def test_a_decoder_attends_to_nothing_that_follows(tmp_path):
    decoder = resolve(str(save_tiny_decoder(tmp_path / "gpt2", list(TEXTS))))
    extract(decoder, text_task(), tmp_path / "reps", ExtractOptions(kind="attention"))
    for sentences in load_representations(tmp_path / "reps").layers:
        for weights in sentences:
            assert not np.triu(weights, 1).any()
            np.testing.assert_allclose(weights.sum(-1), 1, rtol=0, atol=ATTENTION_ROW_SUM)


def test_an_example_without_words_has_no_rows_and_no_mean(tmp_path, pieces):
    task = text_task(("", "the film", ""))
    extract(pieces, task, tmp_path / "words", ExtractOptions(kind="word-last"))
    assert load_representations(tmp_path / "words").ids == ["e1:0:the", "e1:1:film"]
    extract(pieces, task, tmp_path / "attention", ExtractOptions(kind="attention"))
    assert load_representations(tmp_path / "attention").manifest["lengths"] == [2]
    with pytest.raises(UserError, match="example e0: kind='mean' wanted a token"):
        extract(pieces, task, tmp_path / "mean", ExtractOptions(kind="mean"))
    with pytest.raises(UserError, match="kind='token': wanted a whole word"):
        extract(pieces, text_task(("",)), tmp_path / "none", ExtractOptions(kind="token"))


def test_options_that_do_not_fit_are_refused(tmp_path, pieces):
    for options, message in (
        (ExtractOptions(kind="sum"), "kind='sum': wanted one of cls, mean"),
        (ExtractOptions(kind="word-last", words="bytes"), "words='bytes': wanted tokenizer or"),
        (ExtractOptions(kind="mean", words="spaces"), "words='spaces': wanted kind word-last"),
        (ExtractOptions(special_tokens=False), "special_tokens=False: wanted a kind that"),
        (ExtractOptions(limit=5), "limit: wanted 1 to 4 examples, found 5"),
    ):
        with pytest.raises(UserError, match=message):
            extract(pieces, text_task(), tmp_path / "reps", options)


def test_a_model_that_gives_no_attention_is_refused(tmp_path, pieces, monkeypatch):
    from transformers import BertModel

    whole = BertModel.forward

    def without(self, *arguments, **options):
        output = whole(self, *arguments, **options)
        output["attentions"] = None
        return output

    monkeypatch.setattr(BertModel, "forward", without)
    with pytest.raises(UserError, match=r"wanted weights .* found none in a model of type 'bert'"):
        extract(pieces, text_task(), tmp_path / "reps", ExtractOptions(kind="attention"))


@pytest.mark.assets
@pytest.mark.deep
@pytest.mark.parametrize(("weights", "bound"), [("bfloat16", 1e-3), ("float16", 1e-4)])
def test_weights_of_half_the_size_change_grids_little(tmp_path, minilm, weights, bound):
    """The bounds are those of the page of the command, rounded up."""
    grids = []
    for precision in ("float32", weights):
        folder = extract(
            minilm, "rt", tmp_path / precision, kind="mean", limit=60, weights=precision
        ).path
        grids.append(cka_grid(list(load_representations(folder).layers)))
    np.testing.assert_allclose(*grids, atol=bound)
    assert not np.array_equal(*grids)


def test_auto_is_the_precision_of_the_files(tmp_path, tiny_bert, review_task):
    half = tmp_path / "half"
    model, tokenizer = load_encoder(tiny_bert), load_tokenizer(tiny_bert)
    model.to(torch.bfloat16).save_pretrained(half)
    tokenizer.save_pretrained(half)
    rows = {
        weights: load_representations(
            extract(half, review_task, tmp_path / weights, kind="mean", weights=weights).path
        ).layers
        for weights in ("auto", "bfloat16", "float32")
    }
    assert all(map(np.array_equal, rows["auto"], rows["bfloat16"]))
    assert not any(map(np.array_equal, rows["auto"], rows["float32"]))


def test_a_twin_of_half_precision_has_the_rounded_weights_of_the_twin(tiny_bert):
    whole, half = load_encoder(tiny_bert, 3), load_encoder(tiny_bert, 3, weights="bfloat16")
    for one, other in zip(whole.parameters(), half.parameters(), strict=True):
        assert torch.equal(one.bfloat16(), other)


def test_wrong_precisions_are_refused(tmp_path, tiny_bert, review_task):
    with pytest.raises(UserError, match=r"weights='bfloat8' \(did you mean 'bfloat16'\?\): wanted"):
        extract(tiny_bert, review_task, tmp_path / "reps", weights="bfloat8")
    with pytest.raises(UserError, match="weights='float16': wanted none for timm:resnet18"):
        extract("timm:resnet18", "digits", tmp_path / "reps", modules="*", weights="float16")
