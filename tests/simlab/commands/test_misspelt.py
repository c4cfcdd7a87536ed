"""One line for what is missing or misspelt: what was wanted, and the nearest name."""

import pytest

import simcore
from simlab.bounds import replaced
from simlab.errors import UserError
from simlab.experiments.truncate import TruncationOptions
from simlab.training.recipes import make_recipe
from support.lab.commandline import check_refused


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("extract", "minilm", "rtt"), ("task rtt (did you mean 'rt'?)",)),
        (("extract", "minilmm", "rt"), ("model minilmm (did you mean 'minilm'?): wanted",)),
        (("extract", "minilm", "rt", "--kind", "meen"), ("meen (did you mean 'mean'?): wanted",)),
        (
            ("grid", "reps", "--measure", "ckaa"),
            ("--measure ckaa (did you mean 'cka'?): wanted one of cka, ", " others"),
        ),
        (("extract", "study.toml", "rt"), ("model study.toml: wanted a folder", "found a file")),
        (("grid",), ("FOLDERS: wanted Representation folders", "found nothing")),
    ],
    ids=["task", "model", "kind", "measure", "file", "nothing"],
)
@pytest.mark.assets
def test_a_mistake_is_one_line(tmp_path, monkeypatch, simcore, offline, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text("models = []")
    check_refused(simcore(*arguments, "--out", "out.parquet"), *words)
    assert [file.name for file in tmp_path.iterdir()] == ["study.toml"]


def test_the_command_says_its_version(request):
    code, printed, errors = request.getfixturevalue("simcore")("--version")
    assert (code, printed.strip(), errors) == (0, f"simcore {simcore.__version__}", [])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            lambda: replaced(TruncationOptions(), {"mode": "tuned"}),
            "mode (did you mean 'modes'?): wanted one of modes, original, ",
        ),
        (
            lambda: TruncationOptions().changed({"head_seeds": 1}),
            "head_seeds (did you mean 'head_seed'?): wanted one of head_learning_rate, ",
        ),
        (
            lambda: make_recipe("quick", "rt", {"learning_rat": 0.1}),
            "learning_rat (did you mean 'learning_rate'?): wanted one of epochs, ",
        ),
        (
            lambda: TruncationOptions(modes=("untund",)).check(),
            "modes='untund' (did you mean 'untuned'?): wanted one of untuned, tuned, tuned-orig",
        ),
    ],
    ids=["field", "prefix", "recipe", "value"],
)
def test_a_misspelt_option_of_a_function_is_a_line_with_the_right_one(changed, message):
    """It was Python's own TypeError, which names a class that the user never wrote."""
    with pytest.raises(UserError) as caught:
        changed()
    assert str(caught.value).startswith(message)


def test_a_single_text_is_a_tuple_of_one():
    """Its letters were taken for modes."""
    assert TruncationOptions().changed({"modes": "tuned"}).modes == ("tuned",)
    assert replaced(TruncationOptions(), {"original": "bert"}).original == "bert"
