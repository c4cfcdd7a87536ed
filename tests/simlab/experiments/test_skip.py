"""Skipped spans: the sweep gives what models without those layers give, for every architecture."""

import numpy as np
import pytest
import torch

from bench.skip import loop_evaluations, sweep_evaluations
from simlab import plot, read_results
from simlab.errors import UserError
from simlab.experiments.shorten import keep_layers
from simlab.experiments.skip import EMPTY, all_skip_logits, skip_logits, spans
from simlab.figures.curves import plot_skipping
from simlab.figures.table import complete
from simlab.models.evaluate import predict_logits
from simlab.models.load import load_classifier, load_tokenizer, random_twin
from simlab.models.recognise import architecture_of
from simlab.models.sources import resolve
from simlab.models.states import LayerChain, apply_head, layer_states
from simlab.results.results import SKIPPING
from simlab.store.console import progress
from support.lab.commandline import check_refused
from support.lab.tinyclassifiers import batch_of, choice_task, save_classifier
from support.lab.tinymodels import COLUMNS, LAYERS, each, save_tiny_model, tiny_config
from support.tolerance import CHANGE, assert_same_forward

BATCH = 6


@pytest.fixture(scope="module", params=each())
def loaded(request, tmp_path_factory, review_task):
    folder = tmp_path_factory.mktemp("models") / request.param
    source = save_classifier(folder, request.param, review_task)
    return load_classifier(source), batch_of(source, review_task, BATCH)


@pytest.fixture(scope="module")
def source(tmp_path_factory, review_task):
    return save_classifier(tmp_path_factory.mktemp("models") / "bert", "bert", review_task)


def logits_without(model, span, batch):
    """Return the logits of a model built without the layers of `span`."""
    kept = [layer for layer in range(LAYERS) if not span[0] <= layer < span[1]]
    if not kept:  # some architectures cannot be built without layers
        embedded = layer_states(model, batch)[0]
        return apply_head(model, embedded, batch["attention_mask"])
    shorter = keep_layers(model, kept)
    shorter.config.use_cache = False  # decoders number the entries of their cache
    return shorter(**batch).logits


def test_every_span_is_a_model_without_its_layers(loaded):
    model, batch = loaded
    with torch.inference_mode():
        whole = model(**batch).logits
        found = skip_logits(LayerChain(model, batch), 2)
        for states_per_call in (1, 99):
            others = skip_logits(LayerChain(model, batch), states_per_call)
            assert others.keys() == found.keys()
            for span, logits in others.items():
                assert_same_forward(logits, found[span])
        assert list(found) == [EMPTY] + [span for span in found if span != EMPTY]
        assert set(found) == set(spans(LAYERS))
        assert torch.equal(found[EMPTY], whole)
        for span in spans(LAYERS)[1:]:
            wanted = logits_without(model, span, batch)
            assert_same_forward(found[span], wanted)
            assert (found[span] - whole).abs().max() > CHANGE
        assert torch.equal(model(**batch).logits, whole)  # the layers are back
    different = {tuple(logits.flatten().tolist()) for logits in found.values()}
    shared = model.config.model_type == "albert"  # only the number of layers left matters
    assert len(different) == (LAYERS + 1 if shared else len(found))


def test_multiple_choice(tmp_path):
    task = choice_task()
    source = save_classifier(tmp_path / "bert", "bert", task)
    model, batch = load_classifier(source), batch_of(source, task, 4)
    with torch.inference_mode():
        found = skip_logits(LayerChain(model, batch), 2)
        for span, logits in found.items():
            wanted = logits_without(model, span, batch)
            assert logits.shape == (4, 3)
            assert_same_forward(logits, wanted)


@pytest.mark.parametrize(
    ("layers", "sweep", "loop", "states_per_call"),
    [(1, 1, 1, 1), (6, 41, 76, 1), (6, 41, 76, 4), (6, 41, 76, 99), (12, 298, 584, 4)],
)
def test_layers_that_really_run(
    tmp_path, review_task, source, layers, sweep, loop, states_per_call
):
    from transformers import AutoModelForSequenceClassification

    config = tiny_config("bert")
    config.num_hidden_layers = layers
    model = random_twin(AutoModelForSequenceClassification, config, 0).eval()
    batch = batch_of(source, review_task, 2)
    rows = []
    for layer in architecture_of(model).layers(model):  # stand-ins do not call these
        layer.attention.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    with torch.inference_mode():
        skip_logits(LayerChain(model, batch), states_per_call)
    assert sum(rows) / 2 == sweep == sweep_evaluations(layers)
    lengths = [layers - (end - start) for start, end in spans(layers)]
    assert sum(lengths) == loop == loop_evaluations(layers)
    if states_per_call == 99:  # one batch for each layer, and the model's own pass
        assert len(rows) == max(layers, 2 * layers - 1)


def test_the_empty_span_is_the_evaluation(source, review_task, monkeypatch):
    shown = []

    def spy(title, total):
        shown.append((title, total))
        return progress(title, total)

    monkeypatch.setattr("simlab.experiments.skip.progress", spy)
    found = all_skip_logits(source, review_task, 64)
    assert shown == [("skipping", len(review_task.heldout))]
    tokenizer = load_tokenizer(source)
    own = predict_logits(load_classifier(source), tokenizer, review_task.heldout, 64)
    assert np.array_equal(found[EMPTY], own)


def test_what_does_not_fit_into_memory_runs_in_parts(source, review_task, monkeypatch, capfd):
    """Batches whose states would take more than a quarter of it are smaller from the beginning."""
    whole = all_skip_logits(source, review_task, 64)
    sizes = []

    def small(model, batch, name):
        sizes.append(len(batch["input_ids"]))
        if sizes[-1] > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return LayerChain(model, batch, name)

    monkeypatch.setattr("simlab.experiments.skip.LayerChain", small)
    halved = all_skip_logits(source, review_task, 64)
    assert sizes[0] == len(review_task.heldout)
    assert "does not fit into memory: it runs in halves" in " ".join(capfd.readouterr().err.split())
    sizes.clear()
    monkeypatch.setattr("simcore.free_memory", lambda device: 128_000)  # the weights fit
    parts = all_skip_logits(source, review_task, 64)
    assert sizes[0] <= 2
    for span, logits in whole.items():
        assert_same_forward(halved[span], logits)
        assert_same_forward(parts[span], logits)


def test_the_command_its_rows_and_the_triangle(tmp_path, simcore, source, reviews, review_task):
    out = tmp_path / "results" / "skip.parquet"
    arguments = ("skip", source.path, reviews, *COLUMNS, "--label", "FT[1]", "--seed", 1)
    assert simcore(*arguments, "--out", out)[0] == 0
    assert "done before" in simcore(*arguments, "--out", out)[1]
    frame = read_results(out)
    assert set(frame["experiment"]) == {SKIPPING}
    assert list(zip(frame["layer_x"], frame["layer_y"], strict=True)) == spans(LAYERS)
    own = predict_logits(
        load_classifier(source), load_tokenizer(source), review_task.heldout, 64
    ).argmax(1)
    assert frame["value"][0] == review_task.score(own, review_task.heldout.labels)
    files = plot(frame, tmp_path / "figures", ("png",))
    assert [file.name for file in files] == ["reviews-skipping.png"]
    axis = plot_skipping(complete(frame)).axes[0]
    image = axis.images[0].get_array().filled(np.nan)
    for row in frame[frame["layer_y"] > 0].itertuples():
        assert image[row.layer_x, row.layer_y - 1] == row.value
    assert np.isnan(image[np.tril_indices(LAYERS, -1)]).all()


def test_mistakes(tmp_path, simcore, source, reviews):
    out = tmp_path / "out.parquet"
    encoder = save_tiny_model(tmp_path / "encoder")
    three = tmp_path / "three.csv"
    three.write_text("body,verdict\n" + "".join(f"the film {i},{i % 3}\n" for i in range(30)))
    cases = [
        ((encoder, reviews), "as one written by `simcore finetune`"),
        ((source.path, three), "wanted a head with 3 outputs, found 2"),
        ((source.path, reviews, "--device", "gpu"), "--device gpu"),
    ]
    for arguments, message in cases:
        check_refused(simcore("skip", *arguments, *COLUMNS, "--out", out), message)
    assert not list(tmp_path.glob("*out.parquet*"))


def test_states_that_change_between_blocks_are_refused(tmp_path, review_task):
    from transformers import AutoConfig, AutoModelForSequenceClassification

    folder = save_tiny_model(tmp_path / "deberta", "deberta-v2")
    config = AutoConfig.from_pretrained(folder)
    config.conv_kernel_size = 3
    random_twin(AutoModelForSequenceClassification, config, 0).save_pretrained(folder)
    with pytest.raises(UserError, match="output of layer 1 is changed before layer 2 reads"):
        all_skip_logits(resolve(str(folder)), review_task, 24)
