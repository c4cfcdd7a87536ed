"""Pretraining: learns, loads with plain from_pretrained, and continues where it was killed."""

import numpy as np
import pytest

from simlab import TaskOptions, finetune, load_task, pretrain
from simlab.errors import UserError
from simlab.models.load import load_tokenizer
from simlab.models.sources import resolve
from simlab.store.files import hash_file
from simlab.tasks.corpus import HELD_OUT_EVERY, load_texts
from simlab.training.language import common_words, token_counts
from simlab.training.pretrain import read_pretraining
from support.lab.commandline import check_refused

pytestmark = pytest.mark.assets  # MiniLM's words and the sentences of Rotten Tomatoes

FEW = TaskOptions(train_size=200, heldout_size=60)
SIZE = {"layers": 2, "hidden": 16, "heads": 2, "vocabulary": 300}
TRAINING = {"max_steps": 24, "batch_size": 16, "max_length": 32, "learning_rate": 1e-2, "seed": 3}
OPTIONS = [
    f"--{name.replace('_', '-')}={value}"
    for name, value in {**SIZE, **TRAINING, "train_size": 200, "heldout_size": 60}.items()
]


def weights_hash(folder):
    return hash_file(folder / "model.safetensors")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A model from one run without a break."""
    folder = tmp_path_factory.mktemp("pretrained") / "whole"
    pretrain("rt", folder, task_options=FEW, **SIZE, **TRAINING)
    return folder


def test_it_learns_the_words_and_says_what_they_alone_would_give(whole, tmp_path):
    found = read_pretraining(whole)
    least = pretrain(
        "rt", tmp_path / "short", task_options=FEW, **SIZE, **TRAINING | {"max_steps": 1}
    )
    start = read_pretraining(least.path)
    assert start["unigram_loss"] == found["unigram_loss"] < np.log(300)
    assert start["loss"] == pytest.approx(np.log(300), rel=0.05)
    assert found["loss"] < start["loss"] - 0.5
    assert found["n"] == start["n"] > 100
    assert (found["words"], found["steps"]) == (300, 24)
    assert not (whole / "trainer").exists()


def test_the_loss_is_that_of_the_model_and_masks_are_of_the_rows(whole):
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    from simlab.training.language import Masking, prediction_scores, windows

    model = AutoModelForMaskedLM.from_pretrained(whole).eval()
    tokenizer = AutoTokenizer.from_pretrained(whole)
    rows = windows(tokenizer, load_texts("rt", FEW).heldout, 16)
    batches = [[rows[0], rows[1], rows[2]], [rows[3], rows[4]]]
    masking = Masking(tokenizer, mlm_probability=0.3, seed=5)
    first, _, again = (masking(batches[number]) for number in (0, 1, 0))
    assert all(torch.equal(first[name], again[name]) for name in first)
    other = Masking(tokenizer, mlm_probability=0.3, seed=6)(batches[0])
    assert not torch.equal(first["labels"], other["labels"])
    elsewhere = masking([{**row, "row": row["row"] + 100} for row in batches[0]])
    assert not torch.equal(first["labels"], elsewhere["labels"])
    scores = prediction_scores(model, rows[:3], masking, 3, np.zeros(len(tokenizer)))
    assert scores["n"] == int((first["labels"] != -100).sum())
    assert scores["loss"] == pytest.approx(model(**first).loss.item(), rel=1e-4)
    assert scores["unigram_loss"] == pytest.approx(np.log(len(tokenizer)))


def test_long_texts_become_several_rows(whole):
    from simlab.training.language import windows

    tokenizer = load_tokenizer(resolve(whole))
    texts = load_texts("rt", FEW).heldout
    rows = windows(tokenizer, texts, 12)
    assert max(len(row["input_ids"]) for row in rows) == 12
    found = [i for row in rows for i in row["input_ids"][1:-1]]
    assert found == [i for ids in tokenizer(list(texts))["input_ids"] for i in ids[1:-1]]


def test_a_run_broken_off_in_an_epoch_ends_with_the_same_weights(tmp_path, whole, monkeypatch):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 22:  # saved at 18, in the second epoch
            raise KeyboardInterrupt

    monkeypatch.setattr("simlab.training.trainer.ShowProgress.on_step_end", on_step_end)
    out = tmp_path / "broken"
    with pytest.raises(KeyboardInterrupt):
        pretrain("rt", out, task_options=FEW, **SIZE, **TRAINING)
    kept = tmp_path / "broken.partial" / "trainer"
    assert [path.name for path in kept.iterdir()] == ["checkpoint-18"]
    monkeypatch.undo()
    pretrain("rt", out, task_options=FEW, **SIZE, **TRAINING)
    assert weights_hash(out) == weights_hash(whole)


def test_the_command_makes_a_model_of_every_seed_with_the_same_words(
    simcore, tmp_path, whole, monkeypatch
):
    read = []
    monkeypatch.setattr(
        "simlab.tasks.corpus.load_task", lambda *given: read.append(given) or load_task(*given)
    )
    options = [option for option in OPTIONS if not option.startswith("--seed")]
    out = tmp_path / "mini"
    code, printed, errors = simcore("pretrain", "rt", *options, "--seeds", "3,4", "--out", out)
    assert (code, errors) == (0, [])
    assert printed.count("held-out loss") == 2
    assert len(read) == 1
    assert weights_hash(out / "seed-3") == weights_hash(whole)
    assert resolve(out / "seed-3").fingerprint == resolve(whole).fingerprint
    assert weights_hash(out / "seed-4") != weights_hash(whole)
    vocabularies = [
        load_tokenizer(resolve(out / name)).get_vocab() for name in ("seed-3", "seed-4")
    ]
    assert vocabularies[0] == vocabularies[1] == load_tokenizer(resolve(whole)).get_vocab()
    assert "done before" in simcore("pretrain", "rt", *options, "--seeds", "3", "--out", out)[1]
    tuned = finetune(
        out / "seed-3", load_task("rt", FEW), tmp_path / "ft", max_steps=1, max_length=32
    )
    assert (tuned.path / "model.safetensors").is_file()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["rt", "--objective", "next"], "--objective next: wanted one of masked, causal"),
        (
            ["rt", "--epochs", 2, "--keep-steps", 3],
            "--keep-steps: wanted --max-steps without --epochs, because the last step is then known"
            ", found --epochs 2.0",
        ),
        (
            ["rt", "--max-steps", 3, "--keep-steps", 5],
            "--keep-steps: wanted at most 4, steps 0 to 3, found 5",
        ),
        (["rt", "--hidden", 10, "--heads", 3], "--hidden 10: wanted a multiple of --heads 3"),
        (["rt", "--masked", 0], "--masked: wanted more than 0 and less than 1, found 0.0"),
        (["rt", "--dropout", 1], "--dropout: wanted at least 0 and less than 1, found 1.0"),
        (["rt", "--learning-rate", 0], "--learning-rate: wanted more than 0, found 0.0"),
        (["rt", "--vocabulary", 9], "--vocabulary: wanted at least"),
        (["rt", "--layers", 0], "--layers: wanted 1 or more, found 0"),
        (["rtt"], "task rtt"),
        (["rt", "--tokenizer", "./none"], "model ./none: wanted a folder with config.json"),
        (["rt", "--seed", 1, "--seeds", "1..2"], "--seeds: wanted --seeds or --seed, found both"),
        (["none.txt"], "task none.txt: wanted a data file, found no such file"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments, message, simcore, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = (
        simcore("pretrain", *arguments, "--train-size", 50, "--out", "out")
        if (arguments[0] == "rt")
        else simcore("pretrain", *arguments, "--out", "out")
    )
    check_refused(outcome, message)
    assert not list(tmp_path.iterdir())


def test_held_out_texts_are_not_read():
    task = load_task("rt", FEW)
    texts = load_texts("rt", FEW)
    assert texts.train == task.train.texts
    assert texts.heldout == task.heldout.texts
    pairs = load_texts("stsb", TaskOptions(train_size=5, heldout_size=5))
    assert len(pairs.train) == len(pairs.heldout) == 10


def test_sentences_of_a_file(tmp_path):
    file = tmp_path / "lines.txt"
    for count, held in ((2, 1), (19, 1), (20, 1), (41, 2)):
        lines = [f"sentence number {i}" for i in range(count)]
        file.write_text("\n".join(lines))
        found = load_texts(file)
        assert len(found.heldout) == held
        assert sorted((*found.train, *found.heldout)) == sorted(lines)
    assert found.heldout[0] == lines[HELD_OUT_EVERY - 1]
    with pytest.raises(UserError, match="wanted no columns and no sizes for a file of sentences"):
        load_texts(file, FEW)
    file.write_text("alone")
    with pytest.raises(UserError, match="wanted at least 2 sentences, found 1"):
        load_texts(file)


def test_rare_words_become_pieces_and_nothing_becomes_unknown(minilm):
    tokenizer = load_tokenizer(minilm)
    texts = load_texts("rt", FEW).train
    few = common_words(tokenizer, texts, 300)
    assert len(few) == 300
    counts = token_counts(few, texts)
    assert counts[few.unk_token_id] == token_counts(tokenizer, texts)[tokenizer.unk_token_id]
    assert counts.sum() > token_counts(tokenizer, texts).sum()
    most = np.argsort(-token_counts(tokenizer, texts))[:50]
    assert {tokenizer.convert_ids_to_tokens(int(i)) for i in most} <= few.get_vocab().keys()
    assert common_words(tokenizer, texts, 0) is tokenizer
    many = common_words(tokenizer, texts, 20_000)  # the texts use fewer
    assert len(many) < 3000
    assert [tokenizer.tokenize(text) for text in texts] == [many.tokenize(text) for text in texts]


def test_texts_of_a_table_need_no_labels_and_hold_out_the_same_rows(reviews):
    columns = {"text_column": "body", "heldout_size": 40, "train_size": 60, "split_seed": 3}
    texts = load_texts(reviews, TaskOptions(**columns))
    task = load_task(reviews, TaskOptions(**columns, label_column="verdict"))
    assert texts == load_texts(task)
    assert (len(texts.train), len(texts.heldout)) == (60, 40)
