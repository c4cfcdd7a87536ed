"""Import: what others wrote becomes a folder; what is wrong is named and leaves nothing."""

import json
import pickle

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from simcore import record
from simlab import (
    TaskOptions,
    extract,
    grid,
    import_representations,
    load_representations,
    read_results,
)
from simlab.errors import UserError
from simlab.representations.array_files import in_order
from simlab.representations.folder import require_same_examples
from support.lab.tinymodels import PIECES, save_tiny_model
from support.nets import ConvNet, images, seeded

NAMES = ("embeddings", "layer.1", "layer.2", "layer.10")
SENTENCES = ("the film is un ##able", "dull plot with some music", "a film")


def layers(dtype=np.float32, rows=7, width=5):
    """Four different layers."""
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((rows, width)).astype(dtype) for name in NAMES}


def write_hdf5(path, arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)
    return path


def tensors(arrays, dtype=None):
    return {name: torch.from_numpy(array).to(dtype) for name, array in arrays.items()}


def save_tensors(path, value):
    save_file(value, path)
    return path


def save_npz(path, **arrays):
    np.savez(path, **arrays)
    return path


WRITERS = {
    "npz": lambda at, arrays: save_npz(at / "x.npz", **arrays),
    "safetensors": lambda at, arrays: save_tensors(at / "x.safetensors", tensors(arrays)),
    "bfloat16": lambda at, arrays: save_tensors(
        at / "x.safetensors", tensors(arrays, torch.bfloat16)
    ),
    "hdf5": lambda at, arrays: write_hdf5(at / "x.h5", arrays),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_every_format_gives_the_same_layers(tmp_path, writer):
    arrays = layers(np.float64 if writer == "npz" else np.float32)
    if writer == "bfloat16":
        arrays = {name: np.round(array * 8) for name, array in arrays.items()}
    file = WRITERS[writer](tmp_path, arrays)
    step = import_representations(file, tmp_path / "reps", label="theirs", seed=4)
    found = load_representations(step.path)
    for layer, wanted in zip(found.layers, arrays.values(), strict=True):
        np.testing.assert_array_equal(layer, wanted.astype(np.float32))
    assert found.ids == [f"row-{row}" for row in range(7)]
    assert (found.manifest["label"], found.manifest["seed"]) == ("theirs", 4)
    assert found.manifest["names"] == list(NAMES)
    assert import_representations(file, tmp_path / "reps", label="theirs", seed=4).skipped


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["b.1", "b.10", "b.2", "a"], ["a", "b.1", "b.2", "b.10"]),
        (["conv1", "layer1", "layer2", "fc"], ["conv1", "layer1", "layer2", "fc"]),
        (["l.0.in", "l.0.out", "l.1.in", "l.1.out"], ["l.0.in", "l.0.out", "l.1.in", "l.1.out"]),
        (["0", "1", "10", "2"], ["0", "1", "2", "10"]),
    ],
)
def test_layers_keep_their_order_unless_their_numbers_have_none(names, wanted):
    assert in_order(names) == wanted


def test_a_file_of_a_recording_keeps_the_order_of_execution(tmp_path):
    model, file = seeded(ConvNet), tmp_path / "tape.safetensors"
    with record(model, ["head", "stem", "layer?"], pool="spatial-mean", out=file) as tape:
        for batch in images():
            model(batch)
    step = import_representations(file, tmp_path / "reps", label="net")
    found = load_representations(step.path)
    assert found.manifest["names"] == ["stem", "layer1", "layer2", "head"]
    for layer, wanted in zip(found.layers, tape.layers().values(), strict=True):
        np.testing.assert_array_equal(layer, wanted.numpy())


@pytest.mark.parametrize("ordered", [True, False])
def test_an_hdf5_file_that_knows_the_order_of_its_arrays_keeps_it(tmp_path, ordered):
    names, arrays = ("stem", "block/two", "block/one", "head"), list(layers().values())
    with h5py.File(tmp_path / "x.h5", "w", track_order=ordered) as file:
        file.create_group("block", track_order=ordered)
        for name, array in zip(names, arrays, strict=True):
            file[name] = array
        file.move("block", "body")  # to the end
        file["same"] = h5py.SoftLink("/stem")
        file["none"] = h5py.SoftLink("/nothing")
    step = import_representations(tmp_path / "x.h5", tmp_path / "reps", label="net")
    wanted = ["stem", "head", "body/two", "body/one"]
    found = load_representations(step.path).manifest["names"]
    assert found == (wanted if ordered else sorted(wanted))


def test_chosen_arrays_are_the_layers_in_the_order_of_the_choice(tmp_path):
    arrays = {**layers(), "labels": np.arange(7)}
    file = save_npz(tmp_path / "x.npz", **arrays)
    step = import_representations(
        file, tmp_path / "reps", label="x", layers=("layer.10", "layer.1")
    )
    found = load_representations(step.path).layers
    np.testing.assert_array_equal(found[0], arrays["layer.10"])
    np.testing.assert_array_equal(found[1], arrays["layer.1"])


def test_ids_are_the_lines_of_a_text_file(tmp_path):
    ids = [f"image {row}" for row in range(7)]
    file = save_npz(tmp_path / "x.npz", **layers())
    found = []
    for name, lines in (("first", ids), ("other", ids[::-1])):
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
        step = import_representations(
            file, tmp_path / name, label="x", ids=tmp_path / f"{name}.txt"
        )
        found.append(load_representations(step.path))
    assert [one.ids for one in found] == [ids, ids[::-1]]
    with pytest.raises(UserError, match="same ids in another order"):
        require_same_examples(*found)
    (tmp_path / "first.txt").write_text("a\n" * 7)
    with pytest.raises(UserError, match=r"ids='.*first.txt': wanted different ids, found others"):
        import_representations(file, tmp_path / "no", label="x", ids=tmp_path / "first.txt")


def write_sentences(path, texts, layer_count=3, width=6, seed=0):
    """Write [layers, words, width] of each text as AllenNLP and Wu et al. do."""
    rng = np.random.default_rng(seed)
    arrays = {
        str(number): rng.standard_normal((layer_count, len(text.split()), width))
        for number, text in enumerate(texts)
    }
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, dtype="float32")
        index = file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype())
        index[0] = json.dumps({text: str(number) for number, text in enumerate(texts)})
    return list(arrays.values())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Eleven sentences on lines, and the words that a tiny model has for them."""
    folder = tmp_path_factory.mktemp("corpus")
    texts = [f"{text} {'film ' * number}".strip() for number in range(4) for text in SENTENCES][:11]
    (folder / "sentences.txt").write_text("\n".join(texts) + "\n")
    model = save_tiny_model(folder / "bert", pieces=PIECES)
    how = {"kind": "word-last", "words": "spaces", "split": "all"}
    extract(model, folder / "sentences.txt", folder / "words", **how)
    return folder, texts


@pytest.mark.parametrize("named", [False, True])
def test_one_data_set_a_sentence_is_compared_with_an_extracted_model(tmp_path, corpus, named):
    folder, texts = corpus
    arrays = write_sentences(tmp_path / "elmo.hdf5", texts)
    task = {"task": folder / "sentences.txt", "split": "all"} if named else {}
    step = import_representations(
        tmp_path / "elmo.hdf5", tmp_path / "elmo", label="ELMo", kind="word-last", **task
    )
    found, other = load_representations(step.path), load_representations(folder / "words")
    for layer in range(3):
        wanted = np.concatenate([array[layer] for array in arrays]).astype(np.float32)
        np.testing.assert_array_equal(found.layers[layer], wanted)
    assert found.ids == other.ids
    assert found.manifest["examples_sha256"] == other.manifest["examples_sha256"]
    step = grid([tmp_path / "elmo", folder / "words"], tmp_path / "grid.parquet", measure="cka")
    frame = read_results(step.path)
    frame = frame[frame["estimator"] == "biased"]
    assert len(frame) == 3 * 4
    assert set(frame["n"]) == {sum(len(text.split()) for text in texts)}
    assert frame["value"].between(0, 1).all()


def test_a_sentence_that_comes_twice_has_rows_without_words(tmp_path):
    texts = ["a film", "dull", "a film"]
    write_sentences(tmp_path / "x.hdf5", texts)  # JSON keeps the last number of a text
    step = import_representations(tmp_path / "x.hdf5", tmp_path / "reps", label="x")
    found = load_representations(step.path)
    assert found.ids == ["row-0:0", "row-0:1", "row-1:0:dull", "row-2:0:a", "row-2:1:film"]
    assert found.manifest["examples_sha256"] is None
    np.testing.assert_array_equal(found.row_examples(), [0, 0, 1, 2, 2])


def test_rows_of_a_task_are_its_examples_or_its_words(tmp_path, corpus):
    folder, texts = corpus
    words = sum(len(text.split()) for text in texts)
    named = {"task": folder / "sentences.txt", "split": "all", "label": "x"}
    for rows, ids in ((11, [f"row-{row}" for row in range(11)]), (words, None)):
        file = save_npz(tmp_path / f"{rows}.npz", a=np.ones((rows, 2), np.float32))
        step = import_representations(file, tmp_path / str(rows), **named)
        wanted = ids or load_representations(folder / "words").ids
        assert load_representations(step.path).ids == wanted
    file = save_npz(tmp_path / "x.npz", a=np.ones((9, 2), np.float32))
    message = rf"x.npz, a: wanted 11 rows, one for each example of task, or {words}, .* found 9"
    with pytest.raises(UserError, match=message):
        import_representations(file, tmp_path / "no", **named)


def test_rows_of_a_task_of_pairs_are_refused(tmp_path):
    table, file = tmp_path / "pairs.csv", save_npz(tmp_path / "x.npz", a=np.ones((2, 3)))
    table.write_text("one,two\nred,blue\ngood,bad\n")
    columns = TaskOptions(text_column="one", pair_column="two")
    with pytest.raises(UserError, match="task: wanted a task of single texts, found pairs"):
        import_representations(
            file, tmp_path / "no", label="x", task=table, split="all", task_options=columns
        )


class Unpickled:
    """An object whose unpickling makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("suffix", ["npz", "pkl", "pt", "bare.npz"])
def test_nothing_is_unpickled(tmp_path, suffix):
    trap, file = tmp_path / "trap", tmp_path / f"x.{suffix}"
    if suffix == "npz":
        np.savez(file, x=np.array([Unpickled(trap)], object))
    elif suffix == "pt":
        torch.save({"x": Unpickled(trap)}, file)
    else:
        file.write_bytes(pickle.dumps(Unpickled(trap)))
    with pytest.raises(UserError, match=rf"x\.{suffix}: wanted .*, found"):
        import_representations(file, tmp_path / "reps", label="x")
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def damaged(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return path


def other_shape(at):
    arrays = layers()
    return save_npz(at / "x.npz", **{**arrays, "layer.2": arrays["layer.2"][:6]})


def spoilt(value, dtype=np.float32):
    def write(at):
        arrays = layers(dtype)
        arrays["layer.2"][3, 1] = value
        return save_npz(at / "x.npz", **arrays)

    return write


def sentences(change):
    def write(at):
        write_sentences(at / "x.hdf5", SENTENCES)
        with h5py.File(at / "x.hdf5", "r+") as file:
            change(file)
        return at / "x.hdf5"

    return write


def replace(name, array):
    def change(file):
        del file[name]
        if array is not None:
            file[name] = array

    return change


BAD = {
    "missing": (lambda at: at / "x.npz", "x.npz: wanted a file of arrays .*, found no such file"),
    "suffix": (lambda at: at, "wanted a file of arrays .*, found a folder"),
    "empty": (lambda at: save_npz(at / "x.npz"), "x.npz: wanted an array, found none"),
    "half npz": (lambda at: damaged(WRITERS["npz"](at, layers())), "x.npz: wanted .npz arrays"),
    "half safetensors": (
        lambda at: damaged(WRITERS["safetensors"](at, layers(rows=700))),
        "x.safetensors: wanted .safetensors arrays, found: Error while deserializing",
    ),
    "half hdf5": (lambda at: damaged(WRITERS["hdf5"](at, layers())), "x.h5: wanted .h5 arrays"),
    "rows": (other_shape, r"x.npz, layer.2: wanted 7 rows as in .*embeddings, found 6"),
    "one axis": (
        lambda at: save_npz(at / "x.npz", a=np.ones(3)),
        r"x.npz, a: wanted \[n, p\], found shape \[3\]; layers names",
    ),
    "stacked": (
        lambda at: save_npz(at / "x.npz", a=np.ones((2, 4, 3))),
        r"x.npz, a: wanted \[n, p\], found shape \[2, 4, 3\]",
    ),
    "no rows": (lambda at: save_npz(at / "x.npz", a=np.ones((0, 3))), r"found shape \[0, 3\]"),
    "whole numbers": (
        lambda at: save_npz(at / "x.npz", a=np.ones((4, 3), np.int64)),
        "x.npz, a: wanted floating-point values, found int64",
    ),
    "nan": (spoilt(np.nan), "x.npz, layer.2: wanted finite values.*, found nan in row 3, column 1"),
    "too large": (spoilt(1e300, np.float64), r"layer.2: wanted finite values .*, found 1e\+300"),
    "words": (
        sentences(replace("1", np.ones((3, 4, 6), np.float32))),
        "x.hdf5, 1: wanted 5 words as in 'dull plot with some music', found 4",
    ),
    "a gap": (sentences(replace("1", None)), "x.hdf5: wanted sentences 0 to 1, found no array '1'"),
    "a width": (
        sentences(replace("2", np.ones((3, 2, 5), np.float32))),
        r"x.hdf5, 2: wanted \[3, words, 6\] as in sentence 0, found shape \[3, 2, 5\]",
    ),
    "no JSON": (
        sentences(replace("sentence_to_index", "no JSON")),
        "x.hdf5, sentence_to_index: wanted JSON with the number of each sentence, found",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_named_and_leaves_nothing(tmp_path, case):
    write, message = BAD[case]
    (tmp_path / "data").mkdir()
    file = write(tmp_path / "data")
    with pytest.raises(UserError, match=message) as caught:
        import_representations(file, tmp_path / "reps", label="x")
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_options_that_do_not_fit_are_refused(tmp_path, corpus):
    folder, texts = corpus
    file = save_npz(tmp_path / "x.npz", **layers())
    write_sentences(tmp_path / "w.hdf5", ["other words here", *texts[1:]])
    task = {"task": folder / "sentences.txt", "split": "all"}
    for source, options, message in (
        (file, {"kind": "attention"}, "kind='attention': wanted one of imported, cls, mean"),
        (file, {"dtype": "int8"}, "dtype='int8': wanted one of float32, float16, bfloat16"),
        (file, {"layers": ("b",)}, "layers='b': wanted an array of this name, found embeddings, l"),
        (file, {"ids": tmp_path / "no.txt"}, "ids='.*no.txt': wanted a text file of ids, found"),
        (tmp_path / "w.hdf5", task, "w.hdf5, 0: wanted 5 words as in 'the film is un ##able', f"),
    ):
        with pytest.raises(UserError, match=message):
            import_representations(source, tmp_path / "reps", label="x", **options)
    assert not (tmp_path / "reps").exists()


def test_the_command(tmp_path, simcore):
    file = save_npz(tmp_path / "x.npz", **layers())
    code, out, _ = simcore("import", file, "--label", "mine", "--out", tmp_path / "reps")
    assert (code, out.rpartition(" (")[0]) == (0, f"{tmp_path}/reps: 4 layers of 7 x 5")
    command = ("import", file, "--label", "mine", "--layer", "b", "--out", tmp_path / "no")
    assert ((refused := simcore(*command))[0], len(refused[2])) == (2, 1)
    assert simcore("grid", tmp_path / "reps", "--out", tmp_path / "grid.parquet")[0] == 0
    assert {*read_results(tmp_path / "grid.parquet")["layer_x"]} == {1, 2, 3, 4}  # 0: embeddings
