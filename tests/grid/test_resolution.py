"""Which layers become float64 because their rows are far from the origin."""

import pytest
import torch

from simcore._grid import scale


def drawn(width, offset=0.0, dtype=torch.float32, n=70):
    """Return a layer all of whose rows but the first are `offset` away from its mean."""
    layer = torch.randn(n, width, generator=torch.Generator().manual_seed(width))
    layer[0, 0] += n * offset
    return layer.to(dtype)


@pytest.mark.parametrize("entries", [1, 2**22])  # layers one by one, and all of a kind together
def test_far_layers_alone_become_float64_in_their_places(entries, monkeypatch):
    monkeypatch.setattr(scale, "SAMPLED_ENTRIES", entries)
    wide = [True, False, False, True, False, False]
    half = torch.float16
    layers = [drawn(4, 1e4), drawn(6), drawn(4), drawn(6, 1e4), drawn(4), drawn(4, dtype=half)]
    found = scale.resolved(layers)
    assert [layer.dtype == torch.float64 for layer in found.layers] == wide
    for layer, given, is_wide in zip(found.layers, layers, wide, strict=True):
        assert torch.equal(layer, given.double()) if is_wide else layer is given
    assert found.nbytes == sum(
        layer.nbytes for layer in found.layers if layer.dtype == torch.float64
    )


def test_layers_of_float64_are_not_looked_at(monkeypatch):
    monkeypatch.setattr(scale, "row_lengths", None)
    layers = [drawn(4, 1e4, torch.float64)]
    assert scale.resolved(layers).layers == layers
