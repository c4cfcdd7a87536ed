"""Block influence: the definition token by token, for encoders and decoders."""

import numpy as np
import pytest
import torch

from simlab import influence, plot, read_results
from simlab.errors import UserError
from simlab.experiments.influence import cosine_sums
from simlab.experiments.skip import spans
from simlab.figures.curves import plot_influence
from simlab.figures.table import complete
from simlab.models.load import load_encoder, load_tokenizer
from simlab.models.sources import resolve
from simlab.models.states import layer_states
from simlab.models.tokens import encode
from simlab.report.gather import gather
from simlab.results.results import INFLUENCE
from support.lab.commandline import check_refused
from support.lab.tinymodels import LAYERS, each, save_tiny_model
from support.tolerance import FORWARD_RELATIVE


def naive_cosines(source, examples, max_length):
    """Return the cosine of every two layers at every token of every text, by loops in float64."""
    tokenizer, model = load_tokenizer(source), load_encoder(source)
    found = []
    for example in encode(tokenizer, examples, max_length):
        with torch.inference_mode():
            states = layer_states(model, tokenizer.pad([example], return_tensors="pt"))
        layers = [layer[0].double().numpy() for layer in states]
        tokens = range(len(example["input_ids"]))
        cosine = np.empty((len(tokens), len(layers), len(layers)))
        for t in tokens:
            for i, x in enumerate(layers):
                for j, y in enumerate(layers):
                    lengths = np.sqrt((x[t] ** 2).sum() * (y[t] ** 2).sum())
                    cosine[t, i, j] = (x[t] * y[t]).sum() / lengths
        found.append(cosine)
    return found


@pytest.mark.parametrize(
    "architecture",
    each(["bert", "gpt2", "llama", "qwen2", "qwen3", "mistral", "longformer"], ("bert", "llama")),
)
def test_influence_is_one_minus_the_mean_cosine_of_the_tokens(tmp_path, review_task, architecture):
    source = resolve(str(save_tiny_model(tmp_path / "model", architecture)))
    step = influence(source, review_task, tmp_path / "x.parquet", limit=7, batch_size=3, seed=2)
    frame = read_results(step.path)
    texts = naive_cosines(source, review_task.heldout.head(7), 64)
    cosines = np.concatenate(texts)
    assert set(frame["experiment"]) == {INFLUENCE}
    assert list(zip(frame["layer_x"], frame["layer_y"], strict=True)) == spans(LAYERS)[1:]
    for row in frame.itertuples():
        wanted = 1 - cosines[:, row.layer_x, row.layer_y].mean()
        assert row.value == pytest.approx(wanted, abs=FORWARD_RELATIVE)
        assert row.low < row.value < row.high
        assert (row.n, row.seed_x) == (len(cosines), 2)
    assert frame["value"].nunique() == len(frame)
    assert influence(source, review_task, step.path, limit=7, seed=2).skipped


def test_the_interval_is_that_of_a_ratio_over_texts(tmp_path, tiny_bert, review_task):
    """As wide as the spread of the ratio when texts are drawn with replacement."""
    step = influence(tiny_bert, review_task, tmp_path / "x.parquet")
    row = read_results(step.path).iloc[-1]
    sums, tokens = cosine_sums(tiny_bert, review_task.heldout, 64)
    part, rng = sums[:, int(row["layer_x"]), int(row["layer_y"])], np.random.default_rng(0)
    drawn = rng.integers(len(tokens), size=(4000, len(tokens)))
    spread = (part[drawn].sum(1) / tokens[drawn].sum(1)).std()
    assert (row["high"] - row["low"]) / 2 == pytest.approx(1.96 * spread, rel=0.1)


@pytest.mark.assets
def test_the_real_minilm_and_its_random_twin(tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("A delight from start to finish.\nRain.\nNobody wanted two hours of it.\n")
    found = {}
    for name, how in {"model": {}, "twin": {"random_init_seed": 0}}.items():
        step = influence("minilm", texts, tmp_path / f"{name}.parquet", split="all", **how)
        found[name] = read_results(step.path).set_index(["layer_x", "layer_y"])["value"]
    whole = found["model"].loc[(0, 6)]
    assert all(0 < found["model"].loc[(i, i + 1)] < whole < 1 for i in range(6))
    assert whole > found["twin"].loc[(0, 6)]  # random blocks turn the states less


def test_figure_and_report(tmp_path, tiny_bert, review_task):
    step = influence(tiny_bert, review_task, tmp_path / "x.parquet", label="FT[1]", limit=5)
    files = plot(step.path, tmp_path / "figures", formats=["svg"])
    assert [file.name for file in files] == ["reviews-influence.svg"]
    frame = read_results(step.path)
    figure = plot_influence(complete(frame))
    axis = figure.axes[0]
    assert axis.get_title() == "FT[1]"
    assert (axis.get_ylabel(), axis.get_xlabel()) == (
        "first layer of the span", "last layer of the span"
    )  # fmt: skip
    shown = axis.images[0].get_array().filled(np.nan)
    for row in frame.itertuples():
        assert shown[row.layer_x, row.layer_y - 1] == pytest.approx(row.value)


def test_a_layer_s_facts_on_the_page_have_its_influence(tmp_path, tiny_bert, review_task):
    from simlab.figures.table import without_copies
    from simlab.results.reading import read_table

    step = influence(tiny_bert, review_task, tmp_path / "x.parquet", limit=5)
    gathered = gather(without_copies(read_table(step.path)))
    frame = read_results(step.path)
    single = frame[frame["layer_y"] - frame["layer_x"] == 1]
    facts = {(fact[2], fact[3]): fact[4] for fact in gathered.facts}
    assert not gathered.grids
    assert facts == {
        (int(row.layer_y), "block-influence"): row.value for row in single.itertuples()
    }


def test_the_command_and_its_errors(tmp_path, simcore, reviews, tiny_bert):
    task = (reviews, "--text-column", "body", "--label-column", "verdict")
    code, out, _ = simcore("influence", tiny_bert.path, *task, "--out", tmp_path / "x.parquet")
    assert (code, out.partition(" (")[0]) == (0, f"{tmp_path}/x.parquet: written")
    check_refused(
        simcore("influence", tiny_bert.path, *task, "--limit", 99, "--out", tmp_path / "y.parquet"),
        "--limit: wanted 1 to 32 examples",
    )
    twin = {"random_init_seed": 1}
    for wrong in ({"weights": "bf16"}, {"device": "gpu"}):
        with pytest.raises(UserError, match=f"{next(iter(wrong))}=.*: wanted"):
            influence(tiny_bert.path, "rt", tmp_path / "y.parquet", **wrong, **twin)
    with pytest.raises(UserError, match="wanted texts, found images"):
        influence(tiny_bert, "digits", tmp_path / "y.parquet", limit=2)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.parquet"]


def test_precision_is_a_part_of_the_inputs(tmp_path, tiny_bert, review_task):
    values = []
    for weights in ("float32", "bfloat16"):
        out = tmp_path / f"{weights}.parquet"
        influence(tiny_bert, review_task, out, weights=weights)
        values.append(read_results(out)["value"].to_numpy())
    assert not np.array_equal(*values)
    assert np.abs(values[0] - values[1]).max() < 0.02
    with pytest.raises(UserError, match="overwrite"):
        influence(tiny_bert, review_task, tmp_path / "float32.parquet", weights="bfloat16")


def test_the_scratch_of_a_killed_process_is_deleted(tmp_path, tiny_bert, review_task):
    left = tmp_path / ".x.parquet.scratch" / "weights"
    left.mkdir(parents=True)
    influence(tiny_bert, review_task, tmp_path / "x.parquet", limit=2)
    assert [file.name for file in tmp_path.iterdir()] == ["x.parquet"]


def test_the_step_of_a_training_run_is_in_the_rows(tmp_path, simcore):
    save_tiny_model(tmp_path / "mini" / "checkpoint-10")
    (tmp_path / "texts.txt").write_text("dull plot\nbright film\n")
    arguments = ("influence", tmp_path / "mini" / "checkpoint-10", tmp_path / "texts.txt")
    how = ("--split", "all", "--step", 10, "--out", tmp_path / "x.parquet")
    code, _, told = simcore(*arguments, *how)
    assert code == 0, told
    row = read_results(tmp_path / "x.parquet").iloc[0]
    found = row["label_x"], row["step_x"], row["base_x"], row["stage_x"]
    assert found == ("mini @ 10", 10, str(tmp_path / "mini"), "orig")
