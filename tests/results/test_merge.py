"""Token positions merged to whole words."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from wsfast.results.merge import merge_positions

NAN = math.nan


def test_largest_of_each_word():
    per_word = torch.tensor([[1.0, 5.0, 2.0, 3.0]])
    merged, position = merge_positions(per_word, torch.tensor([1]), [[(0, 1), (1, 3), (3, 4)]])
    assert torch.equal(merged, torch.tensor([[1.0, 5.0, 3.0]]))
    assert torch.equal(position, torch.tensor([1]))


def test_batch_with_draws():
    per_word = np.array([[[1, 2, 3, 4], [8, 7, 6, 5]], [[9, 1, NAN, NAN], [2, 3, NAN, NAN]]])
    position = np.array([[3, 0], [0, 1]])
    spans = [[(0, 1), (1, 2), (2, 4)], [(0, 2)]]
    merged, index = merge_positions(per_word, position, spans)
    np.testing.assert_array_equal(merged, [[[1, 2, 4], [8, 7, 6]], [[9, NAN, NAN], [3, NAN, NAN]]])
    np.testing.assert_array_equal(index, [[2, 0], [0, 0]])
    assert index.dtype == np.int64


def test_nan_counts_only_alone():
    per_word = np.array([[1.0, NAN, NAN, NAN]], dtype=np.float32)
    merged, _ = merge_positions(per_word, np.array([0]), [[(0, 2), (2, 4)]])
    np.testing.assert_array_equal(merged, [[1.0, NAN]])
    assert merged.dtype == np.float32


def test_no_position():
    merged, index = merge_positions(np.full((1, 2), NAN), np.array([-1]), [[(0, 2)]])
    np.testing.assert_array_equal(merged, [[NAN]])
    np.testing.assert_array_equal(index, [-1])


@pytest.mark.parametrize(
    "spans",
    [
        [],
        [(0, 2)],
        [(0, 2), (2, 4)],
        [(1, 3)],
        [(0, 1), (2, 3)],
        [(0, 2), (1, 3)],
        [(0, 0), (0, 3)],
    ],
)
def test_spans_must_cover_the_text(spans):
    with pytest.raises(ValueError, match="text 0"):
        merge_positions(np.ones((1, 3)), np.array([0]), [spans])
