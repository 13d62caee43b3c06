#!/usr/bin/env bash
# Installs dependencies and builds the release preset: build/release/bin/chorus.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh
cmake --preset release "$@" >build-configure.log 2>&1 || { cat build-configure.log; exit 1; }
rm -f build-configure.log
cmake --build --preset release
