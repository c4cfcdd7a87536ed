"""Words of hand-made texts, whose sub-words are known."""

import numpy as np
import pytest

from simlab.errors import UserError
from simlab.representations.kinds import encode_words, find_rows
from simlab.tasks import Examples
from support.lab.tinymodels import (
    PIECES,
    TOKENIZERS,
    byte_level_tokenizer,
    piece_tokenizer,
    tiny_tokenizer,
)


def words_of(text, *, pair=None, max_length=64, words="tokenizer", tokenizer=None):
    """Tokens, words and word texts of one text."""
    pairs = None if pair is None else (pair,)
    examples = Examples(("e",), (text,), pairs, np.zeros(1, np.int64))
    tokenizer = tokenizer or tiny_tokenizer(PIECES)
    (encoded,), (found,) = encode_words(tokenizer, examples, max_length, words)
    assert len(encoded["input_ids"]) == len(found.tokens) == len(found.words)
    return found


def test_sub_words_share_a_word_and_special_tokens_have_none():
    found = words_of("the unbelievable film")
    assert found.tokens == ("[CLS]", "the", "un", "##believ", "##able", "film", "[SEP]")
    assert found.words.tolist() == [-1, 0, 1, 1, 1, 2, -1]
    assert found.in_text.tolist() == [False, True, True, True, True, True, False]
    assert found.word_texts == ("the", "unbelievable", "film")


def test_a_special_token_that_is_written_in_the_text_is_text():
    found = words_of("the [UNK] film")
    assert found.in_text.sum() == len(found.tokens) - 2


@pytest.mark.parametrize(
    ("max_length", "words"),
    [(7, [-1, 0, 1, 1, 1, 2, -1]), (6, [-1, 0, 1, 1, 1, -1]), (5, [-1, 0, -1, -1, -1])],
)
def test_a_word_that_truncation_cuts_is_left_out(max_length, words):
    found = words_of("the unbelievable film", max_length=max_length)
    assert found.words.tolist() == words


def test_words_of_the_tokenizer_and_words_between_spaces():
    assert words_of("films  don't").word_texts == ("films", "don", "'", "t")
    found = words_of("films  don't", words="spaces")
    assert found.word_texts == ("films", "don't")
    assert found.words.tolist() == [-1, 0, 0, 1, 1, 1, -1]


@pytest.mark.parametrize("words", ["tokenizer", "spaces"])
def test_words_of_a_pair_are_numbered_on(words):
    found = words_of("the film", pair="unbelievable film", words=words)
    assert found.words.tolist() == [-1, 0, 1, -1, 2, 2, 2, 3, -1]
    assert found.word_texts == ("the", "film", "unbelievable", "film")


@pytest.mark.parametrize("words", ["tokenizer", "spaces"])
def test_byte_level_words_are_those_of_the_text(words):
    text = "the films don't end"
    tokenizer = byte_level_tokenizer([text, "the the films"])
    found = words_of(text, words=words, tokenizer=tokenizer)
    assert list(found.tokens) == tokenizer.tokenize(text)  # spaces stay with the words
    tokens = ("the", "films", "don", "'t", "end")
    assert found.word_texts == (("the", "films", "don't", "end") if words == "spaces" else tokens)
    assert found.in_text.all()


@pytest.mark.parametrize("words", ["tokenizer", "spaces"])
@pytest.mark.parametrize("how", TOKENIZERS)
def test_tokens_of_words_are_those_of_the_text_whether_it_is_split_or_not(how, words):
    tokenizer, text = piece_tokenizer(how), "the unbelievable film  is\tdull\nand moving"
    found = words_of(text, words=words, tokenizer=tokenizer)
    assert list(found.tokens) == tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])
    assert found.word_texts == tuple(text.split())
    letters = [""] * len(found.word_texts)
    for token, word in zip(found.tokens, found.words, strict=True):
        if word >= 0:
            letters[word] += token.strip("▁")
        else:
            assert not token.strip("▁\t\n") or token in tokenizer.all_special_tokens
    assert letters == list(found.word_texts)


@pytest.mark.parametrize("how", ["Prepend", "GemmaTokenizer"])
def test_words_of_a_tokenizer_that_does_not_split_are_cut(how):
    found = words_of("the unbelievable film", max_length=8, tokenizer=piece_tokenizer(how))
    assert {*found.words.tolist()} == {-1, 0}


def test_tokens_of_two_words_are_refused_where_rows_are_words():
    tokenizer = piece_tokenizer("GemmaTokenizer", ("is▁a",))
    for kind in ("word-last", "word-mean", "attention"):
        with pytest.raises(UserError, match=r"^example 1: .* found 'is▁a' with char"):
            rows_of(kind, ("the film", "is a"), tokenizer)
    assert len(rows_of("mean", ("the film", "is a"), tokenizer).ids) == 2


@pytest.mark.parametrize("kind", ["word-last", "attention", "token"])
def test_texts_without_rows_are_told(kind, capsys):
    texts = ("unbelievable", "the film") if kind != "token" else ("", "the film")
    rows_of(kind, texts, tiny_tokenizer(PIECES), 4)
    told = "1 of 2 texts have no row, because they have no whole word in 4 tokens; the first is 0"
    assert told in " ".join(capsys.readouterr().err.split())
    rows_of(kind, ("the film", "a film"), tiny_tokenizer(PIECES), 4)
    assert capsys.readouterr().err == ""


def rows_of(kind, texts, tokenizer, max_length=64):
    """Rows of texts that are named by their number."""
    names = tuple(map(str, range(len(texts))))
    examples = Examples(names, texts, None, np.zeros(len(texts), np.int64))
    return find_rows(kind, tokenizer, examples, max_length, "tokenizer", "model")


def test_spaces_alone_are_no_word():
    tokenizer = byte_level_tokenizer(["the films", "end"])
    found = words_of("the   end", tokenizer=tokenizer)
    assert found.word_texts == ("the", "end")
    assert -1 in found.words


def test_a_slow_tokenizer_is_refused():
    class Slow:
        is_fast = False

    with pytest.raises(UserError, match="Slow: wanted a fast tokenizer"):
        words_of("the film", tokenizer=Slow())
