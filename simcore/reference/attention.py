"""Similarity of attention: of pairs of heads, and of layers by their best heads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["attention_grid", "distributed_attention"]

Array = NDArray[np.float64]
Attention = Sequence[ArrayLike]  # of one layer: [H, t, t] for every sentence


def causal_rows(weights: ArrayLike) -> Array:
    """Return the lower triangles of ``[H, t, t]``, their rows scaled to sum to 1 again."""
    lower = np.tril(np.asarray(weights, np.float64))
    total = lower.sum(axis=-1, keepdims=True)
    return np.divide(lower, total, out=np.zeros_like(lower), where=total > 0)


def frobenius(a: Sequence[Array], b: Sequence[Array]) -> float:
    """Return ``1 - mean over sentences of ||A(s) - B(s)||_F`` for two heads, ``[t, t]`` each."""
    return float(1 - np.mean([np.linalg.norm(p - q) for p, q in zip(a, b, strict=True)]))


def pearson(a: Sequence[Array], b: Sequence[Array]) -> float:
    """Return the mean over all words of the correlation of two rows; constant rows count 0."""
    values = [_row_pearson(p, q) for p, q in zip(_rows(a), _rows(b), strict=True)]
    return float(np.mean(values))


def _row_pearson(p: Array, q: Array) -> float:
    p, q = p - p.mean(), q - q.mean()
    # A row of one repeated value may leave rounding errors instead of zeros.
    floor = 1e-12
    norms = np.linalg.norm(p), np.linalg.norm(q)
    return float(p @ q / (norms[0] * norms[1])) if min(norms) > floor else 0.0


def jensen_shannon(a: Sequence[Array], b: Sequence[Array]) -> float:
    """Return ``1 - mean over all words of JSD(row of a, row of b)``, natural logarithm."""
    return float(1 - np.mean([_jsd(p, q) for p, q in zip(_rows(a), _rows(b), strict=True)]))


def _jsd(p: Array, q: Array) -> float:
    mean = (p + q) / 2
    return _entropy(mean) - (_entropy(p) + _entropy(q)) / 2


def _entropy(p: Array) -> float:
    positive = p[p > 0]
    return float(-np.sum(positive * np.log(positive)))


def _rows(sentences: Sequence[Array]) -> list[Array]:
    return [row for sentence in sentences for row in sentence]


HEADS = {"frobenius": frobenius, "pearson": pearson, "js": jensen_shannon}


def _heads(layer: Attention, causal: bool) -> list[list[Array]]:
    """Return the weights of one layer as ``[head][sentence]``."""
    sentences = [causal_rows(s) if causal else np.asarray(s, np.float64) for s in layer]
    return [[s[h] for s in sentences] for h in range(len(sentences[0]))]


def attention_grid(
    a: Sequence[Attention],
    b: Sequence[Attention] | None = None,
    *,
    measure: str = "js",
    causal: bool = False,
) -> Array:
    """Compute the mean over the heads h of a layer of a of ``max_g similarity(h, g)``; asymmetric.

    The maximum runs over the heads g of a layer of b.

    Parameters
    ----------
    a, b : sequence of layers
        A layer is a sequence of ``[H, t_s, t_s]`` arrays, one for each sentence.
    measure : {"js", "pearson", "frobenius"}
        Similarity of two heads.
    causal : bool
        Whether `causal_rows` replaces the weights.

    Returns
    -------
    ndarray, ``[len(a), len(b)]``

    References
    ----------
    Wu et al. 2020, section 3.4 and appendix A.4.
    """
    rows = [_heads(layer, causal) for layer in a]
    columns = rows if b is None else [_heads(layer, causal) for layer in b]
    head = HEADS[measure]
    return np.array(
        [[np.mean([max(head(h, g) for g in y) for h in x]) for y in columns] for x in rows]
    )


def distributed_attention(layer: Attention, *, causal: bool = False) -> Array:
    """Return the weights of all heads as columns, ``[sum t_s^2, H]``.

    A row is a word pair (i, j) of a sentence. Pairs with j > i are left out if ``causal``.

    References
    ----------
    Wu et al. 2020, section 3.5.
    """
    blocks = []
    for sentence in layer:
        weights = causal_rows(sentence) if causal else np.asarray(sentence, np.float64)
        t = weights.shape[-1]
        pairs = np.tril_indices(t) if causal else tuple(np.indices((t, t)).reshape(2, -1))
        blocks.append(weights[:, pairs[0], pairs[1]].T)
    return np.concatenate(blocks)
