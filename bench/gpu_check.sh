#!/usr/bin/env bash
# All checks that need a GPU, in at most 9:30 minutes, without network and without installing anything:
#
#   bash bench/gpu_check.sh [--out DIR] [--dry-run]
#
# DIR (build/gpu_check by default) gets logs, records.jsonl and summary.txt, written as they come; the summary is printed
# last. The exit status is 0 only where all steps passed and all sticks were met. --dry-run runs the same steps in tiny
# sizes over the kernels compiled for the CPU (tests/cuda_on_cpu), with the wsfast that is installed: no figure of it is one
# of a GPU. Needs PyTorch for CUDA, nvcc, CMake, Ninja, pybind11, pytest and hypothesis; PYTHON names the interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ulimit -c 0
PYTHON=$(command -v "${PYTHON:-python3}")
export PATH=$(dirname "$PYTHON"):$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:/usr/local/cuda/bin
export PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1 LC_ALL=C.UTF-8
exec "$PYTHON" -m bench.gpu_check.run "$@"
