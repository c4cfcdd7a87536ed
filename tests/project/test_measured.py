"""The tables of the page on performance show the newest rows of the benchmarks, all of them."""

import csv

import pytest

from bench import rows as bench_rows
from bench import speed_table
from simcore._extension import SLOWER
from support.documentation import DOCS, ROOT, extension

measured = extension("measured")
ZEN4, ZEN5 = "AMD EPYC (family 25 model 17)", "AMD EPYC (family 26 model 2)"
NO_BREAK = str.maketrans({"\u00a0": " ", "\u2011": "-"})
MARKED = set(measured.MARKER.findall((DOCS / "performance.md").read_text()))


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Return a function that writes rows, given as dicts, of a suite."""
    monkeypatch.setattr(bench_rows, "RESULTS", tmp_path)

    def write(suite, rows):
        row = {"peak_mb": 1, "median_s": 0.5, "over_floor": 1, "times_ours": 1}
        row |= {"cpu": ZEN5, "isa": "avx2", "threads": bench_rows.THREADS}
        rows = [{**row, **given} for given in rows]
        with (tmp_path / f"{suite}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    return write


def test_every_job_and_every_file_has_a_table():
    assert {measured.family(label) for label in bench_rows.jobs()} <= MARKED
    files = {path.stem for path in bench_rows.RESULTS.glob("*.csv")}
    assert files <= {*bench_rows.SUITES, *MARKED}
    tables = {name: measured.measured(name) for name in MARKED}
    for suite in bench_rows.SUITES:
        for label in {row["job"] for row in bench_rows.read(suite)}:
            assert f"| `{label}` |" in tables[measured.family(label)]


def test_the_newest_row_of_each_contestant_is_shown(results):
    results(
        "cka",
        [
            {"job": "cka13", "contestant": "ours", "median_s": 0.2, "over_floor": 2},
            {"job": "cka13", "contestant": "torch gram", "times_ours": 2},
            {"job": "cka13", "contestant": "ours", "median_s": 0.1, "peak_mb": 70},
            {"job": "cka13", "contestant": "torch gram", "times_ours": 3.41, "peak_mb": 189},
            {"job": "cka13", "contestant": "ours", "over_floor": 9, "threads": 1},
        ],
    )
    assert measured.measured("cka").translate(NO_BREAK).splitlines() == [
        "| job | input | our time | x floor | eager torch | peak memory |",
        "| --- | --- | --- | --- | --- | --- |",
        "| `cka13` | 13 layers, n = 1,600, p = 768 | 100 ms, Zen 5, AVX2 | 1 | 3.41 (gram) | "
        "70 MB<br>189 MB (torch gram) |",
    ]


def test_of_several_processors_the_least_favourable_row_is_shown(results):
    results(
        "cka",
        [
            {"job": "cka13", "contestant": "ours", "median_s": 0.2, "over_floor": 1.5},
            {"job": "cka13", "contestant": "torch gram", "times_ours": 3},
            {"job": "cka13", "contestant": "ours", "median_s": 0.1, "isa": "avx512"},
            {"job": "cka13", "contestant": "torch gram", "times_ours": 2.5, "isa": "avx512"},
            {"job": "cka13", "contestant": "torch gram", "times_ours": 2, "cpu": ZEN4},
            {"job": "cka13", "contestant": "ours", "over_floor": 1.2, "cpu": "Xeon"},
        ],
    )
    line = measured.measured("cka").translate(NO_BREAK).splitlines()[-1]
    assert "| 200 ms, Zen 5, AVX2 | 1.5 | 2 (gram, Zen 4, AVX2) |" in line


def test_rows_without_a_compiler_have_a_table_of_their_own(results):
    rows = [
        {"job": "cka13", "contestant": "ours", "over_floor": 1.5, "isa": "avx512"},
        {"job": "cka13", "contestant": "ours", "over_floor": 3.75, "isa": "torch"},
        {"job": "cka13", "contestant": "torch gram", "times_ours": 1.25, "isa": "torch"},
        {"job": "cka52", "contestant": "ours", "over_floor": 9, "isa": "torch"},
    ]
    results("cka", rows)
    assert "eager" not in measured.measured("cka")
    (line,) = measured.measured("pure").translate(NO_BREAK).splitlines()[2:]
    shape, memory = "13 layers, n = 1,600, p = 768", "1 MB<br>1 MB (torch gram)"
    assert line == f"| `cka13` | {shape} | 500 ms | 2.5 | 1.25 (gram) | {memory} |"
    assert speed_table.slower() == "2 to 2 times"


def test_the_first_line_and_readme_say_how_much_slower_operations_of_torch_are():
    assert f"{SLOWER} slower" in " ".join((ROOT / "README.md").read_text().split())
    assert speed_table.slower() in (SLOWER, None)  # None: no rows yet


def test_published_pairs_are_multiplied_up_to_the_grid(results):
    rows = [{"job": "mutual13", "contestant": "ours"}]
    rows += [{"job": "mutual13", "contestant": "published, 1 row", "times_ours": 2}]
    rows += [{"job": "gulp13", "contestant": "ours"}]
    rows += [{"job": "gulp13", "contestant": "published pair", "times_ours": 0.1}]
    rows += [{"job": "gulp13", "contestant": "cka grid", "times_ours": 0.25}]
    results("grids", rows)
    neighbours, distances = map(measured.measured, ("neighbours", "distances"))
    assert "| 500 ms, Zen 5, AVX2 | 1 | 26 |" in neighbours.translate(NO_BREAK)
    assert "| 500 ms, Zen 5, AVX2 | 1 | 16.9 | 0.25 |" in distances.translate(NO_BREAK)


def test_a_marker_that_names_no_family_is_refused():
    with pytest.raises(ValueError, match="found 'ckaa'"):
        measured.measured("ckaa")


def test_numbers_stay_with_their_units():
    assert measured.unbroken("13 layers, n = 1,600") == "13\u00a0layers, n\u00a0=\u00a01,600"
    assert measured.unbroken("2.5 (per pair)<br>3 GB") == "2.5\u00a0(per pair)<br>3\u00a0GB"


def test_what_was_not_measured_is_said(results):
    assert measured.measured("cka") == "`bench/results` has no rows of cka yet."
    assert measured.measured("gpu") == "`bench/results` has no rows of gpu yet."


@pytest.mark.parametrize(
    "value, text", [(0.00205, "2.05 ms"), (4.5e-7, "0.45 µs"), (102.2, "102 s"), (1234, "1,234 s")]
)
def test_times_have_the_unit_that_suits(value, text):
    assert measured.seconds(value) == text


def test_readme_counts_published_pairs_as_the_page_does(results):
    ours = {"contestant": "ours", "over_floor": 1.5}
    rows = [{"job": family.job, **ours} for family in speed_table.FAMILIES]
    rows += [{"job": "mutual13", "contestant": "published, 1 row", "times_ours": 2}]
    rows += [{"job": "distance_correlation13", "contestant": "published pair", "times_ours": 0.1}]
    rows += [{"job": "cka13", "contestant": "torch gram", "times_ours": 9}]
    rows += [{"job": "cka13", "contestant": "compiled gram", "times_ours": 2}]
    rows += [{"job": "cka13", "contestant": "pytorch-cka hooks", "times_ours": 8}]
    rows += [{"job": "cka13", "contestant": "pytorch-cka features", "times_ours": 3}]
    rows += [{"job": "hard_match13", **ours, "over_floor": 1.25}]
    results("cka", rows)
    made = speed_table.speed_table()
    assert "| linear, biased | 1.50 | 2.0 | 3.0 (pytorch-cka) |\n" in made
    assert "| mutual, k = 10 | 1.50 |  | 26.0 (published code) |\n" in made
    assert "| distance correlation | 1.50 |  | 16.9 (published code) |\n" in made
    assert "| one-to-one | 1.25 |  |  |\n" in made
