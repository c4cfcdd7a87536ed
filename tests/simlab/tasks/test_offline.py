"""The tasks that install with packages: rows that nearly repeat each other stay on one side."""

import pandas as pd
import pytest

from simlab import TaskOptions, load_task
from simlab.tasks.specs import TWIN_SIMILARITY, group_twins
from support.lab.tinymodels import GOOD


def test_twins_are_one_group():
    texts = pd.Series(
        [
            "if the film is dull what happens to the cast of the plot",
            "if the film is bright what happens to the cast of the plot",
            "some music with scenes",
        ]
    )
    first, second, third = group_twins(texts, TWIN_SIMILARITY)
    assert first == second != third
    assert len(set(group_twins(pd.Series(GOOD), TWIN_SIMILARITY))) == len(GOOD)


@pytest.mark.assets
@pytest.mark.deep
def test_quartz_keeps_twins_on_one_side_and_imdb_has_reviews():
    task = load_task("quartz")
    texts = pd.Series([*task.train.texts, *task.heldout.texts])
    groups = group_twins(texts, TWIN_SIMILARITY)
    cut = len(task.train)
    assert not {*groups[:cut]} & {*groups[cut:]}
    assert (len(task.heldout), task.metric) == (772, "accuracy")
    assert len(task.train) + len(task.heldout) <= 3860 - 16  # sixteen are there twice
    assert task.heldout.labels.mean() == pytest.approx(0.5, abs=0.05)
    imdb = load_task("imdb", TaskOptions(train_size=100))
    assert (len(imdb.train), len(imdb.heldout)) == (100, 5000)
