"""The callback of Lightning: with each package that is installed, and its hooks by themselves."""

import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from simcore import Track, lightning_callback
from simcore.recording.lightning import PACKAGES

X = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
INSTALLED = [name for name in PACKAGES if importlib.util.find_spec(name.partition(".")[0])]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


@pytest.fixture
def package(monkeypatch):
    """A package of the name of Lightning, of which the callback needs a class alone."""
    for name in PACKAGES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    found = ModuleType(PACKAGES[1])
    found.Callback = type("Callback", (), {})
    monkeypatch.setitem(sys.modules, PACKAGES[1], found)
    return found


def trained(callback, steps, model=None, **facts):
    """Train as a Trainer that accumulates gradients over two batches does."""
    model, values = model or network(), []
    logger = SimpleNamespace(log_metrics=lambda found, step: values.append((step, found)))
    facts = {"is_global_zero": True, "logger": logger, "global_step": 0} | facts
    trainer = SimpleNamespace(**facts)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    callback.on_fit_start(trainer, model)
    for batch in range(2 * steps):
        nn.functional.cross_entropy(model(X), X[:, :3].argmax(1)).backward()
        if batch % 2:
            optimizer.step()
            optimizer.zero_grad()
            trainer.global_step += 1
        callback.on_train_batch_end(trainer, model, None, X, batch)
    return model, values


def test_it_is_a_callback_that_tracks(package):
    callback = lightning_callback("*", X, every=2)
    assert isinstance(callback, package.Callback)
    _, logged = trained(callback, 6)
    assert callback.track.steps == [2, 4, 6]
    assert [step for step, _ in logged] == [2, 4, 6]
    assert "cka/start/0" in logged[0][1]
    model = network()
    want = Track(model, "*", X, every=2)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    for step in range(1, 7):
        for _ in range(2):
            nn.functional.cross_entropy(model(X), X[:, :3].argmax(1)).backward()
        optimizer.step()
        optimizer.zero_grad()
        want.step(step)
    np.testing.assert_array_equal(callback.track.values("start"), want.values("start"))


@pytest.mark.usefixtures("package")
def test_a_run_goes_on_from_its_state():
    whole, first, second = (lightning_callback("*", X) for _ in range(3))
    trained(whole, 4)
    model, _ = trained(first, 2)
    second.load_state_dict(first.state_dict())
    trained(second, 2, model, global_step=2)
    assert second.track.steps == [1, 2, 3, 4]
    np.testing.assert_array_equal(second.track.values("start"), whole.track.values("start"))


@pytest.mark.usefixtures("package")
def test_one_process_tracks_and_all_pairs_are_not_logged():
    callback = lightning_callback("*", X)
    trained(callback, 2, is_global_zero=False)
    assert callback.track is None
    assert callback.state_dict() == {}
    _, logged = trained(lightning_callback("*", X, pairs="all"), 2)
    assert logged == []


def test_without_the_package(package, monkeypatch):
    monkeypatch.delitem(sys.modules, PACKAGES[1])
    monkeypatch.setitem(sys.modules, "lightning", None)
    with pytest.raises(ModuleNotFoundError, match="lightning_callback: wanted the package lightni"):
        lightning_callback("*", X)


@pytest.mark.parametrize("name", INSTALLED)
def test_a_real_trainer(name, tmp_path):
    library = importlib.import_module(name)

    class Net(library.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = network()

        def training_step(self, batch, _):
            return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

        def forward(self, x):
            return self.layers(x)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 0.05)

    data = torch.utils.data.TensorDataset(X, X[:, :3].argmax(1))
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}

    def fitted(epochs, **resumed):
        callback = lightning_callback("layers.*", X, every=2)
        trainer = library.Trainer(
            max_epochs=epochs, callbacks=[callback], logger=False, accumulate_grad_batches=2,
            default_root_dir=tmp_path, **quiet,
        )  # fmt: skip
        trainer.fit(Net(), torch.utils.data.DataLoader(data, 8), **resumed)
        return callback.track, trainer

    track, trainer = fitted(1)
    assert track.steps == [2, 4]
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    resumed, _ = fitted(2, ckpt_path=tmp_path / "half.ckpt")
    whole, _ = fitted(2)
    assert resumed.steps == whole.steps == [2, 4, 6, 8]
    np.testing.assert_array_equal(resumed.values("start"), whole.values("start"))
