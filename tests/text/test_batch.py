"""Texts of a list in groups of one length."""

from __future__ import annotations

import random

import torch

from wsfast.results.embedded import Embedded
from wsfast.text import batch


def embedded(n, d=4):
    return Embedded("", [""] * n, torch.zeros(n, d), [], [], [], "model", 0)


def test_groups_have_one_length_and_lose_no_text():
    chance = random.Random(0)
    texts = [(key, embedded(chance.choice([3, 5, 8, 200]))) for key in range(100)]
    groups = list(batch.by_length(iter(texts)))
    assert sorted(key for group in groups for key, _ in group) == list(range(100))
    for group in groups:
        assert len({len(text) for _, text in group}) == 1
        assert len(group) <= (1 if len(group[0][1]) == 200 else 16)
    assert max(map(len, groups)) == 16


def test_few_numbers_wait_for_others(monkeypatch):
    monkeypatch.setattr(batch, "_WAITING", 100)
    waiting, seen = 0, []

    def texts():
        nonlocal waiting
        for key in range(60):
            text = embedded(1 + key % 7)
            waiting += text.X.numel()
            seen.append(waiting)
            yield key, text

    keys = []
    for group in batch.by_length(texts()):
        waiting -= sum(text.X.numel() for _, text in group)
        keys += [key for key, _ in group]
    assert sorted(keys) == list(range(60))
    assert max(seen) <= 100 + 7 * 4
