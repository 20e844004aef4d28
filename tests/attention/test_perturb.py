"""perturb: X with one word moved."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wsfast import perturb


def test_moves_one_word():
    X = torch.arange(6.0).reshape(3, 2)
    delta = torch.tensor([10.0, 20.0])
    moved = perturb(X, 1, delta)
    assert torch.equal(moved, torch.tensor([[0.0, 1.0], [12.0, 23.0], [4.0, 5.0]]))
    assert torch.equal(X, torch.arange(6.0).reshape(3, 2))


def test_batch_with_one_or_many_deltas():
    X = torch.zeros(2, 3, 2)
    one = perturb(X, 2, torch.tensor([1.0, 2.0]))
    assert one[:, 2].tolist() == [[1, 2], [1, 2]]
    assert one[:, :2].abs().sum() == 0
    many = perturb(X, 0, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert many[:, 0].tolist() == [[1, 2], [3, 4]]


def test_list_stays_a_list():
    moved = perturb([np.zeros((1, 2)), np.zeros((3, 2))], 0, np.ones(2))
    assert isinstance(moved, list)
    assert [text.shape for text in moved] == [(1, 2), (3, 2)]
    assert all(isinstance(text, np.ndarray) and text[0].tolist() == [1, 1] for text in moved)


def test_numpy_stays_numpy_and_half_becomes_float32():
    assert isinstance(perturb(np.zeros((2, 3), "f4"), 1, np.ones(3, "f4")), np.ndarray)
    X = torch.zeros(2, 3, dtype=torch.float16)
    assert perturb(X, 1, torch.ones(3, dtype=torch.float16)).dtype == torch.float32


def test_differentiable():
    X = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    delta = torch.ones(2, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda X, delta: perturb(X, 1, delta), (X, delta))


@pytest.mark.parametrize("position", [-1, 3])
def test_position_out_of_range(position):
    with pytest.raises(ValueError, match=f"position must be from 0 to 2, got {position}"):
        perturb(torch.zeros(3, 2), position, torch.ones(2))


def test_position_of_the_shortest_text():
    with pytest.raises(ValueError, match="position must be from 0 to 1"):
        perturb([torch.zeros(3, 2), torch.zeros(2, 2)], 2, torch.ones(2))
