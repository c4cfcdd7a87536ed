#!/usr/bin/env bash
# Builds the extension for the GPU that is here and checks it, in two parts of at most 10 minutes, in
# the order in which their answers are wanted:
#
#     tools/gpu_check.sh quick [python]    build, smoke test (tools/gpu_smoke.py), benchmarks, tests
#     tools/gpu_check.sh rest [python]     build, compute-sanitizer, tests of the composed forms, the
#                                          other benchmarks
#     tools/gpu_check.sh all [python]      both
#
# Nothing is built where simcore already finds its kernels: the second part after the first one, or
# libraries that were built elsewhere. Tests and sanitizers take the kernels, or the composed forms,
# whatever a self-check would choose (SIMCORE_KERNELS). Rows name the commit $SIMCORE_COMMIT where
# there is no git.
#
# Offline; needs torch (a CUDA build), numpy, setuptools, ninja, pybind11 and pytest of the Python given.
# Every step runs whatever the others did, and is ended when its time is up. The folder $OUT
# (build/gpu-check without one) gets three files, as the steps go: summary.txt, steps.log, and the rows
# gpu-*.json. GPU_CHECK_SECONDS=N gives every step N seconds. Exit status: 1 where a step failed, 2 without
# a device, or without a toolkit where something is to be built.
set -uo pipefail
cd "$(dirname "$0")/.."
part=${1:-all}
python=${2:-python3}
case $part in quick | rest | all) ;; *)
  echo "gpu-check: wanted quick, rest or all, found $part" >&2
  exit 2
  ;;
esac
out=${OUT:-$PWD/build/gpu-check}
mkdir -p "$out"
out=$(cd "$out" && pwd)
summary=$out/summary.txt
steps=$out/steps.log
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failures=0

# Runs a command as step $1 for at most $2 seconds; notes at once how it ended, and after how many.
# A kernel that hangs ignores the first signal.
step() {
  local name=$1 most=${GPU_CHECK_SECONDS:-$2} log=$logs/$1.log start=$SECONDS status
  shift 2
  echo "== $name: $*" | tee -a "$steps"
  timeout --kill-after=10 "$most" "$@" 2>&1 | tee "$log" | tee -a "$steps"
  status=${PIPESTATUS[0]}
  if [ "$status" = 0 ]; then
    note "$name" "ok" "$start"
  elif [ "$status" = 124 ] || [ "$status" = 137 ]; then
    note "$name" "ended after its $most s" "$start"
    failures=$((failures + 1))
  else
    note "$name" "failed ($status)" "$start"
    failures=$((failures + 1))
  fi
  return "$status"
}
note() { echo "$1: $2, $((SECONDS - $3)) s" | tee -a "$summary"; }

# A toolkit has its compiler and its headers: nvcc on PATH may be a wrapper script without headers.
toolkit() {
  local nvcc folder
  nvcc=$(command -v nvcc || true)
  for folder in "${CUDA_HOME:-}" ${nvcc:+"$(dirname "$(dirname "$(readlink -f "$nvcc")")")"} \
    /usr/local/cuda /usr/local/cuda-*; do
    if [ -x "$folder/bin/nvcc" ] && [ -f "$folder/include/cuda_runtime.h" ]; then
      echo "$folder"
      return 0
    fi
  done
  return 1
}

# Runs tests/gpu as step tests-$1 for at most $2 seconds, with SIMCORE_KERNELS=$3. No test may run on
# a CPU and count: a run without a passed test is a failure.
tests() {
  step "tests-$1" "$2" env SIMCORE_KERNELS="$3" "${pytest[@]}" ${workers[@]+"${workers[@]}"} \
    tests/gpu
  grep -Eq '[1-9][0-9]* passed' "$logs/tests-$1.log" && return
  echo "gpu-check: no test passed in tests-$1" | tee -a "$summary"
  failures=$((failures + 1))
}

# Some machines have the sanitizer and refuse it the device: that is said, and is no failure.
sanitizers() {
  local start=$SECONDS sanitizer tool
  sanitizer=$(command -v compute-sanitizer || ls "$CUDA_HOME/bin/compute-sanitizer" 2>/dev/null)
  if [ -z "$sanitizer" ]; then
    note sanitizer "skipped, it is not on this machine" "$start"
    return
  fi
  if ! "$sanitizer" --error-exitcode 1 "$python" -c \
    "import torch; torch.zeros(1, device='cuda')" >>"$steps" 2>&1; then
    note sanitizer "skipped, it is refused here (steps.log)" "$start"
    return
  fi
  for tool in memcheck racecheck; do  # the largest cases take minutes under them
    step "$tool" 90 env SIMCORE_KERNELS=on PYTORCH_NO_CUDA_MEMORY_CACHING=1 "$sanitizer" \
      --tool "$tool" --kernel-regex kns=simcore --error-exitcode 1 --target-processes all \
      "${pytest[@]}" -k "not 70 and not 128" tests/gpu/test_every_kernel.py
  done
}

arch=$("$python" -c 'import torch; print("%d.%d" % torch.cuda.get_device_capability())') || {
  echo "gpu-check: wanted a CUDA device that torch can use, found none" >&2
  exit 2
}
export PYTHONPATH=$PWD OMP_WAIT_POLICY=PASSIVE
CUDA_HOME=$(toolkit)
built() { "$python" -c 'import simcore; assert simcore.build_info()["cuda"]' 2>>"$steps"; }
if ! built && [ -z "$CUDA_HOME" ]; then
  echo "gpu-check: wanted a CUDA toolkit (bin/nvcc and include/cuda_runtime.h), found none" >&2
  exit 2
fi
SIMCORE_COMMIT=${SIMCORE_COMMIT:-$(git rev-parse --short=12 HEAD 2>>"$steps")}
export CUDA_HOME TORCH_CUDA_ARCH_LIST=$arch SIMCORE_CUDA=1 MAX_JOBS=${MAX_JOBS:-$(nproc)} SIMCORE_COMMIT
echo "gpu-check $part: compute capability $arch, toolkit ${CUDA_HOME:-none}" | tee -a "$summary"

# Tests wait for the host: several processes share the device where pytest-xdist is there.
workers=()
if "$python" -c 'import xdist' 2>/dev/null; then workers=(-n 8); fi
pytest=("$python" -m pytest -q -ra --noconftest -p no:cacheprovider
  -o timeout=60 -o "addopts=--import-mode=importlib --strict-markers")
doctor='import json; from simcore._kernels.doctor import examine
print(json.dumps(examine(), indent=1))'
bench() { step "bench-$1" "$2" "$python" -m bench.gpu --out "$out" "${@:3}"; }
step versions 20 bash -c "$python -m pip list; g++ --version; ${CUDA_HOME:-/}/bin/nvcc --version; true"
if built; then
  note build "not needed, the libraries are here" "$SECONDS"
else
  step build 110 "$python" setup.py -q egg_info build_ext --inplace
fi
if built; then
  if [ "$part" != rest ]; then
    step smoke 40 env SIMCORE_KERNELS=on "$python" tools/gpu_smoke.py
    # Of kernels that nothing has loaded before in the process.
    step smoke-capture 20 env SIMCORE_KERNELS=on "$python" tools/gpu_smoke.py capture
    bench cka 60 --eager --forms kernel torch --job cka13 cka325
    step doctor 60 env XDG_CACHE_HOME="$logs" "$python" -c "$doctor"
    bench grids 60 --eager --forms kernel composed --job svcca pwcca training coupling attention
    tests kernels 120 on
    bench composed 45 --eager --forms composed --job cka13 cka325
  fi
  if [ "$part" != quick ]; then
    sanitizers
    tests composed 90 off
    bench others 150 --all-but cka13 cka325 svcca training
  fi
fi
echo "== summary"
cat "$summary"
exit $((failures > 0))
