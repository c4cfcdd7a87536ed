"""Every named task: its published format through tokenisation, a training step and the metric."""

import dataclasses

import datasets
import numpy as np
import pytest
import sklearn.metrics
from scipy import stats

from simlab import TaskOptions, finetune, load_representations, load_task
from simlab.errors import UserError
from simlab.experiments.truncate import TruncationOptions, cut_model, majority_rows, tfidf_rows
from simlab.models.batches import batches, collator
from simlab.models.checkpoint import read_evaluation
from simlab.models.evaluate import predict_logits, predictions_of
from simlab.models.load import load_classifier, load_tokenizer
from simlab.models.sources import resolve
from simlab.models.tokens import encode
from simlab.tasks import TASKS, Examples, Task
from simlab.tasks.specs import ENCODINGS
from simlab.training.recipes import Recipe
from support.lab.taskrows import FORMATS, HELDOUT, TRAIN, published, write_published
from support.lab.tinymodels import LAYERS, save_tiny_model

LIBRARY = {
    "accuracy": sklearn.metrics.accuracy_score,
    "f1_macro": lambda labels, predictions: np.mean(
        [sklearn.metrics.f1_score(labels == c, predictions == c) for c in np.unique(labels)]
    ),
    "f1": sklearn.metrics.f1_score,
    "matthews": sklearn.metrics.matthews_corrcoef,
    "pearson": lambda labels, predictions: stats.pearsonr(predictions, labels).statistic,
    "exact_match": None,  # test_questions.py computes it by hand
    "spearman": lambda labels, predictions: stats.spearmanr(predictions, labels).statistic,
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of files for every task."""
    parent = tmp_path_factory.mktemp("tasks")
    return {name: write_published(parent / name, name) for name in FORMATS}


def from_folder(folder, name, **options):
    return load_task(f"{name}:{folder}", TaskOptions(**options))


def test_every_named_task_has_rows_here():
    assert sorted(FORMATS) == sorted(TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_rows_in_the_published_format_make_the_stated_task(folders, name):
    spec, rows = TASKS[name], published(name)
    task = from_folder(folders[name], name)
    assert (task.name, len(task.train), len(task.heldout)) == (name, TRAIN, HELDOUT)
    assert (task.label_names, task.all_metrics) == (spec.labels, spec.metrics)
    assert task.is_pair == (spec.kind == "pair")
    assert task.is_multiple_choice == (spec.kind == "multiple choice")
    row = int(task.heldout.ids[0].rpartition("-")[2])
    table = rows[spec.heldout].to_pandas()
    wanted = (ENCODINGS[spec.encoding](table, name) if spec.encoding else table).iloc[row]
    assert task.heldout.ids[0].startswith(f"{spec.heldout}-")
    assert task.heldout.texts[0] == wanted[spec.text]
    assert task.is_pair is False or task.heldout.pairs[0] == wanted[spec.pair]
    code = wanted[spec.label]
    if isinstance(code, str):  # HellaSwag's digits, QuaRTz's letters
        code = spec.labels.index(code)
    assert task.heldout.labels[0] == float(code)


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_a_training_step_and_the_metric(tmp_path, folders, tiny_bert, name):
    task = from_folder(folders[name], name)
    recipe = Recipe(epochs=0.1, batch_size=4, learning_rate=1e-2)  # one step
    finetune(tiny_bert, task, tmp_path / "ft", recipe)
    source = resolve(str(tmp_path / "ft"))
    before, after = load_classifier(tiny_bert, task, seed=recipe.seed), load_classifier(source)
    assert type(after).__name__.endswith(
        "ForMultipleChoice" if task.is_multiple_choice else "ForSequenceClassification"
    )
    moved = [
        bool((a != b).any()) for a, b in zip(before.parameters(), after.parameters(), strict=True)
    ]
    assert np.mean(moved) > 0.5
    logits = predict_logits(after, load_tokenizer(source), task.heldout, 64)
    assert logits.shape == (HELDOUT, max(1, len(task.label_names)))
    evaluation = read_evaluation(tmp_path / "ft")
    found = task.scores(predictions_of(logits, task), task.heldout.labels)
    assert evaluation["metric"] == TASKS[name].metrics[0]
    assert evaluation["value"] == found[evaluation["metric"]]
    for metric, value in found.items():
        if LIBRARY[metric] is None:
            continue
        library = LIBRARY[metric](task.heldout.labels, predictions_of(logits, task))
        assert value == pytest.approx(library, nan_ok=True)


@pytest.mark.parametrize("name", ["cola", "mrpc", "stsb", "hellaswag", "cb"])
def test_metrics_are_what_their_names_say(folders, name):
    task = from_folder(folders[name], name)
    labels = task.heldout.labels
    assert list(task.scores(labels, labels).values()) == pytest.approx([1.0] * len(task.metrics))
    other = labels.copy()
    other[labels.argmax()] = labels.min()  # one example of the highest label is taken for another
    for metric, value in task.scores(other, labels).items():
        assert value == pytest.approx(LIBRARY[metric](labels, other))
        assert value < 0.99
    assert task.score(other, labels) == task.scores(other, labels)[task.metric]


def test_choices_are_context_with_question_and_answer(folders, tiny_bert):
    """As in jiant, which Phang et al. 2021 used."""
    rows = published("cosmosqa")["train"]
    task = from_folder(folders["cosmosqa"], "cosmosqa")
    example = task.train.ids.index("train-3")
    wanted = [rows[3][f"answer{number}"] for number in range(4)]
    first = f"{rows[3]['context']} {rows[3]['question']}"
    assert list(task.train.choices[example]) == wanted
    tokenizer = load_tokenizer(tiny_bert)
    encoded = encode(tokenizer, task.train, 64)
    alone = [tokenizer(first, answer)["input_ids"] for answer in wanted]
    assert encoded[example]["input_ids"] == alone
    seen = {}
    for numbers, batch in batches(tokenizer, encoded, 3, "cpu"):
        for number, ids, mask in zip(
            numbers, batch["input_ids"], batch["attention_mask"], strict=True
        ):
            seen[number] = [row[kept.bool()].tolist() for row, kept in zip(ids, mask, strict=True)]
    assert seen[example] == alone
    assert sorted(seen) == list(range(TRAIN))
    for row in encoded:
        row["labels"] = 0
    assert collator(tokenizer, task)(encoded[:2])["input_ids"].shape[:2] == (2, 4)


def test_hellaswag_s_endings_follow_the_second_context(folders):
    rows = published("hellaswag")["validation"]
    task = from_folder(folders["hellaswag"], "hellaswag")
    example = task.heldout.ids.index("validation-2")
    assert task.heldout.texts[example] == rows[2]["ctx_a"]
    assert task.heldout.choices[example][1] == f"{rows[2]['ctx_b']} {rows[2]['endings'][1]}"


def test_each_choice_is_a_pair_with_an_id(folders):
    task = from_folder(folders["quartz"], "quartz")
    flat = task.heldout.each_choice()
    assert flat.ids[:2] == (f"{task.heldout.ids[0]}:0", f"{task.heldout.ids[0]}:1")
    assert flat.pairs[:2] == task.heldout.choices[0]
    assert flat.labels.reshape(-1, 2).argmax(1).tolist() == task.heldout.labels.tolist()
    assert flat.each_choice() is flat
    assert task.heldout.head(2).choices == task.heldout.choices[:2]
    changed = dataclasses.replace(task.heldout, choices=task.heldout.choices[::-1])
    assert changed.text_fingerprint != task.heldout.text_fingerprint


def test_multiple_choice_goes_through_truncation_and_extraction(tmp_path, folders, simcore):
    task = from_folder(folders["hellaswag"], "hellaswag")
    encoder, checkpoint = save_tiny_model(tmp_path / "bert"), tmp_path / "ft"
    name = f"hellaswag:{folders['hellaswag']}"
    assert simcore("finetune", encoder, name, "--epochs", 0.1, "--out", checkpoint)[0] == 0
    source = resolve(str(checkpoint))
    logits = cut_model(source, task, 64, "untuned", TruncationOptions()).logits
    model, tokenizer = load_classifier(source), load_tokenizer(source)
    assert logits.shape == (LAYERS + 1, HELDOUT, 4)
    assert np.array_equal(logits[-1], predict_logits(model, tokenizer, task.heldout, 64))
    assert not np.allclose(logits[-2], logits[-1])
    for kind in ("cls", "word-last"):
        out = tmp_path / kind
        result = simcore("extract", checkpoint, name, "--kind", kind, "--limit", 2, "--out", out)
        assert result[0] == 0
    found = load_representations(tmp_path / "cls")
    assert found.ids == [f"{example}:{n}" for example in task.heldout.ids[:2] for n in range(4)]
    assert [layer.shape for layer in found.layers] == [(8, 24)] * (LAYERS + 1)
    words = load_representations(tmp_path / "word-last").ids
    assert words[0] == f"{task.heldout.ids[0]}:0:0:{task.heldout.texts[0].split()[0]}"


def test_baselines_know_metrics_and_choices(folders):
    cola = from_folder(folders["cola"], "cola")
    (majority,) = majority_rows(cola)
    assert majority.value == 0.0  # of Matthews' correlation, whatever the majority
    choices = (("dull", "bright"), ("awful", "fresh"), ("bright", "flat"))
    texts, labels = ("the film is",) * 3, np.array([1, 1, 0])
    examples = Examples(("a", "b", "c"), texts, None, labels, choices)
    task = Task("choices", examples, examples, ("0", "1"))
    (majority,), (tfidf,) = majority_rows(task), tfidf_rows(task)
    assert (majority.value, tfidf.value) == (2 / 3, 1.0)


def write_data(folder, splits):
    return write_published(folder / "data", "cola", splits).parent


def write_config(folder, splits):
    return write_published(folder / "cola", "cola", splits).parent


def write_shards(folder, splits):
    folder.mkdir()
    for split, table in splits.items():
        for shard in range(2):
            part = table.shard(2, shard, contiguous=True)
            part.to_parquet(folder / f"{split}-{shard:05d}-of-00002.parquet")
    return folder


def write_saved(folder, splits):
    splits.save_to_disk(folder)
    return folder


def write_plain(suffix):
    def write(folder, splits):
        folder.mkdir()
        for split, table in splits.items():
            frame, path = table.to_pandas(), folder / f"{split}.{suffix}"
            if suffix == "csv":
                frame.to_csv(path, index=False)
            else:
                frame.to_json(path, orient="records", lines=suffix == "jsonl")
        return folder

    return write


@pytest.mark.parametrize(
    "write",
    [
        write_data,
        write_config,
        write_shards,
        write_saved,
        *map(write_plain, ("csv", "json", "jsonl")),
    ],
)
def test_every_layout_of_a_folder_gives_the_same_task(tmp_path, folders, write):
    found = from_folder(write(tmp_path / "folder", published("cola")), "cola")
    wanted = from_folder(folders["cola"], "cola")
    assert found.train.fingerprint == wanted.train.fingerprint
    assert found.heldout.fingerprint == wanted.heldout.fingerprint


def test_a_split_is_not_another_whose_name_begins_alike(tmp_path, folders):
    splits = dict(published("cola"))
    folder = write_published(tmp_path / "cola", "cola", splits | {"validation_b": splits["train"]})
    found = from_folder(folder, "cola")
    assert found.heldout.fingerprint == from_folder(folders["cola"], "cola").heldout.fingerprint


def test_a_named_task_that_cannot_be_had_says_how_to_bring_it(offline):
    with pytest.raises(
        UserError, match=r"task rte: wanted the data set .* files as rte:FOLDER, found"
    ):
        load_task("rte")


def test_matched_and_mismatched_are_two_splits(folders):
    matched, mismatched = (from_folder(folders["mnli"], name) for name in ("mnli", "mnli-mm"))
    assert matched.train.fingerprint == mismatched.train.fingerprint
    assert not {*matched.heldout.texts} & {*mismatched.heldout.texts}


def test_sizes_and_seeds_of_a_named_task(folders):
    few = from_folder(folders["sst2"], "sst2", train_size=3, heldout_size=2)
    every = from_folder(folders["sst2"], "sst2")
    other = from_folder(folders["sst2"], "sst2", split_seed=1)
    assert few.train.ids == every.train.ids[:3]
    assert few.heldout.ids == every.heldout.ids[:2]
    assert {*other.heldout.ids} == {*every.heldout.ids}
    assert other.heldout.ids != every.heldout.ids


def changed(column, values, split="validation"):
    """Published CoLA with other values in a column of one split."""
    splits = {name: table.to_pandas() for name, table in published("cola").items()}
    rows = splits[split]
    splits[split] = rows.assign(**{column: values}) if values else rows.drop(columns=column)
    return {
        name: datasets.Dataset.from_pandas(table, preserve_index=False)
        for name, table in splits.items()
    }


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        (changed("label", [0, 1, 2, 1, 0, 1]), r"acceptable or 0 to 1, found '2' in data row 3"),
        (
            changed("label", ["acceptable", "odd"] * 3),
            r"'label' wanted .* found 'odd' in data row 2",
        ),
        (changed("label", [0, 1, 0.5, 1, 0, 1]), r"found '0.5' in data row 3"),
        (changed("label", [0, 1, np.inf, 1, 0, 1]), r"found 'inf' in data row 3"),
        (changed("label", [-1] * HELDOUT), "found a hidden label in data row 1"),
        (
            changed("label", [1] * TRAIN, "train"),
            r"train: column 'label': wanted at least two .*\[1\]",
        ),
        (changed("sentence", None), "validation: wanted column 'sentence', found label, idx"),
        (
            changed("sentence", ["a", None] * 3),
            "'sentence' wanted a value in every row, found 3 empty, first in data row 2",
        ),
    ],
)
def test_rows_that_are_not_the_task_s_are_refused(tmp_path, splits, message):
    folder = write_published(tmp_path / "cola", "cola", splits)
    with pytest.raises(UserError, match=message) as caught:
        from_folder(folder, "cola")
    assert str(folder) in str(caught.value)


def test_labels_may_be_names(tmp_path, folders):
    names = ["unacceptable", "acceptable"]
    splits = changed("label", names * 3)
    found = from_folder(write_published(tmp_path / "cola", "cola", splits), "cola")
    assert found.heldout.fingerprint == from_folder(folders["cola"], "cola").heldout.fingerprint


def test_empty_missing_and_damaged_splits_are_refused(tmp_path, folders):
    empty = dict(published("cola"))
    empty["validation"] = empty["validation"].select([])
    folder = write_published(tmp_path / "empty", "cola", empty)
    with pytest.raises(UserError, match=r"validation\S*: wanted rows, found none"):
        from_folder(folder, "cola")
    for file in folder.glob("validation*"):
        file.unlink()
    (folder / "validation.jsonl").write_text("")  # not even columns
    with pytest.raises(UserError, match=r"empty/validation\.jsonl: wanted rows, found none"):
        from_folder(folder, "cola")
    missing = {"train": published("cola")["train"]}
    folder = write_published(tmp_path / "missing", "cola", missing)
    with pytest.raises(UserError, match=r"missing: wanted a split 'validation', found train$"):
        from_folder(folder, "cola")
    (folder / "validation.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(UserError, match=r"validation\.parquet: wanted a parquet table"):
        from_folder(folder, "cola")
    with pytest.raises(UserError, match=r"wanted a folder of its files, found no folder .*none"):
        from_folder(tmp_path / "none", "cola")


def test_scores_must_be_numbers_and_vary(tmp_path):
    splits = {name: table.to_pandas() for name, table in published("stsb").items()}
    for values, message in (
        (
            ["3", "high", "1", "2", "3", "4"],
            "'label' wanted finite numbers, found high in data row 2",
        ),
        ([2.0] * HELDOUT, r"held-out split: wanted at least two different labels, found \[2.0\]"),
    ):
        splits["validation"] = splits["validation"].assign(label=values)
        tables = {name: datasets.Dataset.from_pandas(table) for name, table in splits.items()}
        folder = write_published(tmp_path / str(values[1]), "stsb", tables)
        with pytest.raises(UserError, match=message):
            from_folder(folder, "stsb")


def test_a_wrong_number_of_choices_is_refused(tmp_path):
    splits = dict(published("hellaswag"))
    short = splits["train"].to_pandas()
    short.at[2, "endings"] = ["only", "two"]
    splits["train"] = datasets.Dataset.from_pandas(short)
    folder = write_published(tmp_path / "hellaswag", "hellaswag", splits)
    with pytest.raises(UserError, match="'endings' wanted 4 choices, found 2 in data row 3"):
        from_folder(folder, "hellaswag")


def test_columns_of_a_named_task_are_its_own(folders):
    with pytest.raises(UserError, match=r"label_column='body': .* found task cola, whose columns"):
        from_folder(folders["cola"], "cola", label_column="body")


def test_a_folder_without_a_name_is_a_data_set_of_its_own(folders):
    task = load_task(str(folders["rte"]))
    assert (task.name, task.is_pair, task.label_names) == ("rte", True, ("0", "1"))
    assert (len(task.train), len(task.heldout)) == (TRAIN, HELDOUT)
