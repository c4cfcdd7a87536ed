"""Rows are bounded in memory, sampled, or written to a file."""

import os

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from simcore import record
from support.lab.disks import file_limit
from support.nets import ConvNet, Encoder, images, seeded, taped, token_batches

WIDTH, ROWS = 6, 10
MODEL = nn.Sequential(nn.Linear(4, WIDTH), nn.Linear(WIDTH, WIDTH)).eval()
ONE_PASS = 2 * ROWS * WIDTH * 4
ONE_LAYER = ROWS * WIDTH * 4


def batches(count, rows=ROWS):
    return list(torch.randn(count, rows, 4, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("passes", [1, 3])
def test_max_memory_is_met_exactly(passes):
    """All rows, and the copy of a layer that joining its batches takes."""
    enough = passes * (ONE_PASS + ONE_LAYER)
    tape = taped(MODEL, "*", batches(passes), max_memory=enough)
    assert tape.row_counts() == {"0": passes * ROWS, "1": passes * ROWS}
    message = rf"max_memory: wanted room for {enough} bytes .* got {enough - 1}, after .* out="
    with pytest.raises(ValueError, match=message):
        taped(MODEL, "*", batches(passes), max_memory=enough - 1)


def test_rows_within_the_bound_stay():
    first, second = batches(2)
    tape = record(MODEL, "*", max_memory=ONE_PASS + 2 * ONE_LAYER)

    def run():
        with tape:
            MODEL(first)
            MODEL(second)

    with pytest.raises(ValueError, match="max_memory"):
        run()
    assert torch.equal(tape.layers()["1"], MODEL(first).detach())


def test_the_error_comes_before_rows_are_made():
    model = nn.Sequential(nn.Identity(), nn.Identity()).eval()
    tokens = torch.zeros(10, 1000, 1).expand(-1, -1, 10**6)  # 40 GB of rows, 40 kB of states
    with pytest.raises(ValueError, match=f"max_memory: .* {4 * 10**10} bytes .* after 0 rows"):
        taped(model, "0", [tokens], pool="tokens", mask=False, max_memory=2**30)


def test_clear_gives_the_bytes_back():
    with record(MODEL, "*", max_memory=ONE_PASS + ONE_LAYER) as tape:
        for batch in batches(4):
            output = MODEL(batch)
            assert torch.equal(tape.layers()["1"], output.detach())
            tape.clear()
    assert tape.layers() == {}


def test_layers_can_be_read_in_between_and_again():
    first, second = batches(2)
    with record(MODEL, "*") as tape, torch.no_grad():
        outputs = [MODEL(first)]
        assert torch.equal(tape.layers()["1"], outputs[0])
        outputs.append(MODEL(second))
    assert torch.equal(tape.layers()["1"], torch.cat(outputs))
    assert tape.layers()["0"] is tape.layers()["0"]


def test_no_more_than_the_rows_is_kept_alive():
    model = nn.Sequential(nn.Identity()).eval()
    with record(model, "0", pool=lambda states: states.double()[:, 0]) as tape:
        model(torch.randn(3, 100, 4))
    assert tape.layers()["0"].untyped_storage().nbytes() == 3 * 4 * 8


@pytest.mark.parametrize("pool", ["tokens", "mean"])
def test_file(tmp_path, pool):
    model, loader, out = seeded(Encoder), token_batches(), tmp_path / "layers.safetensors"
    out.write_text("older")
    memory = taped(model, "layer.*", loader, pool=pool)
    with record(model, "layer.*", pool=pool, out=out) as file:
        for batch in loader:
            model(**batch)
            assert out.read_text() == "older"
    assert os.listdir(tmp_path) == [out.name]
    assert list(file.layers()) == list(memory.layers())
    read = safetensors.torch.load_file(out)
    for name, layer in memory.layers().items():
        assert torch.equal(file.layers()[name], layer)
        assert torch.equal(read[name], layer)
        file.layers()[name].zero_()  # a copy of the page: the file stays
        assert torch.equal(safetensors.torch.load_file(out)[name], layer)


class Precisions(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Identity() for _ in "abcd")

    def forward(self, x):
        return self.a(x.half()), self.b(x.double()), self.c(x), self.d(x.bfloat16())


def test_precisions_in_one_file(tmp_path):
    model, x = Precisions().eval(), torch.randn(3, 5)
    tape = taped(model, "*", [x, x + 1], out=tmp_path / "rows")
    dtypes = (torch.float16, torch.float64, torch.float32, torch.bfloat16)
    read = safetensors.torch.load_file(tmp_path / "rows")
    for name, dtype in zip("abcd", dtypes, strict=True):
        rows = tape.layers()[name]
        assert rows.data_ptr() % dtype.itemsize == 0
        assert rows.dtype == dtype
        assert torch.equal(rows, torch.cat([x.to(dtype), (x + 1).to(dtype)]))
        assert torch.equal(read[name], rows)


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    out = tmp_path / "rows"
    spoiled = [*batches(2), None]
    with pytest.raises(TypeError):
        taped(MODEL, "*", spoiled, out=out)
    model = nn.ModuleDict({"a": nn.Identity(), "b": nn.Identity()}).eval()
    model.forward = lambda x: model["a"](x)
    with pytest.raises(ValueError, match="never called"):
        taped(model, ["a", "b"], batches(1), out=out)
    assert os.listdir(tmp_path) == []
    with record(MODEL, "*", out=out) as tape:
        MODEL(batches(1)[0])
        with pytest.raises(RuntimeError, match=r"layers: wanted .*rows' to be complete"):
            tape.layers()
        with pytest.raises(RuntimeError, match="clear: wanted a tape in memory"):
            tape.clear()


def test_a_full_disk(tmp_path):
    """The loop may go on after the error: what is left is no recording."""
    model, out = nn.Sequential(nn.Linear(4, 100), nn.Identity()).eval(), tmp_path / "rows"
    tape, refused = record(model, "*", out=out), []

    def run():
        with tape:
            for batch in batches(8):
                try:
                    model(batch)
                except (OSError, RuntimeError) as error:
                    refused.append(error)

    with file_limit(20_000), pytest.raises(RuntimeError, match="to be writable, got an error"):
        run()
    assert [type(error) for error in refused] == [OSError] + [RuntimeError] * 2
    assert os.listdir(tmp_path) == []


def test_sampled_rows_are_the_same_in_every_layer_and_model():
    kept = {}
    for name, channels in (("a", 6), ("b", 7)):
        model = seeded(ConvNet, channels)
        for sample in (11, 0.1):
            with record(model, ["stem", "layer1"], pool="positions", sample=sample) as tape:
                for batch in images():
                    model(batch)
            kept[name, sample] = tape.layers()
        with record(model, ["stem", "layer1"], pool="positions") as tape:
            for batch in images():
                model(batch)
        kept[name, None] = tape.layers()
    for sample, rows in ((11, 3 * 11), (0.1, 3 * round(0.1 * 5 * 64))):
        places = []
        for name in "ab":
            for layer, every in kept[name, None].items():
                some = kept[name, sample][layer]
                assert len(some) == rows
                found = (some[:, None] == every[None]).all(2).nonzero()[:, 1]
                assert (found.diff() > 0).all()  # in order
                places.append(found)
        assert all(torch.equal(place, places[0]) for place in places)
        assert {int(p) // 320 for p in places[0]} == {0, 1, 2}  # of every batch
        assert len(np.unique(places[0] % 320)) > rows / 2  # not the same of every batch


def test_samples_of_tokens_and_examples():
    model, loader = seeded(Encoder), token_batches()

    def kept(seed=0, **options):
        with record(model, "layer.1", seed=seed, **options) as tape:
            for batch in loader:
                model(**batch)
        return tape.layers()["layer.1"]

    every = kept(pool="tokens")
    some = kept(pool="tokens", sample=3)
    assert len(some) == 9
    assert (some[:, None] == every[None]).all(2).any(1).all()
    assert torch.equal(some, kept(pool="tokens", sample=3))
    assert not torch.equal(some, kept(pool="tokens", sample=3, seed=1))
    assert len(kept(pool="mean", sample=0.5)) == 6
    assert torch.equal(kept(pool="mean", sample=4), kept(pool="mean"))
