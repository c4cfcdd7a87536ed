"""The page of the contract has the table of all measures and distributions, as a run writes it."""

from numerics import table
from numerics.cases import CASES
from numerics.contract import Verdict


def verdict(case, place, error, again=(), messages=()):
    return Verdict(case, place, 0.0, 0.0, error, 1e-5, True, again, messages)


def test_a_cell_shows_the_worst():
    fine = verdict("cka", "features", 1e-7)
    again = verdict("cka", "features", 1e-9, ("cka: X[0]",))
    unclear = verdict("cka", "features", 1.0, (), ("rank of X[0] is not clear: 2 to 4",))
    wrong = verdict("cka", "features", 3e-3)
    other = verdict("cka", "features", 1.0, (), ("another warning of X[0]",))
    assert [table.cell([fine, *more]) for more in ([], [again], [again, unclear])] == [
        *(".", "recomputed", "warned")
    ]
    assert table.cell([fine, unclear, wrong]) == "3e-03"
    assert table.cell([wrong, other]) == "1e+00"


def test_the_page_names_every_measure_and_distribution():
    groups, measures = table.named(table.PAGE.read_text())
    assert groups == table.GROUPS
    assert measures == sorted(str(case) for case in CASES)
