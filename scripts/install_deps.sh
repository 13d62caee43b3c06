#!/usr/bin/env bash
# Installs the packages for building and testing on Debian 12; with --ci also the clang tools, valgrind and mandoc, with --neon
# also the packages for scripts/neon.sh, with --numa those for scripts/numa.sh, with --e2e the proxies for scripts/e2e.sh, with --page the browser for
# scripts/page.sh, with --packaging the tools for scripts/packaging.sh. Uses sudo when not root. Does nothing when all
# packages are installed.
set -euo pipefail

packages=(
  build-essential cmake ninja-build ccache git pkg-config python3 python3-venv ca-certificates
  libhwy-dev libnuma-dev libboost1.81-dev libssl-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev
  libonig-dev libutf8proc-dev libarchive-dev libyaml-cpp-dev zlib1g-dev prometheus-cpp-dev libgtest-dev libgmock-dev
)
if [ "${1:-}" = --ci ]; then
  packages+=(clang-19 clang-tidy-19 clang-format-19 llvm-19 libclang-rt-19-dev valgrind mandoc)
fi
if [ "${1:-}" = --neon ]; then
  packages+=(g++-aarch64-linux-gnu qemu-user)
fi
if [ "${1:-}" = --e2e ]; then
  packages+=(nginx haproxy)
fi
if [ "${1:-}" = --packaging ]; then
  packages+=(dpkg-dev file systemd haproxy curl)
fi
if [ "${1:-}" = --numa ]; then
  packages+=(qemu-system-x86 busybox-static cpio)
fi
if [ "${1:-}" = --page ]; then
  packages+=(chromium)
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

run=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install_deps.sh: run as root, or install: ${missing[*]}" >&2; exit 1; }
  run=(sudo)
fi
echo "installing: ${missing[*]}"
"${run[@]}" apt-get update -qq
"${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
