"""Loading models: one line names the fault of a folder, and no missing weight is drawn."""

import json
from dataclasses import replace

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from simlab import TaskOptions, load_model, load_task
from simlab.errors import UserError
from simlab.experiments.truncate import TruncationOptions, cut_model
from simlab.models.architectures import KNOWN_ARCHITECTURES
from simlab.models.classes import match_head
from simlab.models.load import (
    load_classifier,
    load_config,
    load_encoder,
    load_scored,
    load_tokenizer,
)
from simlab.models.sources import expand_names, resolve
from simlab.models.tokens import encode
from simlab.representations.kinds import find_rows
from simlab.tasks import Examples
from support.lab.commandline import check_refused
from support.lab.tinymodels import COLUMNS, LAYERS, save_tiny_model

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path):
    """A tiny BERT without a head."""
    return save_tiny_model(tmp_path / "bert")


def test_a_model_and_its_tokenizer_are_loaded_by_the_name_of_commands(folder, monkeypatch):
    monkeypatch.setattr("simlab.store.assets.fetch", lambda name: {"minilm": folder}[name])
    model, tokenizer = load_model("minilm")
    assert not model.training
    states = model(**tokenizer(["a film"], return_tensors="pt"), output_hidden_states=True)
    assert len(states.hidden_states) == LAYERS + 1
    with pytest.raises(UserError, match="found no such folder"):
        load_model("./nowhere")


@pytest.fixture
def checkpoint(folder, review_task):
    """A tiny BERT with a head for two classes."""
    load_classifier(resolve(str(folder)), review_task).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def three_classes(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "three.csv"
    path.write_text("text,label\n" + "".join(f"the film {i},{i % 3}\n" for i in range(30)))
    return path


def change_weights(folder, change):
    weights = load_file(folder / WEIGHTS)
    save_file(change(weights), folder / WEIGHTS, metadata={"format": "pt"})


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("load", [load_encoder, load_classifier])
def test_an_encoder_that_the_files_lack_is_not_drawn_at_random(checkpoint, load):
    change_config(checkpoint, num_hidden_layers=LAYERS + 1)
    with pytest.raises(UserError, match=rf"the whole encoder .*encoder\.layer\.{LAYERS}\..* more"):
        load(resolve(str(checkpoint)))


def test_an_encoder_of_another_width_is_refused(folder, review_task):
    change_config(folder, intermediate_size=16)
    shapes = r"\(wanted \[16\], found \[32\]\)"
    with pytest.raises(
        UserError, match=rf"of another shape, for encoder.*bias {shapes} and 8 more"
    ):
        load_encoder(resolve(str(folder)))
    with pytest.raises(UserError, match=r"of another shape, for bert\.encoder"):
        load_classifier(resolve(str(folder)), review_task)


def test_the_shapes_of_a_head_that_its_configuration_does_not_describe(checkpoint):
    names = ("bad", "fair", "good")
    change_config(
        checkpoint, id2label=dict(enumerate(names)), label2id={n: i for i, n in enumerate(names)}
    )
    with pytest.raises(UserError) as raised:
        load_classifier(resolve(str(checkpoint)))
    assert str(raised.value).endswith(
        "for classifier.bias (wanted [3], found [2]), classifier.weight (wanted [3, 24], found "
        "[2, 24])"
    )


@pytest.mark.parametrize("command", ["truncate", "skip", "extract"])
def test_a_damaged_configuration_is_named(tmp_path, simcore, checkpoint, reviews, command):
    for text, found in (("{", "found a damaged file"), ("[]", "a JSON object, found []")):
        (checkpoint / "config.json").write_text(text)
        result = simcore(command, checkpoint, reviews, *COLUMNS, "--out", tmp_path / "out.parquet")
        check_refused(result, f"error: {checkpoint / 'config.json'}: wanted", found)


def test_a_folder_that_is_not_there_and_one_without_weights(tmp_path, simcore, checkpoint, reviews):
    options = (reviews, *COLUMNS, "--out", tmp_path / "out.parquet")
    result = simcore("truncate", tmp_path / "nowhere", *options)
    check_refused(result, f"{tmp_path / 'nowhere'}: wanted the folder of a checkpoint, as")
    weights = checkpoint / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:5000])
    check_refused(simcore("skip", checkpoint, *options), f"{checkpoint}: wanted ", "found: ")
    weights.unlink()
    check_refused(simcore("skip", checkpoint, *options), f"{checkpoint}: wanted ", WEIGHTS)


@pytest.mark.parametrize(("number", "word"), [(float("nan"), "NaN"), (float("inf"), "infinity")])
def test_weights_that_are_not_finite_are_refused(
    tmp_path, simcore, checkpoint, reviews, number, word
):
    name = "bert.encoder.layer.1.output.dense.bias"

    def spoil(weights):
        weights[name][3] = number
        return weights

    change_weights(checkpoint, spoil)
    for command in ("truncate", "skip", "extract"):
        result = simcore(command, checkpoint, reviews, *COLUMNS, "--out", tmp_path / "out.parquet")
        found = f"found {word} in {name.removeprefix('bert.') if command == 'extract' else name}"
        check_refused(result, f"{checkpoint}: wanted finite weights, {found}")
    assert not list(tmp_path.glob("out*"))


def test_a_checkpoint_without_a_head_is_refused(tmp_path, simcore, folder, checkpoint, reviews):
    headless = save_tiny_model(tmp_path / "headless")
    with pytest.raises(UserError, match=r"a checkpoint with a head, found .* classifier\.bias"):
        load_classifier(resolve(str(headless)))
    out = tmp_path / "out.parquet"
    result = simcore("truncate", headless, reviews, *COLUMNS, "--out", out)
    check_refused(result, str(headless), "found BertModel")
    change_weights(checkpoint, lambda all: {k: v for k, v in all.items() if "classifier" not in k})
    result = simcore("truncate", checkpoint, reviews, *COLUMNS, "--out", out)
    check_refused(result, "wanted a checkpoint with a head", "classifier.weight")
    assert not list(tmp_path.glob("out*"))


def test_a_head_of_another_size_or_kind_is_refused(
    tmp_path, simcore, checkpoint, three_classes, review_task
):
    out = tmp_path / "out.parquet"
    result = simcore("truncate", checkpoint, three_classes, "--out", out)
    check_refused(result, "task three wanted a head with 3 outputs, found 2")
    assert not out.exists()
    source = resolve(str(checkpoint))
    model = load_classifier(source)
    choices = Examples(("a",), ("the",), None, review_task.heldout.labels[:1], (("x", "y"),))
    choice_task = type(review_task)("c", choices, choices, ("0", "1"))
    with pytest.raises(UserError, match="wanted a multiple-choice head, found a classifier head"):
        match_head(model, source, choice_task)
    load_classifier(source, choice_task).save_pretrained(checkpoint)
    with pytest.raises(UserError, match="wanted a classifier head, found a multiple-choice head"):
        cut_model(source, review_task, 64, "untuned", TruncationOptions())


def test_fine_tuning_takes_a_head_of_another_size_for_none(checkpoint, three_classes):
    model = load_classifier(resolve(str(checkpoint)), load_task(str(three_classes)))
    assert model.config.num_labels == 3


def test_a_text_longer_than_the_model_allows_is_refused(tmp_path, simcore, tiny_bert):
    path = tmp_path / "long.csv"
    rows = ("the film,1", f"{'plot ' * 100},0", "the plot,1", "a cast,0", "film,1", "plot,0")
    path.write_text("\n".join(("text,label", *rows)))
    for command in ("extract", "finetune"):
        out = tmp_path / command
        wanted = ("--heldout-size", 3, "--split-seed", 4, "--max-length", 200, "--out", out)
        check_refused(
            simcore(command, tiny_bert.path, path, *wanted),
            "--max-length 200: wanted at most 64",
            "found a longer text in example row-1",
        )
        assert not out.exists()
    tokenizer, task = load_tokenizer(tiny_bert), load_task(str(path), TaskOptions(heldout_size=3))
    texts = Examples(("row-1",), ("plot " * 100,), None, task.heldout.labels[:1])
    assert len(encode(tokenizer, texts, 64)[0]["input_ids"]) == 64
    with pytest.raises(UserError, match="max_length=65: wanted at most 64"):
        find_rows("mean", tokenizer, texts, 65, "tokenizer", "bert")


@pytest.mark.parametrize(
    ("architecture", "limit"), [("bert", 70), ("roberta", 69), ("gpt2", 70), ("xlnet", 1000)]
)
def test_a_tokenizer_without_a_limit_takes_the_model_s(tmp_path, architecture, limit):
    """RoBERTa's positions start after the padding's number; XLNet has no limit."""
    folder = save_tiny_model(tmp_path / architecture, architecture)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": 1000}))
    source = resolve(str(folder))
    tokenizer, model = load_tokenizer(source), load_encoder(source)
    assert tokenizer.model_max_length == limit
    model(**tokenizer(["film " * 2000], truncation=True, return_tensors="pt"))


def test_decoders_get_a_padding_token(tmp_path, review_task):
    source = resolve(str(save_tiny_model(tmp_path / "gpt2", "gpt2")))
    assert load_config(source).pad_token_id is None
    assert load_classifier(source, review_task).config.pad_token_id == 0


def test_patterns_stand_for_many_models():
    several = expand_names(["google/multiberts-seed_{0..24}", "minilm"])
    assert several[:2] == ["google/multiberts-seed_0", "google/multiberts-seed_1"]
    assert several[24:] == ["google/multiberts-seed_24", "minilm"]
    assert expand_names(["{a,b}-{2..1}"]) == ["a-2", "a-1", "b-2", "b-1"]
    assert expand_names(["a{b}c", "{0..}"]) == ["a{b}c", "{0..}"]
    assert expand_names(["s{0..5..2}k"]) == ["s0k", "s2k", "s4k"]
    assert expand_names(["s{4..0..2}", "{1..1..9}"]) == ["s4", "s2", "s0", "1"]
    with pytest.raises(
        UserError, match=r"s\{0\.\.4\.\.0\}: wanted a range that advances by 1 or more"
    ):
        expand_names(["s{0..4..0}"])
    with pytest.raises(
        UserError, match=r"seed_\{0\.\.24\}: wanted one model, found a pattern of 25"
    ):
        resolve("google/multiberts-seed_{0..24}")


def test_models_prints_architectures_or_models(simcore, tiny_bert, tmp_path):
    code, table, _ = simcore("models")
    assert code == 0
    lines = {line.split("  ")[0].strip(): line for line in table.splitlines()}
    for architecture in KNOWN_ARCHITECTURES:
        assert architecture.token in lines[architecture.name]
        assert all(example in lines[architecture.name] for example in architecture.examples)
    for number in range(2):
        (tmp_path / f"seed_{number}").symlink_to(tiny_bert.path)
    code, table, _ = simcore("models", tmp_path / "seed_{0..1}")
    assert code == 0
    assert [line.split()[1:4] for line in table.splitlines() if "seed_" in line] == [
        ["bert", str(LAYERS), "24"]
    ] * 2
    check_refused(simcore("models", tmp_path / "seed_{0..2}"), "seed_2", "no such folder")


@pytest.mark.parametrize(
    ("classes", "names", "order"),
    [
        (("bad", "good"), ("Bad", "GOOD"), [0, 1]),
        (("bad", "good"), ("good", "bad"), [1, 0]),
        (("0", "1"), ("1", "0"), [1, 0]),
        (("0", "1"), ("LABEL_1", "LABEL_0"), [1, 0]),
        (("1", "2", "10"), ("1", "10", "2"), [0, 2, 1]),
        (("bad", "good"), ("LABEL_0", "LABEL_1"), "LABEL_0 is bad, LABEL_1 is good"),
        (("0", "1"), ("bad", "good"), "bad is 0, good is 1"),
        (("bad", "good"), ("1", "0"), None),
        (("bad", "good"), ("NEGATIVE", "POSITIVE"), None),
    ],
)
def test_classes_of_a_head_are_matched_by_their_names(
    checkpoint, review_task, classes, names, order, capsys
):
    source, batch = resolve(str(checkpoint)), {"input_ids": torch.tensor([[5, 6, 7], [8, 9, 5]])}
    model = load_classifier(source, replace(review_task, label_names=names))
    model.save_pretrained(checkpoint)
    task, plain = replace(review_task, label_names=classes), model(**batch).logits
    if order is None:
        with pytest.raises(UserError, match=r"wanted a head with labels .*, found "):
            load_scored(source, task)
        return
    capsys.readouterr()
    scored = load_scored(source, task)
    if isinstance(order, str):
        assert f"in the order of the task: {order}" in capsys.readouterr().err
        order = [0, 1]
    assert torch.equal(scored(**batch).logits, plain[:, order])
    assert list(scored.config.id2label.values()) == list(names)  # as the weights are, for exports


@pytest.mark.parametrize(
    ("kind", "head", "said"),
    [
        ("Bert", "TokenClassification", "the head of its checkpoint is not kept; seed {} draws"),
        ("Bert", "SequenceClassification", "the head of its checkpoint is not kept; seed {} draws"),
        ("Roberta", "TokenClassification", "its files have no head for the task; seed {} draws"),
        ("Bert", "MaskedLM", "its files have no head for the task; seed {} draws"),
        ("Bert", None, "its files have no head for the task; seed {} draws"),
    ],
)
def test_seeds_start_from_different_heads(tmp_path, review_task, kind, head, said, capsys):
    """Also where the checkpoint has a head of the same shape for another task; one line says so."""
    folder = save_tiny_model(tmp_path / "model", kind.lower())
    trained = None
    if head is not None:
        trained = getattr(transformers, f"{kind}For{head}").from_pretrained(folder)
        trained.save_pretrained(folder)
    source = resolve(str(folder))
    encoder = load_encoder(source).state_dict()
    encoder = {name: w for name, w in encoder.items() if "pooler" not in name}  # of some heads
    heads = []
    for how in ({"seed": 1}, {"seed": 2}, {"seed": 1}, {"seed": 1, "device": "offload"}):
        model = load_classifier(source, review_task, **how)
        heads.append([*model.parameters()][-2].detach().clone())
        assert said.format(how["seed"]) in capsys.readouterr().err
        if "device" not in how:
            same = model.base_model.state_dict()
            assert all(torch.equal(same[n], w) for n, w in encoder.items())
    assert not torch.equal(heads[0], heads[1])
    assert torch.equal(heads[0], heads[2])
    assert torch.equal(heads[0], heads[3])
    if "not kept" in said:
        assert not torch.equal(heads[0], trained.classifier.weight)
