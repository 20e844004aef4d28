"""Ctrl-C ends what takes long, and soon: one child, interrupted in one call after the other."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to a child")

_CHILD = """
import signal, sys, time, torch, wsfast
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
torch.set_num_threads(1)
def text(n, d):
    return torch.nn.functional.normalize(torch.randn(n, d), dim=1) * d**0.5
X, long, W, E = text(200, 384), text(12_000, 384), wsfast.random_weights(384), text(30_000, 384)
calls = {
    "random_weights": lambda: wsfast.random_weights(12_000),
    "features of long texts": lambda: [wsfast.raf_features(long, W) for _ in range(9)],
    "features of V": lambda: wsfast.rf_features(X, k=100_000),
    "a search": lambda: wsfast.raf_sensitivity(long[:512], W, max_steps=9999, tol=0),
    "a vocabulary": lambda: wsfast.substitution_sensitivity(X, E, W, draws=None, full=True),
}
for name in sys.argv[1:]:
    print("ready", flush=True)
    try:
        while True:
            calls[name]()
    except KeyboardInterrupt:
        print(time.time(), flush=True)
"""
NAMES = ("random_weights", "features of long texts", "features of V", "a search", "a vocabulary")


def test_ctrl_c_is_answered_soon():
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD, *NAMES], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        try:
            for name in NAMES:
                assert child.stdout.readline() == "ready\n"
                time.sleep(0.3)
                sent = time.time()
                child.send_signal(signal.SIGINT)
                assert float(child.stdout.readline()) - sent < 1.5, name
        finally:
            child.kill()
