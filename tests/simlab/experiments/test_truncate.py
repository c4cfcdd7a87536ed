"""Truncation: untuned, tuned and tuned-orig, from the command to the figure."""

import numpy as np
import pandas as pd
import pytest
import torch

from simlab import TaskOptions, load_task, plot, read_results
from simlab.errors import UserError
from simlab.experiments.truncate import MODES, TruncationOptions, cut_model, truncation_rows
from simlab.figures.curves import plot_truncation
from simlab.figures.table import complete
from simlab.models.batches import batches
from simlab.models.checkpoint import Checkpoint
from simlab.models.evaluate import LayerReader, predict_logits
from simlab.models.heads import HeadRecipe
from simlab.models.load import load_classifier, load_tokenizer
from simlab.models.states import apply_head
from simlab.models.tokens import encode
from simlab.results.results import TRUNCATIONS, Side
from support.lab.checkpoints import write_evaluation
from support.lab.commandline import check_refused
from support.lab.tinyclassifiers import choice_task, save_classifier
from support.lab.tinymodels import BAD, COLUMNS, FILLER, GOOD, LAYERS
from support.tolerance import assert_same_forward

QUICK = HeadRecipe(most_steps=10, steps_between=5)
OPTIONS = TruncationOptions(recipe=QUICK)


def truncated_logits(source, task, max_length):
    return cut_model(source, task, max_length, "untuned", OPTIONS).logits


def test_heads_get_the_rows_that_their_steps_can_read(tmp_path, review_task, monkeypatch):
    """Vectors of more rows, of all layers, would only fill the memory."""
    source = save_classifier(tmp_path / "bert", "bert", review_task)
    seen = []
    gather = LayerReader.gather

    def spy(self, function, description, *examples):
        seen.extend(examples)
        return gather(self, function, description, *examples)

    monkeypatch.setattr(LayerReader, "gather", spy)
    train = review_task.train
    for share, rows in ((0.0, 12), (0.5, 24)):
        few = HeadRecipe(most_steps=3, batch_size=4, validation_share=share)
        assert len(train) > few.most_rows == rows
        cut_model(source, review_task, 64, "tuned", TruncationOptions(recipe=few))
        drawn, heldout = seen[-2:]
        assert (len(drawn), len(heldout)) == (rows, len(review_task.heldout))
        place = {name: number for number, name in enumerate(train.ids)}
        for name, text, label in zip(drawn.ids, drawn.texts, drawn.labels, strict=True):
            assert (text, label) == (train.texts[place[name]], train.labels[place[name]])
        assert drawn.ids != train.ids[:rows]
    all_read = HeadRecipe(most_steps=len(train), batch_size=1, validation_share=0.0)
    cut_model(source, review_task, 64, "tuned", TruncationOptions(recipe=all_read))
    assert seen[-2] is review_task.train


def test_bert_head_is_pooler_dropout_classifier(tmp_path, review_task):

    source = save_classifier(tmp_path / "bert", "bert", review_task)
    model, tokenizer = load_classifier(source), load_tokenizer(source)
    _, batch = next(batches(tokenizer, encode(tokenizer, review_task.heldout, 64), 8, "cpu"))
    with torch.inference_mode():
        for states in model(**batch, output_hidden_states=True).hidden_states:
            by_hand = model.classifier(model.bert.pooler(states))
            assert torch.equal(apply_head(model, states, batch["attention_mask"]), by_hand)
        assert torch.equal(model(**batch).logits, by_hand)  # the blocks are back in place


def test_a_head_of_another_size_is_refused(tmp_path, review_task):
    source = save_classifier(tmp_path / "bert", "bert", review_task)
    table = tmp_path / "three.csv"
    table.write_text("text,label\n" + "".join(f"the film {i},{i % 3}\n" for i in range(30)))
    for mode in ("untuned", "tuned"):
        with pytest.raises(UserError, match="wanted a head with 3 outputs, found 2"):
            cut_model(source, load_task(str(table)), 64, mode, OPTIONS)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, review_task, tiny_bert):
    """A checkpoint that says what it was fine-tuned from."""
    folder = tmp_path_factory.mktemp("checkpoints") / "ft"
    source = save_classifier(folder, "bert", review_task)
    write_evaluation(folder, model=str(tiny_bert.path))
    return source


def test_tuned_heads_learn_and_begin_with_the_model_s_own(checkpoint, review_task):
    recipe = HeadRecipe(most_steps=200, steps_between=20, batch_size=16)
    tuned = cut_model(checkpoint, review_task, 64, "tuned", TruncationOptions(recipe=recipe))
    untuned = truncated_logits(checkpoint, review_task, 64)
    truth = review_task.heldout.labels
    better = [(logits.argmax(1) == truth).mean() for logits in tuned.logits]
    before = [(logits.argmax(1) == truth).mean() for logits in untuned]
    assert tuned.logits.shape == untuned.shape == (LAYERS + 1, 32, 2)
    assert max(better[1:]) > max(before[1:])
    still = TruncationOptions(recipe=HeadRecipe(most_steps=1, learning_rate=0.0))
    start = cut_model(checkpoint, review_task, 64, "tuned", still).logits
    assert_same_forward(start, untuned)


def test_a_warm_up_of_heads_that_outlasts_their_training_is_told(checkpoint, review_task, capfd):
    told = "note: head_warmup=8: heads are trained for 2 steps, up to 25.0% of the learning rate"
    for mode, warmup, wanted in (("tuned", 8, True), ("tuned", 2, False), ("untuned", 8, False)):
        recipe = HeadRecipe(most_steps=2, warmup=warmup)
        options = TruncationOptions(modes=(mode,), recipe=recipe)
        truncation_rows(checkpoint, review_task, 64, Side("FT"), options)
        assert (told in " ".join(capfd.readouterr().err.split())) is wanted


def test_tuned_orig_reads_the_model_before_fine_tuning(checkpoint, review_task, tiny_bert):
    still = HeadRecipe(most_steps=1, learning_rate=0.0, seed=3)
    options = TruncationOptions(recipe=still)
    found = cut_model(Checkpoint.open(checkpoint), review_task, 64, "tuned-orig", options).logits
    fresh = load_classifier(tiny_bert, review_task, seed=3)
    wanted = predict_logits(fresh, load_tokenizer(tiny_bert), review_task.heldout, 64)
    assert_same_forward(found[-1], wanted)


def test_vectors_have_to_fit_into_what_simcore_finds_free(checkpoint, review_task, monkeypatch):
    monkeypatch.setattr("simcore.free_memory", lambda *where: 1e9 if where else 4000)
    with pytest.raises(UserError, match=r"train_size: .* found [\d,]+ bytes .* and 4,000 bytes"):
        cut_model(checkpoint, review_task, 64, "tuned", OPTIONS)


@pytest.mark.parametrize(
    "kind", ["regression", "choices", pytest.param("pair", marks=pytest.mark.deep)]
)
def test_every_kind_of_task_in_every_mode(tmp_path, tiny_bert, kind):
    if kind == "choices":
        task = choice_task()
    else:
        table = tmp_path / "table.csv"
        labels = [i % 2 if kind == "pair" else i / 8 for i in range(40)]
        words = [f"{FILLER[i % 12]} {BAD[i % 5]},{GOOD[i % 4 + 1]}" for i in range(40)]
        rows = [f"{text},{label}" for text, label in zip(words, labels, strict=True)]
        table.write_text("text,pair,label\n" + "\n".join(rows))
        task = load_task(str(table), TaskOptions(pair_column="pair"))
    source = save_classifier(tmp_path / "ft", "bert", task)
    options = TruncationOptions(MODES, str(tiny_bert.path), recipe=QUICK)
    rows = truncation_rows(source, task, 64, Side("FT"), options)
    assert [(row.experiment, row.layer_x) for row in rows] == [
        (name, layer) for name in TRUNCATIONS.values() for layer in range(LAYERS + 1)
    ]
    assert {row.measure for row in rows} == {task.metric}
    # The classifier token is the same in every text before the first layer: no rank correlation.
    undefined = [np.isnan(row.value) for row in rows]
    assert undefined == [kind == "regression" and row.layer_x == 0 for row in rows]
    whole = predict_logits(load_classifier(source), load_tokenizer(source), task.heldout, 64)
    assert np.array_equal(truncated_logits(source, task, 64)[-1], whole)


def test_the_command_in_all_modes_and_its_figure(tmp_path, simcore, checkpoint, reviews):
    out = tmp_path / "results" / "t.parquet"
    modes = [argument for mode in MODES for argument in ("--mode", mode)]
    arguments = ("truncate", checkpoint.path, reviews, *COLUMNS, *modes, "--head-most-steps", 10)
    code, printed, _ = simcore(*arguments, "--label", "FT[1]", "--out", out)
    assert code == 0
    assert f"{out}: written" in printed
    assert "done before" in simcore(*arguments, "--label", "FT[1]", "--out", out)[1]
    frame = read_results(out)
    curves = frame[frame["experiment"].isin(TRUNCATIONS.values())]
    assert len(curves) == 3 * (LAYERS + 1)
    assert curves["options"].isna().sum() == LAYERS + 1
    (file,) = plot(frame, tmp_path / "figures", ("png",))
    assert file.name == "reviews-truncation.png"
    one = curves.assign(seed_x=1, base_x="bert")
    other = one.assign(label_x="FT[2]", seed_x=2, value=curves["value"] + 0.1)
    (axis,) = plot_truncation(complete(pd.concat([one, other])), frame.iloc[:0]).axes
    lines = {line.get_label(): line.get_ydata() for line in axis.lines}
    for mode, name in TRUNCATIONS.items():
        mean = one.loc[one["experiment"] == name, "value"].to_numpy() + 0.05
        np.testing.assert_allclose(lines[mode], mean)
    assert "mean of 2 seeds" in [text.get_text() for text in axis.texts]


def test_mistakes_leave_nothing(tmp_path, simcore, checkpoint, reviews, tiny_bert):
    out = tmp_path / "out.parquet"
    start = ("truncate", checkpoint.path, reviews, *COLUMNS)
    cases = [
        ((*start,), "--out"),
        (
            (*start, "--mode", "tune", "--out", out),
            "--mode tune (did you mean 'tuned'?): wanted one of untuned, tuned",
        ),
        ((*start, "--mode", "tuned", "--mode", "tuned", "--out", out), "wanted each once"),
        ((*start, "--mode", "tuned-orig", "--original", "a/b/c", "--out", out), "a/b/c"),
        (("truncate", tiny_bert.path, reviews, *COLUMNS, "--out", out), "simcore finetune"),
    ]
    for arguments, message in cases:
        check_refused(simcore(*arguments), message)
    assert not list(tmp_path.iterdir())
