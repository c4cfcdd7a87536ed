#!/usr/bin/env bash
# page.sh: what tests and lint of the report's page need: a Chromium, and node with tools/page.
# What is missing comes through apt where that is possible. No failure here stops make: without a
# Chromium `make test` leaves the page out, without node `make lint` does, and both say so.
set -uo pipefail
cd "$(dirname "$0")/.."

any() { # any COMMAND...: is one of them here?
  local name
  for name in "$@"; do if command -v "$name" >/dev/null; then return 0; fi; done
  return 1
}

missing=()
# Without windows, it draws the same pages in half the time; only Debian has it as a package.
shell=chromium-headless-shell
any "${CHROMIUM:-$shell}" chromium chromium-browser google-chrome-stable || missing+=("$shell")
any npm || missing+=(nodejs npm)
if ((${#missing[@]})); then
  root=()
  if [[ $(id -u) != 0 ]]; then root=(sudo -n); fi
  if any apt-get && "${root[@]}" true 2>/dev/null; then
    "${root[@]}" apt-get update -qq
    if ! apt-cache show "$shell" >/dev/null 2>&1; then
      missing=("${missing[@]/$shell/chromium}")
    fi
    echo "installing ${missing[*]}"
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
  fi
fi
if any npm; then
  npm ci --prefix tools/page --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null ||
    echo "simcore: npm could not install tools/page, so that the page is not checked by them"
fi
exit 0
