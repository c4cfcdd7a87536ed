#!/usr/bin/env bash
# test_torch.sh PYTHON VERSION: tests simcore with another release of torch, in build/torch-VERSION.
# env/ there has that torch and the pins of requirements/lock.txt; tree/ is a copy of the files that
# git tracks or would add, so that the extension of the checkout stays as it is. A second run compiles
# what has changed. TESTS names tests to run, which are otherwise those of simcore, without simlab; ARGS
# are passed on to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
version=$2
if [[ ! $version =~ ^[0-9]+\.[0-9]+\.[0-9]+[a-z0-9.+]*$ ]]; then
  echo "test-torch: wanted VERSION=2.15.0 or another release of torch, got '$version'" >&2
  exit 2
fi
place=$PWD/build/torch-$version

bash requirements/system.sh "$python" "$place/env"
export PATH=$place/env/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_COMPILE=1
export SIMCORE_CUDA=${SIMCORE_CUDA:-0} # the tests need no GPU
unset PYTHONPATH VIRTUAL_ENV

mkdir -p "$place/tree"
find "$place/tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
comm -z -23 <(git ls-files -z --cached --others --exclude-standard | sort -zu) \
  <(git ls-files -z --deleted | sort -zu) |
  tar --create --null --files-from=- | tar --extract --directory="$place/tree"
cd "$place/tree"

installed() { python -c 'import torch; print(torch.__version__)'; }
# The lock has no torch: it comes first, and alone.
pip install --quiet "torch==$version"
before=$(installed)
# Nor are setuptools those of the lock: some releases of torch refuse new ones, and pip then takes
# another torch.
grep -v '^setuptools==' requirements/lock.txt >../pins.txt
pip install --quiet --constraint ../pins.txt -e '.[lab,test]'
if [[ $(installed) != "$before" ]]; then
  echo "test-torch: pip replaced torch $before by $(installed)" >&2
  exit 1
fi

read -ra tests <<<"${TESTS:-}"
if ((!${#tests[@]})); then
  tests=(tests/project/test_{extension,import,forks}.py)
  for folder in tests/*/; do
    case $folder in */simlab/ | */docs/ | */gpu/ | */cpp/ | */project/) ;; *) tests+=("$folder") ;; esac
  done
fi
# shellcheck disable=SC2086 # ARGS are words
OMP_WAIT_POLICY=PASSIVE HF_HUB_OFFLINE=1 python -m pytest -q -ra -n 2 --dist loadfile -m "not slow" \
  "${tests[@]}" ${ARGS:-}
echo "test-torch: passed with torch $before"
