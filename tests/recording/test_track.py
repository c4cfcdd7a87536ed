"""`Track`: right values in any loop, and no influence on the training."""

import json
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from simcore import Track, cka_grid, record, reference
from simcore.recording.history import read_history
from support.tolerance import FLOAT32_CKA_ABSOLUTE

N = 60
PROBE = torch.randn(N, 6, generator=torch.Generator().manual_seed(1))


def network(seed=0):
    torch.manual_seed(seed)
    parts = [nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3)]
    return nn.Sequential(*parts)


def loop(model, steps, after=lambda step: None, begin=0):
    """Train by SGD with momentum; dropout and batch norm are on."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(begin)
    for step in range(begin + 1, begin + steps + 1):
        x = torch.randn(32, 6)
        nn.functional.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
        optimizer.step()
        optimizer.zero_grad()
        after(step)


def layers_of(model):
    modes = [module.training for module in model.modules()]
    with record(model.eval(), "*") as tape, torch.no_grad():
        model(PROBE)
    for module, mode in zip(model.modules(), modes, strict=True):
        module.training = mode
    return {name: rows.clone() for name, rows in tape.layers().items()}


def diagonal(a, b):
    return [reference.cka(a[name].double().numpy(), b[name].double().numpy()) for name in a]


def test_values_are_those_of_the_states_at_each_step():
    model, other = network(), network(7)
    fixed = layers_of(network(9))
    states = [layers_of(model)]
    track = Track(model, "*", PROBE, references={"fixed": fixed, "seed 7": other}, every=2)
    others = []

    def after(step):
        if track.step(step) is not None:
            states.append(layers_of(model))
            others.append(layers_of(other))
        loop(other, 1, begin=100 + step)

    loop(model, 6, after)
    assert track.steps == [2, 4, 6]
    assert track.layers == ("0", "1", "2", "3", "4")
    wanted = {
        "start": [diagonal(state, states[0]) for state in states[1:]],
        "previous": [diagonal(a, b) for a, b in zip(states[1:], states, strict=False)],
        "fixed": [diagonal(state, fixed) for state in states[1:]],
        "seed 7": [diagonal(a, b) for a, b in zip(states[1:], others, strict=True)],
    }
    assert track.references == tuple(wanted)
    for name, values in wanted.items():
        np.testing.assert_allclose(track.values(name), values, atol=FLOAT32_CKA_ABSOLUTE)
    assert track.values("start")[-1, 0] < 0.999


def test_all_pairs_are_a_grid_for_each_step():
    model = network()
    start = layers_of(model)
    track = Track(model, ["0", "4"], PROBE, against="start", pairs="all")
    loop(model, 2, track.step)
    now = layers_of(model)
    wanted = cka_grid([now["0"], now["4"]], [start["0"], start["4"]])
    assert track.values("start").shape == (2, 2, 2)
    np.testing.assert_allclose(track.values("start")[-1], wanted, atol=FLOAT32_CKA_ABSOLUTE)
    frame = track.to_pandas()
    row = frame[(frame["step"] == 2) & (frame["layer"] == "0") & (frame["other"] == "4")]
    assert row["value"].tolist() == [track.values("start")[1, 0, 1]]


def test_a_reference_that_is_named_twice_is_one():
    track = Track(network(), "0", PROBE, against=["start", "start"])
    assert track.references == ("start",)
    assert len(track.step(1)) == 1


def test_other_layers_of_a_reference_need_all_pairs():
    fixed = {"first": torch.randn(N, 5)}
    with pytest.raises(ValueError, match="pairs='all' compares other layers"):
        Track(network(), "*", PROBE, references={"teacher": fixed})
    model = network()
    track = Track(model, "0", PROBE, against=(), references={"teacher": fixed}, pairs="all")
    assert track.step(3)["teacher"].shape == (1, 1)
    with pytest.raises(ValueError, match=f"wanted {N} rows in each layer of 'teacher', got 50"):
        Track(model, "0", PROBE, references={"teacher": {"0": torch.randn(50, 5)}})


def test_training_is_not_disturbed():
    plain, watched = network(), network()
    loop(plain, 5)
    watched[3].eval()
    watched[3].train()
    track = Track(watched, "*", [PROBE[:40], PROBE[40:]])
    loop(watched, 5, track.step)
    for name, value in plain.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name
    assert all(module.training for module in watched.modules())


def test_modes_and_random_state_are_restored_after_an_error():
    model = network()
    model[1].eval()

    def fails(model, batch):
        torch.rand(3)
        assert not model.training
        raise OverflowError

    state = torch.random.get_rng_state()
    with pytest.raises(OverflowError):
        Track(model, "*", PROBE, forward=fails)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert [module.training for module in model] == [True, False, True, True, True]


def test_autocast_of_the_loop_keeps_its_gradients():
    """Weights that autocast casts without gradients must not stay in its cache, if it has one."""
    model = network()
    with torch.autocast("cpu", torch.bfloat16):
        track = Track(model, "0", PROBE)
        track.step(1)
        model(PROBE).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_steps_can_be_listed_and_must_grow():
    track = Track(network(), "0", PROBE, every=[0, 3, 5])
    assert [step for step in range(7) if track.step(step)] == [0, 3, 5]
    with pytest.raises(ValueError, match="n: wanted a step after the last recorded one, 5, got 3"):
        track.step(3)


def test_a_state_goes_on_in_another_process(tmp_path):
    whole, model = network(), network()
    wanted = Track(whole, "*", PROBE)
    loop(whole, 2, wanted.step)
    first = Track(model, "*", PROBE, out=tmp_path / "track.jsonl")
    loop(model, 2, first.step)
    saved = tmp_path / "state.pt"
    torch.save({"model": model.state_dict(), "track": first.state_dict()}, saved)
    first.step(9)  # after the checkpoint: the run that goes on has not seen it

    later = network(5)
    again = Track(later, "*", PROBE, out=tmp_path / "track.jsonl")
    state = torch.load(saved)
    later.load_state_dict(state["model"])
    again.load_state_dict(state["track"])
    for a, b in ((whole, wanted), (later, again)):
        loop(a, 2, b.step, begin=2)
    for name in ("start", "previous"):
        np.testing.assert_array_equal(again.values(name), wanted.values(name))
    assert read_history(tmp_path / "track.jsonl").steps == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="state: wanted the references"):
        Track(later, "*", PROBE, against="start").load_state_dict(state["track"])


def test_the_file_is_lines_of_json_and_reads_back(tmp_path):
    model, path = network(), tmp_path / "track.jsonl"
    track = Track(model, ["0", "4"], PROBE, out=path, about={"task": "digits", "seed": 3})
    loop(model, 2, track.step)
    head, *lines = map(json.loads, path.read_text().splitlines())
    assert head["layers"] == ["0", "4"]
    assert head["about"] == {"task": "digits", "seed": 3}
    assert [(line["step"], line["reference"]) for line in lines] == [
        (1, "start"),
        (1, "previous"),
        (2, "start"),
        (2, "previous"),
    ]
    with path.open("a") as file:  # a killed process wrote a half of a step
        file.write(json.dumps({"step": 3, "reference": "start", "values": [1, 1]}) + '\n{"st')
    history = read_history(path)
    assert history.steps == [1, 2]
    np.testing.assert_array_equal(history.array("start"), track.values("start"))
    with pytest.raises(ValueError, match=r"out: wanted a new file, got .*, which exists"):
        Track(model, "0", PROBE, out=path).step(1)
    path.write_text("no json\n")
    with pytest.raises(ValueError, match=r"wanted the file of a simcore\.Track"):
        read_history(path)


def test_an_undefined_value_is_null_in_the_file(tmp_path):
    class Constant(nn.Module):
        def forward(self, x):
            return torch.ones(len(x), 4)

    model, path = nn.Sequential(Constant()), tmp_path / "track.jsonl"
    track = Track(model, "0", PROBE, out=path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        track.step(1)
    assert np.isnan(track.values("start")).all()
    assert json.loads(path.read_text().splitlines()[1])["values"] == [None]
    assert np.isnan(read_history(path).array("start")).all()


class Writer:
    def __init__(self):
        self.got = []

    def add_scalar(self, name, value, step):
        self.got.append((name, value, step))


class Run:
    def __init__(self):
        self.got = []

    def log(self, values, step):
        self.got += [(name, value, step) for name, value in values.items()]


class Metrics(Run):
    def log_metrics(self, values, step):
        self.log(values, step)


@pytest.mark.parametrize("logger", [Writer(), Run(), Metrics()])
def test_loggers_get_a_number_for_each_layer(logger):
    model = network()
    track = Track(model, ["0", "4"], PROBE, against="start", log=logger)
    loop(model, 1, track.step)
    (first,) = track.values("start").tolist()
    assert logger.got == [("cka/start/0", first[0], 1), ("cka/start/4", first[1], 1)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"against": ()}, "against: wanted 'start', 'previous' or references="),
        ({"against": "begin"}, "against: wanted 'start' or 'previous', got 'begin'"),
        ({"every": 0}, "every"),
        ({"every": []}, "every: wanted a number or some steps"),
        ({"pairs": "some"}, "pairs: wanted 'same' or 'all'"),
        ({"measure": "ckaa"}, "did you mean 'cka'"),
        ({"pairs": "all", "log": print}, "log: wanted pairs='same'"),
        ({"out": "no/such/folder/track.jsonl"}, "out: wanted a folder that exists"),
        ({"references": {"start": {}}}, "references: wanted other names than 'start'"),
        ({"max_memory": 2_000}, "max_memory: wanted room for"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Track(network(), "*", PROBE, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"log": 3}, "log: wanted a function"),
        ({"about": {"task": ["rt"]}}, "about: wanted texts and numbers"),
        ({"references": {"a": 3}}, "references: wanted a module or a dictionary of layers"),
        ({"estimater": "unbiased"}, "did you mean 'estimator'"),
    ],
)
def test_arguments_of_a_wrong_type_are_refused(options, message):
    with pytest.raises(TypeError, match=message):
        Track(network(), "*", PROBE, **options)


def test_a_loader_is_refused():
    loader = torch.utils.data.DataLoader(PROBE, batch_size=10, shuffle=True)
    with pytest.raises(TypeError, match=r"of a loader, list\(loader\) is one"):
        Track(network(), "*", loader)


def test_a_distributed_model_runs_without_the_other_ranks(tmp_path):
    """A pass of the wrapper would wait for all ranks; one rank may track alone."""
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(network())
        wrapped.forward = None  # a call of the wrapper would fail
        track = Track(wrapped, "*", PROBE)
        assert track.layers == ("0", "1", "2", "3", "4")
        assert torch.allclose(track.step(1)["start"], torch.ones(5, dtype=torch.float64))
    finally:
        torch.distributed.destroy_process_group()
