"""Where the mask comes from, and when it is missing."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from simcore import record
from simcore.recording.masks import MaskFinder
from support.nets import Encoder, seeded, taped, token_batches

STATES = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
LAST = STATES[range(3), [1, 4, 2]]


def model_with(argument):
    """A model whose forward pass has a further argument of that name."""
    scope = {"nn": nn}
    exec(
        f"""
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Identity(), nn.Identity()

    def forward(self, x, {argument}=None, **others):
        return self.decoder(self.encoder(x))
""",
        scope,
    )
    return scope["Model"]().eval()


def last(model, *args, module="encoder", mask=None, **kwargs):
    with record(model, module, pool="last", mask=mask) as tape:
        model(*args, **kwargs)
    return tape.layers()[module]


@pytest.mark.parametrize("name", ["attention_mask", "mask"])
def test_true_is_a_token(name):
    assert torch.equal(last(model_with(name), STATES, MASK), LAST)
    assert torch.equal(last(model_with(name), STATES, **{name: MASK.bool()}), LAST)
    assert torch.equal(last(model_with("x2"), STATES, **{name: MASK.float()}), LAST)


@pytest.mark.parametrize("name", ["src_key_padding_mask", "key_padding_mask", "padding_mask"])
def test_true_is_padding(name):
    assert torch.equal(last(model_with(name), STATES, MASK == 0), LAST)
    added = torch.where(MASK.bool(), 0.0, -torch.inf)  # what torch adds to scores
    assert torch.equal(last(model_with(name), STATES, added), LAST)
    # The other mask of nn.TransformerEncoder is of pairs of tokens.
    pairs = torch.ones(5, 5).tril().bool()
    assert torch.equal(last(model_with(name), STATES, MASK == 0, mask=None, others=pairs), LAST)


def test_a_mask_that_is_given():
    model = model_with("length")
    for mask in (MASK, "length", lambda args, kwargs: args[1]):
        assert torch.equal(last(model, STATES, MASK, mask=mask), LAST)
    ignored = last(model_with("attention_mask"), STATES, MASK, mask=False)
    assert torch.equal(ignored, STATES[:, -1])


def test_the_halves_of_an_encoder_decoder_have_masks_of_their_own():
    model = model_with("attention_mask=None, decoder_attention_mask")
    other = MASK[[1, 0, 2]]
    masks = {"attention_mask": MASK, "decoder_attention_mask": other}
    assert torch.equal(last(model, STATES, module="encoder", **masks), LAST)
    wanted = STATES[range(3), [4, 1, 2]]
    assert torch.equal(last(model, STATES, module="decoder", **masks), wanted)
    with pytest.raises(ValueError, match="called without decoder_attention_mask"):
        last(model, STATES, module="decoder", attention_mask=MASK)


def test_the_halves_of_torchs_transformer():
    model = nn.Transformer(4, 2, 1, 1, 8, batch_first=True).eval()
    masks = {"src_key_padding_mask": MASK == 0, "tgt_key_padding_mask": MASK[[1, 0, 2]] == 0}
    for half, mask in (("encoder", MASK), ("decoder", MASK[[1, 0, 2]])):
        with record(model, f"{half}.layers.0.linear2", pool="last") as tape:
            model(STATES, STATES, **masks)
        with record(model, f"{half}.layers.0.linear2", pool="last", mask=mask) as wanted:
            model(STATES, STATES, **masks)
        name = f"{half}.layers.0.linear2"
        assert torch.equal(tape.layers()[name], wanted.layers()[name])


def test_a_half_without_a_mask_is_named():
    model = model_with("attention_mask=None, decoder_attention_mask")
    with pytest.raises(ValueError, match=r"of 'encoder', got none .*called without attention_mask"):
        last(model, STATES, module="encoder", decoder_attention_mask=MASK)
    model.head = nn.Identity().eval()  # in neither half
    model.forward = lambda x, attention_mask=None, decoder_attention_mask=None: model.head(x)
    tape = taped(model, "head", [STATES], pool="first")
    assert torch.equal(tape.layers()["head"], STATES[:, 0])


def test_flattened_rows_need_no_mask_that_fits():
    """Speech models have a mask of samples, and fewer states than samples."""
    model = model_with("attention_mask")
    with record(model, "encoder", pool="flatten") as tape:
        model(STATES, torch.ones(3, 80))
    assert torch.equal(tape.layers()["encoder"], STATES.flatten(1))


def test_an_encoder_within_a_decoder_belongs_to_the_decoder():
    model = model_with("attention_mask=None, decoder_attention_mask")
    model.decoder = nn.Sequential(OrderedDict(encoder=nn.Identity())).eval()
    masks = {"attention_mask": MASK.flip(0), "decoder_attention_mask": MASK}
    assert torch.equal(last(model, STATES, module="decoder.encoder", **masks), LAST)


def test_masks_of_several_choices():
    """A model of multiple choice flattens [B, C, T] before its first layer."""
    model = model_with("attention_mask")
    assert torch.equal(last(model, STATES, MASK[None]), LAST)
    assert torch.equal(last(model, STATES, MASK[:, None]), LAST)


NOT_TEXT = (
    *(
        "cross_modal_image_layers.0",
        "qformer.encoder.layer.0",
        "vit.encoder.layer.1",
        "visual.blocks",
    ),
    *("connector.perceiver_resampler.layers.0", "multi_modal_projector", "img_encoder.layer.0"),
    *("lxmert.encoder.r_layers.0", "model.vision_tower.layers.0", "encoder.visn_fc"),
)
TEXT = (
    *("cross_modal_text_layers.0", "language_model.layers.0", "encoder.layer.0.intermediate"),
    *("text_projection", "encoder.vitals", "embed_revision", "bert.pooler"),
)


@pytest.mark.parametrize(
    ("argument", "shape"), [("pixel_values", 2), ("images", 4), ("visual_feats", 3)]
)
def test_the_mask_of_texts_is_none_of_other_inputs(argument, shape):
    """The modules are called after their input; one size of picture has as many rows as tokens."""
    texts = {"attention_mask": MASK, "input_ids": MASK}
    finder = MaskFinder(model_with("input_ids=None, attention_mask"), None)
    named = {**texts, argument: torch.zeros((3, 5, 4, 4)[:shape])}
    found = finder.find((), {}, named, 0)
    for name in NOT_TEXT:
        with pytest.raises(ValueError, match=f"that of the call is of the text, not of {argument}"):
            found.kept(STATES, name, "mean")
    assert all(torch.equal(found.kept(STATES, name, "mean"), MASK.bool()) for name in TEXT)
    for more in ({}, {"head_mask": torch.ones(3, 5, 4)}, {"scores": torch.ones(3, 5)}):
        found = finder.find((), {}, {**texts, **more}, 0)
        assert torch.equal(found.kept(STATES, "perceiver.layers.0", "mean"), MASK.bool())


BAD = {
    "none": (None, "one .*'last' .*3, 5, 4.* 'encoder', got none .*without attention_mask.*False"),
    "another T": (
        MASK[:, :4],
        r"shape \(3, 5\) .*\(3, 5, 4\) of 'encoder', got \(3, 4\); mask= takes .* False",
    ),
    "time first": (MASK.T[:, :3], r".* got \(5, 3\); .*transpose"),
    "a row of padding": (MASK * torch.tensor([[1], [0], [1]]), "a token in every row, .* row 1"),
    "scores": (MASK * -1e4, "0 and 1 alone"),
    "four axes": (MASK[:, None, None], r"a tensor \[B, T\] .*\(3, 1, 1, 5\)"),
    "no tensor": ({"full": MASK}, "a tensor .* got dict"),
}


@pytest.mark.parametrize("name", BAD)
def test_message(name):
    mask, words = BAD[name]
    with pytest.raises(ValueError, match=f"^mask: wanted {words}"):
        last(model_with("attention_mask"), STATES, mask)


@pytest.mark.parametrize("name", ["attention_mask", "mask", "src_key_padding_mask"])
@pytest.mark.parametrize("batch", [5, 3])
def test_a_causal_mask_is_no_padding_mask(name, batch):
    """Also where there are as many examples as tokens."""
    states = torch.randn(batch, 5, 4, generator=torch.Generator().manual_seed(0))
    causal = torch.ones(5, 5).tril() == (name != "src_key_padding_mask")
    model, call = model_with(name), (states, causal)
    message = f"^mask: wanted one for pool='last' .*got none .*{name} is a lower triangle"
    with pytest.raises(ValueError, match=message):
        last(model, *call)
    assert torch.equal(last(model, *call, mask=False), states[:, -1])
    for pool, wanted in (("first", states[:, 0]), ("flatten", states.flatten(1))):
        with record(model, "encoder", pool=pool) as tape:
            model(*call)
        assert torch.equal(tape.layers()["encoder"], wanted)
    if batch == 5:  # sentences of 1 to 5 tokens are the one exception, which has to be named
        assert torch.equal(last(model, *call, mask=name), states[range(5), range(5)])


def test_models_without_masks():
    for pool in ("mean", "last", "tokens"):
        model = nn.Sequential(nn.Identity())
        with pytest.raises(ValueError, match="Sequential takes no mask"):
            taped(model.eval(), "0", [STATES], pool=pool)


def test_rows_that_are_no_examples():
    """A layer of experts flattens [B, T, p] to [B * T, p]."""

    class Flat(Encoder):
        def forward(self, ids, attention_mask=None):
            return self.head(self.embed(ids).flatten(0, 1))

    model, batch = seeded(Flat), token_batches(1)[0]
    with pytest.raises(ValueError, match=r"pool: wanted 4 rows, .* of 'head', got shape \(28, 2\)"):
        taped(model, "head", [batch], pool="mean")
