"""The freezing study is refused before it trains."""

import pytest

from simlab import freeze_study
from support.lab.commandline import check_refused
from support.lab.tinymodels import COLUMNS


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
