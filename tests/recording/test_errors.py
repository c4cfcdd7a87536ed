"""Each message of `record` once: it names the option, the wanted and the found."""

import re

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from simcore import compare, compare_layers, record
from support.nets import ConvNet, Encoder, images, seeded, taped, token_batches


def assert_words(error, words):
    message = str(error.value)
    missing = [word for word in words.split() if word not in re.split(r"[^\w.#*-]+", message)]
    assert not missing, message


ENCODER, CONVNET = seeded(Encoder), seeded(ConvNet)
OPTIONS = {
    "a name that is none": ("layer.7", {}, ValueError, "modules layer.7 no match layer.0"),
    "a glob without matches": ("blocks.*", {}, ValueError, "modules blocks.* no match"),
    "a list with one": (["embed", "haed"], {}, ValueError, "modules haed head"),
    "a list": ("layer", {}, ValueError, "modules layer only ModuleList never called"),
    "an empty list": ([], {}, ValueError, "modules at least one empty"),
    "no string": (3, {}, TypeError, "modules glob list predicate 3"),
    "a list of modules": ([nn.Identity()], {}, TypeError, "modules glob list predicate"),
    "nothing true": (lambda n, m: False, {}, ValueError, "modules predicate no match"),
    "pool": ("*", {"pool": "cls"}, ValueError, "pool first last mean tokens function cls"),
    "select": ("*", {"select": 1.5}, TypeError, "select index key function 1.5"),
    "mask": ("*", {"mask": 1.5}, TypeError, "mask None False tensor name function 1.5"),
    "detach": ("*", {"detach": "no"}, TypeError, "detach True False no"),
    "max_memory": ("*", {"max_memory": 0}, ValueError, "max_memory positive bytes 0"),
    "out": ("*", {"out": "/nowhere/at/all"}, ValueError, "out file folder nowhere"),
    "out is a folder": ("*", {"out": "/"}, ValueError, "out file a folder"),
    "sample": ("*", {"sample": 1.5}, ValueError, "sample number share 1.5"),
    "sample none": ("*", {"sample": 0}, ValueError, "sample number share 0"),
    "seed": ("*", {"seed": -1}, ValueError, "seed at least 0 -1"),
    "generate": ("*", {"generate": "no"}, ValueError, "generate prompt all no"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name):
    modules, options, kind, words = OPTIONS[name]
    with pytest.raises(kind) as error:
        record(ENCODER, modules, **options)
    assert_words(error, words)


def test_all_of_a_few_names_are_told_and_of_many_the_nearest():
    few = nn.ModuleDict({name: nn.Linear(2, 2) for name in ("conv", "pool", "fc")})
    with pytest.raises(ValueError, match=r"its modules are 'conv', 'pool', 'fc'$"):
        record(few, "convv")
    many = nn.ModuleDict({f"layer_{k}": nn.ModuleDict({"conv": few["fc"]}) for k in range(9)})
    many["stem"] = few
    with pytest.raises(ValueError, match=r"the nearest names are '(layer_\d|stem)\.conv', "):
        record(many, "convv")


def test_the_model():
    with pytest.raises(TypeError, match=r"model: wanted an nn.Module, got function"):
        record(lambda x: x, "*")


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_compiled_script():
    with pytest.raises(TypeError, match=r"model: wanted .* Python code, got a TorchScript"):
        record(torch.jit.trace(CONVNET, images(1)[0]), "stem")


def test_modules_that_are_never_called():
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4), "c": nn.Linear(4, 4)})
    model.forward = lambda x: model["b"](x)
    message = "^modules: wanted modules that the forward pass calls, got 'a', 'c', never called"
    with pytest.raises(ValueError, match=message):
        taped(model.eval(), ["*", "a", "c"], torch.randn(2, 3, 4))
    with pytest.raises(ValueError, match="got 'a', never called"):
        taped(model, "a*", torch.randn(2, 3, 4))


def test_no_forward_pass():
    with pytest.raises(RuntimeError, match="record: wanted a forward pass of the model, got none"):
        taped(ENCODER, "embed", [])


@pytest.mark.parametrize("pool", [None, "spatial-mean", "positions"])
def test_pools_that_do_not_fit_tokens(pool):
    words = f"pool first last mean tokens flatten function 4 7 8 layer.0 {pool}"
    with pytest.raises(ValueError, match=r"^pool: wanted ") as error:
        taped(ENCODER, "layer.*", token_batches(1), pool=pool)
    assert_words(error, words)


@pytest.mark.parametrize("pool", [None, "first", "last", "mean", "tokens"])
def test_pools_that_do_not_fit_images(pool):
    words = f"pool spatial-mean positions flatten function 5 6 8 stem {pool}"
    with pytest.raises(ValueError, match=r"^pool: wanted ") as error:
        taped(CONVNET, "stem", images(1), pool=pool)
    assert_words(error, words)


def output_of(function, **options):
    class Inner(nn.Module):
        def forward(self, x):
            return function(x)

    model = nn.Sequential(Inner()).eval()
    taped(model, "0", [torch.ones(3, 4)], **options)


OUTPUTS = {
    "no tensor": (lambda x: {"a": 1}, {}, TypeError, "select tensor 0 dict a"),
    "integers": (lambda x: x.long(), {}, TypeError, "0 floating-point torch.int64"),
    "a scalar": (lambda x: x.sum(), {}, ValueError, "select states B p 0 shape"),
    "packed": (lambda x: pack_sequence([x]), {}, TypeError, "select PackedSequence function"),
    "nested": (
        lambda x: torch.nested.nested_tensor([x, x[:2]]),
        {},
        TypeError,
        "select dense 0 nested enable_nested_tensor",
    ),
    "sparse": (lambda x: x.to_sparse(), {}, TypeError, "0 dense torch.sparse_coo"),
    "an index too large": (lambda x: (x, x), {"select": 2}, ValueError, "select 2 0 tuple length"),
    "a key": (lambda x: {"a": x}, {"select": "b"}, ValueError, "select b 0 dict a"),
    "an attribute": (lambda x: [x], {"select": "states"}, ValueError, "select states 0 list"),
    "a function's rows": (
        lambda x: x,
        {"pool": lambda x: x.sum()},
        ValueError,
        "pool function rows 0 torch.float32",
    ),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs(name):
    function, options, kind, words = OUTPUTS[name]
    with pytest.raises(kind) as error:
        output_of(function, **options)
    assert_words(error, words)


def test_widths_and_dtypes_stay():
    model = seeded(Encoder)
    loader = [*token_batches(1), *token_batches(1, tokens=9)]
    with pytest.raises(ValueError, match=r"pool: wanted rows of 56 columns .* got 72 ") as error:
        taped(model, "embed", loader, pool="flatten")
    assert_words(error, "embed torch.float32 pass 1")


def test_layers_outside_a_block_name_the_block():
    tape = record(nn.Sequential(nn.Linear(2, 3)), "0")
    with pytest.raises(RuntimeError, match=r"got none; it records inside its block: with record"):
        tape.layers()


@pytest.mark.parametrize(
    ("arguments", "missing"), [((), "no loader and no modules"), (([],), "no modules")]
)
def test_a_call_without_loader_or_modules_says_what_to_pass(arguments, missing):
    net = seeded(ConvNet, 6)
    with pytest.raises(TypeError, match=f"loader, modules.* as modules, got {missing}$"):
        compare(net, net, *arguments)


def test_texts_and_numbers_in_place_of_batches_and_names_are_refused():
    net = seeded(Encoder, 6)
    with pytest.raises(
        TypeError, match=r"^loader: wanted batches that the model takes.* got a tex"
    ):
        compare(net, net, ["a text"], "*")
    with pytest.raises(TypeError, match=r"^X: wanted names of layers that are texts, got 1$"):
        compare_layers({1: torch.ones(3, 2)})
