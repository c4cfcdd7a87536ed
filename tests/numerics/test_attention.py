"""Attention as networks have it: sharp, on a sink, on one word, or on all words alike."""

import numpy as np
import pytest
import torch

from numerics.cases import ABSOLUTE, cases_of
from numerics.distributions import softmax
from simcore._measures import MEASURES
from simcore._measures.record import ATTENTION

CASES = [case for one in MEASURES.values() if one.takes == (ATTENTION,) for case in cases_of(one)]
SHAPE = 4, 3, 11, 11  # sentences, heads, words


def rows(logits):
    return softmax(logits.reshape(-1, SHAPE[-1])).reshape(SHAPE)


DRAWS = {
    "plain": lambda z: rows(z),
    "sharp": lambda z: rows(30 * z),
    "sharpest": lambda z: rows(100 * z),
    "sink": lambda z: rows(z + 12 * (np.arange(SHAPE[-1]) == 0)),
    "one word": lambda z: np.float64(z == z.max(-1, keepdims=True)),
    "alike": lambda z: rows(1e-3 * z),
}


def jsd(p, q):
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [np.where(one > 0, one * np.log(2 * one / (p + q)), 0) for one in (p, q)]
    return (parts[0] + parts[1]).sum(-1) / 2


def pearson(p, q):
    p, q = (one - one.mean(-1, keepdims=True) for one in (p, q))
    norms = np.linalg.norm(p, axis=-1) * np.linalg.norm(q, axis=-1)
    return np.divide((p * q).sum(-1), norms, out=np.zeros_like(norms), where=norms > 1e-24)


HEADS = {  # of heads [sentences, 1, words, words] with all heads of the other layer
    "js": lambda p, q: 1 - jsd(p, q).mean((0, 2)),
    "pearson": lambda p, q: pearson(p, q).mean((0, 2)),
    "frobenius": lambda p, q: 1 - np.linalg.norm(p - q, axis=(-2, -1)).mean(0),
}


def right(a, b, measure, causal=False):
    """Return the mean over heads of a of the best head of b."""
    if causal:
        a, b = (np.tril(one) / np.tril(one).sum(-1, keepdims=True).clip(1e-300) for one in (a, b))
    return np.mean([HEADS[measure](a[:, [h]], b).max() for h in range(a.shape[1])])


@pytest.mark.filterwarnings("ignore:attention_grid")  # rows of halves do not sum to 1
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", DRAWS)
def test_attention_is_right(name, dtype):
    rng = np.random.default_rng(3)
    x, y = (
        torch.from_numpy(DRAWS[name](rng.standard_normal(SHAPE))).to(getattr(torch, dtype))
        for _ in range(2)
    )
    for case in CASES:
        value = float(case.run(x, y))
        own = right(x.double().numpy(), y.double().numpy(), **case.options)
        assert abs(value - own) <= ABSOLUTE, (str(case), value, own)
