"""Injection: a model with its own states is itself, and maps see training examples alone."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from simlab import inject, plot, read_results
from simlab.errors import UserError
from simlab.experiments.injection import InjectionPair
from simlab.experiments.options import FIT_ON, TABLE_5, InjectOptions
from simlab.models.batches import batches
from simlab.models.evaluate import predict_logits, predictions_of
from simlab.models.load import load_classifier, load_tokenizer
from simlab.models.sources import resolve
from simlab.models.states import apply_head, layer_states, replaced_states
from simlab.models.tokens import encode
from simlab.results.results import METHODS, Side
from simlab.tasks import Examples, Task
from support.lab.tinymodels import (
    COLUMNS,
    LAYERS,
    save_tiny_classifier,
    save_tiny_decoder,
    save_tiny_model,
    tiny_config,
)

# One architecture for each way to pass states: keyword or position, tuple or tensor, shared
# weights, time first, a module after the first layer.
SHAPES = ("bert", "albert", "mpnet", "distilbert")


@pytest.fixture(scope="module")
def pair_of_models(tmp_path_factory, review_task):
    folder = tmp_path_factory.mktemp("inject")
    return [save_tiny_classifier(folder / f"m{seed}", "bert", review_task, seed) for seed in (1, 2)]


def first_batch(source, task):
    tokenizer = load_tokenizer(source)
    return next(batches(tokenizer, encode(tokenizer, task.heldout, 64), 8, "cpu"))[1]


@pytest.mark.parametrize(
    "architecture,tokens",
    [
        *(("bert", "all"), ("deberta-v2", "cls")),
        *(pytest.param(name, "cls", marks=pytest.mark.deep) for name in SHAPES),
    ],
)
def test_a_model_with_its_own_states_is_itself_exactly(tmp_path, review_task, architecture, tokens):
    source = save_tiny_classifier(tmp_path / architecture, architecture, review_task)
    for layer in range(LAYERS + 1):
        options = InjectOptions(layer, ("itself", "identity"), tokens)
        pair = InjectionPair(source, source, review_task, options)
        itself, identity = pair.rows(Side("A"), Side("A"))
        assert itself.value == identity.value
        with torch.no_grad():
            _, batch, own = next(pair.mapped(review_task.heldout))
            logits = pair.continuation(batch)(own)
            assert torch.equal(logits, pair.b(**batch).logits)
            assert not torch.equal(logits, pair.continuation(batch)(own + 1))


def test_a_decoder_reads_its_last_token(tmp_path, review_task):
    folder = save_tiny_decoder(tmp_path / "gpt", list(review_task.train.texts))
    load_classifier(resolve(str(folder)), review_task, seed=3).save_pretrained(folder)
    source = resolve(str(folder))
    rows = InjectionPair(
        source, source, review_task, InjectOptions(1, ("itself", "identity"), max_length=64)
    ).rows(Side("A"), Side("A"))
    assert rows[0].value == rows[1].value


def test_itself_is_the_metric_of_the_model(pair_of_models, review_task):
    b = pair_of_models[1]
    logits = predict_logits(load_classifier(b), load_tokenizer(b), review_task.heldout, 128)
    pair = InjectionPair(*pair_of_models, review_task, InjectOptions(methods=("itself",)))
    (row,) = pair.rows(Side("A"), Side("B"))
    expected = review_task.score(predictions_of(logits, review_task), review_task.heldout.labels)
    assert (row.value, row.n, row.layer_x, row.measure) == (expected, 32, LAYERS, "accuracy")


def test_states_of_a_go_through_the_rest_of_b(pair_of_models, review_task):
    a, b = (load_classifier(source) for source in pair_of_models)
    batch = first_batch(pair_of_models[0], review_task)
    with torch.no_grad():
        last = layer_states(a, batch)[-1]
        with replaced_states(b, LAYERS, lambda _: last):
            injected = b(**batch).logits
        assert torch.equal(injected, apply_head(b, last, batch["attention_mask"]))
        middle = layer_states(a, batch)[1]
        with replaced_states(b, 1, lambda _: middle):
            injected = b(**batch).logits
        # The model that has A's embeddings and first layer, and B's others, does the same.
        mixed = load_classifier(pair_of_models[1])
        mixed.bert.embeddings.load_state_dict(a.bert.embeddings.state_dict())
        mixed.bert.encoder.layer[0].load_state_dict(a.bert.encoder.layer[0].state_dict())
        assert torch.equal(injected, mixed(**batch).logits)
        assert not torch.equal(injected, b(**batch).logits)  # B's own states are back afterwards


def test_only_the_classifier_token_is_replaced(pair_of_models, review_task):
    options = InjectOptions(1, ("identity",), "cls")
    pair = InjectionPair(*pair_of_models, review_task, options)
    seen = []
    with torch.no_grad():
        _, batch, own = next(pair.mapped(review_task.heldout))
        b = pair.b
        before = layer_states(b, batch)[1]

        def change(states):
            changed = states.clone()
            changed[pair.places(b, batch)] = own
            seen.append(changed)
            return changed

        with replaced_states(b, 1, change):
            b(**batch)
    assert torch.equal(seen[0][:, 0], own)
    assert torch.equal(seen[0][:, 1:], before[:, 1:])


def test_maps_are_fitted_on_training_examples_only(pair_of_models, review_task):
    other = Examples(
        review_task.heldout.ids, ("a dull film",) * 32, None, 1 - review_task.heldout.labels
    )
    changed = Task(review_task.name, review_task.train, other, review_task.label_names)
    options = InjectOptions(2, ("linear", "cca", "inn"), fit_size=100, epochs=2)
    maps = [
        InjectionPair(*pair_of_models, task, options)._fit()[0] for task in (review_task, changed)
    ]
    x = torch.randn(5, 24)
    for method in options.methods:
        assert torch.equal(maps[0][method].transform(x), maps[1][method].transform(x))
    fewer = Task("t", review_task.train.head(90), review_task.heldout, review_task.label_names)
    fitted = InjectionPair(*pair_of_models, fewer, options)._fit()[0]["linear"]
    assert not torch.equal(maps[0]["linear"].transform(x), fitted.transform(x))


@pytest.mark.parametrize("fit_on", FIT_ON)
def test_a_linear_map_undoes_a_linear_difference(tmp_path, pair_of_models, review_task, fit_on):
    """Scale A's last output to make B: the fitted map brings A's states to B's."""
    a = pair_of_models[0]
    model = load_classifier(a)
    with torch.no_grad():
        norm = model.bert.encoder.layer[-1].output.LayerNorm
        norm.weight.mul_(-3)
        norm.bias.add_(1)
    save_tiny_model(tmp_path / "b")
    model.save_pretrained(tmp_path / "b")
    methods = ("itself", "linear", "identity")
    options = InjectOptions(LAYERS, methods, "all", fit_on, fit_size=100)
    pair = InjectionPair(a, resolve(str(tmp_path / "b")), review_task, options)
    aligners, _ = pair._fit()
    with torch.no_grad():
        _, batch, own = next(pair.mapped(review_task.heldout))
        whole = pair.b(**batch).logits
        mapped = pair.continuation(batch)(aligners["linear"].transform(own))
        raw = pair.continuation(batch)(own)
    assert (mapped - whole).abs().max() < 0.01 * (raw - whole).abs().max()


def test_the_command_writes_a_row_for_every_method(
    simcore, tmp_path, pair_of_models, reviews, tiny_bert
):
    out = tmp_path / "injection.parquet"
    a, b = (source.path for source in pair_of_models)
    arguments = ["inject", a, b, reviews, *COLUMNS, "--out", out, "--epochs", 2]
    arguments += ["--original", tiny_bert.path, "--label", "A", "--label", "B"]
    code, _, errors = simcore(*arguments, "--layer", 2)
    assert (code, errors) == (0, [])
    frame = read_results(out)
    methods = [json.loads(text)["method"] for text in frame["options"]]
    assert tuple(methods) == TABLE_5
    assert set(METHODS) - set(TABLE_5) == {"svcca", "linear-gd"}
    assert set(frame["experiment"]) == {"injection"}
    assert (set(frame["label_x"]), set(frame["label_y"])) == ({"A"}, {"B"})
    assert (set(frame["layer_x"]), set(frame["kind"]), set(frame["n"])) == ({2}, {"cls"}, {32})
    assert frame["value"].between(0, 1).all()
    assert "done before" in simcore(*arguments, "--layer", 2)[1]
    code, _, errors = simcore(*arguments, "--layer", 1)
    assert code == 2
    assert len(errors) == 1


def test_bad_input_is_named(tmp_path, pair_of_models, review_task):
    a, b = pair_of_models
    out = tmp_path / "r.parquet"

    def refused(text, *sources, **options):
        with pytest.raises(UserError, match=text):
            inject(sources or (a, b), review_task, out, InjectOptions(**options))
        assert not out.exists()

    refused(r"methods='conv': wanted one of itself, identity", methods=("conv",))
    refused(r"methods: wanted each once, found cca, cca", methods=("cca", "cca"))
    refused(r"tokens='some': wanted one of cls, all", tokens="some")
    refused(r"fit_on='words': wanted one of tokens, mean, mean-all", fit_on="words")
    refused(r"layer=4: wanted 0 to 3, the layers of .*m1", layer=4)
    refused(r"layer=-1: wanted 0 to 3", layer=-1)
    refused(r"fit_size: wanted 1 or more, found 0", fit_size=0)
    few = {"fit_size": 10, "methods": ("linear",)}
    refused(r"fit_size=10, methods='linear': X: wanted at least 25 rows.*got 10", **few)
    bare = resolve(str(save_tiny_model(tmp_path / "bare")))
    refused(r"as one written by `simcore finetune`", a, bare)
    three = [str(one.path) for one in (a, b, bare)]
    with pytest.raises(UserError, match=r"as one written by `simcore finetune`"):
        inject(three, review_task, tmp_path / "pairs", methods=("itself",))
    assert not (tmp_path / "pairs").exists()  # nor the pair of the first two
    other = resolve(str(save_tiny_decoder(tmp_path / "gpt", list(review_task.train.texts))))
    refused(r"tokens='all': wanted models that split texts", other, b, layer=1, tokens="all")


def test_a_method_that_the_states_do_not_allow_is_a_row_with_a_reason(
    simcore, tmp_path, pair_of_models, reviews, tiny_bert
):
    """The classifier token's vector in the embedding output is the same for every text."""
    out = tmp_path / "injection.parquet"
    a, b = (source.path for source in pair_of_models)
    arguments = ["inject", a, b, reviews, *COLUMNS, "--out", out, "--epochs", 1, "--layer", 0]
    arguments += ["--original", tiny_bert.path]
    note = (
        "note: cca, pwcca: no value at layer 0: X: wanted rows that differ, got equal ones "
        "(X: states of A, Y: states of B)"
    )
    for state in ("s)", "done before"):
        code, printed, errors = simcore(*arguments)
        assert (code, errors) == (0, [note])
        assert state in printed
    frame = read_results(out)
    stored = [json.loads(text) for text in frame["options"]]
    assert tuple(options["method"] for options in stored) == TABLE_5
    values = {o["method"]: value for o, value in zip(stored, frame["value"], strict=True)}
    reasons = {o["method"]: o["undefined"] for o in stored if "undefined" in o}
    assert reasons == dict.fromkeys(("cca", "pwcca"), note.partition("layer 0: ")[2])
    assert {method for method, value in values.items() if np.isnan(value)} == set(reasons)
    assert values["itself"] == values["linear"]  # all of B's states equal their mean
    (figure,) = plot(frame, tmp_path / "figures", ("png",))
    assert figure.stem == "reviews-injection"


def test_too_few_rows_leave_methods_out_that_were_not_asked_for(pair_of_models, review_task):
    options = InjectOptions(2, fit_size=20, epochs=1)
    pair = InjectionPair(*pair_of_models, review_task, options)
    rows = {json.loads(row.options)["method"]: row for row in pair.rows(Side("A"), Side("B"))}
    reasons = {name: json.loads(row.options).get("undefined", "") for name, row in rows.items()}
    left_out = {name for name, row in rows.items() if np.isnan(row.value)}
    assert left_out == {"linear", "cca", "pwcca"}
    for name in left_out:
        assert re.match("fit_size 20: X: wanted at least 2[56] rows for .* got 20", reasons[name])


def test_too_few_training_rows_name_their_option(tmp_path, pair_of_models, review_task):
    few = Task("t", review_task.train.head(10), review_task.heldout, review_task.label_names)
    out = tmp_path / "r.parquet"
    with pytest.raises(UserError, match=r"train_size=10, methods='cca': X: wanted at least"):
        inject(pair_of_models, few, out, InjectOptions(2, ("itself", "cca")))
    assert not out.exists()


def test_a_loss_that_becomes_nan_is_a_note(pair_of_models, review_task, capfd, monkeypatch):
    from simcore.align import _training

    monkeypatch.setattr(_training, "rate", lambda *_: 1e38)
    options = InjectOptions(2, ("itself", "inn"), fit_size=100, epochs=2)
    _, inn = InjectionPair(*pair_of_models, review_task, options).rows(Side("A"), Side("B"))
    assert 0 <= inn.value <= 1
    assert "note: INNAligner: the loss became NaN or infinite" in capfd.readouterr().err


def test_models_of_two_widths_have_no_identity(tmp_path, pair_of_models, review_task):
    from transformers import AutoModel

    wide = save_tiny_model(tmp_path / "wide")
    config = tiny_config("bert", load_tokenizer(resolve(str(wide))).vocab_size)
    config.hidden_size = 32
    AutoModel.from_config(config).save_pretrained(wide)
    source, b = resolve(str(wide)), pair_of_models[1]
    pair = InjectionPair(source, b, review_task, InjectOptions(2, epochs=1))
    assert [json.loads(row.options)["method"] for row in pair.rows(Side("A"), Side("B"))] == [
        name for name in TABLE_5 if name not in ("identity", "inn", "random-classifier")
    ]
    with pytest.raises(UserError, match="methods='inn': wanted models of one width, found 32 and"):
        InjectionPair(source, b, review_task, InjectOptions(2, ("inn",)))


def test_random_labels_are_drawn_from_the_training_labels(pair_of_models, review_task):
    options = InjectOptions(methods=("random-labels",), seed=4)
    pair = InjectionPair(*pair_of_models, review_task, options)
    (row,) = pair.rows(Side("A"), Side("B"))
    drawn = np.random.default_rng(pair.draw_seed).choice(review_task.train.labels, 32)
    assert row.value == review_task.score(drawn, review_task.heldout.labels)
    # Another pair and another seed are another draw.
    turned = InjectionPair(*reversed(pair_of_models), review_task, options)
    seed_5 = InjectionPair(*pair_of_models, review_task, replace(options, seed=5))
    assert len({one.draw_seed for one in (pair, turned, seed_5)}) == 3
