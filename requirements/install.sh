#!/usr/bin/env bash
# install.sh ARGUMENTS: `pip install ARGUMENTS` by uv, in a third of the time, or by pip where
# uv cannot be had or fails. uv is told where pip looks for packages.
set -euo pipefail

setting() { # setting NAME: what pip's files and environment say, or nothing
  pip config list 2>/dev/null | sed -n "s/^[^=]*\.$1='\(.*\)'$/\1/p" | tail -n 1
}

declare -A variables=(
  [index-url]=UV_DEFAULT_INDEX [extra-index-url]=UV_INDEX [find-links]=UV_FIND_LINKS [cert]=SSL_CERT_FILE
)
for name in "${!variables[@]}"; do
  value=$(setting "$name")
  if [[ $value ]]; then export "${variables[$name]}=$value"; fi
done
export UV_FIND_LINKS=${UV_FIND_LINKS:-}
UV_FIND_LINKS=${UV_FIND_LINKS// /,}  # pip separates them by spaces
# As pip: the best version of all places, and no copy beside the one that is installed.
export UV_INDEX_STRATEGY=unsafe-best-match UV_NO_CACHE=1

if { command -v uv || pip install --quiet --constraint requirements/lock.txt uv; } >/dev/null &&
  uv pip install --quiet "$@"; then
  exit
fi
echo "simcore: uv could not install; pip goes on"
pip install --quiet "$@"
