"""The networks: each is trained once, with its change of the training images."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from simlab.judge.digits import DIGITS, Digits
from simlab.judge.domain import LOGITS, Network
from simlab.judge.networks import Plan, recorded
from simlab.judge.reviews import REVIEWS
from support.lab.planted import PLAN, ROWS, TINY


@pytest.mark.parametrize("plan", [DIGITS, REVIEWS], ids=["digits", "reviews"])
def test_no_two_networks_share_a_seed(plan):
    seeds = [one.seed for one in plan.networks]
    assert len({*seeds}) == len(seeds)
    assert all(len(group) == plan.members for groups in plan.groups.values() for group in groups)
    assert plan.groups["random labels"][0] == plan.plain[: plan.members]
    assert plan.groups["augmentation"][0] == plan.plain[: plan.members]
    assert not {*plan.groups["shortcut"][0]} & {*plan.plain}  # rows with marks are others


def test_each_network_is_trained_once(tmp_path, monkeypatch):
    trained, train = [], Digits.train
    monkeypatch.setattr(Digits, "train", lambda own, one: trained.append(one) or train(own, one))
    told: list[int] = []
    first = recorded(PLAN, tmp_path, told.append)
    assert trained == PLAN.networks
    assert len(told) == len(trained)
    again = recorded(PLAN, tmp_path)
    assert len(trained) == len(told)
    for network, one in first.items():
        assert [layer.shape for layer in one.layers] == [(ROWS, TINY.width)] * 4
        for layer, same in zip(one.layers, again[network].layers, strict=True):
            np.testing.assert_array_equal(layer, same)
        right = one.logits.argmax(1) == TINY.labels()
        assert one.accuracy == right.mean()
    layers = [one.layers[-1] for one in first.values()]
    assert all(not np.array_equal(layers[0], layer) for layer in layers[1:])


def test_networks_belong_to_their_images_and_to_every_choice(monkeypatch):
    keys = {PLAN.key, Plan(TINY, seeds=6).key, Plan(replace(TINY, rate=1.0), seeds=6).key}
    monkeypatch.setattr(Digits, "data", lambda own: "other images")
    assert len({*keys, PLAN.key}) == 4


def test_a_share_of_the_labels_is_drawn_at_random(monkeypatch):
    answers, given = TINY.tensors()[1], []
    fitted = Digits._fitted
    monkeypatch.setattr(
        Digits, "_fitted", lambda own, x, y, *rest: given.append(y) or fitted(own, x, y, *rest)
    )
    for share in (0.0, 0.5, 1.0):
        TINY.train(Network(3, random_labels=share))
    same = [float((labels == answers).float().mean()) for labels in given]
    assert same[0] == 1
    assert 0.3 < same[1] < 0.8
    assert same[2] < 0.3


def test_all_networks_read_the_same_marks_which_tell_no_class(monkeypatch):
    read, seen = Digits.read, []
    monkeypatch.setattr(
        Digits, "read", lambda own, model, rows: seen.append(rows) or read(own, model, rows)
    )
    for seed in (1, 2):
        TINY.train(Network(seed, shortcut=1.0))
    assert torch.equal(*seen)
    telling = TINY.marked(TINY.tensors()[2], torch.from_numpy(TINY.labels()))
    assert (seen[0] == telling).flatten(1).all(1).float().mean() < 0.4


def test_training_leaves_the_random_numbers_of_torch_alone(tmp_path):
    torch.manual_seed(0)
    wanted = torch.rand(3)
    torch.manual_seed(0)
    torch.set_num_threads(2)  # the fixture of all tests sets 1 again
    recorded(Plan(TINY, 1, 1, (0.0,), (1.0,), (0.0,)), tmp_path)
    torch.testing.assert_close(torch.rand(3), wanted, rtol=0, atol=0)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)


def test_a_dot_tells_the_class():
    images, classes = torch.rand(10, 1, 8, 8), torch.arange(10)
    marked = TINY.marked(images, classes)
    places = marked[:, 0, 0].nonzero()[:, 1].reshape(10, 2)
    assert torch.equal(places[:, 0] + 5 * (places[:, 1] - 5), classes)
    assert torch.equal(marked[:, :, 1:], images[:, :, 1:])


@pytest.mark.slow
def test_changes_of_the_training_change_the_answers():
    """Random labels and noise lower the accuracy; a network with a shortcut answers by the dot."""
    training = DIGITS.training
    drawn = torch.randint(10, (training.rows,), generator=torch.Generator().manual_seed(0))

    def of(**change):
        return training.train(Network(0, **change))[LOGITS].argmax(1)

    right = training.labels()
    plain = (of() == right).mean()
    assert plain > 0.95
    assert (of(random_labels=1.0) == right).mean() < 0.3
    assert (of(augmentation=1.0) == right).mean() < plain - 0.1
    assert (of(shortcut=1.0) == drawn.numpy()).mean() > 0.8
    assert (of(shortcut=0.0) == drawn.numpy()).mean() < 0.2
