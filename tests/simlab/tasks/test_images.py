"""Tasks of images: the digits, folders of files, data sets with a column of pictures."""

import datasets
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from simlab import TaskOptions, load_task
from simlab.errors import UserError
from simlab.tasks import load_corpus


def test_the_digits_are_those_of_the_library():
    task, digits = load_task("digits"), load_digits()
    assert (task.name, len(task.train), len(task.heldout)) == ("digits", 1438, 359)
    assert task.label_names == tuple("0123456789")
    for examples in (task.train, task.heldout):
        rows = [int(one.removeprefix("digits-")) for one in examples.ids]
        np.testing.assert_array_equal(examples.labels, digits.target[rows])
        found = np.stack([picture.array() for picture in examples.images])
        np.testing.assert_array_equal(found[:, 0], digits.images[rows] / 16)
    assert not set(task.train.ids) & set(task.heldout.ids)
    other = load_task("digits", TaskOptions(heldout_size=50, split_seed=1)).heldout
    assert len(other) == 50
    assert other.ids != task.heldout.ids[:50]
    assert load_corpus("digits").examples.ids[:2] == ("digits-0", "digits-1")
    image = task.heldout.images[0].image()
    assert (image.mode, image.size) == ("RGB", (8, 8))


def drawn(seed, size=(6, 5), mode="RGB"):
    """Return an image of noise."""
    shape = size[::-1] if mode == "L" else (*size[::-1], 3)
    values = np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)
    return Image.fromarray(values)


def write_folder(folder, classes=("cat", "dog"), count=6, first=0):
    """Write png files of noise, a folder for each class; the first two images are equal."""
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for row in range(count):
            seed = first + 100 * number + max(1, row)
            drawn(seed).save(folder / name / f"{row}.png")
    return folder


def test_a_folder_of_classes_is_split_and_repeated_images_dropped(tmp_path):
    folder = write_folder(tmp_path / "pets")
    task = load_task(f"images:{folder}", TaskOptions(heldout_size=4))
    assert (task.name, task.label_names) == ("pets", ("cat", "dog"))
    assert len(task.train) + len(task.heldout) == 10
    for examples in (task.train, task.heldout):
        for one, label, picture in zip(examples.ids, examples.labels, examples.images, strict=True):
            name, _, file = one.partition("/")
            assert task.label_names[label] == name
            values = np.asarray(Image.open(folder / name / file)) / 255
            np.testing.assert_allclose(picture.array(), values.transpose(2, 0, 1), atol=1e-7)


def test_folders_of_splits_stay_apart(tmp_path):
    write_folder(tmp_path / "pets" / "train")
    write_folder(tmp_path / "pets" / "test", first=1000, count=3)
    task = load_task(f"images:{tmp_path / 'pets'}")
    assert {one.partition("/")[0] for one in task.train.ids} == {"train"}
    assert {one.partition("/")[0] for one in task.heldout.ids} == {"test"}
    assert (len(task.train), len(task.heldout)) == (12, 6)
    assert len(load_corpus(f"images:{tmp_path / 'pets'}").examples) == 18


def test_files_alone_are_a_corpus(tmp_path):
    for row in range(3):
        drawn(row, mode="L").save(tmp_path / f"{row}.png")
    examples = load_corpus(f"images:{tmp_path}").examples
    assert examples.ids == ("0.png", "1.png", "2.png")
    assert examples.images[0].array().shape == (1, 5, 6)
    with pytest.raises(UserError, match="wanted at least two different labels"):
        load_task(f"images:{tmp_path}")


def test_the_fingerprint_is_that_of_the_content(tmp_path):
    folder = write_folder(tmp_path / "pets")
    options = TaskOptions(heldout_size=9)
    before = load_task(f"images:{folder}", options).heldout
    assert (
        load_task(f"images:{folder}", options).heldout.text_fingerprint == before.text_fingerprint
    )
    drawn(77).save(folder / before.ids[0])
    after = load_task(f"images:{folder}", options).heldout
    assert after.ids == before.ids
    assert after.text_fingerprint != before.text_fingerprint


@pytest.mark.parametrize("form, column", [("save_to_disk", "image"), ("parquet", "scan")])
def test_a_data_set_with_a_column_of_pictures(tmp_path, form, column):
    pictures = [drawn(row) for row in range(20)]
    labels = [("cat", "dog")[row % 2] for row in range(20)]
    features = datasets.Features({column: datasets.Image(), "label": datasets.Value("string")})
    data = datasets.Dataset.from_dict({column: pictures, "label": labels}, features=features)
    folder = tmp_path / "pets"
    if form == "parquet":
        folder.mkdir()
        data.to_parquet(folder / "train-00000-of-00001.parquet")
    else:
        datasets.DatasetDict({"train": data}).save_to_disk(folder)
    options = TaskOptions(heldout_size=5, text_column=None if column == "image" else column)
    task = load_task(str(folder), options)
    assert (len(task.train), len(task.heldout), task.label_names) == (15, 5, ("cat", "dog"))
    for one, picture in zip(task.heldout.ids, task.heldout.images, strict=True):
        wanted = np.asarray(pictures[int(one.removeprefix("train-"))]) / 255
        np.testing.assert_allclose(picture.array(), wanted.transpose(2, 0, 1), atol=1e-7)
    assert load_corpus(str(folder), TaskOptions(text_column=column)).examples.images is not None


def test_what_is_no_image_is_named(tmp_path):
    folder = write_folder(tmp_path / "pets", count=3)
    (folder / "cat" / "1.png").write_bytes(b"no image")
    examples = load_corpus(f"images:{folder}").examples
    with pytest.raises(UserError, match=r"cat/1.png: wanted an image, found a damaged file"):
        [picture.array() for picture in examples.images]
    for name, options, message in (
        (f"images:{tmp_path / 'no'}", {}, "wanted a folder of images, found no such folder"),
        (f"images:{folder}", {"text_column": "a"}, "text_column='a': wanted a table, found images"),
        (f"images:{folder}", {"pair_column": "a"}, "pair_column='a': wanted a table, found"),
    ):
        with pytest.raises(UserError, match=message):
            load_task(name, TaskOptions(**options))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty: wanted images \(.png .*\), found none"):
        load_task(f"images:{tmp_path / 'empty'}")
