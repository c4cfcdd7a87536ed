"""Injection: maps fitted on means, random classifiers, and several pairs."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from simlab import inject, read_results
from simlab.errors import UserError
from simlab.experiments import options as tuning
from simlab.experiments.inject import _find_original
from simlab.experiments.injection import InjectionPair
from simlab.experiments.options import InjectOptions, third_split
from simlab.models.checkpoint import Checkpoint
from simlab.models.evaluate import predict_logits, predictions_of
from simlab.models.load import load_classifier, load_tokenizer
from simlab.models.sources import resolve
from simlab.models.states import layer_states
from simlab.results.results import Side
from simlab.tasks import Examples, Task
from support.lab.checkpoints import write_evaluation
from support.lab.commandline import check_refused
from support.lab.tinymodels import COLUMNS, save_tiny_classifier, save_tiny_decoder
from support.tolerance import assert_same_forward


@pytest.fixture(scope="module")
def pair_of_models(tmp_path_factory, review_task):
    folder = tmp_path_factory.mktemp("inject")
    return [save_tiny_classifier(folder / f"m{seed}", "bert", review_task, seed) for seed in (1, 2)]


@pytest.mark.parametrize(
    "fit_on,tokens", [("mean", "cls"), ("mean-all", "all"), ("tokens", "cls"), ("tokens", "all")]
)
def test_maps_are_fitted_on_rows_in_the_order_of_the_examples(
    pair_of_models, review_task, fit_on, tokens
):
    """Each row is the mean over the tokens of a text, or one of the tokens that are replaced."""
    options = InjectOptions(2, tokens=tokens, fit_on=fit_on, max_length=20)
    states, few = InjectionPair(*pair_of_models, review_task, options), review_task.train.head(9)
    rows = states.fit_rows(few)
    tokenizer = load_tokenizer(pair_of_models[0])
    chosen = {
        "mean": lambda of_text: of_text[1:-1].mean(0, keepdim=True),
        "mean-all": lambda of_text: of_text.mean(0, keepdim=True),
        "tokens": lambda of_text: of_text[:1] if tokens == "cls" else of_text,
    }[fit_on]
    for model, found in ((states.a, rows.x), (states.b, rows.y)):
        wanted = []
        for text in few.texts:
            batch = tokenizer(text, max_length=20, truncation=True, return_tensors="pt")
            with torch.no_grad():
                wanted.append(chosen(layer_states(model, batch)[2][0]))
        assert_same_forward(found, torch.cat(wanted))
    if fit_on != "tokens":  # noise has the spread of the tokens that are replaced, not of the means
        count = 9 if tokens == "cls" else sum(len(ids) for ids in tokenizer(few.texts)["input_ids"])
        assert rows.injected.shape == (count, 24)


def test_a_text_without_a_token_to_average_is_named(pair_of_models, review_task):
    states = InjectionPair(*pair_of_models, review_task, InjectOptions(2, fit_on="mean"))
    with pytest.raises(UserError, match=r"fit_on='mean': wanted a token to average.* example b"):
        states.fit_rows(Examples(("a", "b"), ("the", ""), None, np.array([0, 1])))


def test_in_multiple_choice_every_choice_has_a_mean(tmp_path):
    texts, answers = ("the film is", "a plot"), (("dull", "bright and fresh"), ("flat", "funny"))
    examples = Examples(("a", "b"), texts, None, np.array([0, 1]), answers)
    task = Task("choices", examples, examples, ("0", "1"))
    source = save_tiny_classifier(tmp_path / "choices", "bert", task)
    states = InjectionPair(source, source, task, InjectOptions(2, fit_on="mean"))
    rows, tokenizer, wanted = states.fit_rows(examples), load_tokenizer(source), []
    for text, answer in zip(texts, answers, strict=True):
        for choice in answer:
            encoded = tokenizer(text, choice, return_tensors="pt")
            in_text = torch.tensor([one is not None for one in encoded.sequence_ids(0)])
            with torch.no_grad():
                wanted.append(layer_states(states.a, encoded)[2][0, in_text].mean(0))
    assert_same_forward(rows.x, torch.stack(wanted))
    assert_same_forward(rows.y, torch.stack(wanted))


def evaluated(folder, original, seed=None):
    """Write the record of a fine-tuning, as far as injections read it."""
    recipe = {"max_length": 64} if seed is None else {"max_length": 64, "seed": seed}
    write_evaluation(folder, model=str(original), recipe=recipe)


def test_a_random_classifier_is_the_pretrained_model_with_a_new_head(
    tmp_path, capfd, review_task, tiny_bert
):
    a, b, twice = (
        save_tiny_classifier(tmp_path / n, "bert", review_task, 9) for n in ("a", "b", "c")
    )
    evaluated(b.path, tiny_bert.path, seed=3)
    evaluated(twice.path, b.path)
    options = InjectOptions(methods=("random-classifier",))
    (outcome,) = inject([a, b], review_task, tmp_path / "b.parquet", options)
    row = read_results(outcome.path).iloc[0]
    pair = InjectionPair(a, b, review_task, options, tiny_bert)
    fresh = load_classifier(tiny_bert, review_task, seed=pair.draw_seed)
    logits = predict_logits(fresh, load_tokenizer(tiny_bert), review_task.heldout, 64)
    assert np.array_equal(pair._fresh_logits(), logits)
    assert row["value"] == review_task.score(
        predictions_of(logits, review_task), review_task.heldout.labels
    )
    assert (row["seed_x"] is pd.NA, row["seed_y"]) == (True, 3)
    # The model before all fine-tuning, not the last one, which has a trained head.
    assert _find_original(Checkpoint.open(twice), options).fingerprint == tiny_bert.fingerprint
    with pytest.raises(UserError, match=r"original: wanted the model before fine-tuning"):
        inject([b, a], review_task, tmp_path / "a.parquet", options)
    assert _find_original(Checkpoint.open(a), InjectOptions()) is None
    assert "note: random-classifier is left out: original: wanted" in capfd.readouterr().err


@pytest.fixture(scope="module")
def three_models(tmp_path_factory, review_task):
    folder = tmp_path_factory.mktemp("pairs")
    for seed in (1, 2, 3):
        evaluated(
            save_tiny_classifier(folder / f"m{seed}", "bert", review_task, seed).path, "x", seed
        )
    return folder


FAST = ("--method", "itself", "--method", "identity", "--method", "random-labels")


def test_several_pairs_are_a_file_each(simcore, tmp_path, three_models, reviews):
    models = [three_models / f"m{seed}" for seed in (1, 2, 3)]
    common = [*COLUMNS, *FAST]
    out = tmp_path / "pairs"
    assert simcore("inject", *models, reviews, *common, "--out", out)[0] == 0
    frame = read_results(out)
    pairs = {(x, y) for x in (1, 2, 3) for y in (1, 2, 3) if x != y}
    assert set(zip(frame["seed_x"], frame["seed_y"], strict=True)) == pairs
    assert len(frame) == 6 * 3
    alone = tmp_path / "one.parquet"
    assert simcore("inject", *models[:2], reviews, *common, "--out", alone)[0] == 0
    mine = frame[(frame["seed_x"] == 1) & (frame["seed_y"] == 2)].reset_index(drop=True)
    pd.testing.assert_frame_equal(mine, read_results(alone))
    # A killed call goes on with the pairs that are missing.
    times = {file: file.stat().st_mtime_ns for file in sorted(out.iterdir())}
    first = next(iter(times))
    first.unlink()
    assert simcore("inject", *models, reviews, *common, "--out", out)[0] == 0
    changed = [file for file, time in times.items() if file.stat().st_mtime_ns != time]
    assert changed == [first]
    pd.testing.assert_frame_equal(read_results(out), frame)


def test_pairs_are_drawn_or_chosen(three_models, review_task, tmp_path):
    def made(**options):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        step = inject(
            [f"{three_models}/m{{1..3}}"], review_task, folder, methods=("itself",), **options
        )
        frame = read_results(folder)
        assert len(step) == len(frame)
        return list(zip(frame["label_x"].str[-2:], frame["label_y"].str[-2:], strict=True))

    assert made(into=[three_models / "m3"]) == [("m1", "m3"), ("m2", "m3")]
    assert made(into=[three_models / "m3"], label=["m9", "m8", "m7"])[0] == ("m8", "m7")
    assert len(made(into=[three_models / "m3"], pairs=1)) == 1
    assert made(directions="one") == [("m1", "m2"), ("m1", "m3"), ("m2", "m3")]
    first = made(pairs=1)
    assert [pair[::-1] for pair in reversed(first)] == first
    draws = [tuple(made(pairs=1, pair_seed=seed, directions="one")) for seed in range(3)]
    assert len(set(draws)) > 1


def test_bad_pairs_are_named(simcore, tmp_path, three_models, reviews):
    models = [three_models / f"m{seed}" for seed in (1, 2, 3)]

    def refused(text, *arguments, out="pairs"):
        check_refused(
            simcore("inject", *arguments, reviews, *COLUMNS, *FAST, "--out", tmp_path / out), text
        )
        assert not (tmp_path / out).exists()

    refused("inject: wanted two models or more, found", models[0])
    refused("--pairs 4: wanted 1 to 3, the pairs of 3 models", *models, "--pairs", 4)
    refused("--pairs 8: wanted 1 to 1", *models[:2], "--pairs", 8, out="x.parquet")
    refused("--directions x: wanted one of both, one", *models, "--directions", "x")
    refused("--pairs 3: wanted 1 to 2", *models, "--into", models[0], "--pairs", 3)
    refused("wanted a folder for the results of several pairs", *models, out="x.parquet")
    refused("--label: wanted 3 labels, one for each of", *models, "--label", "A")
    refused("--label: wanted another label for each model", *models, *(("--label", "A") * 3))
    refused("--label: wanted 2 labels, one for each of", *models[:2], "--label", "A")


def test_a_finished_file_stays_done_where_the_original_cannot_be_found(
    tmp_path, capfd, review_task, tiny_bert
):
    a, b = (save_tiny_classifier(tmp_path / n, "bert", review_task, 9) for n in ("a", "b"))
    moved = tmp_path / "original"
    shutil.copytree(tiny_bert.path, moved)
    evaluated(b.path, moved)
    out = tmp_path / "injection.parquet"
    (outcome,) = inject([a, b], review_task, out, methods=None, fit_size=40, epochs=1)
    assert "random-classifier" in read_results(outcome.path)["options"].str.cat()
    shutil.rmtree(moved)
    assert inject([a, b], review_task, out, methods=None, fit_size=40, epochs=1)[0].skipped
    assert "left out" not in capfd.readouterr().err


def test_neither_model_is_given_padding_where_one_reads_it(
    pair_of_models, review_task, monkeypatch, tmp_path
):
    """Texts of equally many tokens of B may have different numbers of tokens of A."""
    monkeypatch.setattr("simlab.experiments.injection.reads_padding", lambda *_, **__: True)
    states = InjectionPair(*pair_of_models, review_task, InjectOptions(2, max_length=20))
    examples = review_task.train
    folder = save_tiny_decoder(tmp_path / "other", list(examples.texts))
    states.tokenizers = (load_tokenizer(resolve(str(folder))), states.tokenizers[1])
    seen = []
    for rows, *both in states._batches(examples, ""):
        seen += rows.tolist()
        assert all(batch["attention_mask"].all() for batch in both)
    assert sorted(seen) == list(range(len(examples)))


def test_the_best_setting_of_each_map_is_searched_on_a_third_split(
    pair_of_models, review_task, monkeypatch
):
    """Settings are judged on rows of other examples than they are fitted on; all rows fit the best.

    With tokens of all, an example has several rows, which stay together.
    """
    monkeypatch.setitem(tuning.SETTINGS, "linear", ({"ridge": 1e6}, {"ridge": 1.0}))
    options = InjectOptions(2, ("linear", "cca", "identity"), tokens="all", max_length=20, tune=2)
    models = InjectionPair(*pair_of_models, review_task, options)
    fits = []
    fit = InjectionPair._aligner

    def remembered(self, method, setting):
        aligner = fit(self, method, setting)
        kept = aligner.fit
        aligner.fit = lambda x, y: (fits.append((method, setting, len(x))), kept(x, y))[1]
        return aligner

    monkeypatch.setattr(InjectionPair, "_aligner", remembered)
    rows = [json.loads(row.options) for row in models.rows(Side("A", 1), Side("B", 2))]
    by_method = {row["method"]: row for row in rows}
    assert by_method["linear"]["chosen"] == {"ridge": 1.0}
    assert by_method["linear"]["tune"] == 2
    assert by_method["cca"]["chosen"] == {}
    assert "chosen" not in by_method["identity"]
    assert {row["tune"] for row in rows} == {2}  # one panel of a figure has all methods

    every = models.fit_rows(review_task.train)
    rows_of_fit, validation = third_split(every.example, options.seed)
    assert not set(every.example[rows_of_fit]) & set(every.example[validation])
    assert len(set(every.example)) == len(review_task.train) < len(every.x)
    part, whole = len(rows_of_fit), len(every.x)
    linear = [one[1:] for one in fits if one[0] == "linear"]
    assert linear == [({"ridge": 1e6}, part), ({"ridge": 1.0}, part), ({"ridge": 1.0}, whole)]
    assert [one[2] for one in fits if one[0] == "cca"] == [whole]  # it has one setting


def test_a_search_has_rows_to_validate_on(pair_of_models, review_task):
    options = InjectOptions(2, ("linear",), fit_size=4, tune=2)
    with pytest.raises(UserError, match="tune: wanted 2 examples or more to validate on, found 1"):
        InjectionPair(*pair_of_models, review_task, options).rows(Side("A", 1), Side("B", 2))
