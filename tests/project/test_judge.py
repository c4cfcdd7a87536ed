"""The program in `examples/judge`: what it writes, planted measures, and scores of groups."""

import importlib
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score

from support.pages import ROOT

sys.path.append(str(ROOT / "examples" / "judge"))  # where its modules find one another
NAMES = ("criteria", "domains", "judge", "measures", "networks", "scores", "show")
criteria, domains, program, measures, networks, scores, show = map(importlib.import_module, NAMES)

SMALL = {"seeds": 5, "members": 3, "epochs": 1}
SMALL |= dict.fromkeys(("random_labels", "shortcut", "augmentation"), (0.0, 1.0))
TINY = domains.Digits(width=4, strides=(2, 1, 1), images=64, batch=32, rows=40, side=1, **SMALL)
TEXTS = domains.Reviews(width=8, blocks=2, words=50, length=12, texts=64, rows=40, **SMALL)
GROUPS = np.repeat(range(4), (3, 4, 4, 5))


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Let the program have few draws, tiny networks and two measures of simcore."""
    ours = [measures.Variant("procrustes", {}), measures.Variant("cosine", {})]
    monkeypatch.setattr(criteria, "DRAWS", 200)
    monkeypatch.setattr(program, "DOMAINS", {"digits": TINY, "reviews": TEXTS})
    monkeypatch.setattr(program, "variants", lambda: ours)


def test_a_file_is_ranked_among_the_measures_of_simcore(tmp_path, capsys, monkeypatch):
    mine, out, cache = (tmp_path / name for name in ("<i>.py", "out", "cache"))
    mine.write_text(
        "import simcore\ndef f(x, y):\n    return simcore.cosine_grid([x], [y])[0, 0]\n"
    )
    arguments = [str(mine), "--domain", "digits", "--out", str(out), "--cache", str(cache)]
    program.main(arguments)
    assert "> <i>.py" in capsys.readouterr().out
    table = pd.read_csv(out / "scores.csv")
    assert {*table["measure"]} == {"<i>.py", "procrustes", "cosine"}
    values = table[table["ranked"]].pivot(index="test", columns="measure", values="value")
    assert sorted(values.index) == sorted(scores.RANKED)
    # A function of a file has the scores of the same measure of simcore.
    np.testing.assert_allclose(values["<i>.py"], values["cosine"], atol=1e-4)
    assert "<i>" not in (out / "judge.html").read_text()
    assert (out / "digits.png").stat().st_size > 10_000
    # Networks and the scores of simcore's measures are kept.
    monkeypatch.setattr(networks, "_fitted", None)
    mine.write_text("def f(x, y):\n    return 0.25\n")
    again = program.judge(measures.find(str(mine), False), {"digits": TINY}, cache)
    others = [frame[frame["measure"] == "cosine"] for frame in (table, again)]
    np.testing.assert_allclose(*(frame["value"] for frame in others), rtol=1e-4)
    constant = again[(again["measure"] == "<i>.py") & again["ranked"]].set_index("test")["value"]
    assert constant["identification"] == pytest.approx(1 / 4)


@pytest.mark.assets
def test_texts_are_a_domain(tmp_path, capsys):
    program.main(["--domain", "reviews", "--cache", str(tmp_path)])
    assert "reviews: mean ranks" in capsys.readouterr().out


@pytest.mark.parametrize("domain", [domains.Digits(), domains.Reviews()], ids=lambda d: d.name)
def test_no_two_networks_share_a_seed(domain):
    grouped = [one for groups in domain.groups.values() for group in groups for one in group]
    every = dict.fromkeys([*domain.plain, *grouped])
    assert len(every) == len({one.seed for one in every}) == 75
    assert domain.groups["random labels"][0] == domain.plain[:5]


def test_a_name_and_a_file_that_are_no_measure_are_refused(tmp_path):
    with pytest.raises(SystemExit, match=r"ckaa: wanted a Python file, or one of cka, "):
        program.main(["ckaa", "--cache", str(tmp_path / "cache")])
    two = tmp_path / "two.py"
    two.write_text("def a(x, y): return 1\ndef b(x, y): return 1\n")
    with pytest.raises(SystemExit, match="or one function alone, found a, b"):
        program.main([str(two), "--cache", str(tmp_path / "cache")])
    assert not (tmp_path / "cache").exists()  # nothing was trained


class Planted:
    """A function of layers whose first row says at which depth and in which group they are."""

    label = "planted"

    def __init__(self, function, distance=False):
        self.function, self.is_distance = function, distance

    def grid(self, X, Y=None):
        return np.array([[self.function(x, y) for y in (X if Y is None else Y)] for x in X])


def perfect(x, y):
    """Return a similarity by group first, then by depth, then by the number of errors."""
    depth, group, errors = np.abs(x[0, :3] - y[0, :3])
    return float(-(1e6 * group + 1e3 * depth + errors))


def scored(function, distance=False):
    """Return the scores of a function on networks; number k errs in the first k * k rows."""
    groups = {
        one: number
        for tested in TINY.groups.values()
        for number, group in enumerate(tested)
        for one in group
    }
    rng, right, found = np.random.default_rng(0), TINY.tensors()[3].numpy(), {}
    for number, one in enumerate(dict.fromkeys([*TINY.plain, *groups])):
        wrong = np.arange(40) < number * number
        logits = 9.0 * np.eye(10)[np.where(wrong, (right + 1) % 10, right)]
        layers = rng.standard_normal((4, 40, 8))
        layers[:, 0, 0] = range(4)
        layers[:, 0, 1:3] = groups.get(one, 0), number * number
        found[one] = networks.Recorded(list(layers), logits, 1 - wrong.mean())
    rows = scores.score(Planted(function, distance), TINY, found)
    return {(row["test"], row["score"]): row for row in rows}


def test_planted_measures_have_the_scores_that_they_must_have():
    best, none, equal = (scored(f) for f in (perfect, lambda x, y: np.nan, lambda x, y: 0.5))
    wanted = {"Spearman": (1, np.nan, np.nan), "AUPRC": (1, 0, 0.4), "violation rate": (0, 1, 1)}
    for test, score in scores.RANKED.items():
        values = [found[test, score]["value"] for found in (best, none, equal)]
        special = {"layers": (0, 1, 0.5), "identification": (1, 0, 0.25)}
        assert values == pytest.approx(special.get(test) or wanted[score], nan_ok=True), test
        assert none[test, score]["undefined"] == none[test, score]["pairs"] > 0
        assert best[test, score]["pvalue"] < 0.12
    for test in ("random labels", "shortcut", "augmentation"):
        values = [found[test, "violation rate"]["value"] for found in (best, none, equal)]
        assert values == pytest.approx(wanted["violation rate"])
    with pytest.raises(SystemExit, match="wanted a distance, because of --distance"):
        scored(lambda x, y: float((x == y).all()), distance=True)


@pytest.mark.parametrize("own", [0.0, 0.5, 2.0])
def test_scores_of_groups_are_those_of_scikit_learn(own):
    s = np.random.default_rng(1).standard_normal((16, 16)).round(1)
    s += own * (GROUPS[:, None] == GROUPS)
    wanted = []
    for group in range(4):
        members, others = np.flatnonzero(group == GROUPS), np.flatnonzero(group != GROUPS)
        inside = [s[i, j] for i in members for j in members if i != j]
        cross = [s[i, j] for i in members for j in others]
        right = [1] * len(inside) + [0] * len(cross)
        ties_count = np.mean([one <= other for one in inside for other in cross])
        wanted.append((average_precision_score(right, inside + cross), ties_count))
    found = criteria.separation(s, GROUPS)
    assert [one.value for one in found] == pytest.approx(np.mean(wanted, axis=0))
    assert all(one.low <= one.value <= one.high for one in found)


def test_a_cross_pair_without_a_value_is_found_before_all_others():
    s = (GROUPS[:, None] == GROUPS).astype(float)
    s[0, -1] = np.nan
    auprc, violations = criteria.separation(s, GROUPS)
    assert auprc.value == pytest.approx((6 / 7 + 3) / 4)  # six pairs after one wrong pair
    assert violations.value == pytest.approx(6 / (6 * 39) / 4)
