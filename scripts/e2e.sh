#!/usr/bin/env bash
# The server by its users' client: builds, then runs tests/e2e/ with the openai package from PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh
venv=build/e2e-venv
[ -x $venv/bin/python ] || python3 -m venv $venv
$venv/bin/pip install -q -r tests/e2e/requirements.txt
$venv/bin/python tests/e2e/run.py --chorus build/release/bin/chorus --demo examples/demo
