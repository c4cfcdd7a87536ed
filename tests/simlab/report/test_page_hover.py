"""The mouse over a grid of a thousand layers: the work of a move fits into a frame."""

import statistics
from dataclasses import replace

import pytest

from bench.report import HOVER, JOBS
from simlab.report.write import write_report
from simlab.results.results import write_results


@pytest.fixture(scope="module")
def thousand(tmp_path_factory):
    """The page of one joint grid of 1,001 layers, without intervals and p-values."""
    folder = tmp_path_factory.mktemp("pages")
    frame = replace(JOBS["1,001 x 1,001"], whole=False).frame()
    write_results(frame, folder / "thousand.parquet")
    return write_report(folder / "thousand.parquet", folder / "thousand.html")


@pytest.mark.slow
@pytest.mark.parametrize("order", ["model", "clustered"])
def test_the_mouse_moves_over_a_thousand_layers_within_a_frame(opened, thousand, order):
    """Along columns and along rows, once in twelve rounds: others use the machine too."""
    view = opened(thousand, order=order)
    view.choice("Grid").select_option("all: all of 77 models")
    view.settle()
    for down in (True, False):
        rounds: list[float] = []
        while min(rounds, default=16) >= 16 and len(rounds) < 12:
            times, said = view.canvas().evaluate(HOVER, [40, down])
            rounds.append(statistics.quantiles(times, n=10)[0])  # of moves that were left alone
            assert " × " in said
        assert min(rounds) < 16, (down, rounds)
