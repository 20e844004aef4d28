"""What tests of waiting rely on: it is found, and nothing else is."""

from __future__ import annotations

import pytest
import torch
from cuda.waits import no_waits

WAITING = {
    "item": lambda x, mask: x[0, 0].item(),
    "bool": lambda x, mask: bool((x > 1).any()),
    "tolist": lambda x, mask: x.tolist(),
    "cpu": lambda x, mask: x.cpu(),
    "nonzero": lambda x, mask: mask.nonzero(),
    "where": lambda x, mask: torch.where(mask),
    "mask": lambda x, mask: x[mask],
    "put": lambda x, mask: x.index_put((mask,), x[0, 0]),
    "unique": lambda x, mask: x.unique(),
    "equal": lambda x, mask: torch.equal(x, x + 1),
    "from the host": lambda x, mask: torch.tensor([1.0, 2.0], device=x.device),
    "of a list": lambda x, mask: x[[0, 1]],
    "repeat": lambda x, mask: x[0].repeat_interleave(torch.ones_like(x[0], dtype=torch.int64)),
    "cholesky": lambda x, mask: torch.linalg.cholesky(x @ x.mT + torch.eye(2, device=x.device)),
}


@pytest.mark.parametrize("name", WAITING)
def test_waits(device, name):
    x = torch.randn(2, 3, device=device)
    mask = x > 0
    WAITING[name](x, mask)
    with pytest.raises(AssertionError, match="waits for the device"), no_waits(x.device):
        WAITING[name](x, mask)
    WAITING[name](x, mask)  # as before


def test_does_not_wait(device):
    x = torch.randn(4, 3, device=device)
    numbers = torch.arange(3, device=device)
    with no_waits(x.device):
        y = x[1:].new_zeros(3, 3).index_put_((numbers,), x[numbers])
        y = torch.where(y > 0, y, 0.0).masked_fill(y > 2, 1.0).topk(2).values
        y.fill_(1.0).clamp(max=x.amax()).scatter_reduce(0, numbers[:1, None], x[:1, :1], "amax")
        (x @ x.mT).split([1, 3])
