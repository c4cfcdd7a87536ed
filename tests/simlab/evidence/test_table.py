"""The table of claims: its file and the command."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from simlab import claims
from simlab.errors import UserError
from simlab.evidence.table import CLAIMS
from simlab.evidence.verdicts import HOLDS
from simlab.results.reading import read_results
from simlab.results.results import to_frame, write_results
from support.lab.claimrows import BUILDERS
from support.lab.commandline import check_refused
from support.lab.result_rows import majority


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    for name in ("freeze-bottom", "top-layers-can-go", "families-alike", "inn-beats-linear"):
        write_results(to_frame(BUILDERS[name](HOLDS)), folder / f"{name}.parquet")
    return folder


@pytest.fixture
def results(tmp_path, written):
    """A folder of results files in which some claims hold."""
    return Path(shutil.copytree(written, tmp_path / "results"))


def alone(results, name):
    return results / f"{name}.parquet"


def test_the_table_survives_its_file(results, tmp_path):
    out = tmp_path / "results" / "claims.parquet"  # a folder of results may hold the table
    frame = claims(alone(results, "freeze-bottom"), out, csv=True)
    stored = pd.read_parquet(out)
    assert stored.columns.tolist() == [
        *("claim", "text", "source", "task", "base", "quantity", "unit", "units", "estimate"),
        *("low", "high", "claimed", "pvalue", "adjusted", "verdict", "rule", "note"),
    ]
    pd.testing.assert_frame_equal(stored, frame, check_dtype=False)
    pd.testing.assert_frame_equal(pd.read_csv(out.with_suffix(".csv")).dropna(subset="task"),
                                  frame.dropna(subset="task"), check_dtype=False)  # fmt: skip
    assert set(read_results(results)["experiment"])  # which skips the table


def test_the_same_inputs_keep_the_file_and_others_need_overwrite(results, tmp_path, monkeypatch):
    out, source = tmp_path / "claims.parquet", alone(results, "top-layers-can-go")
    claims(source, out)
    before = out.stat().st_mtime_ns
    claims(source, out)
    assert out.stat().st_mtime_ns == before
    changes = ({"tolerance": 0.3}, {"families": {"A": "FT*"}})
    for change in changes:
        with pytest.raises(UserError, match="overwrite=True"):
            claims(source, out, **change)
    with pytest.raises(UserError, match="overwrite=True"):
        claims(alone(results, "freeze-bottom"), out)
    with monkeypatch.context() as changed_rules:
        changed_rules.setattr(
            "simlab.evidence.table.CLAIMS", [replace(one, rule="new") for one in CLAIMS]
        )
        with pytest.raises(UserError, match="overwrite=True"):
            claims(source, out)
    changed = claims(source, out, tolerance=0.3, overwrite=True)
    pd.testing.assert_frame_equal(pd.read_parquet(out), changed, check_dtype=False)
    first = changed.set_index("claim").loc["top-layers-can-go"].iloc[0]
    assert (first["claimed"], first["units"]) == ("> -.30", 3)


def test_the_command_prints_verdicts_and_the_claims_without_rows(results, tmp_path, simcore):
    out = tmp_path / "claims.parquet"
    code, printed, errors = simcore("claims", results, "--family", "A=A-*", "--family", "B=B-*",
                                    "--out", out, "--csv")  # fmt: skip
    assert (code, errors) == (0, [])
    lines = printed.splitlines()
    (freezing,) = (line for line in lines if "bottom:4 minus" in line)
    cells = re.split(r" {2,}", freezing.strip())
    quantity = "metric with bottom:4 minus with top:4"
    assert cells[:5] == ["freeze-bottom", "Wu et al. 2020, appendix D", "rt", quantity, ".10"]
    assert cells[-3:] == ["3 fine-tunings", ".016", HOLDS]
    assert f"{out}: written" in lines
    code, printed, _ = simcore("claims", alone(results, "freeze-bottom"))
    assert code == 0
    told = [line for line in printed.splitlines() if line.startswith("no rows: ")]
    assert len(told) == len(CLAIMS) - 1
    assert "no rows: first-layer-matters; they come from `simcore skip`" in told


def test_the_command_lists_all_rules(simcore):
    code, printed, errors = simcore("claims", "--list")
    assert (code, errors) == (0, [])
    for claim in CLAIMS:
        assert all(text in printed for text in (claim.name, claim.text, claim.source, claim.rule))
    assert "as pretrained, fine-tuned, or with random weights" in printed
    assert "jackknife" in printed


def test_mistakes_leave_nothing(results, tmp_path, simcore):
    before = sorted(tmp_path.rglob("*"))
    out = tmp_path / "claims.parquet"
    check_refused(simcore("claims"), "RESULTS", "--list")
    check_refused(simcore("claims", tmp_path / "none"), "none", "wanted")
    check_refused(simcore("claims", results, "--out", tmp_path / "x.txt"), "--out", ".parquet")
    check_refused(simcore("claims", results, "--csv"), "--csv", "--out")
    check_refused(simcore("claims", results, "--tolerance", -1, "--out", out), "--tolerance")
    check_refused(simcore("claims", results, "--metric", "f1", "--out", out), "f1", "accuracy")
    check_refused(simcore("claims", results, "--family", "BERT", "--out", out), "NAME=VALUE")
    twice = ("--family", "BERT=a*", "--family", "BERT=b*")
    check_refused(simcore("claims", results, *twice, "--out", out), "BERT", "found 2")
    dead = ("--family", "A=*", "--family", "B=*")
    check_refused(simcore("claims", results, *dead, "--out", out), "--family", "B=*")
    assert sorted(tmp_path.rglob("*")) == before


def test_rows_that_no_claim_is_about_are_refused(tmp_path, simcore):
    source, out = tmp_path / "majority.parquet", tmp_path / "claims.parquet"
    write_results(to_frame([majority("rt")]), source)
    told = (
        str(source),
        "wanted rows that a claim is about",
        "none among 1 rows",
        "`simcore claims --list` prints the claims",
    )
    check_refused(simcore("claims", source, "--out", out), *told)
    assert not out.exists()
