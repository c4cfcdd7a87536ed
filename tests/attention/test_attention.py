"""Attention grids: values against the twin and closed forms, and the operator's registration."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simcore import attention_grid, cka_grid, distributed_attention, reference
from simcore._ops.attention import attention_similarity
from support import tolerance
from support.cases import DTYPES, HALVES, attention, exact_attention
from support.operators import opcheck

MEASURES = ("js", "pearson", "frobenius")
WORDS = (5, 1, 17, 2, 32, 1)
LONG = (300, 3)  # more than a block of columns in one row
HEADS = (4, 1, 3)
OTHER_HEADS = (2, 5)


def twin(a, b=None, **options):
    return reference.attention_grid(
        exact_attention(a), None if b is None else exact_attention(b), **options
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("dtype", DTYPES + HALVES, ids=str)
@pytest.mark.parametrize("cross", [False, True])
def test_agrees_with_the_twin(cross, dtype, measure, causal):
    a = attention(WORDS, HEADS, dtype)
    b = attention(WORDS, OTHER_HEADS, dtype, seed=1) if cross else None
    options = {"measure": measure, "causal": causal}
    got = attention_grid(a, b, **options)
    assert got.dtype == torch.float64
    tolerance.assert_attention(got, twin(a, b, **options), dtype)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_long_sentences(dtype, measure):
    a = attention(LONG, (2, 3), dtype)
    tolerance.assert_attention(attention_grid(a, measure=measure), twin(a, measure=measure), dtype)


@given(
    words=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    heads=st.lists(st.integers(1, 10), min_size=1, max_size=3),
    measure=st.sampled_from(MEASURES),
    causal=st.booleans(),
    seed=st.integers(0, 9),
)
def test_any_shape_agrees_with_the_twin(words, heads, measure, causal, seed):
    a = attention(tuple(words), tuple(heads), torch.float32, seed=seed)
    got = attention_grid(a, measure=measure, causal=causal)
    tolerance.assert_attention(got, twin(a, measure=measure, causal=causal), torch.float32)


def one_hot(t, shift):
    """One head in which word i attends to word i + shift alone."""
    return torch.roll(torch.eye(t, dtype=torch.float64), shift, dims=1)[None]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_without_a_common_word(dtype):
    a, b = ([[one_hot(t, shift).to(dtype) for t in (4, 9)]] for shift in (0, 1))
    want = {
        "js": 1 - math.log(2),
        "frobenius": 1 - (math.sqrt(8) + math.sqrt(18)) / 2,
        "pearson": (4 * (-1 / 3) + 9 * (-1 / 8)) / 13,
    }
    for measure, value in want.items():
        got = attention_grid(a, b, measure=measure)
        tolerance.assert_attention(got, np.array([[value]]), dtype)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("dtype", DTYPES + HALVES, ids=str)
def test_equal_heads_give_exactly_one(dtype, measure):
    """Not only on the diagonal of a grid, where it could be had by definition."""
    a = attention((7, 32, 5), (3, 4), dtype)[1:]  # no constant rows
    copy = [[sentence.clone() for sentence in a[0]]]
    ones = np.ones((1, 1))
    for got in (attention_grid(a, measure=measure), attention_grid(a, copy, measure=measure)):
        if measure == "pearson":
            tolerance.assert_attention(got, ones, dtype)
            assert float(got) <= 1
        else:
            np.testing.assert_array_equal(got, ones)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("distance", [1e-2, 1e-4, 1e-6])
def test_nearly_equal_heads_do_not_cancel(distance, measure):
    """The divergence is a difference of entropies near 3; its own size is about distance^2."""
    a = attention((32, 20), (1, 3), torch.float64)[1:]
    generator = torch.Generator().manual_seed(0)
    noise = [torch.randn(s.shape, generator=generator, dtype=s.dtype) for s in a[0]]
    b = [[s * (1 + distance * e) for s, e in zip(a[0], noise, strict=True)]]
    a, b = ([[s.float() for s in layer] for layer in side] for side in (a, b))
    got = attention_grid(a, b, measure=measure)
    tolerance.assert_attention(got, twin(a, b, measure=measure), torch.float32)
    assert float(got) <= 1


def test_mean_over_heads_of_a_of_max_over_heads_of_b():
    p, q = one_hot(6, 0), one_hot(6, 1)
    both, first = [torch.cat([p, q])], [p]
    far = 1 - math.log(2)
    got = attention_grid([both, first])
    tolerance.assert_close(got, np.array([[1.0, (1 + far) / 2], [1.0, 1.0]]), torch.float64)


@pytest.mark.parametrize("measure", MEASURES)
def test_order_of_heads_does_not_matter(measure):
    a = attention(WORDS, HEADS)
    shuffled = [[s.flip(0) for s in layer] for layer in a]
    got, want = attention_grid(shuffled, measure=measure), attention_grid(a, measure=measure)
    tolerance.assert_same(got, want, torch.float64)


def test_one_word_and_constant_rows_have_correlation_zero():
    constant = torch.full((2, 7, 7), 0.1, dtype=torch.float32)
    single = torch.ones(2, 1, 1)
    assert float(attention_grid([[constant, single]], measure="pearson")) == 0
    half = constant.clone()
    half[:, :3] = torch.eye(7)[:3]
    tolerance.assert_attention(
        attention_grid([[half, single]], measure="pearson"), np.array([[3 / 8]]), torch.float32
    )


@pytest.mark.parametrize("tiny", [0.0, 1e-42, 1e-38, 1e-30])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_zeros_and_tiny_weights(dtype, tiny):
    weights = attention((9,), (2, 2), dtype)
    a = [[torch.where(s == 0, tiny, s).to(dtype) for s in layer] for layer in weights]
    got = attention_grid(a)
    tolerance.assert_attention(got, twin(a), dtype)
    if tiny == 0:
        assert any(bool((s == 0).any()) for layer in a for s in layer)


def test_one_float64_layer_makes_everything_float64():
    a = attention(WORDS, HEADS, torch.float32)
    a[1] = [s.double() for s in a[1]]
    tolerance.assert_attention(attention_grid(a), twin(a), torch.float64)


@pytest.mark.parametrize("measure", MEASURES)
def test_causal_is_the_renormalised_lower_triangle(measure):
    a = attention(WORDS, HEADS)
    lower = [[s.tril() / s.tril().sum(-1, keepdim=True).clamp(min=1e-300) for s in l] for l in a]
    got, want = (
        attention_grid(a, measure=measure, causal=True),
        attention_grid(lower, measure=measure),
    )
    tolerance.assert_same(got, want, torch.float64)


def test_causal_reads_nothing_above_the_diagonal():
    a = attention(WORDS, HEADS)
    want = attention_grid(a, causal=True), distributed_attention(a[0], causal=True)
    for layer in a:
        for s in layer:
            s += torch.full_like(s, math.nan).triu(1)
    np.testing.assert_array_equal(attention_grid(a, causal=True), want[0])
    np.testing.assert_array_equal(distributed_attention(a[0], causal=True), want[1])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES + HALVES, ids=str)
def test_distributed_agrees_with_the_twin(dtype, causal):
    layer = attention(WORDS, HEADS, dtype)[0]
    got = distributed_attention(layer, causal=causal)
    (rows,) = exact_attention([layer])
    pairs = sum(t * (t + 1) // 2 if causal else t * t for t in WORDS)
    assert got.shape == (pairs, HEADS[0])
    assert got.dtype == torch.float64
    tolerance.assert_close(got, reference.distributed_attention(rows, causal=causal), torch.float64)


def test_distributed_attention_is_a_representation():
    layers = [distributed_attention(layer) for layer in attention(WORDS, (4, 3))]
    want = reference.cka_grid([layer.numpy() for layer in layers])
    tolerance.assert_close(cka_grid(layers), want, torch.float64)


def flat(layers):
    return [sentence for layer in layers for sentence in layer]


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cross", [False, True])
def test_opcheck(cross, dtype, measure):
    words = (3, 1)
    b = flat(attention(words, OTHER_HEADS, dtype, seed=1)) if cross else []
    arguments = (flat(attention(words, HEADS, dtype)), b, words, measure, False, 0)
    whole = cross and dtype == torch.float64 and measure == "js"
    opcheck(attention_similarity.default, arguments, whole)


def test_fake_tensors_give_shapes_without_computing():
    with torch._subclasses.FakeTensorMode():
        x, y = [torch.empty(2, 3, 3)] * 6, [torch.empty(4, 3, 3)] * 4
        grid, rows_off = attention_similarity(x, y, [3, 3], "js", False, 0)
    assert (grid.shape, grid.dtype) == ((3, 2), torch.float64)
    assert (rows_off.shape, rows_off.dtype) == ((5,), torch.int64)


def test_compiles_whole():
    def similarity(x):
        return attention_similarity([s.softmax(-1) for s in x], [], [3, 4], "js", False, 0)[0] * 2

    torch.compiler.reset()
    x = flat(attention((3, 4), (2, 2), torch.float32))
    compiled = torch.compile(similarity, fullgraph=True, backend="aot_eager")
    tolerance.assert_same(compiled(x), similarity(x), torch.float32)
