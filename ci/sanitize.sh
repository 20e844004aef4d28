#!/usr/bin/env bash
# Compiles the kernels with sanitizers and runs tests/native/driver.cpp, which calls every kernel at every
# instruction set of the machine: first AddressSanitizer with UndefinedBehaviorSanitizer, then ThreadSanitizer.
# Needs CMake, Ninja and a compiler with the sanitizers' libraries; MAX_JOBS bounds the compilers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_init_order=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
for sanitizers in address,undefined thread; do
  echo "== sanitizers: $sanitizers"
  cmake -S . -B "$build/$sanitizers" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DWSFAST_DRIVER=ON -DWSFAST_SANITIZE="$sanitizers" >"$build/configure.log" ||
    { cat "$build/configure.log"; exit 1; }
  cmake --build "$build/$sanitizers" -j "${MAX_JOBS:-$(nproc)}"
  "$build/$sanitizers/wsfast_driver"
done
