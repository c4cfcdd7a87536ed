"""Recipes by name, their fields overridden one by one, and lists of seeds."""

from dataclasses import asdict

import pytest

from simlab.errors import UserError
from simlab.training.recipes import Recipe, make_recipe, parse_seeds


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        (
            "phang2021",
            {"max_steps": 10_000, "batch_size": 4, "learning_rate": 1e-5, "warmup": 1_000},
        ),
        ("wu2020", {"epochs": 3, "batch_size": 8, "learning_rate": 5e-5, "adam_epsilon": 1e-8}),
        ("ren2023", {"epochs": 3, "batch_size": 8, "learning_rate": 2e-5, "seed": 42}),
    ],
)
def test_recipes_are_as_the_papers_state_them(name, stated):
    recipe = asdict(make_recipe(name, "rte", {}))
    assert {field: recipe[field] for field in stated} == stated
    assert recipe["weight_decay"] == 0  # Adam
    assert recipe["freeze"] == "none"


def test_ren2023_trains_longer_on_mrpc_unless_told_otherwise():
    assert make_recipe("ren2023", "mrpc", {}).epochs == 5
    assert make_recipe("ren2023", "MRPC", {}).epochs == 5
    assert make_recipe("ren2023", "mrpc", {"epochs": 1.0}).epochs == 1
    assert make_recipe("wu2020", "mrpc", {}).epochs == 3


def test_quick_is_the_default_recipe():
    assert make_recipe("quick", "rt", {"epochs": None}) == Recipe()


def test_a_recipe_of_one_s_own_is_changed_as_named_ones_are():
    mine = Recipe(epochs=2, max_steps=7, learning_rate=1e-3)
    assert make_recipe(mine, "rt", {}) == mine
    assert make_recipe(mine, "rt", {"epochs": 3}) == Recipe(epochs=3, learning_rate=1e-3)


def test_steps_and_warm_up():
    recipe = Recipe(epochs=1.5, batch_size=8, warmup=0.25)
    assert recipe.steps(33) == 8  # 5 batches an epoch, 7.5 to even
    assert recipe.warmup_steps(8) == 2
    phang = make_recipe("phang2021", "rt", {})
    assert phang.steps(33) == 10_000
    assert phang.warmup_steps(10_000) == 1_000


@pytest.mark.parametrize(
    ("name", "given", "steps"),
    [
        ("quick", {"max_steps": 70}, 70),  # in place of one epoch
        ("phang2021", {"epochs": 2}, 50),  # in place of 10,000 steps
        ("phang2021", {"epochs": 2, "max_steps": 10_000}, 50),
        ("phang2021", {"epochs": 2, "max_steps": 7}, 7),
    ],
)
def test_training_ends_with_whichever_comes_first(name, given, steps):
    assert make_recipe(name, "rt", {"batch_size": 4, **given}).steps(100) == steps


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("slow", {}, "recipe='slow': wanted one of phang2021, wu2020, ren2023, quick"),
        ("quick", {"max_steps": 0}, "max_steps: wanted 1 or more, found 0"),
        ("quick", {"learning_rate": float("nan")}, "learning_rate: wanted more than 0"),
        ("quick", {"warmup": -1}, "warmup: wanted 0 or more, found -1"),
        ("quick", {"adam_epsilon": 0.0}, "adam_epsilon: wanted more than 0"),
        ("quick", {"max_length": 2}, "max_length: wanted 3 or more"),
        ("quick", {"freeze": "bottom"}, "freeze='bottom': wanted none, bottom:K or top:K"),
        ("quick", {"freeze": "top:0"}, "freeze='top:0': wanted none, bottom:K or top:K"),
        ("quick", {"freeze": "left:2"}, "freeze='left:2': wanted none, bottom:K or top:K"),
    ],
)
def test_senseless_recipes_are_refused(name, given, message):
    with pytest.raises(UserError, match=message):
        make_recipe(name, "rt", given)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0..4", (0, 1, 2, 3, 4)), ("0,3,7", (0, 3, 7)), ("5", (5,)), ("8..9, 2", (8, 9, 2))],
)
def test_seeds_are_read(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("4..0", "a range that rises, found '4..0'"),
        ("one", "found 'one'"),
        ("", "found ''"),
        ("1,,2", "found ''"),
        ("-1", "found '-1'"),
        ("0...4", "found '0...4'"),
        ("0..2,1", "found 1 twice"),
    ],
)
def test_bad_seeds_are_refused(text, found):
    with pytest.raises(UserError, match=rf"^seeds='{text}': wanted .*{found}"):
        parse_seeds(text)
