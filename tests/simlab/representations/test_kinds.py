"""Pooling of hand-made states and weights, padded on either side."""

import numpy as np
import pytest
import torch

from simlab.representations.kinds import NO_ROW, membership, pool_attention
from support.tolerance import ATTENTION_ROW_SUM

# Two examples: [CLS] a b1 b2 [SEP] and [CLS] c [SEP].
GROUPS = [np.array([NO_ROW, 0, 1, 1, NO_ROW]), np.array([NO_ROW, 0, NO_ROW])]
MASKS = {
    "right": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
    "left": torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]),
}


@pytest.mark.parametrize("side", MASKS)
def test_attention_to_a_word_sums_and_from_a_word_averages(side):
    first = torch.tensor(
        [
            [0.2, 0.2, 0.2, 0.2, 0.2],
            [0.5, 0.1, 0.1, 0.2, 0.1],  # to a .25, to b .75 without the special tokens
            [0.0, 0.2, 0.3, 0.5, 0.0],  # to a .2, to b .8
            [0.6, 0.1, 0.1, 0.0, 0.2],  # to a .5, to b .5
            [0.2, 0.2, 0.2, 0.2, 0.2],
        ]
    )
    weights = torch.full((2, 1, 5, 5), 0.2)
    weights[0, 0] = first
    found = pool_attention(weights, membership(GROUPS, MASKS[side]))[:, 0]
    wanted = torch.tensor([[[0.25, 0.75], [0.35, 0.65]], [[1.0, 0.0], [0.0, 0.0]]])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=ATTENTION_ROW_SUM)


def test_a_row_that_gives_all_to_special_tokens_becomes_uniform():
    weights = torch.zeros(1, 1, 5, 5)
    weights[..., 0] = 1.0
    found = pool_attention(weights, membership(GROUPS[:1], MASKS["right"][:1]))[0, 0]
    third = 1 / 3  # of three sub-words b has two
    np.testing.assert_allclose(found, [[third, 2 * third]] * 2, rtol=0, atol=ATTENTION_ROW_SUM)


def test_a_little_mass_on_words_is_enough():
    weights = torch.zeros(1, 1, 5, 5)
    weights[..., 0] = 1.0
    weights[..., 2] = 1e-30
    found = pool_attention(weights, membership(GROUPS[:1], MASKS["right"][:1]))[0, 0]
    assert found.tolist() == [[0.0, 1.0], [0.0, 1.0]]
