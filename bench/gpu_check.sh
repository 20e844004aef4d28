#!/usr/bin/env bash
# All checks that need a GPU, in one run of at most a few minutes: builds wsfast with its CUDA kernels in an environment
# of its own, without network; runs tests/cuda, the benchmark table, and compute-sanitizer's four tools.
#
#   bash bench/gpu_check.sh [--out DIR] [--minutes 6] [--dry-run] [--without-sanitizer]
#
# DIR (build/gpu_check by default) gets the logs and figures.json. The short table comes last; the exit status is 0 only
# where all stages passed and all sticks were met. A compute-sanitizer that is missing or refuses the device is a
# failure too, unless --without-sanitizer says that this is known.
#
# --dry-run runs the same tests, benchmarks and driver over the kernels compiled for the CPU (tests/cuda_on_cpu), at
# tiny sizes, with the wsfast that is installed, in at most 15 minutes. It needs no GPU, and gives no figure of one.
#
# Needs PyTorch for CUDA, nvcc, CMake, Ninja, setuptools, pybind11, pytest and hypothesis; PYTHON names the interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$PWD

usage() {
  sed -n '5s/^# *//p' "$ROOT/bench/gpu_check.sh"
}

die() {
  echo "gpu_check: $*" >&2
  exit 2
}

OUT=$ROOT/build/gpu_check
MINUTES=
DRY_RUN=
SANITIZE=1
while (($# > 0)); do
  case $1 in
    --out) OUT=${2:?--out needs a folder}; shift ;;
    --minutes) MINUTES=${2:?--minutes needs a number}; shift ;;
    --dry-run) DRY_RUN=--dry-run ;;
    --without-sanitizer) SANITIZE= ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; die "unknown argument $1" ;;
  esac
  shift
done
MINUTES=${MINUTES:-${DRY_RUN:+15}}
MINUTES=${MINUTES:-6}
[[ $MINUTES =~ ^[1-9][0-9]*$ ]] || die "--minutes: expected a whole number, got $MINUTES"

mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
rm -f "$OUT"/{build,tests,figures,driver,memcheck,racecheck,initcheck,synccheck}.log "$OUT/figures.json"
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
STAGES=$WORK/stages.tsv
BASE=$(command -v "${PYTHON:-python3}") || die "there is no ${PYTHON:-python3}"
PY=$BASE
HERE=$ROOT # what tests and benchmarks run from
export PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1 LC_ALL=C.UTF-8

# -- stages ----------------------------------------------------------------------------------------

# stage NAME LATER: run the function NAME in all the time that is left but LATER percent of the whole, for later ones.
# A stage that fails stops no other but the build.
stage() {
  local name=$1 start=$SECONDS verdict=passed status=0
  limit=$((MINUTES * 60 * (100 - $2) / 100 - SECONDS))
  printf '\n== %s, at most %d s\n' "$name" "$limit"
  if ((limit > 0)); then
    "$name" || status=$?
    case $status in
      0) ;;
      124 | 137) verdict="stopped after $limit s" ;;
      *) verdict="failed with status $status" ;;
    esac
  else
    verdict="no time was left" status=124
  fi
  record "$name" "$verdict" $((SECONDS - start))
  return "$status"
}

record() { # stage, verdict, seconds
  printf '%s\t%s\t%d\n' "$1" "$2" "$3" >>"$STAGES"
  echo "$1: $2"
}

limited() { # log command...: within the stage's time; the end of the log where it fails
  local log=$OUT/$1 status=0
  shift
  timeout -k 5 "$limit" "$@" >>"$log" 2>&1 || status=$?
  ((status == 0)) || tail -n 40 "$log"
  return "$status"
}

build() {
  limited build.log bash -euo pipefail -c "$(declare -f install); install \"\$@\"" install "$ROOT" "$WORK" "$BASE"
}

install() { # in a shell of its own: root, work folder, interpreter
  local root=$1 work=$2 base=$3 venv=$2/venv
  nvidia-smi
  "$base" -c 'import torch; print(torch.__version__, torch.cuda.get_device_name())'
  "$base" -m pip --version
  # Setuptools builds in the tree: in a copy of it, which no module built before is in.
  mkdir "$work/source"
  cp -r "$root"/{CMakeLists.txt,LICENSE,MANIFEST.in,README.md,csrc,pyproject.toml,setup.py,wsfast} "$work/source"
  rm -f "$work"/source/wsfast/_c{pu,uda}{*.so,_missing.txt}
  # An environment may itself be a virtual one: its packages are borrowed by path.
  "$base" -m venv --without-pip "$venv"
  "$base" -c 'import sys; print(*(p for p in sys.path if p.endswith("-packages")), sep="\n")' \
    >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth"
  PATH=$(dirname "$base"):$PATH WSFAST_NATIVE=1 WSFAST_CUDA=1 "$venv/bin/python" -m pip install -v \
    --no-index --no-build-isolation --no-deps --ignore-installed "$work/source"
  # Away from the source tree, which a Python started there would import uncompiled.
  mkdir "$work/away"
  cp -r "$root"/{tests,bench,pyproject.toml} "$work/away"
  cd "$work/away"
  "$venv/bin/python" -c 'from wsfast.engines import compiled; compiled.CPU.require(); compiled.CUDA.require()'
  "$venv/bin/python" -m wsfast
}

tests() {
  local mode=() require=cuda,native
  if [[ $DRY_RUN ]]; then
    mode=(--cuda-on-cpu) require=cuda_on_cpu,native
  fi
  # Plugins of the environment are no part of the tests, nor is what some versions of PyTorch say about TF32.
  PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 WSFAST_REQUIRE=$require limited tests.log "$PY" -m pytest -q -m "" \
    -p no:cacheprovider --durations=15 -W 'ignore:Please use the new API settings' "${mode[@]}" tests/cuda ||
    return
  tail -n 1 "$OUT/tests.log"
}

figures() {
  limited figures.log "$PY" -m bench.gpu_check.figures --out "$OUT/figures.json" \
    --seconds $((limit * 3 / 4)) ${DRY_RUN:+"$DRY_RUN"}
}

# -- compute-sanitizer -----------------------------------------------------------------------------

sanitizers() {
  local tool=compute-sanitizer status=0 name
  if [[ $DRY_RUN ]]; then
    limited driver.log "$PY" -m bench.gpu_check.driver --dry-run
    return
  fi
  if ! command -v "$tool" >/dev/null; then
    tool=${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer
    [[ -x $tool ]] || { echo "compute-sanitizer: not found" | tee "$OUT/memcheck.log"; return 1; }
  fi
  # All at once: most of their time is that of the host.
  local pids=() pid
  for name in memcheck racecheck initcheck synccheck planted; do
    judge "$tool" "$name" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || status=$?
  done
  return "$status"
}

judge() { # program, tool: it finds nothing in the kernels of wsfast, but for "planted" what is there
  local log=$OUT/$2.log status=0 summary
  if [[ $2 == planted ]]; then
    sanitized "$1" memcheck --planted >"$WORK/planted.log" || true
    grep -A 1 'Invalid __global__ read' "$WORK/planted.log" | grep -q wsfast && return
    echo "memcheck: does not see a planted fault"
    tail -n 30 "$WORK/planted.log"
    return 1
  fi
  sanitized "$1" "$2" >"$log" || status=$?
  summary=$(grep ' SUMMARY: ' "$log" | tail -n 1) || status=${status/#0/1}
  grep -q '^driver: done' "$log" || status=${status/#0/1}
  if [[ $2 == initcheck ]] && grep -A 1 'Uninitialized' "$log" | grep -q wsfast; then
    status=9
  fi
  echo "$2: status $status, ${summary:-no summary}"
  ((status == 0)) || head -n 30 "$log"
  return "$status"
}

sanitized() { # program, tool, options of the driver
  local command=("$1" --tool "$2" --report-api-errors no --print-limit 10000)
  # Kernels of libraries are left alone, but for what they write: initcheck has to see it.
  if [[ $2 != initcheck ]]; then
    local filter=--kernel-regex # of older versions
    [[ $("$1" --help) != *--kernel-name* ]] || filter=--kernel-name
    command+=("$filter" kns=wsfast --error-exitcode 9)
  fi
  PYTORCH_NO_CUDA_MEMORY_CACHING=1 timeout -k 5 "$limit" "${command[@]}" \
    "$PY" -m bench.gpu_check.driver "${@:3}" 2>&1
}

# -- all of it -------------------------------------------------------------------------------------

run_stages() {
  if [[ $DRY_RUN ]]; then
    echo "DRY RUN ON A CPU: NO FIGURE HERE IS ONE OF A GPU"
    "$PY" -m wsfast | tee "$OUT/build.log"
  else
    stage build 70 || return 0
    PY=$WORK/venv/bin/python HERE=$WORK/away
    cd "$HERE"
  fi
  export PYTHONPATH=$HERE${PYTHONPATH:+:$PYTHONPATH}
  stage tests 50 || true
  stage figures 30 || true
  if [[ $SANITIZE ]]; then
    stage sanitizers 0 || true
  else
    record sanitizers "left out" 0
  fi
}

run_stages
cd "$ROOT"
"$BASE" bench/gpu_check/report.py "$OUT" "$STAGES"
