"""Later steps take up the rows and the length of the texts of a checkpoint's fine-tuning."""

from pathlib import Path
from shutil import copytree

import pytest

from simlab import (
    TaskOptions,
    cli,
    finetune,
    load_representations,
    load_task,
    read_results,
    shorten,
    skip,
    truncate,
)
from simlab.experiments.truncate import TruncationOptions
from simlab.models.checkpoint import Checkpoint, chosen_length, load_task_of, read_evaluation
from simlab.models.heads import HeadRecipe
from simlab.sweeps.entries import TaskEntry
from support.lab.commandline import check_refused
from support.lab.tinymodels import COLUMNS, FILLER, GOOD, LETTERS, each, save_tiny_model

OPTIONS = TaskOptions("body", None, "verdict")
SPLIT = ("--train-size", 40, "--heldout-size", 20, "--split-seed", 3)
STEP = ("--max-steps", 1, "--max-length", 16)
LENGTHS = (7, 9)  # of fine-tuning: fewer tokens than most reviews have
FOUND = "{} was fine-tuned on texts of at most {} tokens, and reads at most {} now"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, tiny_bert, reviews):
    """A checkpoint for each of `LENGTHS`, tuned on 40 of the reviews, with 20 held out."""
    folder = tmp_path_factory.mktemp("models")
    for length in LENGTHS:
        arguments = ("finetune", tiny_bert.path, reviews, *COLUMNS, *SPLIT, "--max-steps", 1)
        whole = (*arguments, "--max-length", length, "--out", folder / str(length))
        assert cli.run([str(part) for part in whole]) == 0
    return [folder / str(length) for length in LENGTHS]


@pytest.fixture
def checkpoint(tmp_path, tuned):
    """A copy of the first checkpoint, which a test may change."""
    return Path(copytree(tuned[0], tmp_path / "ft"))


@pytest.mark.parametrize(
    "command", each(["extract", "truncate", "skip", "inject"], ("extract", "inject"))
)
def test_rows_and_length_are_those_of_the_fine_tuning(
    simcore, tuned, tiny_bert, reviews, tmp_path, command
):
    """The result is that of naming the length, and "done before" compares all that it depends on.

    The other model of the injection has no record.
    """
    out = tmp_path / ("folder" if command == "extract" else "results.parquet")
    extra = ("--method", "itself") if command == "inject" else ()
    models = (tiny_bert.path, tuned[0]) if command == "inject" else (tuned[0],)
    whole = (command, *models, reviews, *COLUMNS, *extra, "--out", out)
    code, printed, errors = simcore(*whole)
    assert (code, errors) == (0, [])
    code, printed, errors = simcore(*whole, "--max-length", LENGTHS[0])
    assert (code, errors) == (0, [])
    assert "done before" in printed
    code, printed, (line,) = simcore(*whole, "--max-length", 64, "--overwrite")
    assert code == 0
    assert "done before" not in printed
    assert line == f"note: {FOUND.format(tuned[0], 7, 64)} (--max-length 64)"
    if command != "extract":
        assert set(read_results(out)["n"]) == {20}
        check_refused(
            simcore(*whole, "--heldout-size", 60, "--overwrite"),
            f"wanted held-out rows that {tuned[0]} was not trained on",
            "--train-size 40 --heldout-size 20 --split-seed 3",
            "found 40 of 60",
        )


@pytest.mark.assets
def test_a_whole_model_scores_what_its_fine_tuning_found(tmp_path):
    """A rank correlation of real rows shows every token more or less."""
    task = load_task("stsb", TaskOptions(train_size=32, heldout_size=64))
    bert = save_tiny_model(tmp_path / "bert", pieces=LETTERS)
    model = finetune(bert, task, tmp_path / "ft", max_steps=1, max_length=7).path
    of_length = {
        length: read_results(
            skip(model, task, tmp_path / f"{length}.parquet", max_length=length).path
        )
        for length in (None, 64)
    }
    whole = {length: frame["value"].iloc[0] for length, frame in of_length.items()}
    assert whole[None] == read_evaluation(model)["value"]
    assert whole[64] != whole[None]


def test_the_model_that_is_scored_decides(simcore, tuned, reviews, tmp_path):
    a, b = tuned[1], tuned[0]
    arguments = ("--method", "itself", "--out", tmp_path / "injection.parquet")
    code, _, (line,) = simcore("inject", a, b, reviews, *COLUMNS, *arguments)
    assert code == 0
    assert line.startswith(f"note: {FOUND.format(a, 9, 7)}")


def test_the_model_before_fine_tuning_reads_as_much(tuned, review_task, tmp_path):
    heads = TruncationOptions(("tuned-orig",), recipe=HeadRecipe(most_steps=1))
    out = tmp_path / "truncation.parquet"
    assert not truncate(tuned[0], review_task, out, heads).skipped
    assert truncate(tuned[0], review_task, out, heads, max_length=LENGTHS[0]).skipped


def test_a_model_without_a_record_reads_64_tokens(checkpoint, tiny_bert):
    plain, tuned = Checkpoint.open(tiny_bert), Checkpoint.open(checkpoint)
    assert plain.length is None
    assert chosen_length([plain], None) == 64
    assert chosen_length([plain, tuned], None) == 7
    assert chosen_length([tuned], 12) == 12


def test_a_shortened_model_keeps_the_length_of_what_was_trained(checkpoint, review_task, tmp_path):
    places = [tmp_path / name for name in ("own", "other", "heads")]
    shorten(checkpoint, review_task, 2, places[0])
    shorten(checkpoint, review_task, 2, places[1], max_length=12)
    heads = TruncationOptions(("tuned",), recipe=HeadRecipe(most_steps=1))
    shorten(checkpoint, review_task, 2, places[2], heads, max_length=12)
    assert [Checkpoint.open(place).length for place in places] == [7, 7, 12]


def test_folders_of_different_lengths_are_compared_with_a_note(
    simcore, tuned, tiny_bert, reviews, tmp_path
):
    folders = [tmp_path / name for name in ("orig", "ft-7", "ft-9")]
    for model, folder in zip((tiny_bert.path, *tuned), folders, strict=True):
        named = ("--split", "train", *SPLIT, "--label", folder.name, "--out", folder)
        code, printed, _ = simcore("extract", model, reviews, *COLUMNS, *named)
        assert code == 0
        length = load_representations(folder).manifest["max_length"]
        assert f"texts cut at {length} tokens" in printed
    wanted = "64 tokens in {}, 7 tokens in {}, 9 tokens in {}".format(*folders)
    for arguments in (
        ("grid", *folders, "--joint", "--out", tmp_path / "grid.parquet"),
        ("align-study", *folders, "--method", "linear-gd", "--out", tmp_path / "study"),
    ):
        code, _, (line,) = simcore(*arguments)
        assert code == 0
        assert line.startswith("note: the models may have read different inputs")
        assert line.endswith(wanted)
    same = ("grid", folders[1], folders[1], "--out", tmp_path / "same.parquet")
    assert simcore(*same)[2] == []


def test_extraction_takes_the_same_rows_of_either_split(simcore, checkpoint, reviews, tmp_path):
    own = load_task(str(reviews), TaskOptions("body", None, "verdict", 40, 20, 3))
    for split, examples in (("heldout", own.heldout), ("train", own.train)):
        out = tmp_path / split
        code, _, _ = simcore(
            "extract", checkpoint, reviews, *COLUMNS, "--split", split, "--out", out
        )
        assert code == 0
        assert load_representations(out).ids == list(examples.ids)


def test_options_win_where_nothing_leaks(checkpoint, reviews):
    fewer = TaskOptions("body", None, "verdict", train_size=10, heldout_size=8)
    task = load_task_of([Checkpoint.open(checkpoint)], str(reviews), fewer)
    own = load_task_of([Checkpoint.open(checkpoint)], str(reviews), OPTIONS)
    assert len(task.train) == 10
    assert task.heldout.ids == own.heldout.ids[:8]


def test_other_data_are_split_as_without_the_checkpoint(checkpoint, tmp_path):
    other = tmp_path / "reviews.csv"  # the same name, other rows
    other.write_text("body,verdict\n" + "".join(f"the film {i},{i % 2}\n" for i in range(80)))
    task = load_task_of([Checkpoint.open(checkpoint)], str(other), OPTIONS)
    plain = load_task(str(other), OPTIONS)
    assert (task.train.ids, task.heldout.ids) == (plain.train.ids, plain.heldout.ids)


def test_models_with_different_splits_are_refused_together(
    simcore, checkpoint, tiny_bert, reviews, tmp_path
):
    other = tmp_path / "other"
    arguments = (tiny_bert.path, reviews, *COLUMNS, "--split-seed", 4, *STEP)
    assert simcore("finetune", *arguments, "--out", other)[0] == 0
    outcome = simcore(
        "inject", other, checkpoint, reviews, *COLUMNS, "--out", tmp_path / "injection.parquet"
    )
    check_refused(outcome, f"that {other} was not trained on", "--split-seed 4")


def test_fine_tuning_a_checkpoint_further_keeps_its_split(simcore, checkpoint, reviews, tmp_path):
    again = tmp_path / "again"
    assert simcore("finetune", checkpoint, reviews, *COLUMNS, *STEP, "--out", again)[0] == 0
    assert read_evaluation(again)["splits"] == read_evaluation(checkpoint)["splits"]


def test_a_loaded_task_is_taken_as_it_is(review_task):
    assert load_task_of([], review_task) is review_task
    with pytest.raises(ValueError, match="task_options: wanted None with a loaded task"):
        load_task_of([], review_task, OPTIONS)


@pytest.fixture(scope="module")
def other_reviews(tmp_path_factory):
    """Another data set in the same columns."""
    table = tmp_path_factory.mktemp("data") / "others.csv"
    rows = "".join(f"the other film {i},{('good', 'bad')[i % 2]}\n" for i in range(80))
    table.write_text(f"body,verdict\n{rows}")
    return table


@pytest.fixture(scope="module")
def twice(tuned, other_reviews, tmp_path_factory):
    """The checkpoint, fine-tuned further on other data."""
    out = tmp_path_factory.mktemp("models") / "twice"
    arguments = ("finetune", tuned[0], other_reviews, *COLUMNS, *STEP, "--out", out)
    assert cli.run([str(part) for part in arguments]) == 0
    return out


def test_the_rows_of_every_fine_tuning_are_kept(twice, other_reviews, reviews, simcore, tmp_path):
    splits = [(s["train_size"], s["heldout_size"]) for s in read_evaluation(twice)["splits"]]
    assert splits == [(40, 20), (64, 16)]
    out = tmp_path / "results.parquet"
    whole = ("truncate", twice, reviews, *COLUMNS, "--max-length", 16, "--out", out)
    check_refused(
        simcore(*whole, "--split-seed", 4),
        f"wanted held-out rows that {twice} was not trained on",
        "--train-size 40 --heldout-size 20 --split-seed 3",
    )
    assert simcore(*whole)[0] == 0  # by default the rows that were held out then
    assert set(read_results(out)["n"]) == {20}
    own = load_task_of([Checkpoint.open(twice)], str(other_reviews), OPTIONS)
    assert own.heldout.ids == load_task(str(other_reviews), OPTIONS).heldout.ids


def test_an_exported_checkpoint_and_a_third_fine_tuning_keep_them_all(
    twice, reviews, simcore, tmp_path
):
    short, third = tmp_path / "short", tmp_path / "third"
    assert simcore("truncate", twice, reviews, *COLUMNS, "--export", 2, short)[0] == 0
    arguments = ("--train-size", 30, *STEP, "--out", third)
    assert simcore("finetune", twice, reviews, *COLUMNS, *arguments)[0] == 0
    earlier = read_evaluation(twice)["splits"]
    assert read_evaluation(short)["splits"] == earlier
    found = read_evaluation(third)["splits"]
    assert found[:2] == earlier
    assert (found[2]["train_size"], found[2]["split_seed"]) == (30, 3)
    assert (
        len(load_task_of([Checkpoint.open(third)], str(reviews), OPTIONS).train) == 30
    )  # the last one decides


def test_random_weights_were_trained_on_nothing(twice, other_reviews, simcore, tmp_path):
    out = tmp_path / "random"
    arguments = (twice, other_reviews, *COLUMNS, *STEP, "--random-init", "--out", out)
    assert simcore("finetune", *arguments)[0] == 0
    assert read_evaluation(out)["splits"] == read_evaluation(twice)["splits"][1:]


def test_whole_scores_stay_scores_in_later_steps(simcore, tiny_bert, tmp_path):
    """Also from the entry of a sweep; without the option, whole numbers are classes."""
    path, ft = tmp_path / "stars.csv", tmp_path / "ft"
    rows = [f"{word} {one},{score}.0\n" for score, word in enumerate(GOOD) for one in FILLER]
    path.write_text("".join(["text,label\n", *rows]))
    few = ("--labels", "scores", "--max-steps", 1, "--seed", 1, "--max-length", 16)
    assert simcore("finetune", tiny_bert.path, path, *few, "--out", ft)[0] == 0
    source = Checkpoint.open(ft)
    assert load_task_of([source], path).metric == "spearman"
    assert len(load_task_of([source], path, TaskOptions(labels="classes")).label_names) == 5
    assert load_task_of([], path, TaskEntry(name=str(path), labels="scores").options()).labels
    assert simcore("truncate", ft, path, "--out", tmp_path / "own.parquet")[0] == 0
    check_refused(
        simcore("skip", ft, path, "--labels", "classes", "--out", tmp_path / "no.parquet"),
        "wanted a head with 5 outputs, found 1; --labels scores takes numbers as scores",
    )
