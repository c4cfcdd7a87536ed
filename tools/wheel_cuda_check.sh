#!/usr/bin/env bash
# wheel_cuda_check.sh PYTHON TORCH WHEEL...: installs a release of torch, and the wheels simcore and
# simcore-cuda, into a fresh environment, and looks which CUDA kernels torch has then. A torch for
# CUDA has all of them, any other none, and simcore says why. No GPU is needed.
set -euo pipefail
python=$(command -v "$1")
release=$2
shift 2
mapfile -t wheels < <(realpath "$@")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" # not in the checkout, whose folder simcore/ would be imported

"$python" -m venv env
export PATH=$place/env/bin:$PATH PIP_NO_COMPILE=1
unset PYTHONPATH VIRTUAL_ENV
pip install --quiet "torch==$release" numpy
pip install --quiet --no-deps "${wheels[@]}"
pip check

cat >look.py <<'PROGRAM'
import sys
import warnings

import torch

with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import simcore
from simcore._kernels import choice

found = [name for name in choice.KERNELS if choice.launcher(name)]
said = [str(warning.message) for warning in said if "simcore" in str(warning.message)]
info = simcore.build_info()
print(f"torch {torch.__version__}: kernels {found}, {info['cuda_architectures']}; said {said}")
wanted = sys.argv[1] == "all" and torch.version.cuda is not None
assert found == (list(choice.KERNELS) if wanted else []), found
assert info["cuda"] == wanted
assert len(said) == (not wanted and sys.argv[1] != "none"), said
layers = torch.randn(3, 60, 8).double()
assert abs(simcore.cka_grid(layers).diagonal() - 1).max() < 1e-12
PROGRAM
python look.py all
record=$(echo env/lib/python*/site-packages/simcore_cuda-*.dist-info/METADATA)
sed -i 's/^Version: .*/Version: 0.0.1/' "$record"
python look.py refused
pip uninstall --quiet --yes simcore-cuda
python look.py none
echo "wheel_cuda_check: simcore-cuda was installed with torch $release"
