"""`simcore judge` on tiny networks: table, figure, what is kept, and bad names and files."""

import functools
import re
import sys
from dataclasses import asdict, replace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from simlab.judge import candidates, criteria, judge
from simlab.judge.digits import Digits
from simlab.judge.ranks import mean_ranks, ranked
from simlab.judge.scores import RANKED
from support.lab.disks import file_limit
from support.lab.planted import PLAN, TINY
from support.lab.terminals import on_a_terminal


class Others(Digits):
    """The same networks from other images, which stand for another domain."""

    domain = "reviews"


OTHER = Others(**(asdict(TINY) | {"rows": 30}))
MINE = "import numpy as np\ndef measure(x, y):\n    return float(np.sign(x.mean() * y.mean()))\n"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("judge")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Let the benchmark be of tiny networks and of two measures of simcore."""
    monkeypatch.setattr(criteria, "DRAWS", 50)
    monkeypatch.setattr("simlab.judge.digits.DIGITS", PLAN)
    monkeypatch.setattr("simlab.judge.reviews.REVIEWS", replace(PLAN, training=OTHER))
    ours = [*candidates.find("procrustes", False), *candidates.find("linreg", False)]
    monkeypatch.setattr(candidates, "of_simcore", lambda: ours)


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_a_file_is_ranked_among_the_measures_of_simcore(simcore, mine, cache, tmp_path):
    out = tmp_path / "out"
    code, printed, _ = simcore("judge", mine, "--out", out, "--cache", cache)
    assert code == 0
    assert "> mine.py" in printed
    assert all(f"{test}: {score}" in printed for test, score in RANKED.items())
    assert "mine.py has place" in (out / "judge.html").read_text()
    table = pd.read_csv(out / "scores.csv")
    assert set(table["measure"]) == {"mine.py", "procrustes", "linreg"}
    assert set(table.loc[table["asked"], "measure"]) == {"mine.py"}
    assert table.groupby(["domain", "measure"]).size().nunique() == 1
    for domain in judge.DOMAINS:
        assert mpl.image.imread(out / f"{domain}.png").ndim == 3
        assert f"{domain}: mine.py" in printed


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_the_next_call_continues(simcore, tmp_path):
    given = (
        "judge",
        "--domain",
        "digits",
        "--cache",
        tmp_path / "cache",
        "--out",
        tmp_path / "out",
    )
    with file_limit(4096):  # standard error is a file here
        code, _, error = simcore(*given)
    assert code == 2
    assert re.fullmatch(
        rf"error: {tmp_path}/cache/\S+: wanted to write there, found: File too large .*", error[-1]
    )
    assert len(error) == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert simcore(*given)[0] == 0
    figure = tmp_path / "out" / "digits.png"
    content = figure.read_bytes()
    figure.unlink()
    with file_limit(len(content) // 2):  # networks and scores are there
        code, _, error = simcore(*given)
    assert code == 2
    assert error[-1].startswith(f"error: {figure}: wanted to write")
    assert not figure.exists()
    assert simcore(*given)[0] == 0
    assert figure.read_bytes() == content


def test_one_domain_may_be_enough(simcore, cache, tmp_path):
    out = tmp_path / "out"
    code, _, _ = simcore("judge", "--domain", "reviews", "--out", out, "--cache", cache)
    assert code == 0
    assert {*pd.read_csv(out / "scores.csv")["domain"]} == {"reviews"}
    assert sorted(path.name for path in out.iterdir()) == [
        "judge.html",
        "reviews.png",
        "scores.csv",
    ]
    code, _, error = simcore("judge", "--domain", "review", "--cache", cache)
    assert code == 2
    assert error == [
        "error: --domain review (did you mean 'reviews'?): wanted one of digits, reviews"
    ]


def test_the_measures_of_simcore_are_scored_once(cache, monkeypatch):
    first = judge.judge_measures([], cache=cache)
    monkeypatch.setattr("simlab.judge.scores.score", None)
    pd.testing.assert_frame_equal(judge.judge_measures([], cache=cache), first)


def test_a_file_is_scored_anew(simcore, mine, cache):
    judge.judge_measures(mine, cache=cache)
    mine.write_text("def measure(x, y): return 0.25")
    frame = judge.judge_measures(mine, cache=cache)
    own = frame[frame["measure"] == "mine.py"].set_index(["domain", "test", "score"])["value"]
    assert own["digits", "independent rows", "value"] == 0.25


def test_the_measure_of_a_file_has_the_scores_of_the_same_measure_of_simcore(tmp_path, cache):
    path = tmp_path / "same.py"
    path.write_text(
        "import simcore\ndef measure(x, y):\n    return simcore.linreg_grid([x], [y])[0, 0]\n"
    )
    frame = judge.judge_measures(path, cache=cache)
    both = frame[frame["ranked"]].pivot(index=["domain", "test"], columns="measure", values="value")
    np.testing.assert_allclose(both["same.py"], both["linreg"], atol=1e-4)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ckaa", "error: ckaa (did you mean 'cka'?): wanted a Python file, or one of"),
        ("nowhere.py", "error: nowhere.py: wanted a Python file, found none"),
    ],
)
def test_a_wrong_name_is_one_line(simcore, name, message, tmp_path):
    code, printed, error = simcore("judge", name, "--cache", tmp_path / "cache")
    assert (code, printed, len(error)) == (2, "", 1)
    assert error[0].startswith(message)
    assert not (tmp_path / "cache").exists()  # nothing was trained


def test_two_files_of_one_name_are_refused(simcore, mine, cache, tmp_path):
    """The table has a row for each name: one of the two would be left out without a word."""
    other = tmp_path / "other" / mine.name
    other.parent.mkdir()
    other.write_text("def measure(x, y): return 0.25")
    code, _, error = simcore("judge", mine, other, "--cache", cache)
    assert (code, len(error)) == (2, 1)
    assert error[0] == f"error: {other}: wanted another file name, found the name of {mine}"
    assert simcore("judge", mine, mine, "--domain", "digits", "--cache", cache)[0] == 0


def test_a_bad_file_is_one_line(simcore, mine, cache):
    mine.write_text("def measure(x, y):\n    return x.nothing")
    code, _, error = simcore("judge", mine, "--cache", cache)
    assert (code, len(error)) == (2, 1)
    assert "mine.py: wanted a value of arrays of" in error[0]
    assert error[0].endswith("(line 2)")


def test_a_measure_that_lacks_a_library_is_left_out(simcore, cache, monkeypatch):
    def missing(X, Y):
        raise ImportError("ot: pip install simcore[transport]")

    inputs = {"measure": "soft"}
    lacking = candidates.Candidate("soft", False, missing, inputs)
    monkeypatch.setattr(candidates, "of_simcore", lambda: [lacking])
    code, printed, error = simcore("judge", "linreg", "--cache", cache)
    assert code == 0
    assert "soft is left out: ot: pip install simcore[transport]" in " ".join(error)
    assert "> linreg" in printed


LONG = "cka (kernel linear, estimator unbiased)"
SHOW = """
import pandas as pd
from simlab.commands.judge import _print
_print(pd.read_csv({path!r}))
"""


def test_the_tables_fit_a_terminal_of_100_columns(tmp_path):
    frame = ranked(
        [
            dict.fromkeys(("low", "high", "chance"), -0.25)
            | {"domain": "digits", "measure": measure, "test": test, "score": score}
            | {"value": -0.25, "pvalue": 0.01, "undefined": 0, "pairs": 600}
            for measure in (LONG, "svcca")
            for test, score in (*RANKED.items(), ("offset", "change"))
        ],
        {LONG},
    )
    frame.to_csv(tmp_path / "scores.csv", index=False)
    show = SHOW.format(path=str(tmp_path / "scores.csv"))
    lines = on_a_terminal([sys.executable, "-c", show], 100).splitlines()
    assert max(map(len, lines)) <= 100
    assert ["svcca", "1.5", *["-0.25"] * 8] in [line.split() for line in lines]
    assert "offset: change -0.25" in [" ".join(line.split()[:3]) for line in lines]
    offset = next(line.split() for line in lines if "offset: change" in line)
    assert "of" not in offset  # it has no rank


def test_undefined_scores_rank_last_and_small_rates_first():
    row = functools.partial(dict, domain="digits", chance=0.5, low=np.nan, high=np.nan)
    rows = [
        row(measure=measure, test=test, score=score, value=value)
        for test, score, values in (
            ("layers", "violation rate", {"a": 0.1, "b": 0.3, "c": np.nan}),
            ("accuracy", "Spearman", {"a": 0.2, "b": 0.4, "c": 0.4}),
            ("rows", "change", {"a": 9.0, "b": 1.0, "c": 0.0}),
        )
        for measure, value in values.items()
    ]
    frame = ranked(rows, {"b"})
    ranks = frame.pivot(index="measure", columns="test", values="rank")
    assert ranks["layers"].tolist() == [1, 2, 3]
    assert ranks["accuracy"].tolist() == [3, 1.5, 1.5]
    assert ranks["rows"].isna().all()
    assert mean_ranks(frame).to_dict() == {"b": 1.75, "a": 2.0, "c": 2.25}  # not of changes
    assert frame.loc[frame["asked"], "measure"].unique().tolist() == ["b"]
