"""False discovery rates over the grids of a table: the family, the definition, its promise."""

import numpy as np
import pytest

from simlab import false_discoveries
from simlab.errors import UserError
from simlab.results.results import ResultRow, to_frame


def row(pvalue, label_y="b", layers=(0, 1), experiment="grid", seed_y=1):
    return ResultRow(
        experiment=experiment,
        measure="cka",
        label_x="a",
        label_y=label_y,
        seed_x=1,
        seed_y=seed_y,
        layer_x=layers[0],
        layer_y=layers[1],
        value=0.5,
        pvalue=pvalue,
        n=10,
        task="rt",
    )


def benjamini_hochberg(pvalues):
    """Return the least rate at which each is rejected, by trying all rates in question."""
    pvalues = np.asarray(pvalues)
    rates = []
    for p in pvalues:
        limits = [len(pvalues) * q / (pvalues <= q).sum() for q in pvalues if q >= p]
        rates.append(min(1.0, *limits))
    return rates


def test_all_pairs_of_all_grids_are_one_family():
    values = [0.001, 0.2, 0.03, 0.004, 0.6, 0.03]
    rows = [row(p, label_y="bc"[i % 2], layers=(i, 1)) for i, p in enumerate(values)]
    found = false_discoveries(to_frame(rows))
    np.testing.assert_allclose(found["qvalue"], benjamini_hochberg(values))
    harmonic = sum(1 / i for i in range(1, 7))
    careful = false_discoveries(to_frame(rows), "by")["qvalue"]
    np.testing.assert_allclose(careful, np.minimum(1, harmonic * found["qvalue"]))


def test_a_layer_with_itself_and_rows_without_a_test_are_no_part_of_it():
    rows = [
        row(0.01, "a", (2, 2)),
        row(0.01, "a", (2, 2), seed_y=2),  # of another seed
        row(0.2, "a", (2, 3)),
        row(float("nan")),
        row(0.001, experiment="block-score"),
    ]
    found = false_discoveries(to_frame(rows))["qvalue"]
    np.testing.assert_allclose(found, [np.nan, 0.02, 0.2, np.nan, np.nan])


def test_the_share_of_false_discoveries_is_the_rate():
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(200):
        draws = rng.uniform(size=60)
        draws[:20] = draws[:20] ** 6  # related layers
        frame = to_frame([row(p, layers=(i, 1 + i)) for i, p in enumerate(draws)])
        found = false_discoveries(frame)["qvalue"].to_numpy() <= 0.2
        shares.append(found[20:].sum() / max(found.sum(), 1))
    error = np.std(shares) / len(shares) ** 0.5
    # Of 60 pairs 40 are unrelated: the rate is 2/3 of .2.
    assert abs(np.mean(shares) - 0.2 * 40 / 60) < 3.5 * error


def test_messages():
    with pytest.raises(UserError, match="method: wanted bh or by, found 'holm'"):
        false_discoveries(to_frame([row(0.1)]), "holm")
    with pytest.raises(UserError, match=r"results: wanted p-values .*`grid\(permutations=200\)`"):
        false_discoveries(to_frame([row(float("nan"))]))


def test_a_table_of_another_kind_is_refused():
    table = to_frame([row(0.5)]).drop(columns="pvalue")
    with pytest.raises(UserError, match="wanted a table of read_results, found no column pvalue"):
        false_discoveries(table)
