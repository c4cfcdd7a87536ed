"""Classes of models with a head: that of jiant, as its source has it, for every kind of task."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModel

from simlab import finetune, influence, inject, read_results, shorten, skip, truncate
from simlab.errors import UserError
from simlab.experiments.injection import InjectionPair
from simlab.experiments.options import InjectOptions
from simlab.experiments.shorten import shortened
from simlab.experiments.skip import EMPTY, all_skip_logits
from simlab.experiments.truncate import TruncationOptions, cut_model
from simlab.models.architectures import POOLER
from simlab.models.classes import head_of
from simlab.models.evaluate import predict_logits
from simlab.models.heads import HeadRecipe, head_parameters, stacked_logits, train_heads
from simlab.models.load import load_classifier, load_config, load_tokenizer
from simlab.models.recognise import architecture_of
from simlab.models.sources import resolve
from simlab.models.states import apply_head, layer_states
from simlab.results.results import TRUNCATIONS
from support.lab.tinyclassifiers import batch_of, choice_task, save_classifier, vectors_of_layers
from support.lab.tinymodels import LAYERS, each
from support.tolerance import HEAD_TRAINING, assert_same_forward

WITH_POOLER = ("bert", "roberta", "albert", "mpnet")
READ = (*WITH_POOLER, "electra")


def by_hand(model, batch):
    """Return the logits of jiant's head in evaluation mode, from the states of the encoder."""
    flat = {name: tensor.flatten(0, -2) for name, tensor in batch.items()}
    answer = model.base_model(**flat)
    pooled = answer.pooler_output if "pooler_output" in answer else answer.last_hidden_state[:, 0]
    weights = model.classifier.state_dict()
    hidden = torch.tanh(pooled @ weights["dense.weight"].T + weights["dense.bias"])
    return hidden @ weights["out_proj.weight"].T + weights["out_proj.bias"]


def numbered(examples):
    return replace(examples, labels=np.linspace(0, 5, len(examples), dtype=np.float32))


@pytest.mark.parametrize("kind", ["labels", "choices", "numbers"])
@pytest.mark.parametrize("architecture", each(READ, ("albert", "electra")))
def test_the_head_is_that_of_jiant(tmp_path, review_task, architecture, kind):
    numbers = replace(review_task, train=numbered(review_task.train), label_names=(),
                      heldout=numbered(review_task.heldout))  # fmt: skip
    task = {"labels": review_task, "choices": choice_task(), "numbers": numbers}[kind]
    source = save_classifier(tmp_path / architecture, architecture, task, "jiant")
    model, batch = load_classifier(source), batch_of(source, task)
    assert head_of(model.config) == "jiant"
    paths = architecture_of(model).head(model)
    assert (POOLER in paths) == (architecture in WITH_POOLER)
    sides = {f"classifier.{layer}.{side}" for layer in ("dense", "out_proj")
             for side in ("weight", "bias")}  # fmt: skip
    assert head_parameters(model).keys() == sides
    with torch.no_grad():
        wanted = by_hand(model, batch).view(6, -1)
        assert wanted.shape[1] == {"labels": 2, "choices": 3, "numbers": 1}[kind]
        assert_same_forward(model(**batch).logits, wanted)
        vectors = vectors_of_layers(model, batch)
        heads = {n: p.expand(LAYERS + 1, *p.shape) for n, p in head_parameters(model).items()}
        for found, states in zip(
            stacked_logits(model, heads, vectors), layer_states(model, batch), strict=True
        ):
            assert_same_forward(found, apply_head(model, states, batch["attention_mask"]))
        labels = torch.as_tensor(task.heldout.labels[:6])
        loss = model(**batch, labels=labels).loss
    if kind == "numbers":
        assert torch.isclose(loss, (wanted[:, 0] - labels).square().mean().to(loss.dtype))
    else:
        rows = wanted.log_softmax(-1)[range(6), labels]
        assert torch.isclose(loss, -rows.mean())


def on_states(model, states):
    """Return the logits of jiant's head from the states of a layer, as Phang et al. feed them."""
    first, pooler = states[:, 0], getattr(model.base_model, "pooler", None)
    if pooler is not None:  # ALBERT's is a linear layer alone
        weights = getattr(pooler, "dense", pooler)
        first = torch.tanh(first @ weights.weight.T + weights.bias)
    weights = model.classifier.state_dict()
    hidden = torch.tanh(first @ weights["dense.weight"].T + weights["dense.bias"])
    return hidden @ weights["out_proj.weight"].T + weights["out_proj.bias"]


@pytest.mark.parametrize("architecture", each(READ, ("albert", "electra")))
def test_layers_are_cut_left_out_and_injected_below_the_head(tmp_path, review_task, architecture):
    source = save_classifier(tmp_path / architecture, architecture, review_task, "jiant")
    task = replace(review_task, heldout=review_task.heldout.head(6))
    model, batch = load_classifier(source), batch_of(source, task)
    with torch.no_grad():
        states = layer_states(model, batch)
        wanted = torch.stack([on_states(model, one) for one in states])
        assert_same_forward(by_hand(model, batch), wanted[-1])
        cut = cut_model(source, task, 64, "untuned", TruncationOptions()).logits
        assert_same_forward(torch.as_tensor(cut), wanted)
        skipped = all_skip_logits(source, task, 64)
        assert_same_forward(torch.as_tensor(skipped[EMPTY]), wanted[-1])
        assert_same_forward(torch.as_tensor(skipped[0, LAYERS]), wanted[0])
        for layer in range(LAYERS + 1):
            options = InjectOptions(layer, ("itself", "identity"), "cls")
            injection = InjectionPair(source, source, task, options)
            rows, batch, own = next(injection.mapped(task.heldout))
            rest = injection.continuation(batch)
            assert_same_forward(rest(own), wanted[-1][rows])
            if layer == LAYERS:
                assert_same_forward(rest(own + 1), on_states(model, own[:, None] + 1))


@pytest.mark.parametrize("mode", each(["tuned", "tuned-orig"], ("tuned",)))
@pytest.mark.parametrize("architecture", each(READ, ("albert", "electra")))
def test_tuned_heads_leave_the_pooler_to_the_encoder(tmp_path, review_task, architecture, mode):
    """Phang et al. fine-tune "only the output head", and jiant's encoder has the pooler."""
    source = save_classifier(tmp_path / architecture, architecture, review_task, "jiant")
    recipe = HeadRecipe(most_steps=5, batch_size=4, validation_share=0.0, scale=False)
    options = TruncationOptions((mode,), original=str(tmp_path / architecture), recipe=recipe)
    cut = cut_model(source, review_task, 64, mode, options)
    start = {name: p.detach().clone() for name, p in cut.model.named_parameters()}
    model = shortened(cut, LAYERS)
    moved = {n for n, p in model.named_parameters() if not torch.equal(p, start[n])}
    assert moved == head_parameters(model).keys()
    assert any("pooler" in name for name in start.keys() - moved) == (architecture in WITH_POOLER)
    wanted = predict_logits(model, cut.tokenizer, review_task.heldout, 64)
    assert_same_forward(torch.as_tensor(cut.logits[-1]), torch.as_tensor(wanted))


@pytest.mark.parametrize("architecture", ["bert", "electra"])
def test_heads_of_jiant_read_vectors_of_one_scale(tmp_path, review_task, architecture):
    """The scaling of vectors stands after the pooler, and leaves the head the same function."""
    source = save_classifier(tmp_path / architecture, architecture, review_task, "jiant")
    model, batch = load_classifier(source), batch_of(source, review_task)
    labels = torch.as_tensor(review_task.heldout.labels[:6])
    with torch.no_grad():
        vectors = vectors_of_layers(model, batch)
    recipe = HeadRecipe(most_steps=1, batch_size=4, learning_rate=0.0, validation_share=0.0)
    start = head_parameters(model)
    for name, value in train_heads(model, vectors, labels, recipe).items():
        assert (value - start[name]).abs().max() <= HEAD_TRAINING


def test_a_pretrained_pooler_is_kept_and_new_layers_are_torch_s(tmp_path, review_task):
    """RoBERTa's own classifier has no pooler; jiant initialises its layers as torch does."""
    save_classifier(tmp_path / "roberta", "roberta", review_task)
    encoder = AutoModel.from_pretrained(tmp_path / "roberta")
    encoder.save_pretrained(tmp_path / "roberta")
    source = resolve(str(tmp_path / "roberta"))
    model = load_classifier(source, review_task, seed=3, head="jiant")
    assert torch.equal(model.base_model.pooler.dense.weight, encoder.pooler.dense.weight)
    dense = model.classifier.dense.weight
    bound = 24**-0.5  # uniform up to this, and not normal with a deviation of .02
    assert 0.9 * bound < dense.abs().max() <= bound
    again = load_classifier(source, review_task, seed=3, head="jiant").classifier.dense.weight
    assert torch.equal(dense, again)
    other = load_classifier(source, review_task, seed=4, head="jiant").classifier.dense.weight
    assert not torch.equal(dense, other)


def test_a_new_pooler_is_told(tmp_path, review_task, capsys):
    save_classifier(tmp_path / "bert", "bert", review_task)
    encoder = AutoModel.from_pretrained(tmp_path / "bert", add_pooling_layer=False)
    encoder.save_pretrained(tmp_path / "bert")
    source = resolve(str(tmp_path / "bert"))
    load_classifier(source, review_task)
    assert "no pooler" not in capsys.readouterr().err
    load_classifier(source, review_task, head="jiant")
    told = " ".join(capsys.readouterr().err.split())
    assert "its files have no pooler, so that the head of jiant reads a random one" in told


def test_dropout_stands_before_both_layers(tmp_path, review_task):
    source = save_classifier(tmp_path / "bert", "bert", review_task, "jiant")
    head = load_classifier(source).classifier.train()
    head.dropout.p = 1.0
    with torch.no_grad():
        logits = head(torch.ones(2, 24))
        assert torch.equal(logits, head.out_proj.bias.expand(2, -1))
    seen = []
    head.dense.register_forward_pre_hook(lambda _module, given: seen.append(given[0]))
    head(torch.ones(2, 24))
    assert not seen[0].any()


@pytest.mark.parametrize("architecture", ["gpt2", "xlnet", "distilbert"])
def test_other_models_are_refused(tmp_path, review_task, architecture):
    wanted = r"^head='jiant': wanted an encoder whose first token .* ALBERT, ELECTRA\), found '"
    with pytest.raises(UserError, match=wanted):
        save_classifier(tmp_path / architecture, architecture, review_task, "jiant")
    with pytest.raises(UserError, match=r"^head='own': wanted one of transformers, jiant$"):
        finetune("minilm", "rt", tmp_path / "ft", head="own")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, tiny_bert, review_task):
    """A model after two steps with the head of jiant."""
    folder = tmp_path_factory.mktemp("jiant") / "ft"
    return finetune(tiny_bert, review_task, folder, head="jiant", max_steps=2).path


@pytest.mark.deep
def test_a_tuned_model_goes_through_all_steps_that_read_a_head(
    tmp_path, tuned, tiny_bert, review_task
):
    source, task = resolve(tuned), review_task
    assert head_of(load_config(source)) == "jiant"
    whole = predict_logits(load_classifier(source), load_tokenizer(source), task.heldout, 64)
    right = float(np.mean(whole.argmax(1) == task.heldout.labels))
    modes = ["untuned", "tuned", "tuned-orig"]
    step = truncate(tuned, task, tmp_path / "t.parquet", modes=modes, head_most_steps=4)
    rows = read_results(step.path)
    rows = rows[rows["measure"] == "accuracy"]
    counts = rows.groupby("experiment").size()
    assert [counts[TRUNCATIONS[mode]] for mode in modes] == [LAYERS + 1] * 3
    untuned = rows[rows["experiment"] == TRUNCATIONS["untuned"]].set_index("layer_x")["value"]
    assert untuned[LAYERS] == right
    skipped = read_results(skip(tuned, task, tmp_path / "s.parquet").path)
    assert (skipped["value"].notna()).all()
    assert len(read_results(influence(tuned, task, tmp_path / "i.parquet").path))
    short = shorten(tuned, task, LAYERS, tmp_path / "short").path
    shorter = resolve(short)
    kept = predict_logits(load_classifier(shorter), load_tokenizer(shorter), task.heldout, 64)
    assert np.array_equal(kept, whole)
    again = finetune(tiny_bert, task, tmp_path / "b", head="jiant", seed=2, max_steps=2).path
    how = {"methods": ["itself", "identity", "random-classifier"], "fit_size": 32}
    injected = read_results(inject([again, tuned], task, tmp_path / "inj.parquet", **how)[0].path)
    own = injected[injected["options"].str.contains("itself")].set_index("measure")["value"]
    assert own["accuracy"] == right


@pytest.mark.deep
def test_a_checkpoint_with_one_head_is_tuned_further_with_the_other(tmp_path, tuned, review_task):
    plain = finetune(tuned, review_task, tmp_path / "plain", max_steps=1).path
    model = load_classifier(resolve(plain))
    assert head_of(model.config) == "transformers"
    assert model.classifier.weight.shape == (2, 24)
