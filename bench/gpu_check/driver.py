"""Launches every CUDA kernel at small sizes, for compute-sanitizer.

``python -m bench.gpu_check.driver`` with PYTORCH_NO_CUDA_MEMORY_CACHING=1: each tensor then has an
allocation of its own, whose ends are seen. Ends with the line "driver: done". With ``--planted`` it
reads beyond an array instead, which the sanitizer has to find.
"""

from __future__ import annotations

import argparse

import torch

import wsfast
from wsfast.engines import compiled

from .machine import choose_device

WEIGHT_FNS = (("softmax", True), ("relu", True), ("relu", False))
DTYPES = (torch.float32, torch.float64)
# One of each kernel of features, with rows, words and columns that fill no tile.
FEATURES = ((17, 40), (33, 390), (5, 800), (3, 1030))


def features(device: torch.device) -> None:
    for n, d in FEATURES:
        for dtype in (*DTYPES, torch.bfloat16):
            X = torch.randn(2, n, d, device=device).to(dtype)
            W = torch.randn(d, d, device=device, dtype=X.dtype).to(
                torch.float32 if dtype == torch.bfloat16 else dtype
            )
            mask = torch.arange(n, device=device) % 3 != 0
            for fn, normalize in WEIGHT_FNS if d < 100 else WEIGHT_FNS[:1]:
                for masked in (None, mask.expand(2, n)):
                    wsfast.raf_features(
                        X, W / d**0.5, weight_fn=fn, normalize=normalize, mask=masked,
                        backend="native",
                    )  # fmt: skip


def searches(device: torch.device) -> None:
    """Norms, the ascent and the search over a vocabulary."""
    n, d = 19, 12
    for dtype in DTYPES:
        X, E = (torch.randn(m, d, device=device, dtype=dtype) for m in (n, 70))
        X[n // 2] *= 4  # some rows have one word that counts
        W = torch.randn(d, d, device=device, dtype=dtype)
        delta = torch.randn(3, d, device=device, dtype=dtype)
        choice = torch.rand(n, len(E), device=device) > 0.5
        for fn, normalize in WEIGHT_FNS:
            options = {"weight_fn": fn, "normalize": normalize, "backend": "native"}
            wsfast.raf_delta_norms(X, W, delta, **options)
            wsfast.raf_sensitivity(X, W, max_steps=5, starts=1, positions=[0, 9, 18], **options)
            for candidates in (None, choice):
                wsfast.substitution_sensitivity(X, E, W, candidates=candidates, **options)


def read_beyond(device: torch.device) -> None:
    """Tell a kernel of one row more than there is."""
    rows, shift = torch.randn(4, 8, device=device), torch.zeros(8, device=device)
    centred, norm2 = torch.empty(5, 8, device=device), torch.empty(5, device=device)
    compiled.kernels(device).launch(
        "centre_rows",
        dtype=rows.dtype,
        rows=len(rows) + 1,
        d=rows.shape[1],
        given=rows.data_ptr(),
        shift=shift.data_ptr(),
        centred=centred.data_ptr(),
        norm2=norm2.data_ptr(),
    )
    torch.cuda.synchronize()


def record_launches(seen: set[str]) -> None:
    """Note in `seen` what is launched."""
    launch = compiled.Kernels.launch

    def noted(kernels: compiled.Kernels, name: str, *args, dtype=None, **named) -> None:
        seen.add(compiled.variant(name, dtype))
        launch(kernels, name, *args, dtype=dtype, **named)

    compiled.Kernels.launch = noted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--planted", action="store_true")
    given = parser.parse_args()
    device = choose_device(dry_run=given.dry_run)
    torch.manual_seed(0)
    if given.planted:
        read_beyond(device)
        return
    seen: set[str] = set()
    record_launches(seen)
    features(device)
    searches(device)
    module = compiled.kernels(device).module
    kernels = {
        name
        for name in dir(module)
        if name[0].islower() and name not in ("architectures", "compiler")
    }
    if missing := kernels - seen:
        raise SystemExit(f"driver: never launched: {sorted(missing)}")
    if device.type == "cuda":
        torch.cuda.synchronize()
    print("driver: done")


if __name__ == "__main__":
    main()
