"""What is recorded is what the model computed, bit by bit."""

import pytest
import torch
from torch import nn

from simcore import record
from support.nets import ConvNet, Encoder, Shared, images, seeded, token_batches


def by_hand(model, modules, loader):
    """The first tensors of outputs, ``{name: [one a batch]}``, by hooks of one's own."""
    found, handles = {name: [] for name in modules}, []
    for name in modules:

        def keep(module, args, output, name=name):
            states = output[0] if isinstance(output, tuple) else output
            found[name].append(states.detach().clone())

        handles.append(model.get_submodule(name).register_forward_hook(keep))
    run(model, loader)
    for handle in handles:
        handle.remove()
    return found


def run(model, loader):
    for batch in loader:
        model(**batch) if isinstance(batch, dict) else model(batch)


def taped_in(tape, model, *calls):
    with tape:
        for arguments in calls:
            model(*arguments)


def same(layers, wanted):
    assert list(layers) == list(wanted)
    for name, layer in layers.items():
        assert torch.equal(layer, wanted[name]), name


def test_tokens_of_an_encoder():
    model, loader = seeded(Encoder), token_batches()
    names = ["embed", "layer.0", "layer.1", "layer.2"]
    with record(model, names, pool="tokens") as tape:
        run(model, loader)
    masks = [batch["attention_mask"].bool() for batch in loader]
    wanted = {
        name: torch.cat([s[m] for s, m in zip(states, masks, strict=True)])
        for name, states in by_hand(model, names, loader).items()
    }
    same(tape.layers(), wanted)
    assert tape.names == tuple(names)
    assert tape.row_counts() == dict.fromkeys(names, int(sum(m.sum() for m in masks)))


def test_order_is_that_of_execution_and_in_place_changes_come_too_late():
    model, loader = seeded(ConvNet), images()
    names = ["stem", "layer1.0", "layer1.1", "layer1", "layer2.0", "layer2.1", "layer2", "head"]
    with record(model, sorted(names), pool="positions") as tape:  # ReLU works in place
        run(model, loader)
    wanted = {
        name: torch.cat([s if s.ndim == 2 else s.movedim(1, -1).flatten(0, 2) for s in states])
        for name, states in by_hand(model, names, loader).items()
    }
    same(tape.layers(), wanted)


def test_a_module_that_runs_several_times():
    model, x = seeded(Shared), torch.randn(5, 4)
    with record(model, ["cell", "last"]) as tape, torch.no_grad():
        model(x)
        model(x + 1)
    assert tape.names == ("cell#0", "cell#1", "cell#2", "last")
    wanted = [model.cell(x), model.cell(x + 1)]
    assert torch.equal(tape.layers()["cell#0"], torch.cat(wanted))
    wanted = [model.cell(torch.tanh(first)) for first in wanted]
    assert torch.equal(tape.layers()["cell#1"], torch.cat(wanted))


def test_other_numbers_of_calls_are_refused():
    model, x = seeded(Shared), torch.randn(5, 4)
    for first, second in ((3, 4), (3, 2), (1, 2)):
        message = r"modules: wanted the calls of the first .* calls of 'cell"
        tape = record(model, ["cell", "last"])
        with pytest.raises(ValueError, match=message):
            taped_in(tape, model, (x, first), (x, second))
        assert len(tape.layers()["last"]) == 5  # the second pass left nothing


def test_shared_modules_have_one_name():
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    with record(model.eval(), "*") as tape:
        model(torch.randn(5, 4))
    assert tape.names == ("0#0", "1", "0#1")


def test_the_model_itself():
    model, x = seeded(Shared), torch.randn(5, 4)
    with record(model, ["", "last"]) as tape:
        model(x)
    assert tape.names == ("last", "")
    assert torch.equal(tape.layers()[""], model(x).detach())


class Outputs(nn.Module):
    """Gives its input back in another container."""

    def __init__(self, wrap):
        super().__init__()
        self.wrap = wrap

    def forward(self, x):
        return self.wrap(x)


@pytest.mark.parametrize(
    ("wrap", "select"),
    [
        (lambda x: x, None),
        (lambda x: (x, x + 1), None),
        (lambda x: (x + 1, x), 1),
        (lambda x: [None, (None, {"a": x})], None),
        (lambda x: {"loss": x.sum(), "states": x}, "states"),
        (lambda x: torch.return_types.max((x, x.long())), "values"),
        (lambda x: {"a": [x + 1, x]}, lambda output: output["a"][1]),
    ],
)
def test_containers(wrap, select):
    model, x = nn.Sequential(Outputs(wrap)).eval(), torch.randn(5, 4)
    with record(model, "0", select=select) as tape:
        model(x)
    assert torch.equal(tape.layers()["0"], x)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_time_first_modules(kind):
    kept = {}
    for batch_first in (True, False):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = nn.Sequential(kind(4, 3, batch_first=batch_first)).eval()
        x = torch.randn(6, 6, 4, generator=torch.Generator().manual_seed(0))  # B = T
        with record(model, "0", pool="last", mask=False) as tape:
            model(x if batch_first else x.transpose(0, 1))
        kept[batch_first] = tape.layers()["0"]
    assert torch.equal(kept[True], kept[False])


def test_torchs_transformer_layers():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x, padding = torch.randn(3, 5, 8), torch.tensor([[0] * 5, [0, 0, 0, 1, 1], [0, 1, 1, 1, 1]])
    with record(model, "layers.*", pool="last") as tape, torch.no_grad():
        output = model(x, src_key_padding_mask=padding.bool())
    assert tape.names == ("layers.0", "layers.1")
    assert torch.equal(tape.layers()["layers.1"], output[[0, 1, 2], [4, 2, 0]])


SELECTED = {
    "layer.0": ["layer.0"],
    "layer.*": ["layer.0", "layer.1", "layer.2"],
    "layer.[!0]": ["layer.1", "layer.2"],
    "h?ad": ["head"],
    "*": ["embed", "head", "dropout"],
    "**": ["embed", "layer.0", "layer.1", "layer.2", "head", "dropout"],
    "**0": ["layer.0"],
}


@pytest.mark.parametrize("glob", SELECTED)
def test_globs(glob):
    model = seeded(Encoder)
    with record(model, glob, pool="tokens") as tape:
        model(**token_batches(1)[0])
    names = {name.partition("#")[0] for name in tape.names}
    assert names == set(SELECTED[glob])


def test_predicates_and_lists():
    model, batch = seeded(Encoder), token_batches(1)[0]
    with record(model, lambda name, module: isinstance(module, nn.Linear), pool="tokens") as tape:
        model(**batch)
    assert tape.names == ("layer.0", "layer.1", "layer.2", "head")
    with record(model, ["head", "layer.*", "layer.1"], pool="first") as tape:
        model(**batch)
    assert tape.names == ("layer.0", "layer.1", "layer.2", "head")
