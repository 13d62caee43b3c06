#!/usr/bin/env bash
# Builds the release preset (asserts on) and runs every check and test. Ends with ctest's summary line.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh
scripts/check_tree.py
ctest --test-dir build/release --output-on-failure -j "$(nproc)" "$@"
