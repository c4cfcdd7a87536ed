"""Layers of grids: which device computes them, with the rows of the CPU; their bases on disk."""

import dataclasses

import numpy as np
import pytest
import torch

import simcore
from simlab import extract, grid, load_representations, read_results
from simlab.errors import UserError
from simlab.models.sources import resolve
from simlab.representations.passes import ExtractOptions
from simlab.results.results import STATISTICS
from simlab.similarity.catalogue import MEASURES, settings
from simlab.similarity.grids import Naming, grid_rows
from simlab.similarity.layers import BASED, choose_device, load_bases, on_device, store_bases
from support.lab.commandline import check_refused
from support.lab.tinymodels import save_tiny_model
from support.stand_in import stand_in_device
from support.tolerance import FLOAT32_MEASURE

GIB = 2**30
LAYERS = [np.zeros((1024, 1024), np.float32)] * 256  # 1 GiB


@pytest.fixture
def gpus(monkeypatch):
    """Return a function that lets torch find GPUs with so much free memory of 16 GiB."""

    def found(*free):
        monkeypatch.setattr("torch.cuda.is_available", lambda: bool(free))
        monkeypatch.setattr("torch.cuda.device_count", lambda: len(free))
        monkeypatch.setattr("torch.cuda.mem_get_info", lambda i: (int(free[i] * GIB), 16 * GIB))
        monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda: False)
        monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "NVIDIA H100")

    return found


@pytest.mark.parametrize(
    ("free", "chosen"),
    [
        ((), "cpu"),
        ((15,), "cuda:0"),
        ((12, 15), "cuda:1"),
        ((7,), "cpu"),  # somebody works there
        ((1.9,), "cpu"),
    ],
)
def test_auto_takes_the_gpu_that_is_free(gpus, free, chosen):
    gpus(*free)
    assert choose_device("auto", LAYERS) == chosen
    assert choose_device("cpu", LAYERS) == "cpu"


def test_auto_takes_the_cpu_for_layers_that_do_not_fit(gpus):
    gpus(15)
    assert choose_device("auto", LAYERS * 7) == "cuda:0"
    assert choose_device("auto", LAYERS * 8) == "cpu"
    assert choose_device("cuda", LAYERS * 8) == "cuda"


def test_devices_that_are_not_there_are_refused(gpus):
    for wanted, free, words in (
        ("gpu", (15,), "device='gpu': wanted auto, cpu, cuda or cuda:1"),
        ("cuda:x", (15,), "device='cuda:x': wanted auto, cpu, cuda or cuda:1"),
        ("cuda", (), "device='cuda': wanted a GPU that is here, found 0"),
        ("cuda:2", (15, 15), "device='cuda:2': wanted a GPU that is here, found 2"),
    ):
        gpus(*free)
        with pytest.raises(UserError) as refused:
            choose_device(wanted, LAYERS)
        assert str(refused.value) == words


def test_bases_and_lists_are_moved_whole():
    given = [np.arange(6.0).reshape(3, 2)]
    basis = simcore.bases([torch.randn(9, 3)])[0]
    with stand_in_device():
        moved = on_device([*given, given, basis], "cuda:0")
        assert moved[0].is_cuda
        assert moved[1][0].is_cuda
        assert all(
            getattr(moved[2], part).is_cuda for part in ("vectors", "components", "spectrum")
        )
    assert moved[2].exponent == basis.exponent
    np.testing.assert_array_equal(moved[0].values, given[0])


@pytest.mark.parametrize(
    "measure",
    [
        *("cka", "attention-js"),
        *(pytest.param(n, marks=pytest.mark.deep) for n in ("svcca", "neuronsim", "knn-mutual")),
    ],
)
def test_rows_of_a_device_are_those_of_the_cpu(tmp_path, reps, gpus, measure):
    gpus(15)
    kind = "words" if MEASURES[measure].takes_representations else "attention"
    folders = [reps / f"{name}-{kind}" for name in "ab"]
    frames = {}
    for device in ("cpu", "cuda:0"):
        out = tmp_path / f"{device[:4]}.parquet"
        with stand_in_device() as ran:
            grid(folders, out, measure=measure, bootstrap=4, permutations=5, device=device)
        assert bool(ran.operators) == (device != "cpu")
        frames[device] = read_results(out)
    here, there = frames.values()
    assert set(here["device"]) == {"cpu"}
    assert set(there["device"]) == {"NVIDIA H100"}
    for column in ("value", *STATISTICS):
        np.testing.assert_allclose(here[column], there[column], rtol=0, atol=FLOAT32_MEASURE)


def test_a_device_without_room_is_refused(tmp_path, reps, gpus, monkeypatch):
    gpus(15)

    def full(*given, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    for target, options in (("cka_grid", {}), ("stats.bootstrap_ci", {"bootstrap": 4})):
        with monkeypatch.context() as patch, stand_in_device():
            patch.setattr(f"simcore.{target}", full)
            with pytest.raises(UserError, match=r"device: .* found cuda:0 out of memory"):
                grid(reps / "a-words", tmp_path / "x.parquet", device="cuda:0", **options)
    assert not (tmp_path / "x.parquet").exists()


def test_the_device_is_no_part_of_the_key(tmp_path, reps):
    """Another device computes the same numbers: finished files stay."""
    out = tmp_path / "grid.parquet"
    first = grid(reps / "a-words", out, device="cpu")
    assert grid(reps / "a-words", out).path == first.path


def test_the_command_refuses_before_it_reads(tmp_path, simcore):
    check_refused(
        simcore("grid", tmp_path, "--device", "tpu", "--out", tmp_path / "x.parquet"), "tpu"
    )


@pytest.fixture(scope="module")
def sides(tmp_path_factory, review_task):
    """CLS vectors, whose layer 0 is constant, and means in float16."""
    folder = tmp_path_factory.mktemp("sides")
    source = resolve(str(save_tiny_model(folder / "model", initializer_range=1.0)))
    for kind, dtype in (("cls", "float32"), ("mean", "float16")):
        options = ExtractOptions(kind=kind, dtype=dtype)
        extract(source, review_task, folder / kind, options, label=kind)
    return [load_representations(folder / kind) for kind in ("cls", "mean")]


@pytest.mark.parametrize(
    "measure, options",
    [
        *((name, {}) for name in BASED),
        ("svcca", {"standardize": True}),
        ("svcca", {"truncation": 5, "top_k": 2}),
    ],
)
def test_a_grid_over_stored_bases_has_the_same_rows(measure, options, sides, tmp_path, capsys):
    stored = []
    for side in sides:
        store_bases(side, tmp_path / side.manifest["label"], options.get("standardize", False))
        bases = load_bases(tmp_path / side.manifest["label"])
        stored.append(dataclasses.replace(side, layers=bases))
    chosen = settings(measure, options)
    for x, y in ((0, 0), (0, 1)):
        wanted = list(grid_rows(measure, chosen, [sides[x]], [sides[y]], Naming("c")))
        capsys.readouterr()
        found = list(grid_rows(measure, chosen, [stored[x]], [stored[y]], Naming("c")))
        noted = " ".join("".join(capsys.readouterr()).split())
        assert len(found) == 16 * (1 + (x != y and not MEASURES[measure].symmetric))
        assert {row.value for row in wanted if np.isfinite(row.value)} - {1.0}
        if measure == "pwcca":  # close correlations are computed in float64 from layers alone
            values = [np.array([row.value for row in rows]) for rows in (found, wanted)]
            moved = np.nanmax(np.abs(values[0] - values[1]))
            assert moved <= 1e-5 or "canonical correlations that are equal" in noted
            np.testing.assert_allclose(*values, rtol=0, atol=1e-2)  # 6e-3 here
            found, wanted = (
                [dataclasses.replace(row, value=0.0) for row in rows] for rows in (found, wanted)
            )
        assert [repr(row) for row in found] == [repr(row) for row in wanted]  # nan is nan


def test_a_basis_is_read_as_it_was_written(tmp_path, sides):
    layers = [2.0**-1000 * np.random.default_rng(0).normal(size=(9, 4)), np.ones((9, 3))]
    side = dataclasses.replace(sides[0], layers=layers)
    store_bases(side, tmp_path / "bases", False)
    for wanted, found in zip(simcore.bases(layers), load_bases(tmp_path / "bases"), strict=True):
        assert wanted.exponent == found.exponent
        for part in ("vectors", "components", "spectrum"):
            assert getattr(wanted, part).equal(getattr(found, part))
    assert load_bases(tmp_path / "bases")[0].exponent != 0


def test_layers_with_nan_are_refused(tmp_path, sides):
    side = dataclasses.replace(sides[0], layers=[np.full((9, 4), np.nan)])
    with pytest.raises(UserError, match=f"bases of {side.folder}: "):
        store_bases(side, tmp_path / "bases", False)
    assert not (tmp_path / "bases").exists()
