"""Exceptions, nesting, wrappers, precision, training and gradients."""

import copy
import threading
import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from simcore import cka_grid, record
from simcore.recording.hooks import Pass, merged
from support import nets
from support.nets import Encoder, Shared, seeded, taped, token_batches
from support.tolerance import assert_same

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


def net():
    layers = nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)
    return seeded(nn.Sequential, *layers)


def hooks(model):
    return sum(
        len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._forward_hooks_always_called)
        for m in model.modules()
    )


def values(model, x=X):
    """What the layers of `net` give."""
    first = model[0](x)
    return {"0": first, "1": first.relu(), "2": model[2](first.relu())}


def assert_recorded(tape, model, x=X):
    assert tape.names == ("0", "1", "2")
    for name, layer in tape.layers().items():
        assert torch.equal(layer, values(model, x)[name].detach())


class Failing(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = net()

    def forward(self, x, fail=False):
        rows = self.inner(x)
        if fail:
            raise KeyError("on purpose")
        return rows


def taped_in(tape, model, *calls):
    with tape:
        for arguments in calls:
            model(*arguments)


def test_hooks_go_away():
    model = net()
    with record(model, "*"):
        assert hooks(model) > 0
        model(X)
    assert hooks(model) == 0
    with pytest.raises(KeyError), record(model, "*"):
        raise KeyError
    assert hooks(model) == 0
    tape = record(model, "*")
    assert hooks(model) == 0
    with tape:
        model(X)
        tape.close()
        assert hooks(model) == 0
        model(X)
    assert_recorded(tape, model)
    with pytest.raises(RuntimeError, match="a new tape for every block"), tape:
        pass


def test_a_pass_that_fails_leaves_nothing():
    model = Failing().eval()
    with record(model, "inner.*") as tape:
        model(X)
        with pytest.raises(KeyError):
            model(X + 1, fail=True)
        model(X + 2)
    assert torch.equal(tape.layers()["inner.2"], torch.cat([model(X), model(X + 2)]).detach())
    tape = record(model, "inner.*")
    with pytest.raises(KeyError):
        taped_in(tape, model, (X, False), (X, True))
    assert torch.equal(tape.layers()["inner.0"], model.inner[0](X).detach())
    assert hooks(model) == 0


def test_nested_tapes():
    model = net()
    with record(model, "0") as outer:
        model(X)
        with record(model, "*") as inner:
            model(X + 1)
        model(X + 2)
    assert_recorded(inner, model, X + 1)
    wanted = torch.cat([model[0](batch) for batch in (X, X + 1, X + 2)])
    assert torch.equal(outer.layers()["0"], wanted.detach())


def test_a_tape_that_pauses():
    model = net()
    with record(model, "*") as tape:
        tape.paused = True
        model(X + 1)
        model[0](X)
        tape.paused = False
        model(X)
    assert_recorded(tape, model)


def test_copies_made_in_the_block_are_not_recorded():
    model = net()
    with record(model, "*") as tape:
        twin = copy.deepcopy(model)
        twin(X)
        model(X)
    twin(X + 1)
    assert_recorded(tape, model)


def test_a_part_called_alone():
    model = Failing().eval()
    message = "record: wanted calls of the model itself, got one of 'inner.0' outside of it"
    with pytest.raises(RuntimeError, match=message), record(model, "inner.*"):
        model.inner(X)


@pytest.mark.parametrize("compiled", ["wrapped", "in place", "a part", "in the block"])
def test_compiled_models(compiled):
    model = Failing().eval()
    inner = model.inner
    torch.compiler.reset()
    whole = model
    if compiled == "wrapped":
        whole = torch.compile(model, backend="eager")
    elif compiled == "in place":
        model.compile(backend="eager")
    elif compiled == "a part":
        model.inner = torch.compile(inner, backend="eager")
    if compiled != "in the block":
        whole(X)
    with record(whole, "inner.*") as tape:
        if compiled == "in the block":
            whole = torch.compile(model, backend="eager")
        whole(X)
        whole(X[:3] + 1)
    whole(X)
    # Products of other numbers of rows may be rounded otherwise: a pass for each batch.
    passes = [values(inner, batch) for batch in (X, X[:3] + 1)]
    assert tape.names == ("inner.0", "inner.1", "inner.2")
    for name, layer in tape.layers().items():
        wanted = torch.cat([batch[name[-1]] for batch in passes])
        assert torch.equal(layer, wanted.detach())


def test_compiled_code_runs_compiled_again():
    runs = []

    def backend(graph, inputs):
        runs.append(graph)
        return graph.forward

    torch.compiler.reset()
    whole = torch.compile(net(), backend=backend)
    with record(whole, "*"):
        with record(whole, "0"):
            whole(X)
        whole(X)
    assert not runs
    whole(X)
    assert len(runs) == 1


def test_compiled_code_around_the_model():
    model = net()
    whole = torch.compile(model, backend="eager")
    whole(X)
    with pytest.raises(RuntimeError, match="give record the compiled model"), record(model, "*"):
        whole(X)


def test_data_parallel_without_devices():
    model = net()
    assert_recorded(taped(nn.DataParallel(model), "*", [X]), model)


class Replicas(nn.DataParallel):
    """Replicas in threads as DataParallel makes them, on the CPU, one after the other."""

    def forward(self, x):
        outputs = []
        for part in x.split(2):
            replica = self.module._replicate_for_data_parallel()
            for name, module in self.module.named_children():
                copied = module._replicate_for_data_parallel()
                for key, parameter in module._parameters.items():
                    setattr(copied, key, parameter)
                setattr(replica, name, copied)
            thread = threading.Thread(target=lambda r=replica, p=part: outputs.append(r(p)))
            thread.start()
            thread.join()
        return torch.cat(outputs)


@pytest.mark.parametrize("sample", [None, 4])
def test_replicas(sample):
    model = net()
    parallel = Replicas(model)
    tape = taped(parallel, "*", [X, X + 1], sample=sample)
    single = taped(model, "*", [X, X + 1], sample=sample)
    for name, layer in single.layers().items():
        assert_same(tape.layers()[name], layer, torch.float32)
    tape = record(model, "*")  # and not `parallel`
    with pytest.raises(RuntimeError, match="record: wanted the DataParallel model"):
        taped_in(tape, model._replicate_for_data_parallel(), (X,))


def test_parts_of_a_pass_are_joined_in_the_order_of_devices():
    model = nn.DataParallel(net())
    tape = record(model, "*")
    model.device_ids = [2, 0]
    parts = [
        Pass(0, None, [("0", torch.full((1, 1), float(index)))], torch.device("cuda", index), True)
        for index in (0, 2)
    ]
    joined = merged(tape._listener._in_order(parts))
    assert joined.rows[0][1].flatten().tolist() == [2, 0]
    parts[0].rows.append(("1", torch.zeros(1, 1)))
    with pytest.raises(ValueError, match="the same calls in every replica"):
        merged(parts)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_and_autocast(dtype):
    model = net().to(dtype)
    with record(model, "*") as tape:
        model(X.to(dtype))
    assert_recorded(tape, model, X.to(dtype))
    assert tape.layers()["0"].dtype == dtype
    model = net()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with record(model, "*") as tape:
            model(X)
        assert_recorded(tape, model)
    assert tape.layers()["0"].dtype == torch.bfloat16


def test_inference_mode_gives_ordinary_tensors():
    model = net()
    with torch.inference_mode(), record(model, "*") as tape:
        model(X)
        for layer in tape.layers().values():
            assert not layer.is_inference()
    weight = torch.ones(3, requires_grad=True)
    (tape.layers()["2"] * weight).sum().backward()
    assert_recorded(tape, model)


def test_training_mode_warns_once():
    model = seeded(Encoder, dropout=0.1)
    loader = token_batches()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        taped(model, "layer.*", loader, pool="mean")
        model.dropout.train()
        taped(model, "layer.*", loader, pool="mean", detach=False)
    with pytest.warns(UserWarning, match="the model is in training mode") as caught:
        taped(model, "layer.*", loader, pool="mean")
    assert [warning.filename for warning in caught] == [nets.__file__]  # which calls the model


def test_gradients():
    student, teacher = seeded(Encoder, width=6), seeded(Encoder, width=8)
    batch = token_batches(1, size=12)[0]
    with (
        record(student, "layer.1", pool="mean", detach=False) as ours,
        record(teacher, "layer.2", pool="first") as theirs,
    ):
        student(**batch)
        teacher(**batch)
    loss = 1 - cka_grid(list(ours.layers().values()), list(theirs.layers().values())).squeeze()
    loss.backward()
    assert student.layer[1].weight.grad.abs().sum() > 0
    assert student.layer[2].weight.grad is None
    assert teacher.layer[2].weight.grad is None
    assert not theirs.layers()["layer.2"].requires_grad


def test_gradients_are_those_without_a_tape():
    model = net()
    model(X)[:, 0].sum().backward()
    wanted = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    with record(model, "*", detach=False) as tape:
        model(X)
    tape.layers()["2"][:, 0].sum().backward()
    assert all(torch.equal(p.grad, w) for p, w in zip(model.parameters(), wanted, strict=True))
    with pytest.raises(ValueError, match="out: wanted no file with detach=False"):
        record(model, "*", detach=False, out="rows")


def test_layers_that_a_backward_pass_computes_anew():
    class Thrifty(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net()

        def forward(self, x):
            for layer in self.inner:
                x = checkpoint(layer, x, use_reentrant=True)
            return x

    model = Thrifty()
    model.inner[1].inplace = False
    with record(model, "inner.*", detach=False) as tape:
        model(X.clone().requires_grad_()).sum().backward()
    assert model.inner[0].weight.grad is not None
    assert tape.row_counts() == {"inner.0": 5, "inner.1": 5, "inner.2": 5}


def test_recursion_is_refused():
    class Inner(Shared):
        def forward(self, x, again=True):
            x = self.cell(x)
            return self(x, again=False) if again else x

    model = Inner().eval()
    with pytest.raises(RuntimeError, match="a model that does not call itself"):
        taped(model, "cell", [X])


def test_a_model_that_was_compiled_before_names_the_compiled_one():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(4, 3), nn.ReLU())

        def forward(self, x):
            return self.inner(x)

    model = Outer().eval()
    compiled = torch.compile(model, backend="eager")
    compiled(torch.ones(2, 4))
    message = "'inner.0', 'inner.1', never called; .* give record the compiled one"
    with pytest.raises(ValueError, match=message), record(model, "inner.*"):
        compiled(torch.ones(2, 4))
    with record(compiled, "inner.*") as tape:
        compiled(torch.ones(2, 4))
    assert tape.row_counts() == {"inner.0": 2, "inner.1": 2}
