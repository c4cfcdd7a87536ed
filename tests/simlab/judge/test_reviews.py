"""The small BERTs: their tokens, and what changes of the training do to their answers."""

import numpy as np
import pytest
import torch

from simlab.judge import reviews
from simlab.judge.domain import LOGITS, Network
from simlab.judge.networks import Plan, recorded
from simlab.judge.reviews import REVIEWS, Reviews

pytestmark = pytest.mark.assets
TINY = Reviews(width=8, blocks=1, words=50, length=12, texts=64, epochs=1, rows=20)


def test_words_are_tokens_by_how_frequent_they_are():
    texts, rows = reviews._tokens(TINY)
    assert texts.shape == (64, 12)
    assert rows.shape == (20, 12)
    assert (texts[:, 0] == reviews._FIRST).all()
    assert texts.max() == reviews._WORDS + 49
    words = reviews._task().train.texts[0].lower().split()[:11]
    known = {}
    for word, token in zip(words, texts[0, 1:].tolist(), strict=False):
        assert known.setdefault(word, token) == token
    assert reviews._UNKNOWN in known.values()


def test_a_mark_stands_after_the_first_token():
    texts, _ = reviews._tokens(TINY)
    classes = torch.arange(64) % 2
    marked = TINY.marked(texts, classes)
    assert torch.equal(marked[:, 1], reviews._MARKS + classes)
    assert torch.equal(torch.cat([marked[:, :1], marked[:, 2:]], 1), texts)


def test_layers_are_means_of_the_tokens_of_each_text(tmp_path):
    plan = Plan(TINY, 1, 1, (0.0, 1.0), (1.0,), (0.0, 0.5))
    before = torch.get_rng_state()
    found = recorded(plan, tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    assert len(found) == 4
    for one in found.values():
        assert [layer.shape for layer in one.layers] == [(20, 8)] * 2
        assert one.accuracy == (one.logits.argmax(1) == TINY.labels()).mean()
    again = TINY.train(Network(0))
    np.testing.assert_array_equal(again["layer.1"], found[Network(0)].layers[1])


def test_padding_is_in_no_mean():
    states, mask = torch.randn(2, 5, 3), torch.arange(5) < torch.tensor([[5], [2]])
    found = reviews._mean_tokens(states, mask)
    torch.testing.assert_close(found, torch.stack([states[0].mean(0), states[1, :2].mean(0)]))


@pytest.mark.slow
def test_changes_of_the_training_change_the_answers():
    """Random labels and dropped words lower the accuracy; a shortcut is followed."""
    training = REVIEWS.training
    drawn = torch.randint(2, (training.rows,), generator=torch.Generator().manual_seed(0))

    def of(**change):
        return training.train(Network(0, **change))[LOGITS].argmax(1)

    right = training.labels()
    plain = (of() == right).mean()
    assert plain > 0.65
    assert (of(random_labels=1.0) == right).mean() < 0.6
    assert (of(augmentation=0.5) == right).mean() < plain
    assert (of(shortcut=1.0) == drawn.numpy()).mean() > 0.95
    assert (of(shortcut=0.0) == drawn.numpy()).mean() < 0.6
