"""Corpora: files without labels and a split, and texts that are lists of words."""

import re

import pandas as pd
import pytest

from simlab import TaskOptions, extract, load_representations, load_task
from simlab.errors import UserError
from simlab.models.sources import resolve
from simlab.tasks import load_corpus
from simlab.tasks.corpus import load_texts
from support.lab.tinymodels import PIECES, save_tiny_decoder, save_tiny_model

SENTENCES = ["the unbelievable film", "a dull plot", "the unbelievable film", "films don't"]
# The Penn Treebank splits words that a tokenizer does not, and keeps others whole.
LISTS = [["the", "film", "ca", "n't", "un-believably"], ["plot"], ["plot"]]
CONLLU = """# sent_id = 1
1-2\tdon't\t_\t_
1\tdo\tdo\tAUX
2\tn't\tnot\tPART
2.1\thidden\t_\t_
3\tplot\tplot\tNOUN

# sent_id = 2
1\tmusic\tmusic\tNOUN
"""


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A three-block BERT whose tokenizer cuts words into pieces."""
    folder = tmp_path_factory.mktemp("models") / "pieces"
    return resolve(str(save_tiny_model(folder, pieces=PIECES)))


@pytest.fixture
def sentences(tmp_path):
    """A text file with blank lines, and a last line without an end."""
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join([SENTENCES[0], "", *SENTENCES[1:]]))
    return path


def test_a_text_file_is_read_whole_with_its_repeats(tmp_path, pieces, sentences):
    extract(pieces, sentences, tmp_path / "reps", split="all", kind="mean-all")
    found = load_representations(tmp_path / "reps")
    assert found.ids == ["row-0", "row-1", "row-2", "row-3"]
    assert (found.manifest["task"], found.manifest["split"]) == ("corpus", "all")
    assert (found.layers[-1][0] == found.layers[-1][2]).all()
    extract(pieces, sentences, tmp_path / "words", split="all", kind="word-last", words="spaces")
    ids = load_representations(tmp_path / "words").ids
    wanted = [
        f"row-{row}:{index}:{word}"
        for row, sentence in enumerate(SENTENCES)
        for index, word in enumerate(sentence.split())
    ]
    assert ids == wanted


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet", "csv"])
def test_a_table_needs_no_label(tmp_path, suffix):
    path = tmp_path / f"table.{suffix}"
    frame = pd.DataFrame({"body": [*SENTENCES, SENTENCES[0]], "second": "a plot"})
    write = {
        "csv": lambda: frame.to_csv(path, index=False),
        "json": lambda: frame.to_json(path),
        "jsonl": lambda: frame.to_json(path, orient="records", lines=True),
        "parquet": lambda: frame.to_parquet(path),
    }
    write[suffix]()
    corpus = load_corpus(path, TaskOptions(text_column="body", pair_column="second"))
    assert corpus.name == "table"
    assert corpus.examples.texts == (*SENTENCES, SENTENCES[0])
    assert set(corpus.examples.pairs) == {"a plot"}
    assert not corpus.examples.in_words
    words = re.escape("wanted column 'label' (or another, with label_column), found body, second")
    with pytest.raises(UserError, match=words):
        load_task(path, TaskOptions(text_column="body"))


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_given_words_are_the_rows_of_every_model(tmp_path, pieces, suffix):
    path = tmp_path / f"treebank.{suffix}"
    frame = pd.DataFrame({"tokens": LISTS})
    if suffix == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    columns = TaskOptions(text_column="tokens")
    decoder = resolve(str(save_tiny_decoder(tmp_path / "gpt2", SENTENCES)))
    wanted = [
        f"row-{r}:{i}:{word}" for r, words in enumerate(LISTS) for i, word in enumerate(words)
    ]
    for name, source in (("bert", pieces), ("gpt2", decoder)):
        for kind in ("word-last", "attention"):
            out = tmp_path / f"{name}-{kind}"
            extract(source, path, out, split="all", kind=kind, task_options=columns)
            found = load_representations(out)
            assert found.ids == wanted
            assert found.manifest["words"] == "spaces"
    options = {"split": "all", "kind": "word-last", "words": "tokenizer"}
    extract(pieces, path, tmp_path / "cut", task_options=columns, **options)
    assert "row-0:3:n" in load_representations(tmp_path / "cut").ids


def test_a_conllu_file_gives_lists_of_words(tmp_path, pieces):
    path = tmp_path / "ewt.conllu"
    path.write_text(CONLLU)
    corpus = load_corpus(path)
    assert corpus.examples.texts == ("do n't plot", "music")
    assert corpus.examples.in_words
    extract(pieces, path, tmp_path / "reps", split="all", kind="word-mean")
    ids = ["row-0:0:do", "row-0:1:n't", "row-0:2:plot", "row-1:0:music"]
    assert load_representations(tmp_path / "reps").ids == ids


def test_all_splits_of_a_folder_follow_each_other(tmp_path):
    pd.DataFrame({"sentence": SENTENCES}).to_json(
        tmp_path / "train.jsonl", orient="records", lines=True
    )
    pd.DataFrame({"sentence": SENTENCES[:1]}).to_json(
        tmp_path / "validation.jsonl", orient="records", lines=True
    )
    corpus = load_corpus(tmp_path)
    assert corpus.name == tmp_path.name
    assert corpus.examples.ids == (*(f"train-{row}" for row in range(4)), "validation-0")
    assert corpus.examples.texts == (*SENTENCES, SENTENCES[0])


@pytest.mark.assets
def test_a_named_task_is_read_whole():
    examples = load_corpus("rt").examples
    task = load_task("rt", TaskOptions(train_size=64, heldout_size=32))
    assert examples.ids[:2] == ("rt-0", "rt-1")
    assert {*task.train.ids, *task.heldout.ids} <= {*examples.ids}
    assert len(examples) == 8530
    stsb = load_corpus("stsb").examples
    assert {name.partition("-")[0] for name in stsb.ids} == {"train", "dev"}


def test_what_a_corpus_does_not_have_is_refused(tmp_path, sentences, review_task, pieces):
    with pytest.raises(
        UserError, match=r"corpus\.txt: wanted labels, .*`extract\(split='all'\)` reads"
    ):
        load_task(sentences)
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"caf\xe9")
    for name, options, message in (
        (sentences, TaskOptions(train_size=3), "train_size: wanted none with split='all'"),
        (sentences, TaskOptions(label_column="x"), "label_column: wanted none with split='all'"),
        (tmp_path / "none.txt", None, "none.txt: wanted a data file, found no such file"),
        (empty, None, "empty.txt: wanted rows, found none"),
        (latin, None, "latin.txt: wanted a file of sentences in UTF-8, found: 'utf-8' codec"),
        (review_task, None, "split='all': wanted the name of a task or file, found task"),
    ):
        with pytest.raises(UserError, match=message):
            load_corpus(name, options)
    with pytest.raises(UserError, match="split='some': wanted heldout, train or all"):
        extract(pieces, review_task, tmp_path / "reps", split="some")


def test_one_split_of_a_data_set_is_a_corpus(tmp_path):
    for split, text in (("train", "a plot"), ("validation", "a film"), ("test", "an actor")):
        pd.DataFrame({"text": [text]}).to_csv(tmp_path / f"{split}.csv", index=False)
    assert load_corpus(tmp_path, TaskOptions(corpus_split="validation")).examples.texts == (
        "a film",
    )
    assert len(load_corpus(tmp_path).examples.texts) == 3
    with pytest.raises(UserError, match=r"'dev': wanted a split of task .*test, train, validation"):
        load_corpus(tmp_path, TaskOptions(corpus_split="dev"))
    with pytest.raises(UserError, match="corpus_split='validation': wanted none without split"):
        load_task(tmp_path, TaskOptions(corpus_split="validation"))
    with pytest.raises(UserError, match="wanted a data set with splits, found"):
        load_corpus(tmp_path / "train.csv", TaskOptions(corpus_split="validation"))


def test_a_table_of_texts_has_no_splits(tmp_path):
    pd.DataFrame({"text": ["a plot", "a film", "an actor"]}).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(UserError, match="corpus_split='test': wanted none without split='all'"):
        load_texts(tmp_path / "a.csv", TaskOptions(corpus_split="test"))
