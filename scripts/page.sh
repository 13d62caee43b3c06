#!/usr/bin/env bash
# Tests of the page at "/" in a headless Chromium (tests/page/). Installs the browser.
#   scripts/page.sh                           every test
#   scripts/page.sh --picture docs/page.png   and takes the picture for the documentation again
# Further arguments go to tests/page/run.py (--only TEXT).
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh --page
scripts/build.sh --target chorus
python3 tests/page/run.py --chorus build/release/bin/chorus --demo examples/demo "$@"
