#!/usr/bin/env bash
# Cross-compiles base and the kernels for 64-bit Arm and runs their tests under qemu, so that NEON can be tested on any
# machine. The arm64 libraries are unpacked under build/ and do not touch the system. With --if-available, the script
# succeeds without testing if the compiler, qemu or the arm64 packages cannot be fetched, such as when the package
# mirror has no arm64. Further arguments go to the kernels' test.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(uname -m)" = aarch64 ]; then
  echo "neon.sh: nothing to do: every build of this machine tests NEON"
  exit 0
fi
needed=1
if [ "${1:-}" = --if-available ]; then
  needed=0
  shift
fi
unavailable() {
  echo "neon.sh: $1 cannot be fetched here: NEON is not tested"
  exit $needed
}
scripts/install_deps.sh --neon || unavailable "the cross compiler or qemu"

packages=(
  libhwy-dev libhwy1 libnuma-dev libnuma1 libssl-dev libssl3 libspdlog-dev libspdlog1.10 libfmt-dev libfmt9 libonig-dev libonig5
  libutf8proc-dev libutf8proc2 libarchive-dev libarchive13 libyaml-cpp-dev libyaml-cpp0.7 zlib1g-dev zlib1g
  prometheus-cpp-dev libprometheus-cpp-core1.0 libprometheus-cpp-pull1.0 libprometheus-cpp-push1.0 civetweb libcivetweb-dev libcivetweb1 libcurl4-openssl-dev libcurl4 libgtest-dev libgmock-dev
)
root=build/aarch64
if [ "$(cat $root/packages/.unpacked 2>/dev/null)" != "${packages[*]}" ]; then
  rm -rf $root/packages $root/apt
  mkdir -p $root/packages $root/apt/lists/partial $root/apt/cache/archives/partial
  # A separate apt configuration: the system need not support arm64, and its package versions may differ.
  apt=(apt-get -qq -o APT::Architectures::=amd64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=
       -o "Dir::State::Lists=$PWD/$root/apt/lists" -o "Dir::Cache=$PWD/$root/apt/cache")
  "${apt[@]}" update && (cd $root/apt && "${apt[@]}" download "${packages[@]/%/:arm64}" nlohmann-json3-dev) ||
    unavailable "arm64 packages"
  for package in $root/apt/*.deb; do dpkg -x "$package" $root/packages; done
  rm -rf $root/apt
  echo "${packages[*]}" >$root/packages/.unpacked
fi

cmake --preset aarch64 >/dev/null
cmake --build --preset aarch64 --target chorus_base_test chorus_kernels_test
emulated=(qemu-aarch64 -L /usr/aarch64-linux-gnu)
"${emulated[@]}" $root/chorus_base_test --gtest_brief=1
# Excluded are the reference kernels, which are tested natively, the scalar variants, which are the same code as NEON on
# this architecture, and what qemu cannot do: its mremap does not map memory a second time (moved weights), and a death
# test starts the program again without qemu.
[ $# -gt 0 ] || set -- '--gtest_filter=-*/reference*:*/scalar*:MovedWeightsTest.*:NumaTest.MovedWeights*:*DeathTest*'
shards=()
for shard in 0 1; do
  GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=$shard "${emulated[@]}" $root/chorus_kernels_test --gtest_brief=1 "$@" &
  shards+=($!)
done
for shard in "${shards[@]}"; do wait "$shard"; done
