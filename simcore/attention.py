"""Similarity of attention: of pairs of heads, of layers by their best heads, or as representations.

The attention of a layer is a list of ``[H, t_s, t_s]`` arrays, one for each sentence, or one padded
``[S, H, T, T]`` batch with ``lengths``: row i holds the weights that word i gives to all words.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simcore._grid.finish import as_given, warn_caller
from simcore._grid.inputs import (
    Array,
    as_tensor,
    check_device,
    check_finite_count,
    check_same_device,
)
from simcore._grid.one_operator import is_traced, one_operator
from simcore._grid.options import check_choice, check_count, check_flag, check_max_memory
from simcore._grid.progress import progress_bar
from simcore._ops.attention import attention_similarity

Attention = Sequence[Array] | Array  # the attention of one layer
Lengths = Sequence[int] | Array
MEASURES = ("js", "pearson", "frobenius")
LARGEST_WEIGHT = 1e140  # float64 holds sums of squares and of p log p of smaller weights


def _as_lengths(lengths: Lengths | None) -> list[int] | None:
    if lengths is None:
        return None
    if isinstance(lengths, Tensor) and torch.compiler.is_compiling():
        raise TypeError("lengths: wanted a list under torch.compile, got a tensor")
    if isinstance(lengths, Tensor | np.ndarray) and lengths.ndim == 1:
        values = lengths.tolist()
    elif isinstance(lengths, Sequence):
        values = list(lengths)
    else:
        raise TypeError(f"lengths: wanted one whole number for each sentence, got {lengths!r}")
    return [check_count(value, f"lengths[{i}]", least=None) for i, value in enumerate(values)]


@dataclass(frozen=True)
class _Layer:
    """The checked attention of one layer.

    Attributes
    ----------
    arrays : list of Tensor
        One padded ``[S, H, T, T]``, or ``[H, t_s, t_s]`` of every sentence.
    words : list of int
        The t_s of every sentence.
    from_numpy : bool
        Whether the arrays came as numpy.
    """

    arrays: list[Tensor]
    words: list[int]
    from_numpy: bool

    @property
    def rows(self) -> int:
        """Return the number of rows of all heads."""
        return self.arrays[0].shape[-3] * sum(self.words)

    def sentences(self) -> list[Tensor]:
        """Return views ``[H, t_s, t_s]`` without padding."""
        if self.arrays[0].ndim == 3:
            return self.arrays
        return [s[:, :t, :t] for s, t in zip(self.arrays[0], self.words, strict=True)]


def _padded(batch: Tensor, name: str, lengths: list[int] | None, from_numpy: bool) -> _Layer:
    """Return the checked layer of one padded batch."""
    count, _, rows, columns = batch.shape
    if rows != columns:
        raise ValueError(f"{name}: wanted shape [S, H, T, T], got {tuple(batch.shape)}")
    if count == 0:
        raise ValueError(f"{name}: wanted at least one sentence, got none")
    if 0 in batch.shape:
        raise ValueError(
            f"{name}: wanted at least one head and one word, got shape {tuple(batch.shape)}"
        )
    if lengths is None:
        return _Layer([batch], [rows] * count, from_numpy)
    if len(lengths) != count:
        raise ValueError(
            f"lengths: wanted {count}, one for each sentence of {name}, got {len(lengths)}"
        )
    for i, t in enumerate(lengths):
        if not 1 <= t <= rows:
            raise ValueError(f"lengths[{i}]: wanted 1 to {rows} words as in {name}, got {t}")
    return _Layer([batch], lengths, from_numpy)


def _as_layer(layer: Attention, name: str, lengths: list[int] | None) -> _Layer:
    """Return one checked layer."""
    if isinstance(layer, Tensor | np.ndarray):
        if layer.ndim != 4:
            raise ValueError(
                f"{name}: wanted a list of [H, t, t] arrays or one padded [S, H, T, T], "
                f"got shape {tuple(layer.shape)}"
            )
        batch = as_tensor(layer, name)
        check_device(batch, name)
        return _padded(batch, name, lengths, isinstance(layer, np.ndarray))
    if not isinstance(layer, Sequence) or isinstance(layer, str):
        raise TypeError(
            f"{name}: wanted a list of [H, t, t] arrays or one padded [S, H, T, T], "
            f"got {type(layer).__name__}"
        )
    if not layer:
        raise ValueError(f"{name}: wanted at least one sentence, got none")
    names = [f"{name}[{s}]" for s in range(len(layer))]
    sentences = [as_tensor(s, label) for s, label in zip(layer, names, strict=True)]
    check_device(sentences[0], names[0])
    for sentence, label in zip(sentences, names, strict=True):
        _check_sentence(sentence, label, sentences[0], names[0])
    from_numpy = all(isinstance(sentence, np.ndarray) for sentence in layer)
    return _Layer(sentences, [sentence.shape[1] for sentence in sentences], from_numpy)


def _check_sentence(sentence: Tensor, name: str, first: Tensor, first_name: str) -> None:
    shape = tuple(sentence.shape)
    check_same_device(sentence, name, first, first_name)
    if sentence.ndim != 3 or shape[1] != shape[2]:
        raise ValueError(f"{name}: wanted shape [H, t, t], got {shape}")
    if 0 in shape:
        raise ValueError(f"{name}: wanted at least one head and one word, got shape {shape}")
    if shape[0] != first.shape[0]:
        raise ValueError(
            f"{name}: wanted {first.shape[0]} heads as in {first_name}, got {shape[0]}"
        )


def _as_layers(
    layers: Sequence[Attention] | Array, name: str, lengths: list[int] | None
) -> list[_Layer]:
    """Return all layers of one side, checked."""
    if isinstance(layers, Tensor | np.ndarray) and layers.ndim != 5:
        raise ValueError(
            f"{name}: wanted a list of layers or one [L, S, H, T, T] array, "
            f"got shape {tuple(layers.shape)}"
        )
    if not isinstance(layers, Tensor | np.ndarray | Sequence):
        raise TypeError(f"{name}: wanted a sequence of layers, got {type(layers).__name__}")
    if len(layers) == 0:
        raise ValueError(f"{name}: wanted at least one layer, got none")
    return [_as_layer(layer, f"{name}[{i}]", lengths) for i, layer in enumerate(layers)]


def _check_same_sentences(layers: list[_Layer], name: str, first: _Layer) -> None:
    for i, layer in enumerate(layers):
        check_same_device(layer.arrays[0], f"{name}[{i}]", first.arrays[0], "A[0]")
        if len(layer.words) != len(first.words):
            raise ValueError(
                f"{name}[{i}]: wanted {len(first.words)} sentences as in A[0], "
                f"got {len(layer.words)}"
            )
        for s, (words, wanted) in enumerate(zip(layer.words, first.words, strict=True)):
            if words != wanted:
                raise ValueError(
                    f"{name}[{i}]: wanted {wanted} words in sentence {s} as in A[0], got {words}"
                )


def _check_lengths_are_used(lengths: list[int] | None, layers: Sequence[Attention] | Array) -> None:
    if lengths is not None and not any(isinstance(a, Tensor | np.ndarray) for a in layers):
        raise ValueError(
            f"lengths: wanted None where no layer is padded, got {len(lengths)} lengths"
        )


def _check_weights(layers: dict[str, _Layer], causal: bool) -> None:
    """Raise a ValueError that names the first layer with float64 weights too large to be summed.

    Weights that are never read do not count. NaN and infinity have a check of their own.
    """
    largest_sizes = {}
    for name, layer in layers.items():
        if any(array.dtype == torch.float64 for array in layer.arrays):
            wide = [s.detach() for s in layer.sentences() if s.dtype == torch.float64]
            sizes = torch.stack([(s.tril() if causal else s).abs().amax() for s in wide])
            largest_sizes[name] = sizes.masked_fill(~sizes.isfinite(), 0).amax()
    # One synchronisation with the device for all layers.
    largest_of = torch.stack([*largest_sizes.values()]).tolist() if largest_sizes else []
    for name, largest in zip(largest_sizes, largest_of, strict=True):
        if largest > LARGEST_WEIGHT:
            raise ValueError(f"{name}: wanted weights up to {LARGEST_WEIGHT:g}, got {largest:g}")


def _warn_of_rows(rows_off: list[int], layers: dict[str, _Layer]) -> None:
    """Warn once if rows do not sum to 1: the divergence is defined for distributions alone."""
    for count, (name, layer) in zip(rows_off, layers.items(), strict=True):
        if count:
            warn_caller(
                f"attention_grid: {count} of {layer.rows} rows of {name} do not sum to 1, and "
                "js is a divergence of distributions; pass lengths if they are padding"
            )
            return


@one_operator()
def attention_grid(
    A: Sequence[Attention] | Array,
    B: Sequence[Attention] | Array | None = None,
    *,
    measure: str = "js",
    causal: bool = False,
    lengths: Lengths | None = None,
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
        ``[S, H, T, T]`` array with `lengths`. All layers hold the same sentences with the same t_s;
        H may differ between layers. torch tensors or numpy arrays of float16, bfloat16, float32 or
        float64: if one layer is float64, all are computed in float64, else in float32, where
        results are good to 1e-6 for weights below 1e18. Arrays may have any strides, be read-only
        or memory-mapped, and are never modified. ``B=None`` compares A with itself at half the
        cost.
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
        Number of words of every sentence of the padded layers; weights of later words are never
        read. Default: T.
    max_memory : int, optional
        Bytes that may be allocated beyond the inputs; default a quarter of the free memory. At most
        16 MB and two float64 for every pair of heads are allocated.
    progress : bool
        Show a progress bar on stderr.

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
        lengths beyond T; NaN or infinite weights, or negative weights for ``js`` (the message gives
        layer and count); float64 weights above 1e140; an unknown option; a `max_memory` below what
        one row of every head takes.

    Warns
    -----
    UserWarning
        Rows do not sum to 1, for ``js`` that is not causal: the layers are padded and `lengths` is
        missing, or they hold no attention. The rows are compared as they are.

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
    check_choice(measure, "measure", MEASURES)
    causal = check_flag(causal, "causal")
    limit = check_max_memory(max_memory)
    words = _as_lengths(lengths)
    layers_a = _as_layers(A, "A", words)
    layers_b = [] if B is None else _as_layers(B, "B", words)
    _check_lengths_are_used(words, [*A, *(() if B is None else B)])
    first = layers_a[0]
    _check_same_sentences(layers_a, "A", first)
    _check_same_sentences(layers_b, "B", first)
    named = {f"A[{i}]": layer for i, layer in enumerate(layers_a)}
    named |= {f"B[{i}]": layer for i, layer in enumerate(layers_b)}
    _check_weights(named, causal)
    arrays_a, arrays_b = (
        [array.detach() for layer in side for array in layer.arrays]
        for side in (layers_a, layers_b)
    )
    with progress_bar("attention_grid", progress):
        grid, rows_off = attention_similarity(
            arrays_a, arrays_b, first.words, measure, causal, limit
        )
    _warn_of_rows(rows_off.tolist(), named)
    return as_given(grid, all(layer.from_numpy for layer in (*layers_a, *layers_b)))


def distributed_attention(
    layer: Attention, *, lengths: Lengths | None = None, causal: bool = False
) -> Array:
    """Return a layer's attention as a representation: word pairs are examples, heads are neurons.

    The CKA and CCA grids compare whole layers of heads in this form, rather than single heads.

    Parameters
    ----------
    layer : list of ``[H, t_s, t_s]`` arrays, or one padded ``[S, H, T, T]`` array
        One layer as in `attention_grid`.
    lengths : sequence of int, ``[S]``, optional
        As in `attention_grid`. Under torch.compile they must be a list, because they decide shapes.
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
    words = _as_lengths(lengths)
    causal = check_flag(causal, "causal")
    given = _as_layer(layer, "layer", words)
    _check_lengths_are_used(words, [layer])
    if causal and not is_traced(given.arrays[0]):  # only causal rows are summed
        _check_weights({"layer": given}, causal)
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
