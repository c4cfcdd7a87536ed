"""What attention grids accept, and what must not change their results."""

import re

import numpy as np
import pytest
import torch

from simcore import attention_grid, distributed_attention
from support import tolerance
from support.cases import DTYPES, HALVES, attention, exact_attention, padded

MEASURES = ("js", "pearson", "frobenius")
WORDS = (5, 1, 17, 2, 32, 1)
HEADS = (4, 1, 9)


def test_numpy_in_numpy_out_torch_in_torch_out():
    a = attention(WORDS, HEADS)
    arrays = exact_attention(a)
    grid, weights = attention_grid(arrays), distributed_attention(arrays[0])
    assert isinstance(grid, np.ndarray)
    assert isinstance(weights, np.ndarray)
    assert isinstance(attention_grid(a, arrays), torch.Tensor)
    np.testing.assert_array_equal(grid, attention_grid(a))
    np.testing.assert_array_equal(weights, distributed_attention(a[0]))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("dtype", DTYPES + HALVES, ids=str)
def test_padded_batches_equal_lists(dtype, measure, causal):
    """The padding is NaN: reading any of it would show."""
    a = attention(WORDS, HEADS, dtype)
    batches = [padded(layer) for layer in a]
    options = {"measure": measure, "causal": causal}
    want = attention_grid(a, **options)
    for lengths in (WORDS, list(WORDS), torch.tensor(WORDS), np.array(WORDS)):
        assert torch.equal(attention_grid(batches, lengths=lengths, **options), want)
    mixed = attention_grid(a, batches, lengths=WORDS, **options)
    tolerance.assert_same(mixed, want, dtype)
    got = distributed_attention(batches[0], lengths=WORDS, causal=causal)
    assert torch.equal(got, distributed_attention(a[0], causal=causal))


def softmax_of_padded(words, pads_left, rows, seed):
    """Weights ``[S, 2, T, T]`` of a causal model that sees no padding, and the words alone.

    The rows of padding attend to everything (``uniform``), to nothing, or hold NaN.
    """
    size, generator = max(words), torch.Generator().manual_seed(seed)
    batch = torch.full(
        (len(words), 2, size, size), {"zero": 0.0, "nan": torch.nan}.get(rows, 1 / size)
    )
    alone = []
    for s, t in enumerate(words):
        scores = 4 * torch.randn(2, t, t, generator=generator)
        alone.append(scores.masked_fill(torch.ones(t, t).triu(1).bool(), -torch.inf).softmax(-1))
        first = size - t if pads_left else 0
        batch[s, :, first : first + t] = 0
        batch[s, :, first : first + t, first : first + t] = alone[-1]
    places = torch.arange(size)
    mask = torch.stack([(size - t <= places) if pads_left else (places < t) for t in words])
    return batch, alone, mask.long()


@pytest.mark.parametrize("rows", ["uniform", "zero", "nan"])
@pytest.mark.parametrize("pads_left", [True, False])
def test_a_mask_says_which_places_are_words(pads_left, rows):
    words = (6, 4, 3, 1)
    p, p_alone, mask = softmax_of_padded(words, pads_left, rows, 0)
    q, q_alone, _ = softmax_of_padded(words, pads_left, rows, 1)
    for measure in MEASURES:
        for causal in (False, True):
            options = {"measure": measure, "causal": causal}
            want = attention_grid([p_alone], [q_alone], **options)
            for one in (mask, mask.bool(), mask.float(), mask.numpy(), mask.tolist()):
                assert torch.equal(attention_grid([p], [q], mask=one, **options), want)
            got = attention_grid([p.numpy(), q.numpy()], mask=mask, **options)
            assert got[0, 1] == want.item()
            if not pads_left:
                assert torch.equal(attention_grid([p], [q], lengths=words, **options), want)
            elif rows != "nan":  # which would be counted
                with pytest.raises(ValueError, match=r"lengths\[1\]: wanted the padding of A\[0\]"):
                    attention_grid([p], [q], lengths=words, **options)
    for causal in (False, True):
        want = distributed_attention(p_alone, causal=causal)
        assert torch.equal(distributed_attention(p, mask=mask, causal=causal), want)
        if pads_left and rows != "nan":
            message = r"2 columns of zeros before the last 4, .*left.*mask= says"
            with pytest.raises(ValueError, match=message):
                distributed_attention(p, lengths=words, causal=causal)


def test_the_similarity_of_masked_heads_is_that_of_their_words():
    """By numpy, in float64: 1 - mean over words of the divergence, of each head's best partner."""
    words = (5, 3)
    p, p_alone, mask = softmax_of_padded(words, True, "uniform", 0)
    q, q_alone, _ = softmax_of_padded(words, True, "uniform", 1)

    def entropy(rows):
        return -(rows * np.log(np.where(rows > 0, rows, 1))).sum(-1)

    def similarity(a, b):
        divergence = entropy((a + b) / 2) - (entropy(a) + entropy(b)) / 2
        return 1 - divergence

    heads = np.zeros((2, 2))
    for a, b in zip(p_alone, q_alone, strict=True):
        a, b = a.double().numpy(), b.double().numpy()
        heads += similarity(a[:, None], b[None]).sum(-1)
    want = (heads / sum(words)).max(1).mean()
    assert abs(attention_grid([p], [q], mask=mask).item() - want) < 1e-6


def test_lengths_of_other_weights_that_are_zero_are_no_left_padding():
    """Windows, and a first word to which no head attends."""
    words = (8, 6, 3)
    batch, _, _ = softmax_of_padded(words, False, "uniform", 0)
    places = torch.arange(8)
    near = (places[:, None] - places).abs() <= 1
    windows = torch.where(near, batch, 0)
    for b in (windows, torch.where(places == 0, 0, windows)):
        options = {"measure": "frobenius", "lengths": words}
        assert attention_grid([b], **options).item() == 1


def test_without_lengths_a_batch_is_all_words():
    a = attention((6, 6, 6), (3, 3))
    batches = [torch.stack(layer) for layer in a]
    want = attention_grid(a)
    assert torch.equal(attention_grid(batches), want)
    assert torch.equal(attention_grid(torch.stack(batches)), want)
    assert torch.equal(attention_grid(tuple(tuple(layer) for layer in a)), want)
    assert torch.equal(distributed_attention(batches[0]), distributed_attention(a[0]))


def spread_out(x):
    """Every way to hold the same ``[H, t, t]`` values without being contiguous."""
    wide = x.new_full((2 * x.shape[0], 3 * x.shape[1], 2 * x.shape[2]), torch.nan)
    wide[::2, 1::3, ::2] = x
    return {
        "columns first": x.mT.contiguous().mT,
        "heads last": x.permute(1, 2, 0).contiguous().permute(2, 0, 1),
        "part of a wider array": wide[::2, 1::3, ::2],
    }


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("dtype", DTYPES + HALVES, ids=str)
@pytest.mark.parametrize("name", spread_out(torch.ones(1, 1, 1)))
def test_strides_do_not_matter(name, dtype, measure):
    a = attention(WORDS, HEADS, dtype)
    spread = [[spread_out(s)[name] for s in layer] for layer in a]
    assert not spread[0][2].is_contiguous()
    want = attention_grid(a, measure=measure)
    assert torch.equal(attention_grid(spread, measure=measure), want)


def test_expanded_heads_and_reversed_or_read_only_arrays():
    (head,) = attention(WORDS, (1,))
    expanded = [s.expand(3, -1, -1) for s in head]
    assert torch.equal(attention_grid([expanded]), attention_grid([head]))
    arrays = [s.numpy() for s in attention(WORDS, (3,))[0]]
    reversed_heads = [s[::-1] for s in arrays]
    want = attention_grid([arrays], [arrays])
    np.testing.assert_array_equal(attention_grid([reversed_heads], [arrays]), want)
    for s in arrays:
        s.flags.writeable = False
    np.testing.assert_array_equal(attention_grid([arrays], [arrays]), want)


@pytest.mark.parametrize("measure", MEASURES)
def test_inputs_are_not_modified(measure):
    a = attention(WORDS, HEADS)
    before = [[s.clone() for s in layer] for layer in a]
    attention_grid(a, measure=measure, causal=True)
    distributed_attention(a[0], causal=True)
    for layer, kept in zip(a, before, strict=True):
        assert all(torch.equal(s, k) for s, k in zip(layer, kept, strict=True))


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cross", [False, True])
def test_repetition_and_threads_are_bit_equal(cross, dtype, measure):
    a = attention((40, 3, 17), HEADS, dtype)
    b = attention((40, 3, 17), (2, 5), dtype, seed=1) if cross else None
    torch.set_num_threads(1)
    want = attention_grid(a, b, measure=measure)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        for _ in range(3):
            assert torch.equal(attention_grid(a, b, measure=measure), want)


def least_memory(*arguments, **options):
    """What the operator says it needs at least."""
    with pytest.raises(ValueError, match="max_memory: wanted at least") as caught:
        attention_grid(*arguments, max_memory=1, **options)
    return int(re.search(r"at least (\d+)", str(caught.value)).group(1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_memory_limit_does_not_matter(dtype, measure, causal):
    """The least memory holds one row of every head, so sentences are cut in the middle."""
    a = attention((40, 3, 17), HEADS, dtype)
    options = {"measure": measure, "causal": causal}
    want = attention_grid(a, **options)
    least = least_memory(a, **options)
    with pytest.raises(ValueError, match="max_memory"):
        attention_grid(a, max_memory=least - 1, **options)
    for limit in (least, 2 * least, 2**21 + least, 2**33):
        tolerance.assert_same(attention_grid(a, max_memory=limit, **options), want, dtype)


def test_an_entry_depends_on_its_pair_only():
    a = attention(WORDS, HEADS)
    grid = attention_grid(a)
    order = [2, 0, 1]
    shuffled = attention_grid([a[i] for i in order])
    tolerance.assert_same(shuffled, grid[order][:, order], torch.float64)
    tolerance.assert_same(attention_grid(a[1:2], a[2:]), grid[1:2, 2:], torch.float64)
    tolerance.assert_same(attention_grid(a, a), grid, torch.float64)


def test_progress_changes_nothing_and_is_shown(capfd):
    a = attention(WORDS, HEADS)
    want = attention_grid(a)
    assert capfd.readouterr() == ("", "")
    assert torch.equal(attention_grid(a, progress=True), want)
    shown = capfd.readouterr()
    assert "100%" in shown.err
    assert not shown.out
