"""Two decoders of one set of weights: planted faults are found, harmless changes are not."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from simcore.testing import assert_alike, check_alike
from support.small_decoder import HEAD, HEADS, WIDTH, Decoder, batch

PLACE = 2  # of the block with the fault


def _rope_base(block):
    block.attention.base = 10500.0


def _eps(block):
    block.norm.eps = 1e-5


def _transposed(block):
    block.attention.v.weight.data = block.attention.v.weight.data.T.contiguous()


def _swapped_head(block):
    heads = block.attention.k.weight.data.view(HEADS, HEAD, WIDTH)
    block.attention.k.weight.data = heads[[1, 0, 2, 3]].reshape(WIDTH, WIDTH)


def _float16_accumulation(block):
    weight = block.down.weight
    block.down.forward = lambda x: (x.half() @ weight.half().T).to(x.dtype)


def _no_scale(block):
    block.attention.scale = 1.0


def _int8_weights(block):
    weight = block.up.weight.data
    unit = weight.abs().amax(1, keepdim=True) / 127
    block.up.weight.data = (weight / unit).round() * unit


def _padding_side(block):
    inner = block.attention.forward
    block.attention.forward = lambda x, mask: inner(x, mask.flip(1))


def _weight_of_a_norm(block):
    block.norm_2.weight.data[5] *= 1.001


def _gelu(block):
    block.forward = lambda x, mask: _with_gelu(block, x, mask)


def _with_gelu(block, x, mask):
    x = x + block.attention(block.norm(x), mask)
    normed = block.norm_2(x)
    return x + block.down(functional.gelu(block.gate(normed)) * block.up(normed))


FAULTS = {
    "rope base": _rope_base,
    "eps of a norm": _eps,
    "transposed projection": _transposed,
    "swapped head": _swapped_head,
    "float16 accumulation": _float16_accumulation,
    "missing scale": _no_scale,
    "int8 weights": _int8_weights,
    "padding side": _padding_side,
    "one weight of a norm": _weight_of_a_norm,
    "another activation": _gelu,
}


@pytest.fixture(scope="module")
def a():
    return Decoder()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_at_its_layer(a, fault):
    b = Decoder()
    FAULTS[fault](b.layers[PLACE])
    result = check_alike(a, b, batch())
    first = result.first()
    assert first is not None, str(result)
    assert first.name == f"layers.{PLACE}"
    assert first.verdict == "different"
    assert {layer.verdict for layer in result.layers[: PLACE + 1]} == {"equal bits"}
    assert result.layers[-1].name == ""
    assert not result.is_alike("rotated")


def _eager(b):
    for layer in b.layers:
        layer.attention.eager = True


def _fused_projections(b):
    for layer in b.layers:
        up, gate = layer.up, layer.gate
        both = torch.cat([up.weight.data, gate.weight.data])
        up.forward = lambda x, both=both: (x @ both.T.to(x.dtype))[..., : 2 * WIDTH]
        gate.forward = lambda x, both=both: (x @ both.T.to(x.dtype))[..., 2 * WIDTH :]


def _in_chunks(b):
    for layer in b.layers:
        inner = layer.down.weight.data
        layer.down.forward = lambda x, w=inner: (
            x[..., ::2] @ w[:, ::2].T.to(x.dtype) + x[..., 1::2] @ w[:, 1::2].T.to(x.dtype)
        )


def _other_layout(b):
    for parameter in b.parameters():
        if parameter.ndim == 2:
            parameter.data = parameter.data.T.contiguous().T


def _permuted_inside(b):
    order = torch.randperm(2 * WIDTH, generator=torch.Generator().manual_seed(0))
    for layer in b.layers:
        for part in (layer.up, layer.gate):
            part.weight.data = part.weight.data[order]
        layer.down.weight.data = layer.down.weight.data[:, order]


def _one_by_one(b):
    inner = b.layers[0].forward
    b.layers[0].forward = lambda x, mask: torch.cat(
        [inner(x[i : i + 1], mask[i : i + 1]) for i in range(len(x))]
    )


HARMLESS = {
    "nothing": lambda b: None,
    "eager attention": _eager,
    "fused projections": _fused_projections,
    "sums in another order": _in_chunks,
    "another layout of weights": _other_layout,
    "neurons in another order": _permuted_inside,
    "examples one by one": _one_by_one,
    "bfloat16": lambda b: b.bfloat16(),
    "float16": lambda b: b.half(),
    "float64": lambda b: b.double(),
    "bfloat16 and eager": lambda b: (_eager(b), b.bfloat16()),
    "float16 and another order": lambda b: (_in_chunks(b), b.half()),
}


@pytest.mark.parametrize("change", HARMLESS)
def test_a_harmless_change_is_not(a, change):
    b = Decoder()
    HARMLESS[change](b)
    assert_alike(a, b, batch())


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_are_harmless(a, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert_alike(a, Decoder(), batch(examples=8, length=30))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_every_module_names_the_part(a):
    b = Decoder()
    _transposed(b.layers[PLACE])
    assert check_alike(a, b, batch(), modules="**").first().name == f"layers.{PLACE}.attention.v"


def test_neurons_in_another_order_are_permuted(a):
    b = Decoder()
    _permuted_inside(b)
    result = check_alike(a, b, batch(), modules=["layers.*.up", "layers.*", ""])
    found = {layer.name: layer.verdict for layer in result.layers}
    assert {v for name, v in found.items() if name.endswith("up")} == {"permuted"}
    assert found[""] == "equal within noise"
    with pytest.raises(AssertionError, match=r"first that diverges, 1 of 11: layers\.0\.up: perm"):
        assert_alike(a, b, batch(), modules=["layers.*.up", "layers.*", ""])
    assert_alike(a, b, batch(), modules=["layers.*.up", "layers.*", ""], allow="permuted")


def test_a_rotated_stream_is_rotated(a):
    """Every map into the stream is turned, and every map out of it; norms have no weights."""
    a, b = Decoder(), Decoder()
    for model in (a, b):
        for module in model.modules():
            if hasattr(module, "eps"):
                module.weight.data.fill_(1.0)
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=generator).double())[0]
    with torch.no_grad():
        b.embed.weight.data = (b.embed.weight.double() @ turn).float()
        for layer in b.layers:
            parts = (layer.attention.q, layer.attention.k, layer.attention.v, layer.up, layer.gate)
            for part in parts:
                part.weight.data = (part.weight.double() @ turn).float()
            for part in (layer.attention.o, layer.down):
                part.weight.data = (turn.T @ part.weight.double()).float()
        b.head.weight.data = (b.head.weight.double() @ turn).float()
    result = check_alike(a, b, batch())
    verdicts = {layer.name: layer.verdict for layer in result.layers}
    assert {v for name, v in verdicts.items() if "layers" in name} == {"rotated"}
    assert verdicts["head"] == "equal within noise", str(result)
    assert result.is_alike("rotated")


def test_rows_that_differ_are_named(a):
    b = Decoder()
    token = int(batch()["input_ids"][4, 1])
    b.embed.weight.data[token] *= 1.5
    first = check_alike(a, b, batch()).first()
    assert first.name == "embed"
    ids = batch()["input_ids"][batch()["attention_mask"].bool()]
    assert {int(ids[row]) for row in first.rows if ids[row] == token} == {token}
    assert "example" in str(check_alike(a, b, batch())).splitlines()[1]


def test_a_model_with_fewer_blocks_is_shifted(a):
    b = Decoder()
    del b.layers[-1]
    result = check_alike(a, b, batch())
    assert "A has 9 layers, B has 8" in result.message
    assert [layer.name for layer in result.layers if layer.verdict == "missing"] == ["layers.4"]


def test_the_layers_of_another_program(a):
    recorded = {}
    inputs = batch()

    def note(name):
        return lambda module, args, out: recorded.update(
            {name: out[inputs["attention_mask"].bool()].detach().numpy()}
        )

    b = Decoder()
    _eager(b)
    for i, layer in enumerate(b.layers):
        layer.register_forward_hook(note(f"block {i}"))
    b(**inputs)
    assert_alike(a, recorded, inputs, modules="layers.*")
    late = {f"block {i}": recorded[f"block {i + 1}"] for i in range(4)}
    result = check_alike(a, late, inputs, modules="layers.*")
    assert "'layers.1' of A is 'block 0' of B" in result.message


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(7, 6)),
        (
            lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()),
            torch.randn(4, 3, 8, 8),
        ),
        (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), torch.randn(4, 9, 16)),
        (lambda: nn.Linear(6, 3), [torch.randn(1, 6)]),
    ],
)
def test_other_models(model, inputs):
    torch.manual_seed(0)
    a, b = model().eval(), model().eval()
    assert not check_alike(a, b, inputs).is_alike("rotated")
    b.load_state_dict(a.state_dict())
    assert_alike(a, b, inputs)


def test_the_models_are_left_as_they_were(a):
    before = {name: value.clone() for name, value in a.state_dict().items()}
    check_alike(a, Decoder().bfloat16(), batch())
    assert all(torch.equal(before[name], value) for name, value in a.state_dict().items())
    assert not any(module._forward_hooks for module in a.modules())


def test_errors(a):
    with pytest.raises(ValueError, match="b: wanted a model in eval mode"):
        check_alike(a, Decoder().train(), batch())
    with pytest.raises(TypeError, match=r"a: wanted an nn.Module, .* got a dictionary"):
        check_alike({"0": torch.zeros(3, 2)}, a, batch())
    with pytest.raises(TypeError, match="batch: wanted one batch"):
        check_alike(a, a)
    with pytest.raises(ValueError, match="allow: wanted"):
        assert_alike(a, a, batch(), allow="different")
    with pytest.raises(ValueError, match=r"modules: wanted 'layer\.\*' to match"):
        check_alike(a, a, batch(), modules="layer.*")
