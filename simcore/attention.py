"""Similarity of attention: of pairs of heads, of layers by their best heads, or as representations.

The attention of a layer is a list of ``[H, t_s, t_s]`` arrays, one for each sentence, or one padded
``[S, H, T, T]`` batch with ``lengths`` or ``mask``: row i holds the weights that word i gives to
all words.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from simcore._attention_layers import (
    Attention,
    Layer,
    Lengths,
    Mask,
    Words,
    as_layer,
    as_layers,
    as_words,
    check_same_sentences,
    check_weights,
    check_words,
)
from simcore._grid.finish import as_given, warn_caller
from simcore._grid.inputs import Array, check_finite_count
from simcore._grid.one_operator import is_traced, one_operator
from simcore._grid.options import check_choice, check_flag, check_max_memory
from simcore._grid.progress import progress_bar
from simcore._ops.attention import attention_similarity

Measure = Literal["js", "pearson", "frobenius"]


def _warn_of_rows(rows_off: list[int], layers: dict[str, Layer], words: Words | None) -> None:
    """Warn once if rows do not sum to 1: the divergence is defined for distributions alone."""
    hint = "pass lengths or mask if they are padding"
    if words is not None:
        hint = f"do the words that {words.option} keeps have weights on others?"
    for count, (name, layer) in zip(rows_off, layers.items(), strict=True):
        if count:
            warn_caller(
                f"attention_grid: {count} of {layer.rows} rows of {name} do not sum to 1, and "
                f"js is a divergence of distributions; {hint}"
            )
            return


@one_operator()
def attention_grid(
    A: Sequence[Attention] | Array,
    B: Sequence[Attention] | Array | None = None,
    *,
    measure: Measure = "js",
    causal: bool = False,
    lengths: Lengths | None = None,
    mask: Mask | None = None,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the similarity of attention of all layer pairs, by their most similar heads.

    The value of layers a and b is ``mean_h max_g similarity(h, g)`` over the heads h of a and g of
    b; asymmetric. All heads of all layers are compared in one pass over the words, and no array of
    size heads x heads x words is ever held.

    Parameters
    ----------
    A, B : sequence of layers
        A layer is a list of ``[H, t_s, t_s]`` arrays, one for each sentence, or one padded
        ``[S, H, T, T]`` array with `lengths` or `mask`. All layers hold the same sentences with the
        same t_s; H may differ between layers. torch tensors or numpy arrays of float16, bfloat16,
        float32 or float64: if one layer is float64, all are computed in float64, else in float32,
        where results are good to 1e-6 for weights below 1e18. Arrays may have any strides, be
        read-only or memory-mapped, and are never modified. ``B=None`` compares A with itself at
        half the cost.
    measure : {"js", "pearson", "frobenius"}
        ``js``: 1 - mean over all words of the Jensen-Shannon divergence of the two rows (natural
        logarithm, 0 log 0 = 0). ``pearson``: mean over all words of the correlation of the two
        rows; constant rows, such as the only row of a one-word sentence, count 0. ``frobenius``: 1
        - mean over sentences of the Frobenius norm of the difference.
    causal : bool
        Whether only the weights on words j <= i count. Rows are then scaled to sum to 1 again, and
        weights above the diagonal are never read. The correlation of ``pearson`` runs over all
        words, with zeros above the diagonal.
    lengths : sequence of int, ``[S]``, optional
        Number of words of every sentence of the padded layers, which are its first words; weights
        of later words do not count. Default: T.
    mask : array ``[S, T]`` of 0 and 1, optional
        Which places of the padded layers are words, for batches that are padded on the left: the
        attention mask of the tokenizer. The words of a sentence have no padding between them.
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`. At most 16 MB and two float64 for
        every pair of heads are allocated.

    Returns
    -------
    array ``[len(A), len(B)]``, float64
        numpy if all inputs are numpy, else a torch tensor. At most 1; a layer has 1 with itself,
        except for ``pearson`` with constant rows. Not differentiable.

    Raises
    ------
    TypeError
        A layer or sentence is no array, or its dtype is not floating point; a length is no whole
        number.
    ValueError
        No layers, sentences, heads or words; different sentences; arrays that are not square;
        lengths beyond T, or of layers that are padded on the left; a mask of another shape, or with
        padding between words; NaN or infinite weights, or negative weights for ``js`` (the message
        gives layer and count); float64 weights above 1e140; an unknown option; a `max_memory` below
        what one row of every head takes.

    Warns
    -----
    UserWarning
        Rows do not sum to 1, for ``js`` that is not causal: the layers are padded and neither
        `lengths` nor `mask` says so, or they hold no attention. The rows are compared as they are.

    References
    ----------
    Wu et al. 2020, *Similarity analysis of contextual word representation models*, section 3.4 and
    appendix A.4.

    Examples
    --------
    >>> import torch
    >>> from simcore import attention_grid
    >>> layers = torch.randn(3, 10, 4, 7, 7).softmax(dim=-1)  # 3 layers, 10 sentences, 4 heads
    >>> grid = attention_grid(layers)
    >>> grid.shape, bool(grid.diagonal().eq(1).all())
    (torch.Size([3, 3]), True)
    """
    check_choice(measure, "measure", Measure)
    causal = check_flag(causal, "causal")
    limit = check_max_memory(max_memory)
    words = as_words(lengths, mask)
    layers_a = as_layers(A, "A", words)
    layers_b = [] if B is None else as_layers(B, "B", words)
    first = layers_a[0]
    check_same_sentences(layers_a, "A", first)
    check_same_sentences(layers_b, "B", first)
    named = {f"A[{i}]": layer for i, layer in enumerate(layers_a)}
    named |= {f"B[{i}]": layer for i, layer in enumerate(layers_b)}
    check_words(words, [*A, *(() if B is None else B)], named)
    check_weights(named, causal)
    arrays_a, arrays_b = (
        [array.detach() for layer in side for array in layer.arrays]
        for side in (layers_a, layers_b)
    )
    with progress_bar("attention_grid", progress):
        grid, rows_off = attention_similarity(
            arrays_a, arrays_b, first.words, measure, causal, limit
        )
    _warn_of_rows(rows_off.tolist(), named, words)
    return as_given(grid, all(layer.from_numpy for layer in (*layers_a, *layers_b)))


def distributed_attention(
    layer: Attention,
    *,
    lengths: Lengths | None = None,
    mask: Mask | None = None,
    causal: bool = False,
) -> Array:
    """Return a layer's attention as a representation: word pairs are examples, heads are neurons.

    The CKA and CCA grids compare whole layers of heads in this form, rather than single heads.

    Parameters
    ----------
    layer : list of ``[H, t_s, t_s]`` arrays, or one padded ``[S, H, T, T]`` array
        One layer as in `attention_grid`.
    lengths : sequence of int, ``[S]``, optional
        As in `attention_grid`. Under torch.compile they must be a list, because they decide shapes.
    mask : array ``[S, T]`` of 0 and 1, optional
        As in `attention_grid`. Not under torch.compile.
    causal : bool
        Whether to leave out the word pairs with j > i, which causal heads mask. The other weights
        of a row are scaled to sum to 1 again.

    Returns
    -------
    array ``[pairs, H]``, float64
        The pairs (i, j) of the first sentence, row by row, then of the second, and so on; numpy if
        all inputs are numpy, else a torch tensor. ``pairs`` is the sum of t_s^2, or of
        t_s (t_s + 1) / 2 for causal attention. Differentiable.

    Raises
    ------
    TypeError, ValueError
        As `attention_grid`, but negative weights are allowed, and weights above 1e140 unless
        causal.

    References
    ----------
    Wu et al. 2020, section 3.5.

    Examples
    --------
    >>> import torch
    >>> from simcore import cka_grid, distributed_attention
    >>> layers = torch.randn(3, 10, 4, 7, 7).softmax(dim=-1)  # 3 layers, 10 sentences, 4 heads
    >>> cka_grid([distributed_attention(layer) for layer in layers]).shape
    torch.Size([3, 3])
    """
    words = as_words(lengths, mask)
    causal = check_flag(causal, "causal")
    given = as_layer(layer, "layer", words)
    check_words(words, [layer], {"layer": given})
    if causal and not is_traced(given.arrays[0]):  # only causal rows are summed
        check_weights({"layer": given}, causal)
    sentences = given.sentences()
    blocks = [_causal_pairs(s) if causal else s.flatten(1).T for s in sentences]
    finite = torch.stack([block.isfinite().sum() for block in blocks]).sum()
    check_finite_count(finite, sum(block.numel() for block in blocks), "layer")
    if causal:
        blocks = [_renormalised(b, t) for b, t in zip(blocks, given.words, strict=True)]
    weights = torch.cat(blocks).double()
    return as_given(weights, given.from_numpy)


def _causal_pairs(sentence: Tensor) -> Tensor:
    """Return the weights ``[pairs, H]`` of one sentence's word pairs with j <= i, row by row."""
    words = sentence.shape[1]
    rows, columns = torch.tril_indices(words, words, device=sentence.device)
    return sentence[:, rows, columns].T.double()


def _renormalised(block: Tensor, words: int) -> Tensor:
    """Return `_causal_pairs` with the weights of every word over their sum; 0 if the sum is 0."""
    rows = torch.tril_indices(words, words, device=block.device)[0]
    totals = block.new_zeros(words, block.shape[1]).index_add(0, rows, block)[rows]
    summed = totals > 0
    return torch.where(summed, block / torch.where(summed, totals, 1.0), 0.0)
