#!/usr/bin/env bash
# Compiles the CUDA kernels for the CPU with sanitizers, over tests/cuda_on_cpu/include, and runs tests/cuda_on_cpu/driver,
# which calls every kernel: first with AddressSanitizer and UndefinedBehaviorSanitizer, then in each order of blocks and
# threads with ThreadSanitizer. The results must not depend on the order; so neither do the addresses.
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
  local log=${1%/*}/$2.log
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

check() { # SANITIZERS ORDER...
  local made=$build/$1 flags="-fsanitize=$1 -fno-sanitize-recover=all"
  echo "== sanitizers: $1"
  mkdir "$made"
  printf '%s\n' csrc/cuda/*.cu tests/cuda_on_cpu/driver/*.cpp | each compile "$made" "$flags"
  # shellcheck disable=SC2086
  ${CXX:-g++} $flags -pthread "$build"/cpu/*.o "$made"/*.o -o "$made/driver"
  printf '%s\n' "${@:2}" | each run "$made/driver"
  sort -u "$made"/*.log
  [[ $(sort -u "$made"/*.log | wc -l) == 1 ]] || { echo "results depend on the order"; exit 1; }
}

# The yardstick; ci/sanitize.sh has it under the sanitizers.
mkdir "$build/cpu"
printf '%s\n' csrc/cpu/{kernels_baseline,random_baseline,dispatch,isa,threads}.cpp | each compile "$build/cpu" ""
check address,undefined random
check thread up down random warp
