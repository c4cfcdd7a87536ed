#!/usr/bin/env bash
# wheel_check.sh PYTHON WHEEL TORCH: installs a wheel, or a source distribution, and a release of torch, or
# `newest`, into a fresh environment with no compiler on PATH, computes a grid there, installs the rest as the
# command `simcore` says, and fine-tunes a model. Where TESTS names folders of tests, they run on what the wheel installed, with the
# caller's PATH, because torch.compile calls a compiler; ARGS are passed on to pytest.
set -euo pipefail
python=$(command -v "$1")
wheel=$(realpath "$2")
release=${3#newest}
root=$(realpath "$(dirname "$0")/..")
callers=$PATH
place=$(mktemp -d)
pins=$place/pins.txt
grep -v '^setuptools==' "$root/requirements/lock.txt" >"$pins" # some releases of torch refuse new ones
remove=$(command -v rm)
trap '"$remove" -rf "$place"' EXIT
cd "$place" # not in the checkout, whose folder simcore/ would be imported

"$python" -m venv env
export PATH=$place/env/bin PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
export PIP_NO_COMPILE=1 HF_HUB_OFFLINE=1
unset PYTHONPATH VIRTUAL_ENV
if command -v g++ >/dev/null || command -v cc >/dev/null; then
  echo "wheel_check: wanted no compiler on PATH, found one" >&2
  exit 1
fi
pip install --quiet --constraint "$pins" "torch${release:+==$release}"
pip install --quiet --constraint "$pins" "$wheel"

python - "$wheel" <<'PROGRAM'
import sys
from pathlib import Path

import numpy as np
import simcore, simcore.reference, simlab

assert "site-packages" in simcore.__file__, simcore.__file__
found = [path.name for path in Path(simcore.__file__).parent.glob("libsimcore*")]
pure = sys.argv[1].endswith(("-none-any.whl", ".tar.gz"))
assert found == ([] if pure else ["libsimcore.so"]), f"{sys.argv[1]}: found {found}"
assert (simcore.build_info()["cpu_isa"] == "torch") is pure
layers = np.random.default_rng(0).standard_normal((3, 60, 8))
assert np.allclose(simcore.cka_grid(layers), simcore.reference.cka_grid(layers))
print(f"simcore {simcore.__version__}: {simcore.build_info()['cpu_isa']}, grid as its twin")
PROGRAM
code=0
simcore 2>said.txt || code=$?
mapfile -t said <said.txt
if [[ $code != 2 || ${#said[@]} != 1 ]]; then
  echo "wheel_check: wanted one line and exit code 2 of a bare install, found $code: ${said[*]}" >&2
  exit 1
fi
install=${said[0]#*\`}
echo "${said[0]}"
PIP_CONSTRAINT=$pins eval "${install%%\`*} --quiet"
torch=$(python -c 'import torch; print(torch.__version__)')
[[ $torch == "$release"* ]]
simcore --help >help.txt
simcore finetune minilm rt --train-size 64 --heldout-size 32 --max-steps 2 --seed 1 --out ft-1
[[ -s ft-1/model.safetensors ]]

if [[ -n ${TESTS:-} ]]; then
  pip install --quiet --constraint "$pins" "$wheel[test]"
  export PATH=$PATH:$callers
  read -ra folders <<<"$TESTS"
  # Programs that tests start in the checkout import bench from there, and would find its simcore first:
  # the checkout is the last place on the path. pytest would take simlab from its folder python/.
  export PYTHONSAFEPATH=1
  echo "$root" >"$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/checkout.pth"
  (cd "$root" && PYTHONPATH=$root/tests python - <<'PROGRAM'
import bench
import simcore
import simlab

assert "site-packages" not in bench.__path__[0], bench.__path__
for package in (simcore, simlab):
    assert "site-packages" in package.__file__, package.__file__
PROGRAM
  )
  # shellcheck disable=SC2086 # ARGS are words
  OMP_WAIT_POLICY=PASSIVE pytest -q -ra -n 2 --dist loadfile -m "not slow" -p no:cacheprovider \
    -c "$root/pyproject.toml" -o pythonpath=tests "${folders[@]/#/$root/}" ${ARGS:-}
fi
echo "wheel_check: ${wheel##*/} was installed with torch $torch and used without a compiler"
