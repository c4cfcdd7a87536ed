#!/usr/bin/env bash
# Builds the extension for the GPU that is here and checks it: tests, compute-sanitizer where it
# exists, benchmark. Offline; needs torch (a CUDA build), numpy, setuptools, ninja and pytest of the
# Python given, hypothesis too if it is there. Within ten minutes.
#
#     tools/gpu_check.sh [python]
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}

arch=$("$python" -c 'import torch; print("%d.%d" % torch.cuda.get_device_capability())') || {
  echo "gpu-check: no CUDA device that torch can use" >&2
  exit 2
}
export TORCH_CUDA_ARCH_LIST=$arch SIMCORE_CUDA=1 MAX_JOBS=${MAX_JOBS:-$(nproc)}
export PYTHONPATH=$PWD OMP_WAIT_POLICY=PASSIVE
"$python" setup.py -q egg_info build_ext --inplace

# --noconftest: the suite's conftest.py needs hypothesis, which the GPU tests do not.
tests=("$python" -m pytest -q -ra --noconftest -p no:cacheprovider
  -o "addopts=--import-mode=importlib --strict-markers")
"${tests[@]}" tests/gpu

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
if [ -n "$sanitizer" ]; then
  for tool in memcheck racecheck; do
    # Every kernel is launched at small sizes, by both the float32 and the float64 products.
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 "$sanitizer" --tool "$tool" --error-exitcode 1 \
      --target-processes all "${tests[@]}" tests/gpu \
      -k "(test_hsic_cross_grid or neuronsim or mixedsim or attention or couplings) and 33"
  done
else
  echo "gpu-check: compute-sanitizer skipped, it is not on this machine"
fi
"$python" -m bench.gpu
