"""One line for what is missing or misspelt: what was wanted, and the nearest name."""

import pytest

import simcore
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
