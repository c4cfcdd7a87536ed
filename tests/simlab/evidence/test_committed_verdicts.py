"""The committed verdicts: derived again from the committed rows, and told by the pages."""

import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from simlab.evidence.table import CLAIMS
from simlab.evidence.verdicts import ALPHA, CANNOT, FAILS, HOLDS, UNDECIDED, holm

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "examples" / "studies" / "results"
PAGE = ROOT / "docs" / "results" / "claims.md"
# In the order of the columns of the page.
FILES = (
    *("minilm", "phang2021", "ren2023", "ren2023-trained", "two-architectures"),
    *("wu2020", "phang2021-preset", "known-inverse"),
)
NUMBER = r"-?\d*\.?\d+"
WITH_INTERVAL = re.compile(rf"({NUMBER}),? \[({NUMBER}), ({NUMBER})\]")


def committed(name):
    return pd.read_csv(RESULTS / f"claims-{name}.csv")


def commands():
    """Return the arguments of each command of the page, by the name of its file."""
    block = re.search(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    found = {}
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line)
        if words[:2] == ["simcore", "claims"]:
            at = words.index("--out")
            name = Path(words[at + 1]).stem.removeprefix("claims-")
            found[name] = words[2:at] + words[at + 2 :]
    return found


def test_the_page_has_the_command_of_each_committed_file():
    files = {file.stem.removeprefix("claims-") for file in RESULTS.glob("claims-*.csv")}
    assert commands().keys() == files == set(FILES)


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("wu2020", "known-inverse") else pytest.param(name, marks=pytest.mark.deep)
        for name in FILES
    ],
)
def test_the_committed_verdicts_are_those_of_the_committed_rows(
    name, simcore, tmp_path, monkeypatch
):
    monkeypatch.chdir(RESULTS)
    out = tmp_path / "claims.parquet"
    code, _, errors = simcore("claims", *commands()[name], "--out", out)
    assert (code, errors) == (0, [])
    found = pd.read_csv(out.with_suffix(".csv"))
    pd.testing.assert_frame_equal(found, committed(name), check_dtype=False, rtol=1e-6)


def test_the_page_counts_the_committed_verdicts():
    section = PAGE.read_text().partition("## Verdicts")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    counts = {claim.name: [] for claim in CLAIMS}
    for name in FILES:
        table = committed(name)
        for claim, cells in counts.items():
            verdicts = table.loc[table["claim"] == claim, "verdict"].tolist()
            parts = [
                f"{verdict.removesuffix(' by this study')} {verdicts.count(verdict)}"
                for verdict in (HOLDS, FAILS, UNDECIDED, CANNOT)
                if verdict in verdicts
            ]
            cells.append(", ".join(parts) or "–")
    assert {row[0]: row[1:] for row in rows[2:]} == counts


def test_the_page_says_which_verdicts_a_correction_over_all_files_would_lose():
    tables = pd.concat([committed(name).assign(file=name) for name in FILES], ignore_index=True)
    tested = tables[tables["adjusted"].notna()]
    # Units that agree exactly have a test of signs, which is not corrected.
    agreeing = tested["low"].isna() & (tested["pvalue"] <= ALPHA)
    over_all = pd.Series(holm(tested["pvalue"].mask(agreeing, 0.0).tolist()), tested.index)
    decided = tested["verdict"].isin([HOLDS, FAILS])
    lost = tested[decided & (over_all > ALPHA)]
    text = " ".join(PAGE.read_text().split())
    assert f"{len(lost)} of the {decided.sum()} decided verdicts" in text
    assert f"all {len(tested) - agreeing.sum()} p-values of t tests" in text
    of_inn = lost[lost["claim"] == "inn-beats-linear"]
    assert of_inn["file"].tolist() == ["ren2023-trained"] * 2
    assert "both of `inn-beats-linear` on five trained BERTs" in text


# The pages.


def sections():
    """Yield each section of the pages that links to verdicts, as one line of text."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for section in re.split(r"^#+ ", page.read_text(), flags=re.MULTILINE):
            names = re.findall(r"\]\(([^)#]+)", section)
            links = [(page.parent / name).resolve() for name in names]
            if any(one == PAGE or one.match("claims-*.csv") for one in links):
                yield str(page.relative_to(ROOT)), " ".join(section.split())


def rounded(text, value):
    """Whether `text` is `value` with as many decimals as `text` has."""
    decimals = len(text.partition(".")[2])
    return abs(float(text) - value) <= 0.5 * 10**-decimals * (1 + 1e-9)


def test_intervals_beside_a_link_to_verdicts_are_committed():
    """They are not of rules that were abolished."""
    texts = [(page, found) for page, text in sections() for found in WITH_INTERVAL.findall(text)]
    assert len(texts) > 3
    tables = pd.concat([committed(name) for name in FILES]).dropna(subset="low")
    verdicts = tables[["estimate", "low", "high"]].to_numpy().tolist()
    strange = [
        (page, found)
        for page, found in texts
        if not any(all(map(rounded, found, verdict)) for verdict in verdicts)
    ]
    assert strange == []
