"""The steps of a sweep do what its plan says."""

import pandas as pd

from simlab import Sweep
from support.lab.inline import Inline


def test_one_split_of_a_data_set_is_read_as_planned(tiny_bert, reviews, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    texts = pd.read_csv(reviews)[["body"]]
    for split, part in (("train", texts[:9]), ("validation", texts[9:15])):
        part.to_csv(data / f"{split}.csv", index=False)
    on = {"name": str(data), "text_column": "body", "corpus_split": "validation"}
    sweep = Sweep(
        {
            "models": [{"name": str(tiny_bert.path), "label": "tiny"}],
            "tasks": [{"name": str(reviews), "text_column": "body", "label_column": "verdict"}],
            "finetune": {"max_steps": 1},
            "extract": {"on": on, "kind": "mean"},
            "grids": {"estimator": "biased", "between": "within"},
        }
    )
    report = sweep.run(tmp_path / "out", engine=Inline(), durable=False, figures=False)
    assert report.failed == ()
    frame = sweep.results(tmp_path / "out")
    assert set(frame.loc[frame["measure"] == "cka", "n"]) == {6}
