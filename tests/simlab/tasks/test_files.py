"""Texts of local files are those that are written there, letter by letter."""

import csv
import json

import pandas as pd
import pytest

from simlab import TaskOptions, load_task
from simlab.errors import UserError
from simlab.tasks import TASKS
from simlab.tasks.files import read_file, read_sentences
from simlab.tasks.load import open_tables

QUOTES = ['"Hello there', 'he said "no', '"Bye" he said', 'plain"', "don't"]


def texts_of(path, **options):
    """The texts of a task, by their rows."""
    task = load_task(str(path), TaskOptions(**options))
    rows = {
        int(name.rpartition("-")[2]): text
        for part in (task.train, task.heldout)
        for name, text in zip(part.ids, part.texts, strict=True)
    }
    return [rows[number] for number in sorted(rows)]


def test_a_quotation_mark_is_a_letter_in_a_table_with_tabs(tmp_path):
    """Read as csv, a text that begins with one goes on through the rows after it."""
    path = tmp_path / "t.tsv"
    rows = [f"{text}\t{row % 2}" for row, text in enumerate(QUOTES)]
    path.write_text("\n".join(["text\tlabel", *rows, ""]))
    assert texts_of(path) == QUOTES


@pytest.mark.parametrize(("suffix", "separator"), [("csv", ","), ("tsv", "\t")])
def test_quoted_cells_are_read_by_the_rules(tmp_path, suffix, separator):
    path, lines = tmp_path / f"t.{suffix}", [*QUOTES, "two\nlines", "a,b\tc", "x" * 200_000]
    frame = pd.DataFrame({"text": lines, "label": [row % 2 for row in range(len(lines))]})
    frame.to_csv(path, sep=separator, index=False)
    limit = csv.field_size_limit()
    assert texts_of(path) == lines
    assert csv.field_size_limit() == limit


def test_a_mark_that_is_not_doubled_in_a_csv_table_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('text,label\nfilm,1\n"Bye" he said,0\nplot,1\n')
    with pytest.raises(UserError, match=r"t\.csv: .* quoted cell, which is not doubled, in line 3"):
        read_file(path)


def test_a_table_of_more_cells_than_names_is_refused(tmp_path):
    """The first cell of each row would be taken for its name."""
    path = tmp_path / "t.csv"
    path.write_text("text,label\nfilm, one,1\nfilm, two,0\n")
    with pytest.raises(UserError, match="found: rows with more cells than the header has names"):
        read_file(path)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "json"])
@pytest.mark.parametrize("column", ["text", "modified"])
def test_numbers_and_dates_stay_as_they_are_written(tmp_path, suffix, column):
    path, written = tmp_path / f"t.{suffix}", ["007", "4.50", "1e3", "1500000000", "2020"]
    rows = [{column: text, "label": row % 2} for row, text in enumerate(written)]
    if suffix == "json":
        path.write_text(json.dumps(rows))
    elif suffix == "jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        pd.DataFrame(rows).to_csv(path, sep="," if suffix == "csv" else "\t", index=False)
    assert texts_of(path, **({} if column == "text" else {"text_column": column})) == written


def test_the_choices_of_a_named_task_stay_as_they_are_written(tmp_path):
    """Cosmos QA from a folder: its columns of answers have names of their own."""
    spec = TASKS["cosmosqa"]
    columns = list(spec.choices)
    for split in (spec.train, spec.heldout):
        rows = [{**dict.fromkeys(columns, "007"), "label": row % 4} for row in range(8)]
        pd.DataFrame(rows).to_csv(tmp_path / f"{split}.csv", index=False)
    table = open_tables(f"cosmosqa:{tmp_path}")[spec.train]
    assert {*table[columns].to_numpy().flat} == {"007"}


def test_a_structure_in_place_of_a_text_is_refused(tmp_path):
    path = tmp_path / "t.jsonl"
    rows = [{"text": {"de": "Film", "en": "film"}, "label": row} for row in (0, 1)]
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match=r"column 'text' wanted texts, found \{'de': 'Film'"):
        load_task(str(path))


def test_a_mark_of_byte_order_is_no_letter(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("the film\nthe plot\n", encoding="utf-8-sig")
    assert list(read_sentences(path)["text"]) == ["the film", "the plot"]
