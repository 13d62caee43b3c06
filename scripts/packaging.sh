#!/usr/bin/env bash
# Builds and checks everything in packaging/ (tests/packaging/run.sh): the Debian package is installed below a directory and
# its server runs, the systemd unit, the image's description and the Kubernetes manifests are checked. Then installs the
# Python wheel into a new environment, which compiles the program once more.
#   scripts/packaging.sh             everything
#   scripts/packaging.sh --no-wheel  without the wheel, a minute instead of ten
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh --packaging
scripts/build.sh --target chorus
tests/packaging/run.sh build/release build/packaging
[ "${1:-}" != --no-wheel ] || exit 0
python3 -m venv --clear build/wheel-venv
build/wheel-venv/bin/pip install -q .
PATH=$PWD/build/wheel-venv/bin:$PATH chorus inspect examples/demo/base >/dev/null
[ "$(build/wheel-venv/bin/chorus --version)" = "$(build/release/bin/chorus --version)" ]
echo "wheel: ok"
