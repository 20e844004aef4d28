"""Launches every CUDA kernel at small sizes, for compute-sanitizer and the compilers' sanitizers.

``python -m bench.gpu_check.driver`` with PYTORCH_NO_CUDA_MEMORY_CACHING=1: each tensor then has an
allocation of its own, whose ends are seen. Ends with the line "driver: done" and a checksum of the
results. With ``--planted`` a kernel reads beyond an array, which the sanitizer has to find.
"""

from __future__ import annotations

import argparse
from hashlib import blake2b
from typing import Any

import torch

import wsfast
from wsfast.engines import compiled

from .machine import choose_device

WEIGHT_FNS = (("softmax", True), ("relu", True), ("relu", False))
DTYPES = (torch.float32, torch.float64)
# Narrow, wide and widest rows and a long text, none of which fills a tile.
FEATURES = ((17, 40), (33, 390), (5, 800), (3, 1030), (257, 8))
# One word, rows that end within a warp and a block, and more than a block of threads.
SEARCHES = ((19, 12), (1, 5), (33, 260), (130, 8))

results = blake2b(digest_size=8)


def keep(result: torch.Tensor) -> None:
    results.update(result.detach().cpu().numpy().tobytes())


def features(device: torch.device) -> None:
    for n, d in FEATURES:
        mask = (torch.arange(n, device=device) % 3 != 0).expand(2, n)
        for dtype in DTYPES:
            X, W = (torch.randn(s, d, device=device, dtype=dtype) for s in (2 * n, d))
            for fn, normalize in WEIGHT_FNS if d < 100 else WEIGHT_FNS[:1]:
                options = {"weight_fn": fn, "normalize": normalize, "backend": "native"}
                for masked in (None, mask):
                    phi = wsfast.raf_features(X.view(2, n, d), W / d**0.5, mask=masked, **options)
                    keep(phi)


def searches(device: torch.device) -> None:
    """Norms, the ascent and the search over a vocabulary."""
    for n, d in SEARCHES:
        positions = sorted({0, n // 2, n - 1})
        for dtype in DTYPES:
            X, E = (torch.randn(m, d, device=device, dtype=dtype) for m in (n, 70))
            X[n // 2] *= 4  # some rows have one word that counts
            W = torch.randn(d, d, device=device, dtype=dtype) * (12 / d) ** 0.5
            delta = torch.randn(1, d, device=device, dtype=dtype)
            choice = torch.rand(n, len(E), device=device) > 0.5
            for fn, normalize in WEIGHT_FNS if n == 19 else WEIGHT_FNS[:1]:
                options = {"weight_fn": fn, "normalize": normalize, "backend": "native"}
                keep(wsfast.raf_delta_norms(X, W, delta, **options))
                for sites in (positions, [tuple(positions)]):
                    found = wsfast.raf_sensitivity(
                        X, W, max_steps=3, starts=1, positions=sites, **options
                    )
                    keep(found.per_word)
                for some in (None, choice):
                    best = wsfast.substitution_sensitivity(X, E, W, candidates=some, **options)
                    keep(best.top_value)


def watch_launches(seen: set[str], *, planted: bool) -> None:
    """Note in `seen` what is launched; `planted`: what should be many words is one of them."""
    launch = compiled.Kernels.launch
    word = torch.randn(64, device="cuda" if planted else "cpu")

    def noted(kernels: compiled.Kernels, name: str, *args: Any, **named: Any) -> None:
        seen.add(compiled.variant(name, named.get("dtype")))
        if planted and "words" in named:
            named["words"] = word.data_ptr()
        launch(kernels, name, *args, **named)

    compiled.Kernels.launch = noted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--planted", action="store_true")
    given = parser.parse_args()
    device = choose_device(dry_run=given.dry_run)
    seen: set[str] = set()
    watch_launches(seen, planted=given.planted)
    features(device)
    if given.planted:
        return
    searches(device)
    module = compiled.kernels(device).module
    kernels = {name for name in dir(module) if "stream:" in (getattr(module, name).__doc__ or "")}
    if missing := kernels - seen:
        raise SystemExit(f"driver: never launched: {sorted(missing)}")
    print("driver: done, checksum", results.hexdigest())


if __name__ == "__main__":
    main()
