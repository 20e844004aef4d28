"""What an install without the compiled module must still do; .ci/run runs this in one."""

from __future__ import annotations

import warnings

import torch

with warnings.catch_warnings():
    warnings.simplefilter("error")
    import wsfast

from wsfast.engines import compiled

X = torch.randn(6, 16, generator=torch.Generator().manual_seed(0))

assert compiled.CPU.module is None
assert "C++17 compiler" in compiled.CPU.reason, compiled.CPU.reason
wsfast.show_config()

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    chosen = wsfast.raf_sensitivity(X)
    wsfast.raf_sensitivity(X)
ours = [str(entry.message) for entry in caught if "compiled module" in str(entry.message)]
assert len(ours) == 1, ours
print(f"warned once: {ours[0]}")

with warnings.catch_warnings():
    warnings.simplefilter("error")
    asked = wsfast.raf_sensitivity(X, backend="torch")
assert float(asked) == float(chosen) > 0

try:
    wsfast.raf_sensitivity(X, backend="native")
except RuntimeError as error:
    refusal = str(error)
else:
    refusal = ""
assert "C++17 compiler" in refusal, "backend='native' did not say what it lacks"
print(f"S = {float(asked):.4f} through PyTorch alone")
