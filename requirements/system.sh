#!/usr/bin/env bash
# system.sh PYTHON VENV: makes sure of the compiler, CMake and a virtual environment.
# What is missing comes through apt where that is possible; otherwise one line says what to install.
set -euo pipefail
python=$1
venv=$2

fail() {
  echo "simcore: $*" >&2
  exit 1
}

can() { # can WHAT: is it here and does it work?
  case $1 in
    g++) echo 'int main() {}' | g++ -std=c++20 -fopenmp -x c++ - -o /dev/null 2>/dev/null ;;
    cmake) cmake --version >/dev/null 2>&1 ;;
    python3) command -v "$python" >/dev/null ;;
    python3-venv) "$python" -c 'import ensurepip, venv' 2>/dev/null ;;
    python3-dev) "$python" -c 'import os, sys, sysconfig as s
sys.exit(not os.path.exists(os.path.join(s.get_path("include"), "Python.h")))' ;;
  esac
}

missing=()
for package in g++ cmake python3 python3-venv python3-dev; do
  can "$package" || missing+=("$package")
done

if ((${#missing[@]})); then
  root=()
  if [[ $(id -u) != 0 ]]; then root=(sudo -n); fi
  if ! command -v apt-get >/dev/null || ! "${root[@]}" true 2>/dev/null; then
    fail "please install: ${missing[*]} (Debian: sudo apt-get install ${missing[*]})"
  fi
  echo "installing ${missing[*]}"
  "${root[@]}" apt-get update -qq
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
  for package in "${missing[@]}"; do
    can "$package" || fail "$package is installed, yet $python or the compiler does not find it; set PYTHON="
  done
fi

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "Python 3.11 or newer is needed, $python is $("$python" -V 2>&1); try: make PYTHON=python3.11 ..."

if [[ ! -x $venv/bin/python ]]; then "$python" -m venv "$venv"; fi
