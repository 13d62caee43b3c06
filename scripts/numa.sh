#!/usr/bin/env bash
# Runs the tests of NUMA placement on an emulated machine with two nodes of two processors each, because few machines have
# several. The machine boots Debian's kernel for virtual machines with nothing but the kernels' test. With --if-available, the
# script succeeds without testing where the packages cannot be fetched or the processor is not x86-64.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-}
unavailable() {
  echo "numa.sh: $1: NUMA is not tested"
  [ "$mode" = --if-available ] && exit 0
  exit 1
}
[ "$(uname -m)" = x86_64 ] || unavailable "only x86-64 is emulated"
scripts/install_deps.sh --numa || unavailable "the emulator cannot be fetched"
cmake --preset release >/dev/null
cmake --build --preset release --target chorus_kernels_test
work=build/numa
mkdir -p $work
if ! ls $work/kernel/boot/vmlinuz-* >/dev/null 2>&1; then
  name=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: //p')
  (cd $work && apt-get -qq -o APT::Sandbox::User= download "$name" && dpkg -x "$name"_*.deb kernel) ||
    unavailable "the kernel cannot be fetched"
fi

# ---- The initial RAM disk: a shell, the test, and the libraries that it loads
rm -rf $work/root
mkdir -p $work/root/{bin,proc,sys,tmp}
test=$PWD/build/release/chorus_kernels_test
cp /bin/busybox $work/root/bin
cp "$test" $work/root/kernels_test
for library in $(ldd "$test" | grep -o '/[^ ]*'); do install -D "$library" $work/root"$library"; done
cat >$work/root/init <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t tmpfs tmp /tmp
[ "$(/bin/busybox ls -d /sys/devices/system/node/node* | /bin/busybox wc -l)" = 2 ] &&
  /kernels_test '--gtest_filter=Numa*' && echo "numa: ok"
/bin/busybox poweroff -f
INIT
chmod +x $work/root/init
(cd $work/root && find . | cpio --quiet -o -H newc | gzip -1) >$work/initrd

memory=()
for node in 0 1; do
  memory+=(-object "memory-backend-ram,id=m$node,size=1G"
           -numa "node,nodeid=$node,cpus=$((2 * node))-$((2 * node + 1)),memdev=m$node")
done
timeout 600 qemu-system-x86_64 -machine q35 -cpu max -smp 4 -m 2G "${memory[@]}" -nographic -no-reboot -nic none \
  -kernel $work/kernel/boot/vmlinuz-* -initrd $work/initrd -append "console=ttyS0 quiet panic=-1" | tee $work/log
grep -q "^numa: ok" $work/log
