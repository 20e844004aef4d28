#!/usr/bin/env bash
# An inline function compiled for AVX-512 must never be the one that the baseline links to: no object of one
# instruction set may define a symbol that the linker may take for another's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DWSFAST_DRIVER=ON >"$build/configure.log" ||
  { cat "$build/configure.log"; exit 1; }
cmake --build "$build" -j "${MAX_JOBS:-$(nproc)}" --target wsfast_cpu

mapfile -t objects < <(find "$build" -name 'kernels_*.o' -o -name 'random_*.o')
((${#objects[@]} > 1)) || { echo "no kernels_*.o and random_*.o were built" >&2; exit 1; }
for object in "${objects[@]}"; do
  # V, W, u: weak and unique symbols, of which the linker keeps one.
  if shared=$(nm --demangle --defined-only "$object" | grep -E ' [VvWwu] '); then
    printf '%s defines symbols that other objects may share:\n%s\n' "${object##*/}" "$shared" >&2
    exit 1
  fi
  echo "${object##*/}: no shared symbols"
done
