#!/usr/bin/env bash
# Compiles the CUDA kernels for the CPU with sanitizers, over tests/cuda_on_cpu/include, and launches all of them
# (bench/gpu_check/driver.py): with AddressSanitizer and UndefinedBehaviorSanitizer, with ThreadSanitizer, and with neither
# in each order of blocks and threads. The results must not depend on the order; so neither do the addresses.
# Needs a C++20 compiler with the sanitizers' libraries (CXX), and an environment with wsfast and its tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export ASAN_OPTIONS=detect_leaks=0 # kernels allocate nothing
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:atexit_sleep_ms=0
jobs=$(nproc)
export OMP_NUM_THREADS=1 # PyTorch's threads are not compiled with sanitizers

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export logs

run() { # LIBRARY ORDER
  LD_PRELOAD=${1:+$(${CXX:-g++} -print-file-name="$1.so")} CUDA_ON_CPU_ORDER=$2 \
    python -m bench.gpu_check.driver --dry-run >"$logs/$1-$2" 2>&1 && return
  cat "$logs/$1-$2"
  echo "FAILED: order $2; lines that the sanitizer did not find:"
  sed -n 's/^ *#0 .*(_cuda[^+]*+\(0x[0-9a-f]*\)).*/\1/p' "$logs/$1-$2" | head -2 |
    addr2line -ifCe build/cuda_on_cpu/"$CUDA_ON_CPU_SANITIZE"/_cuda*.so
  exit 1
}
export -f run

check() { # SANITIZERS LIBRARY ORDER...
  export CUDA_ON_CPU_SANITIZE=$1
  echo "== sanitizers: ${1:-none}"
  python tests/cuda_on_cpu/build.py build/cuda_on_cpu
  printf '%s\n' "${@:3}" | xargs -P "$jobs" -I{} bash -euo pipefail -c 'run "$@"' - "$2" {}
}

check address,undefined libasan random
check thread libtsan up random
check "" "" up down random warp
sort -u "$logs"/*
[[ $(sort -u "$logs"/* | wc -l) == 1 ]] || { echo "results depend on the order"; exit 1; }
