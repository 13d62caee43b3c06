#!/usr/bin/env bash
# Installs dependencies and builds the release preset: build/release/bin/chorus. Arguments are passed to cmake --build,
# for example --target chorus to build only the program.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh
mkdir -p build
cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
cmake --build --preset release "$@"
