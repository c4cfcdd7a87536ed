"""The order of names, which rows are seeds of one model, and names of equal labels."""

import pytest

from simlab.figures.names import in_order, with_models, without_seed
from support.lab.drawing import drawable
from support.lab.result_rows import curve


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (("M1", "M10", "M2"), ["M1", "M2", "M10"]),  # M*
        (("orig", "M1", "M10", "M2"), ["orig", "M1", "M2", "M10"]),  # orig M*
        (("FT[1]", "FT[10]", "FT[2]"), ["FT[1]", "FT[2]", "FT[10]"]),
        (("ORIG", "FT[2]", "FT[1]"), ["ORIG", "FT[2]", "FT[1]"]),
        (("FT[10]", "FT[1]", "FT[2]"), ["FT[10]", "FT[1]", "FT[2]"]),
        (("roberta", "albert", "roberta"), ["roberta", "albert"]),
        (("a-10-1", "a-10-2", "a-9-1"), ["a-9-1", "a-10-1", "a-10-2"]),
    ],
)
def test_names_are_in_the_given_order_except_for_numbers_that_a_shell_sorted(given, wanted):
    assert in_order(given) == wanted


@pytest.mark.parametrize(
    ("label", "seed", "base", "wanted"),
    [
        ("FT[1]", 1, "minilm", "FT[*]"),
        ("ft-12", 12, "minilm", "ft-*"),
        ("none-seed3", 3, "minilm", "none-seed*"),
        ("FT[12]", 1, "minilm", "FT[12]"),
        ("FT[12]", 2, "minilm", "FT[12]"),
        ("FT", 1, "minilm", "FT"),
        ("FT[1]", None, "minilm", "FT[1]"),
        ("FT[1]", 1, None, "FT[1]"),
        ("FT[1] @ 10", 1, "minilm", "FT[*] @ 10"),
        ("FT @ 1", 1, "minilm", "FT @ 1"),
    ],
)
def test_the_seed_of_a_model_of_a_known_base_leaves_its_label(label, seed, base, wanted):
    assert without_seed(label, seed, base) == wanted


def found(*rows, **options):
    """Return the seeds of every model by its name."""
    named = with_models(drawable([row for part in rows for row in part]), **options)
    return {
        name: tuple(part["seed_x"].dropna().unique())
        for name, part in named.groupby("model", sort=False)
    }


def test_seeds_of_one_model_are_together_and_nothing_else():
    assert found(curve("FT[1]", 1), curve("FT[2]", 2), curve("FT[3]", 3)) == {"FT[1–3]": (1, 2, 3)}
    assert found(curve("FT", 1), curve("FT", 4)) == {"FT": (1, 4)}
    assert found(curve("FT[1]"), curve("FT[2]")) == {"FT[1]": (), "FT[2]": ()}
    assert found(curve("roberta", 1), curve("albert", 2)) == {"roberta": (1,), "albert": (2,)}
    versions = [curve(f"a-v{number}", number, base=f"a-v{number}") for number in (1, 2)]
    assert found(*versions) == {"a-v1": (1,), "a-v2": (2,)}
    unknown = [curve(f"FT[{seed}]", seed, base=None) for seed in (1, 2)]
    assert found(*unknown) == {"FT[1]": (1,), "FT[2]": (2,)}
    assert found(curve("FT", 1), curve("FT", 2), together=False) == {
        "FT (seed 1)": (1,),
        "FT (seed 2)": (2,),
    }


def test_equal_labels_are_told_apart_by_what_differs():
    tuned = {"options": '{"seed": 0, "learning_rate": 0.1}'}
    other = {"options": '{"seed": 0, "learning_rate": 0.2}'}
    assert list(found(curve("FT", **tuned), curve("FT", **other))) == [
        "FT (learning_rate 0.1)",
        "FT (learning_rate 0.2)",
    ]
    assert list(found(curve("FT"), curve("FT", n=20))) == ["FT (n = 9)", "FT (n = 20)"]
    assert list(found(curve("FT[1]"), curve("FT[1]", 1))) == ["FT[1] (no seed)", "FT[1] (seed 1)"]
    bases = [curve("FT", base=base) for base in ("bert", "albert")]
    assert list(found(*bases)) == ["FT (bert)", "FT (albert)"]


def test_names_leave_out_the_task_where_there_are_several():
    rows = [curve(f"{task}-FT[{seed}]", seed, task=task) for task in "ab" for seed in (1, 2)]
    assert found(*rows, cell=["task"]) == {"FT[1–2]": (1, 2)}
    assert list(found(*rows[:2])) == ["a-FT[1–2]"]
