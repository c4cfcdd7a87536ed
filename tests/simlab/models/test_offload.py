"""A model that runs block by block gives the states of the whole model, bit by bit."""

import functools

import pytest
import torch
from transformers import AutoConfig, AutoModel

from simlab.errors import UserError
from simlab.models.batches import pad
from simlab.models.hidden import HiddenStates
from simlab.models.load import load_config, load_encoder, random_twin
from simlab.models.offload import BlockPasses, OffloadedModel, in_groups
from simlab.models.sources import ModelSource
from simlab.models.waiting import waiting_states
from support.lab.tinymodels import LAYERS, save_tiny_model, tiny_tokenizer
from support.model_families import STATES, TEXT

TEXTS = ("the unbelievable film is a bright and moving one", "dull plot", "some wonderful scenes")
# Without a list of blocks; whose parts of blocks are called; whose blocks pass on more than states.
REFUSED = {"xlm": "one list of blocks", "squeezebert": "calls its layers", "rwkv": "return their"}
# Those that differ the most: shared blocks, a convolution after block 1, time first, experts.
QUICK = ("bert", "albert", "deberta-v2", "xlnet", "longformer", "llama", "mixtral", "mamba")
FAMILIES = [f for f in TEXT if STATES not in f.without and f.model_type not in REFUSED]
each = functools.partial(pytest.mark.parametrize, "family", ids=lambda family: family.model_type)


@pytest.fixture(scope="module")
def batches():
    """Two batches of different lengths."""
    tokenizer = tiny_tokenizer()
    rows = [{k: v for k, v in tokenizer(t).items() if k != "token_type_ids"} for t in TEXTS]
    return [pad(tokenizer, rows[:2]), pad(tokenizer, rows[2:])]


@pytest.fixture
def saved(tmp_path):
    """Return a function that writes a model of random weights of a family."""

    def save(family):
        config = AutoConfig.for_model(family.model_type, **family.size)
        random_twin(AutoModel, config, 1).save_pretrained(tmp_path / "model")
        return ModelSource(family.model_type, tmp_path / "model")

    return save


def offloaded_model(source):
    return OffloadedModel(load_encoder(source, empty=True), source, "cpu")


def states_by_block(offloaded, batches, folder, max_memory=None):
    """Return the states of all layers, for every batch."""
    found = [[] for _ in batches]
    with torch.inference_mode(), waiting_states(folder, max_memory) as waiting:
        for passed in BlockPasses(offloaded, batches, waiting).run(output_hidden_states=True):
            last = passed.layer == len(offloaded.blocks)
            states = passed.output.hidden_states[-1] if last else passed.states
            found[passed.batch].append(states)
    return found


@each([f for f in FAMILIES if f.model_type in QUICK])
def test_states_are_those_of_the_whole_model(family, saved, batches, tmp_path):
    source = saved(family)
    whole = HiddenStates(load_encoder(source))
    with torch.inference_mode():
        wanted = [whole(batch) for batch in batches]
    found = states_by_block(offloaded_model(source), batches, tmp_path, 0)
    for batch, layers, of_whole in zip(batches, found, wanted, strict=True):
        width = batch["attention_mask"].shape[1]  # Longformer pads inside the model
        assert len(layers) == LAYERS + 1
        for states, those in zip(layers, of_whole, strict=True):
            assert torch.equal(states[:, :width], those)


@pytest.mark.slow
@each([f for f in FAMILIES if f.model_type not in QUICK])
def test_states_of_every_family(family, saved, batches, tmp_path):
    test_states_are_those_of_the_whole_model(family, saved, batches, tmp_path)


@each([f for f in TEXT if f.model_type in REFUSED])
def test_models_that_are_no_chain_of_blocks_are_refused(family, saved, batches, tmp_path):
    source = saved(family)
    with pytest.raises(UserError, match=REFUSED[family.model_type]):
        states_by_block(offloaded_model(source), batches, tmp_path)


def test_a_block_that_depends_on_the_embeddings_in_another_way_is_refused(tmp_path, batches):
    """Its rotation would be computed from the zeros that stand for the embeddings."""
    folder = save_tiny_model(tmp_path / "llama", "llama")
    offloaded = offloaded_model(ModelSource("llama", folder))
    rotary = offloaded.model.rotary_emb
    own = rotary.forward
    rotary.forward = lambda x, *args, **kwargs: (own(x, *args, **kwargs)[0] + x.sum(), x)
    with pytest.raises(UserError, match="found another argument of block 1 that depends on them"):
        states_by_block(offloaded, batches, tmp_path)


def test_a_block_that_depends_on_an_earlier_block_in_another_way_is_refused(tmp_path, batches):
    """The first block changes the rotation of the others."""
    folder = save_tiny_model(tmp_path / "llama", "llama")
    offloaded = offloaded_model(ModelSource("llama", folder))

    def change(_module, _arguments, options, answer):
        options["position_embeddings"][0].add_(answer[0].sum())

    offloaded.blocks[0].self_attn.register_forward_hook(change, with_kwargs=True)
    with pytest.raises(UserError, match="found another argument of block 2 that depends on them"):
        states_by_block(offloaded, batches, tmp_path)


def test_one_block_has_weights_at_a_time(tmp_path, batches):
    folder = save_tiny_model(tmp_path / "bert")
    offloaded = offloaded_model(ModelSource("bert", folder))
    model = offloaded.model
    assert all(p.is_meta for block in offloaded.blocks for p in block.parameters())
    with torch.inference_mode(), waiting_states(tmp_path) as waiting:
        for passed in BlockPasses(offloaded, batches, waiting).run():
            ready = [not next(block.parameters()).is_meta for block in offloaded.blocks]
            running = max(passed.layer - 1, 0)
            assert ready == [number == running for number in range(LAYERS)]
            words = model.get_input_embeddings().weight
            assert words.is_meta == (passed.layer > 0)
    assert all(p.is_meta for block in offloaded.blocks for p in block.parameters())


def test_groups_of_batches_have_room_together(tmp_path, batches, monkeypatch):
    offloaded = offloaded_model(ModelSource("bert", save_tiny_model(tmp_path / "bert")))
    sizes = [4 * 24 * batch["input_ids"].numel() for batch in batches]
    for room, groups in ((sum(sizes), 1), (sum(sizes) - 1, 2), (1, 2)):
        monkeypatch.setattr("simlab.models.offload.room_for_states", lambda *_, r=room: r)
        found = in_groups(offloaded, batches, tmp_path)
        assert len(found) == groups
        assert [batch for group in found for batch in batches[group]] == batches
    assert len(in_groups(offloaded, batches, tmp_path, states=2)) == 2


def test_states_wait_in_memory_and_in_files(tmp_path):
    rows = [torch.randn(2, 3, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    rows[1] = rows[1].bfloat16()
    with waiting_states(tmp_path, rows[0].nbytes) as waiting:
        for number, states in enumerate(rows):
            waiting.put(number, states)
        files = sorted(file.name for file in waiting.folder.iterdir())
        assert files == ["states-1", "states-2"]
        for number, states in enumerate(rows):
            assert torch.equal(waiting.get(number), states)
            assert waiting.get(number).dtype == states.dtype
        waiting.put(0, rows[2] + 1)
        waiting.put(2, rows[0])
        assert torch.equal(waiting.get(0), rows[2] + 1)
        assert torch.equal(waiting.get(2), rows[0])
    assert list(tmp_path.iterdir()) == []


def test_pickled_weights_are_refused(tmp_path):
    folder = save_tiny_model(tmp_path / "bert")
    weights = load_encoder(ModelSource("bert", folder)).state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"wanted weights in safetensors .* found pytorch_model"):
        load_encoder(ModelSource("bert", folder), empty=True)


def test_weights_that_do_not_fit_are_refused_as_in_a_whole_model(tmp_path):
    """A weight that is missing, and a weight of another shape."""
    folder = save_tiny_model(tmp_path / "bert")
    source = ModelSource("bert", folder)
    config = load_config(source)
    config.num_hidden_layers = LAYERS + 1
    config.save_pretrained(folder)
    for empty in (False, True):
        with pytest.raises(UserError, match=r"found no weights, .* for encoder\.layer\.3\."):
            load_encoder(source, empty=empty)
    config.num_hidden_layers, config.vocab_size = LAYERS, config.vocab_size + 1
    config.save_pretrained(folder)
    with pytest.raises(UserError, match=r"for embeddings\.word_embeddings\.weight"):
        load_encoder(source)
    with pytest.raises(UserError, match=r"for embeddings\.word_embeddings\.weight"):
        load_encoder(source, empty=True)


def test_a_weight_that_is_not_finite_is_refused(tmp_path, batches):
    folder = save_tiny_model(tmp_path / "bert")
    source = ModelSource("bert", folder)
    model = load_encoder(source)
    with torch.no_grad():
        model.encoder.layer[1].output.dense.weight[0, 0] = torch.nan
    model.save_pretrained(folder)
    with pytest.raises(UserError, match=r"finite weights, found NaN in encoder\.layer\.1\."):
        states_by_block(offloaded_model(source), batches, tmp_path)
