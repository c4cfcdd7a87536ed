"""From names to an answer: which layers match, by which rows, and what is written."""

import numpy as np
import pytest

from simlab import compare
from simlab.answers.compare import Matches
from simlab.errors import UserError
from support.lab.tinymodels import LETTERS, save_tiny_model

TEXTS = [
    f"{one} film with {two} scenes" for one in ("dull", "bright", "flat") for two in "abcdefgh"
]
FAST = {"bootstrap": 0, "permutations": 0}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two BERTs that differ from the second block on, and a GPT-2 with another tokenizer."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = tmp_path_factory.mktemp("named")
    save_tiny_model(folder / "a", pieces=LETTERS, initializer_range=0.5)
    model = AutoModel.from_pretrained(folder / "a")
    with torch.no_grad():
        model.encoder.layer[1].output.dense.weight.add_(torch.randn(24, 32) * 2)
    model.save_pretrained(folder / "b")
    AutoTokenizer.from_pretrained(folder / "a").save_pretrained(folder / "b")
    save_tiny_model(folder / "gpt", "gpt2", LETTERS)
    return folder


def test_two_names_give_matches_a_picture_results_and_a_page(models, tmp_path, simcore):
    (tmp_path / "some.txt").write_text("\n".join(TEXTS))
    words = (models / "a", models / "b", tmp_path / "some.txt", "--out", tmp_path / "out")
    draws = ("--bootstrap", "20", "--permutations", "20", "--measure", "cka", "--measure", "rsa")
    code, printed, _ = simcore("compare", *map(str, words), *draws)
    assert code == 0
    lines = printed.splitlines()
    assert lines[0] == "rows are tokens: all models read the same"
    assert lines[2].startswith("a x b: cka (unbiased), n = ")
    assert "the same layers match to two digits: 0-1" in lines
    assert any(line.startswith("the same layers differ: 2-3, most in ") for line in lines)
    assert {"95", "calibrated"} <= {*lines[3].split()}
    written = {
        file.relative_to(tmp_path / "out").as_posix() for file in (tmp_path / "out").rglob("*.*")
    }
    assert {"report.html", "results/a-b-cka.parquet", "results/a-b-rsa.parquet"} <= written
    assert sum(name.startswith("figures/") for name in written) == 2
    again = ("--bootstrap", "0", "--measure", "rsa", "--limit", "2", "--overwrite")
    code, _, errors = simcore("compare", *map(str, words), *again)
    assert code == 0
    assert errors[-1].endswith("holds results of other comparisons too: a-b-cka.parquet")


def test_more_names_give_all_pairs_and_other_tokenizers_share_words(models, tmp_path):
    found = compare(models / "a", models / "b", models / "gpt", TEXTS, out=tmp_path, **FAST)
    assert [(m.x, m.y) for m in found.matches] == [("a", "b"), ("a", "gpt"), ("b", "gpt")]
    assert found.rows.startswith("rows are words between spaces")
    assert found.matches[0].n == sum(len(text.split()) for text in TEXTS)
    assert found.matches[0].same == [0, 1]


def test_stored_layers_decide_the_rows(models, tmp_path):
    first = compare(models / "a", models / "b", TEXTS, out=tmp_path / "1", kind="mean", **FAST)
    stored = tmp_path / "1" / "layers"
    mixed = compare(stored / "a", models / "b", TEXTS, out=tmp_path / "2", **FAST)
    alone = compare(stored / "a", stored / "b", out=tmp_path / "3", **FAST)
    for other in (mixed, alone):
        np.testing.assert_array_equal(other.matches[0].values, first.matches[0].values)
    with pytest.raises(UserError, match="different labels, found a, a"):
        compare(stored / "a", stored / "a", out=tmp_path / "4", **FAST)


def test_without_texts_the_models_read_the_sample(models, tmp_path, simcore):
    words = ("compare", models / "a", models / "a", "--out", tmp_path, "--limit", 20)
    code, printed, errors = simcore(*map(str, words), "--bootstrap", "0", "--permutations", "0")
    assert code == 0
    assert "a x a (2)" in printed.replace(str(models) + "/", "")
    assert "the same layers match to two digits: 0-3" in printed
    assert any("sentences that ship" in line for line in errors)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("a",), "wanted two models or more"),
        (("a", "b", "nowhere.txt"), "nowhere.txt: wanted a file of texts, found no such file"),
        (("a", "b", ["one", 2]), "wanted texts, the name of a task or a file, found int"),
        (("a", "b", []), "found none"),
    ],
)
def test_a_wrong_call_is_one_message(models, tmp_path, given, message):
    names = [models / one if one in {"a", "b"} else one for one in given[:2]]
    with pytest.raises(UserError, match=message):
        compare(*names, *given[2:], out=tmp_path, **FAST)


def matches(values, **changed):
    values = np.array(values, float)
    lacking = np.full(values.shape, np.nan)
    layers = [tuple(range(size)) for size in values.shape]
    tables = {"low": lacking, "high": lacking, "pvalue": lacking, "calibrated": lacking}
    facts = {"is_distance": False, "n": 9, **tables, **changed}
    return Matches("A", "B", "m", *layers, values, **facts)


def test_layers_match_where_each_is_the_closest_of_the_other():
    found = matches([[0.9, 0.5, np.nan], [0.8, 0.6, 0.7], [np.nan] * 3])
    assert found.closest == {0: 0, 1: 0}
    assert found.pairs == {0: 0}
    assert "undefined" in str(found)
    assert "nobody's closest in return: 1-2 of A" in str(found)
    by_chance = matches([[0.9, 0.5], [0.8, 0.6]], pvalue=np.full((2, 2), 0.5))
    assert by_chance.pairs == {}


def test_of_a_distance_the_smallest_value_is_closest():
    found = matches([[0.001, 0.5], [0.3, 0.2]], is_distance=True)
    assert (found.pairs, found.same) == ({0: 0, 1: 1}, [0])


def test_small_distances_are_shares_of_the_largest():
    """Those of IMD are thousandths of the width of a layer, and all were .000."""
    found = matches([[2e-7, 4e-5], [3e-5, 2e-5]], is_distance=True)
    assert found.same == [0]
    assert "2.00e-05" in str(found)
    assert matches(np.zeros((2, 2)), is_distance=True).same == [0, 1]
    assert "0.050" in str(matches([[0.05]]))  # a similarity is nearly none


def test_the_nearer_end_of_an_interval_decides_whether_layers_match():
    values = [[0.99, 0.0], [0.0, 0.99]]
    high = np.array([[0.996, 0.1], [0.1, 0.994]])
    assert matches(values, high=high, low=high - 0.1).same == [0]
