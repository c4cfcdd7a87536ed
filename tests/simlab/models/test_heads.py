"""Heads on cached vectors: the model's own head, and heads of all layers trained at once."""

from dataclasses import replace

import pytest
import torch

from simlab.errors import UserError
from simlab.models.heads import HeadRecipe, head_parameters, stacked_logits, train_heads
from simlab.models.load import load_classifier, random_twin
from simlab.models.states import apply_head, layer_states
from support.lab.tinyclassifiers import batch_of, choice_task, save_classifier, vectors_of_layers
from support.lab.tinymodels import each, tiny_config
from support.tolerance import CHANGE, HEAD_TRAINING, assert_same_forward

RECIPE = HeadRecipe(most_steps=40, steps_between=5, batch_size=8)


def own_heads(model, layers):
    return {name: p.expand(layers, *p.shape) for name, p in head_parameters(model).items()}


def check_vectors(model, batch):
    """Check that heads on the vectors give the logits of the model's head on the states."""
    with torch.no_grad():
        vectors = vectors_of_layers(model, batch)
        found = stacked_logits(model, own_heads(model, len(vectors)), vectors)
        for logits, states in zip(found, layer_states(model, batch), strict=True):
            wanted = apply_head(model, states, batch["attention_mask"])
            assert_same_forward(logits, wanted)
    return vectors


@pytest.mark.parametrize("architecture", each())
def test_vectors_are_all_that_a_head_reads(tmp_path, review_task, architecture):
    source = save_classifier(tmp_path / architecture, architecture, review_task)
    model, batch = load_classifier(source), batch_of(source, review_task)
    vectors = check_vectors(model, batch)
    assert vectors.shape == (4, 6, 24)
    labels = torch.tensor([0, 1, 1, 0, 1, 0])
    trained = train_heads(model, vectors, labels, replace(RECIPE, most_steps=3))
    assert {name: len(value) for name, value in trained.items()} == dict.fromkeys(trained, 4)


def test_a_mean_over_tokens_is_read_too(tmp_path, review_task):
    source = save_classifier(tmp_path / "modernbert", "modernbert", review_task)
    model = load_classifier(source)
    model.config.classifier_pooling = "mean"
    check_vectors(model, batch_of(source, review_task))


@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_multiple_choice(tmp_path, architecture):
    task = choice_task()
    source = save_classifier(tmp_path / architecture, architecture, task)
    model = load_classifier(source)
    vectors = check_vectors(model, batch_of(source, task))
    assert vectors.shape == (4, 6, 3, 24)
    labels = torch.as_tensor(task.train.labels[:6])
    trained = train_heads(model, vectors, labels, replace(RECIPE, most_steps=3))
    assert stacked_logits(model, trained, vectors).shape == (4, 6, 3)


@pytest.fixture(scope="module")
def learnable(tmp_path_factory, review_task):
    """Return a model and vectors of 3 layers: learnable, nearly constant far from 0, and noise."""
    source = save_classifier(tmp_path_factory.mktemp("models") / "bert", "bert", review_task)
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (400,), generator=generator)
    plain = torch.randn(400, 24, generator=generator)
    plain[:, 3] += 4 * labels
    far = 5 + 0.001 * plain
    noise = torch.randn(400, 24, generator=generator)
    return load_classifier(source), torch.stack([plain, far, noise]), labels


def accuracies(model, heads, vectors, labels):
    with torch.no_grad():
        return (stacked_logits(model, heads, vectors).argmax(-1) == labels).float().mean(-1)


def test_layers_are_learnt_wherever_their_vectors_lie(learnable):
    model, vectors, labels = learnable
    recipe = HeadRecipe(most_steps=400, steps_between=20)
    readable, far, noise = accuracies(
        model, train_heads(model, vectors, labels, recipe), vectors, labels
    )
    assert min(readable, far) > 0.95
    assert noise < 0.8  # training stopped before the head had learnt its rows by heart


def test_every_layer_ends_as_it_would_alone(learnable):
    model, vectors, labels = learnable
    together = train_heads(model, vectors, labels, RECIPE)
    for layer in range(3):
        alone = train_heads(model, vectors[layer : layer + 1], labels, RECIPE)
        for name, value in alone.items():
            assert (together[name][layer] - value[0]).abs().max() <= HEAD_TRAINING
    again = train_heads(model, vectors, labels, RECIPE)
    assert all(torch.equal(again[name], value) for name, value in together.items())


def test_a_head_that_only_gets_worse_keeps_its_start(learnable):
    model, vectors, labels = learnable
    recipe = replace(RECIPE, learning_rate=10.0)
    best = train_heads(model, vectors[2:], labels, recipe)
    for name, start in head_parameters(model).items():
        assert (best[name][0] - start).abs().max() <= HEAD_TRAINING
    moved = train_heads(model, vectors[:1], labels, RECIPE)
    assert (moved["classifier.weight"][0] - model.classifier.weight).abs().max() > CHANGE


def test_vectors_without_a_mean_have_no_direction_to_shrink(learnable):
    model, vectors, labels = learnable
    half = torch.randn(1, len(labels) // 2, vectors.shape[-1]).round()
    recipe = replace(RECIPE, validation_share=0.0)
    trained = train_heads(model, torch.cat([half, -half], 1), labels[: 2 * half.shape[1]], recipe)
    assert all(weights.isfinite().all() for weights in trained.values())


def test_one_row_is_too_few(learnable):
    model, vectors, labels = learnable
    with pytest.raises(UserError, match=r"train_size: wanted at least 2 rows .* found 1"):
        train_heads(model, vectors[:, :1], labels[:1], RECIPE)


def test_the_last_steps_count_too(learnable):
    model, vectors, labels = learnable
    recipe = HeadRecipe(most_steps=40, steps_between=50)
    trained = train_heads(model, vectors[:1], labels, recipe)
    moved = trained["classifier.weight"][0] - model.classifier.weight
    assert moved.abs().max() > CHANGE


def test_heads_are_trained_by_the_letter(learnable):
    """On all rows, as they are, for all steps, with warm-up and decay: a loop over one layer."""
    model, vectors, labels = learnable
    recipe = HeadRecipe(
        *(1e-2, len(labels)),  # every batch has all rows
        weight_decay=0.0,
        most_steps=12,
        validation_share=0.0,
        warmup=3,
        decay=True,
        scale=False,
    )
    trained = train_heads(model, vectors[:2], labels, recipe)
    own = {name: p.clone().requires_grad_() for name, p in head_parameters(model).items()}
    optimiser = torch.optim.Adam(own.values(), lr=1e-2)
    for step in range(12):
        rate = step / 3 if step < 3 else (12 - step) / 9
        optimiser.param_groups[0]["lr"] = 1e-2 * rate
        optimiser.zero_grad()
        stacked = {name: p[None] for name, p in own.items()}
        logits = stacked_logits(model, stacked, vectors[:1])[0]
        torch.nn.functional.cross_entropy(logits, labels).backward()
        optimiser.step()
    for name, wanted in own.items():
        assert (trained[name][0] - wanted).abs().max() <= HEAD_TRAINING
    still = train_heads(model, vectors[:1], labels, replace(recipe, decay=False))
    assert (trained["classifier.weight"][0] - still["classifier.weight"][0]).abs().max() > CHANGE


def test_numbers_are_fitted(learnable):
    from transformers import AutoModelForSequenceClassification

    _, vectors, _ = learnable
    config = tiny_config("bert")
    config.num_labels = 1
    model = random_twin(AutoModelForSequenceClassification, config, 0).eval()
    numbers = 3 + vectors[0, :, 3]
    recipe = HeadRecipe(most_steps=400, steps_between=20, learning_rate=5e-3)
    heads = train_heads(model, vectors[:1], numbers, recipe)
    with torch.no_grad():
        found = stacked_logits(model, heads, vectors[:1])[0, :, 0]
    assert torch.corrcoef(torch.stack([found, numbers]))[0, 1] > 0.9


def test_a_head_that_reads_more_than_a_vector_is_refused(tmp_path, review_task):
    source = save_classifier(tmp_path / "bert", "bert", review_task)
    model = load_classifier(source)
    pooler = model.bert.pooler
    pooler.forward = lambda states: torch.tanh(pooler.dense(states.amax(1)))
    message = "wanted a head that reads one vector"
    with torch.no_grad(), pytest.raises(UserError, match=message):
        vectors_of_layers(model, batch_of(source, review_task))
