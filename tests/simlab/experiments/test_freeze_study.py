"""The freezing study: every way with every seed, resumed, and refused before it trains."""

import pytest

from simlab import freeze_study, read_results
from simlab.results.results import FREEZING
from support.lab.commandline import check_refused
from support.lab.tinymodels import COLUMNS


@pytest.mark.slow
def test_freeze_study_compares_and_continues(tmp_path, tiny_bert, reviews, simcore):
    arguments = ["freeze-study", tiny_bert.path, reviews, *COLUMNS, "--out", tmp_path / "study"]
    arguments += ["--max-steps", 4, "--batch-size", 8, "--seeds", "3,1"]
    arguments += ["--bottom", 2, "--top", 1]
    code, printed, errors = simcore(*arguments)
    assert (code, errors) == (0, [])
    assert "trained parameters" in printed
    frame = read_results(tmp_path / "study" / "results")
    assert set(frame["experiment"]) == {FREEZING}
    values = frame.pivot(index=["label_x", "seed_x"], columns="measure", values="value")
    assert list(dict.fromkeys(frame["label_x"])) == ["none", "top:1", "bottom:2"]
    assert set(frame["seed_x"]) == {1, 3}
    assert set(frame["base_x"]) == {str(tiny_bert.path)}
    assert set(frame["stage_x"]) == {"ft"}
    trained = values["trained parameters"].groupby("label_x").first()
    assert trained["none"] > trained["top:1"] > trained["bottom:2"]
    assert (values["seconds per step"] > 0).all()
    assert values["accuracy"].between(0, 1).all()
    assert (tmp_path / "study" / "figures" / "reviews-freezing.png").is_file()
    code, printed, _ = simcore(*arguments)
    assert code == 0
    assert printed.count("done before") == 6


def test_freeze_study_refuses_before_it_trains(tmp_path, tiny_bert, reviews, simcore):
    out = tmp_path / "study"
    check_refused(
        simcore("freeze-study", tiny_bert.path, reviews, *COLUMNS, "--bottom", 4, "--out", out),
        "--freeze bottom:4",
    )
    assert not out.exists()


@pytest.mark.parametrize("field", ["freeze", "seed"])
def test_what_the_study_varies_is_no_field_to_set(tmp_path, tiny_bert, review_task, field):
    with pytest.raises(TypeError, match="wanted bottom, top and seeds in place of freeze and seed"):
        freeze_study(tiny_bert, review_task, tmp_path, **{field: 1})
