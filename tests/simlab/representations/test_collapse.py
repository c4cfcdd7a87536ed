"""Rows and tokens that cannot be right are refused; texts that agree are not."""

import shutil

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoTokenizer

from simlab import TaskOptions, extract, load_representations
from simlab.errors import UserError
from simlab.models.hub import has_vocabulary
from simlab.models.load import load_tokenizer
from simlab.models.sources import resolve
from simlab.models.tokens import encode
from simlab.tasks import Examples
from support.lab.tinymodels import save_tiny_decoder, save_tiny_model

KINDS = ("cls", "mean", "mean-all")


@pytest.fixture
def texts(tmp_path):
    """Write texts, one on each line."""

    def write(*lines):
        path = tmp_path / "texts.txt"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


@pytest.fixture(scope="module")
def deaf(tmp_path_factory, tiny_bert):
    """The tiny BERT with embeddings of zero: every token has the same states."""
    folder = tmp_path_factory.mktemp("deaf") / "bert"
    shutil.copytree(tiny_bert.path, folder)
    weights = load_file(folder / "model.safetensors")
    for name in weights:
        if "word_embeddings" in name or "position_embeddings" in name:
            weights[name].zero_()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return resolve(folder)


def rows(model, texts, out, **options):
    extract(model, texts, out, split="all", **options)
    return load_representations(out).layers


@pytest.mark.parametrize("kind", KINDS)
def test_one_row_for_all_texts_is_refused(tmp_path, deaf, texts, kind):
    out = tmp_path / "out"
    with pytest.raises(UserError, match="found one row for all 3 texts in every layer"):
        rows(deaf, texts("the film", "a plot and the cast", "music"), out, kind=kind)
    assert not out.exists()


@pytest.mark.parametrize("lines", [("the film",), ("the film", "the film"), ("a film", "film a")])
def test_texts_of_the_same_tokens_may_have_one_row(tmp_path, deaf, texts, lines):
    for kind in KINDS:
        layers = rows(deaf, texts(*lines), tmp_path / kind, kind=kind)
        assert all(np.ptp(layer, axis=0).max() < 1e-5 for layer in layers)


def test_a_random_twin_may_pass_nothing_on(tmp_path, deaf, texts):
    rows(deaf, texts("the film", "a plot"), tmp_path / "out", random_init_seed=1)


def test_texts_without_a_known_word_are_refused(tmp_path, tiny_bert, texts, simcore, reviews):
    path = texts("quince zither", "ochre lynx umbrage the", "film")
    for kind in KINDS:
        with pytest.raises(
            UserError, match="more unknown than known ones, in 2 of the first 3 tex"
        ):
            rows(tiny_bert, path, tmp_path / "out", kind=kind)
    layers = rows(tiny_bert, texts("the quince", "a lynx film"), tmp_path / "out")
    assert np.ptp(layers[1], axis=0).max() > 1e-3


def test_a_byte_level_tokenizer_knows_every_text(tmp_path, texts):
    model = resolve(save_tiny_decoder(tmp_path / "gpt2", ["the film is"]))
    assert load_tokenizer(model).unk_token_id is None
    rows(model, texts("ein Film über Zürich", "映画"), tmp_path / "out", kind="mean")
    rows(model, texts("a", "a a", "Á"), tmp_path / "same", kind="mean")


def test_training_on_unknown_tokens_is_refused(tmp_path, tiny_bert, simcore):
    from simlab import finetune

    data = tmp_path / "data.csv"
    data.write_text("text,label\n" + "".join(f"quince {i},{i % 2}\n" for i in range(40)))
    columns = TaskOptions(text_column="text", label_column="label")
    with pytest.raises(UserError, match="wanted the vocabulary of these texts"):
        finetune(tiny_bert, data, tmp_path / "ft", task_options=columns, max_steps=1)


@pytest.fixture(scope="module")
def roberta(tmp_path_factory):
    """A tiny RoBERTa with the tokenizer that transformers makes without a vocabulary."""
    folder = save_tiny_model(tmp_path_factory.mktemp("empty") / "roberta", "roberta")
    for file in folder.glob("tokenizer*.json"):
        file.unlink()
    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    return resolve(folder)


def test_texts_without_a_token_are_refused(tmp_path, roberta, texts):
    assert load_tokenizer(roberta)(["a", "film"])["input_ids"] == [[2, 3]] * 2
    for kind in KINDS:
        with pytest.raises(UserError, match=r"found no token but .* in 2 of the first 2 texts"):
            rows(roberta, texts("the film", "a plot", "!?"), tmp_path / "out", kind=kind)
    with pytest.raises(UserError, match="in 1 of the first 1 texts"):
        rows(roberta, texts("the film"), tmp_path / "out")
    layers = rows(roberta, texts("!?", "..."), tmp_path / "marks")
    assert np.ptp(layers[-1], axis=0).max() < 1e-5


@pytest.mark.parametrize("architecture", ["roberta", "deberta", "gpt2", "qwen2", "t5", "xlnet"])
def test_an_empty_tokenizer_knows_no_text(tmp_path, architecture):
    AutoConfig.for_model(architecture).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    examples = Examples(("0", "1"), ("the film", "a plot and the cast"), None, np.zeros(2))
    with pytest.raises(UserError, match="found no token but unknown and special ones, or more"):
        encode(tokenizer, examples, 8)


def test_special_tokens_that_are_written_out_are_tokens_of_a_text(tmp_path, tiny_bert, texts):
    rows(tiny_bert, texts("[MASK]", "[MASK] [MASK]"), tmp_path / "out")


def test_different_texts_of_the_same_tokens_are_refused(tmp_path, tiny_bert, texts):
    found = "found the same 4 for all 2 texts, whose letters differ"
    for kind in KINDS:
        with pytest.raises(UserError, match=found):
            rows(tiny_bert, texts("the quince", "lynx the"), tmp_path / "out", kind=kind)
    with pytest.raises(UserError, match=r"same 4 .* does max_length reach"):
        rows(tiny_bert, texts("the film is", "the film and"), tmp_path / "out", max_length=4)
    rows(tiny_bert, texts("The film", "the film!", "film, thé"), tmp_path / "same", kind="cls")


def test_merges_without_a_vocabulary_are_no_tokenizer(tmp_path):
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\n")
    assert not has_vocabulary(tmp_path)
    (tmp_path / "vocab.json").write_text("{}")
    assert has_vocabulary(tmp_path)
