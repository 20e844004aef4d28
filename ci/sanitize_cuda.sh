#!/usr/bin/env bash
# Compiles the CUDA kernels for the CPU with sanitizers, over tests/cuda_on_cpu/include, and runs tests/cuda_on_cpu/driver,
# which calls every kernel, in each order of blocks and threads: first AddressSanitizer with UndefinedBehaviorSanitizer,
# then ThreadSanitizer. The results must not depend on the order.
# Needs a C++20 compiler with the sanitizers' libraries (CXX); MAX_JOBS bounds the processes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export ASAN_OPTIONS=detect_leaks=0 # kernels allocate nothing
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:atexit_sleep_ms=0

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
export build
jobs=${MAX_JOBS:-$(nproc)}

compile() { # OBJECTS FLAGS SOURCE: an object in the folder OBJECTS
  # shellcheck disable=SC2086  # flags are words
  ${CXX:-g++} -std=c++20 -O1 -g1 -fopenmp-simd -Wall -Wextra -Wno-unknown-pragmas -Wno-unused-function \
    -DWSFAST_CUDA_ON_CPU -Itests/cuda_on_cpu/include -Icsrc $2 -x c++ -c "$3" -o "$1/$(basename "$3").o"
}
run() { # PROGRAM ORDER
  local log=$build/$2.log
  CUDA_ON_CPU_ORDER=$2 "$1" >"$log" 2>&1 && return
  cat "$log"
  echo "FAILED: order $2; lines that the sanitizer did not find:"
  sed -n '/:[0-9]* (/!s/^ *#.*[(/]driver+\(0x[0-9a-f]*\)).*/\1/p' "$log" | head -2 |
    addr2line -ifCe "$1"
  exit 1
}
export -f compile run

each() { # FUNCTION ARGUMENT...: runs FUNCTION ARGUMENT... LINE for every line of the input
  xargs -P "$jobs" -I{} bash -euo pipefail -c '"$@"' - "$@" {}
}

# The yardstick; ci/sanitize.sh has it under the sanitizers.
mkdir "$build/cpu"
printf '%s\n' csrc/cpu/{kernels_baseline,random_baseline,dispatch,isa,threads}.cpp | each compile "$build/cpu" ""
for sanitizers in address,undefined thread; do
  echo "== sanitizers: $sanitizers"
  mkdir "$build/$sanitizers"
  flags="-fsanitize=$sanitizers -fno-sanitize-recover=all"
  printf '%s\n' csrc/cuda/*.cu tests/cuda_on_cpu/driver/*.cpp |
    each compile "$build/$sanitizers" "$flags"
  # shellcheck disable=SC2086
  ${CXX:-g++} $flags -pthread "$build"/{cpu,"$sanitizers"}/*.o -o "$build/$sanitizers/driver"
  printf '%s\n' up down random warp | each run "$build/$sanitizers/driver"
  sort -u "$build"/*.log
  [[ $(sort -u "$build"/*.log | wc -l) == 1 ]] || { echo "results depend on the order"; exit 1; }
done
