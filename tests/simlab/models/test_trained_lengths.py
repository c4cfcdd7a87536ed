"""A later step cuts texts where the fine-tuning of the checkpoint cut them."""

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
from simlab.models.checkpoint import Checkpoint, chosen_length, read_evaluation
from simlab.models.heads import HeadRecipe
from support.lab.tinymodels import COLUMNS, LETTERS, save_tiny_model

LENGTHS = (7, 9)  # of fine-tuning: fewer tokens than most reviews have
FOUND = "{} was fine-tuned on texts of at most {} tokens, and reads at most {} now"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, tiny_bert, reviews):
    """A checkpoint for each of `LENGTHS`."""
    folder = tmp_path_factory.mktemp("models")
    for length in LENGTHS:
        arguments = ("finetune", tiny_bert.path, reviews, *COLUMNS, "--max-steps", 1)
        whole = (*arguments, "--max-length", length, "--out", folder / str(length))
        assert cli.run([str(part) for part in whole]) == 0
    return [folder / str(length) for length in LENGTHS]


@pytest.fixture
def checkpoint(tmp_path, tuned):
    """A copy of the first checkpoint, which a test may change."""
    return Path(copytree(tuned[0], tmp_path / "ft"))


@pytest.mark.parametrize("command", ["extract", "truncate", "skip", "inject"])
def test_the_length_is_that_of_the_fine_tuning_and_another_one_is_noted(
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
        named = ("--split", "train", "--label", folder.name, "--out", folder)
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
