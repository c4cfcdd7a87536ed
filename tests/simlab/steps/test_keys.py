"""Options that change results are in the key of a job: else rows of other options count as done."""

from dataclasses import fields

import pytest

from simlab import extract, finetune, truncate
from simlab.experiments.truncate import TruncationOptions
from simlab.models.heads import HeadRecipe
from simlab.representations.passes import ExtractOptions
from simlab.training.recipes import Recipe

# A value of each option beside its default, and the options that it needs.
EXTRACT = {
    "kind": "mean",
    "split": "train",
    "max_length": 9,
    "random_init_seed": 1,
    "words": "spaces",
    "limit": 7,
    "special_tokens": False,
    "weights": "bfloat16",
    "dtype": "float16",
}
# Rows are the same up to rounding wherever they are computed, and however many at a time.
PLACES = {"device", "batch_size"}
BESIDE = {"words": {"kind": "word-last"}, "special_tokens": {"kind": "attention"}}
TRUNCATE = {"modes": ("tuned",), "original": "other"}
HEAD = {
    "learning_rate": 0.5,
    "batch_size": 3,
    "weight_decay": 0.5,
    "most_steps": 3,
    "steps_between": 3,
    "patience": 3,
    "validation_share": 0.5,
    "seed": 3,
    "warmup": 3,
    "decay": True,
    "scale": False,
}


class Key(Exception):
    """Stands in place of the work of a job; its argument is the job's key."""


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory, review_task, tiny_bert):
    folder = tmp_path_factory.mktemp("tuned") / "ft"
    return finetune(tiny_bert, review_task, folder, Recipe(max_steps=1)).path


@pytest.fixture
def keys(monkeypatch):
    """Make jobs end before their work, and a function that gives the key of a call."""

    def stop(_out, inputs, *_args, **_more):
        raise Key(inputs)

    monkeypatch.setattr("simlab.representations.extract.run_job", stop)
    monkeypatch.setattr("simlab.experiments.truncate.ensure_results", stop)

    def key_of(step, *arguments, **options):
        with pytest.raises(Key) as found:
            step(*arguments, "nowhere", **options)
        return found.value.args[0]

    return key_of


def test_every_option_has_a_value_here():
    assert {field.name for field in fields(ExtractOptions)} == EXTRACT.keys() | PLACES
    assert {field.name for field in fields(TruncationOptions)} == TRUNCATE.keys() | {"recipe"}
    assert {field.name for field in fields(HeadRecipe)} == HEAD.keys()


@pytest.mark.parametrize("option", EXTRACT)
def test_options_of_an_extraction_are_in_its_key(tiny_bert, review_task, keys, option):
    beside = BESIDE.get(option, {})
    before = keys(extract, tiny_bert, review_task, **beside)
    assert keys(extract, tiny_bert, review_task, **beside, **{option: EXTRACT[option]}) != before


def test_the_modes_of_a_truncation_are_in_its_key(finetuned, review_task, keys):
    before = keys(truncate, finetuned, review_task)
    assert keys(truncate, finetuned, review_task, modes=TRUNCATE["modes"]) != before


@pytest.mark.parametrize("option", HEAD)
def test_options_of_heads_are_in_the_key(finetuned, review_task, keys, option):
    tuned = {"modes": ("tuned",)}
    before = keys(truncate, finetuned, review_task, **tuned)
    head = {f"head_{option}": HEAD[option]}
    assert keys(truncate, finetuned, review_task, **tuned, **head) != before
