"""A checkpoint is opened once, and answers from the record of its fine-tuning."""

import json
import shutil
from pathlib import Path

import pytest

import simlab
from simlab.errors import UserError
from simlab.experiments.truncate import TruncationOptions
from simlab.models import checkpoint as module
from simlab.models.checkpoint import EVALUATION, Checkpoint
from simlab.models.heads import HeadRecipe
from simlab.models.sources import ModelSource
from simlab.results.results import FT, ORIG, RANDOM, Side
from support.lab.checkpoints import evaluation_of, write_evaluation
from support.lab.tinymodels import save_tiny_classifier

HEADS = HeadRecipe(most_steps=1)


@pytest.fixture
def tuned(tmp_path, review_task, tiny_bert):
    """A model with a head, and the record of a fine-tuning from `tiny_bert`."""
    source = save_tiny_classifier(tmp_path / "ft", "bert", review_task, 9)
    write_evaluation(source.path, model=str(tiny_bert.path))
    return source


@pytest.fixture
def reads(monkeypatch):
    """The JSON files that checkpoints read."""
    files = []
    read_json = module.read_json

    def counted(path):
        files.append(path)
        return read_json(path)

    monkeypatch.setattr(module, "read_json", counted)
    return files


def truncate_in_all_modes(folder, task, out):
    modes = ("untuned", "tuned", "tuned-orig")
    simlab.truncate(folder, task, out / "t.parquet", TruncationOptions(modes, recipe=HEADS))


STEPS = {
    "truncate": truncate_in_all_modes,
    "skip": lambda folder, task, out: simlab.skip(folder, task, out / "s.parquet"),
    "shorten": lambda folder, task, out: simlab.shorten(folder, task, 1, out / "short"),
    "influence": lambda folder, task, out: simlab.influence(folder, task, out / "i.parquet"),
    "extract": lambda folder, task, out: simlab.extract(folder, task, out / "rows"),
    "inject": lambda folder, task, out: simlab.inject(
        [folder, folder], task, out / "j.parquet", layer=1, methods=("itself", "random-classifier")
    )[0],
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_reads_each_evaluation_once(reads, tuned, review_task, tmp_path, step):
    STEPS[step](str(tuned.path), review_task, tmp_path)
    read = [path for path in reads if path.parent == tuned.path]
    # The two models of an injection are opened each, though they are the same here.
    assert read == [tuned.path / EVALUATION] * (2 if step == "inject" else 1)


def test_a_record_answers_every_question(tuned, tiny_bert):
    write_evaluation(
        tuned.path,
        model=str(tiny_bert.path),
        scores={"accuracy": 0.5, "f1": 0.25},
        splits=[{"split_seed": 3}],
        recipe={"max_length": 7, "seed": 3},
    )
    checkpoint = Checkpoint.open(tuned)
    assert checkpoint.is_tuned
    assert checkpoint.has_head
    assert checkpoint.scores == {"accuracy": 0.5, "f1": 0.25}
    assert checkpoint.splits == [{"split_seed": 3}]
    assert (checkpoint.length, checkpoint.seed) == (7, 3)
    assert checkpoint.original == checkpoint.base == str(tiny_bert.path)
    assert checkpoint.fingerprint == tuned.fingerprint
    assert Checkpoint.open(checkpoint) is checkpoint


@pytest.mark.parametrize("record", ["object.json", "trainer_state.json", EVALUATION])
def test_a_record_beside_a_model_is_no_part_of_its_fingerprint(record, tiny_bert, tmp_path):
    folder = Path(shutil.copytree(tiny_bert.path, tmp_path / "copy"))
    before = ModelSource("copy", folder).fingerprint
    for seconds in (1.0, 2.0):
        (folder / record).write_text(json.dumps({"seconds": seconds}))
        assert ModelSource("copy", folder).fingerprint == before


def test_a_model_without_a_record_is_a_base_or_has_an_unknown_one(tiny_bert, tuned):
    (tuned.path / EVALUATION).unlink()
    plain, headed = Checkpoint.open(tiny_bert), Checkpoint.open(tuned)
    assert plain.side("A", 1) == Side("A", 1, plain.name, ORIG)
    assert headed.side("B") == Side("B", None, None, FT)
    assert headed.side("B", 1, 2) == Side("B", 1, headed.name, RANDOM)
    assert (plain.length, plain.seed, plain.splits) == (None, None, [])
    with pytest.raises(UserError, match=f"original: .*{tuned.path.name} does not name that model"):
        _ = headed.original


def test_a_model_of_random_weights_has_no_original(tuned, tiny_bert):
    recipe = {"max_length": 7, "random_init": True}
    write_evaluation(tuned.path, model=str(tiny_bert.path), recipe=recipe)
    with pytest.raises(UserError, match=f"original: .*{tuned.path.name} was trained from random"):
        _ = Checkpoint.open(tuned).original


def test_an_evaluation_of_another_tool_is_no_record(tuned):
    for content in ({"eval_loss": 0.5}, ["task", "metric"]):
        (tuned.path / EVALUATION).write_text(json.dumps(content))
        assert not Checkpoint.open(tuned).is_tuned


def test_a_record_that_lacks_a_field_is_refused(tuned):
    record = evaluation_of()
    del record["splits"], record["recipe"]["max_length"]
    (tuned.path / EVALUATION).write_text(json.dumps(record))
    with pytest.raises(UserError, match=r"evaluation\.json: .* without splits, max_length"):
        Checkpoint.open(tuned)


def test_a_classifier_is_a_folder_with_a_head(tiny_bert, tmp_path):
    with pytest.raises(
        UserError, match="wanted the folder of a checkpoint, as `simcore finetune` writes"
    ):
        Checkpoint.open_classifier(tmp_path / "none")
    with pytest.raises(UserError, match="written by `simcore finetune`, found BertModel"):
        Checkpoint.open_classifier(tiny_bert.path)
