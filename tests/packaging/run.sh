#!/usr/bin/env bash
# Builds the Debian package, installs it below a directory, and runs what it installed; checks the unit, the image's
# description and the Kubernetes manifests.
#
#   run.sh BUILD_DIR WORK_DIR
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
build=$(realpath "$1")
rm -rf "$2"
mkdir -p "$2"
work=$(realpath "$2")
root=$work/root
fail() { echo "failed: $*"; exit 1; }

cd "$build"
cpack -G DEB -B "$work" >"$work/cpack.log" 2>&1 || { cat "$work/cpack.log"; exit 1; }
package=$(echo "$work"/chorus_*.deb)

# ---- Fields and files
for library in libarchive13 libfmt9 libnuma1 libonig5 libprometheus-cpp-core1.0 libspdlog1.10 libssl3 libstdc++6 libutf8proc2 \
  libyaml-cpp0.7 zlib1g; do
  dpkg-deb -f "$package" Depends | grep -qF "$library" || fail "the package does not depend on $library"
done
[ "$(dpkg-deb -I "$package" conffiles)" = /etc/chorus/chorus.yaml ] || fail "conffiles"
dpkg-deb -c "$package" | awk '{print $1, $2}' | sort -u >"$work/modes"
diff "$work/modes" - <<<$'-rw-r--r-- root/root\n-rwxr-xr-x root/root\ndrwxr-xr-x root/root' || fail "owners or modes"
for script in postinst prerm postrm; do dpkg-deb -I "$package" "$script" | dash -n || fail "$script"; done

# ---- Installation below a directory, and again over a configuration that was changed
mkdir -p "$root/etc" "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
touch "$root/var/lib/dpkg/status" "$root/etc/passwd" "$root/etc/group" "$root/etc/shadow" "$root/etc/gshadow"
install_package() {
  dpkg --root="$root" --force-not-root --force-script-chrootless --force-depends --force-confold --log=/dev/null \
    "$@" >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; exit 1; }
}
install_package -i "$package"
grep -q '^chorus:' "$root/etc/passwd" || fail "the user was not created"
cp -r "$source/examples/demo/adapters" "$work/adapters"
mv "$work/adapters/shout" "$work/later"
port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >"$root/etc/chorus/chorus.yaml" <<YAML
model: $source/examples/demo/base
lora_dir: $work/adapters
port: $port
cache_dir: $work/cache
YAML
install_package -i "$package"
grep -q "port: $port" "$root/etc/chorus/chorus.yaml" || fail "a changed configuration was replaced"

"$root/usr/bin/chorus" serve --config "$root/etc/chorus/chorus.yaml" >"$work/server.log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
for _ in $(seq 600); do
  curl -fs "http://127.0.0.1:$port/v1/health/ready" >/dev/null && break
  kill -0 $server 2>/dev/null || { cat "$work/server.log"; fail "the installed server ended"; }
  sleep 0.1
done
curl -fs "http://127.0.0.1:$port/v1/models" | grep -q '"id":"roman"' || fail "the installed server does not serve the adapters"

# ---- systemctl reload: the unit's command makes the server look for adapters
mv "$work/later" "$work/adapters/shout"
reload=$(sed -n 's/^ExecReload=//p' "$source/packaging/systemd/chorus.service")
[ -n "$reload" ] || fail "the unit has no command for a reload"
MAINPID=$server bash -c "${reload//\$\$/\$}" || fail "the command for a reload"
for _ in $(seq 100); do
  curl -fs "http://127.0.0.1:$port/v1/models" | grep -q '"id":"shout"' && break
  sleep 0.1
done
curl -fs "http://127.0.0.1:$port/v1/models" | grep -q '"id":"shout"' || fail "a reload does not find a new adapter"

# ---- The image: its health check against this server, and the packages that it installs
containerfile=$source/packaging/container/Containerfile
python3 "$source/tests/packaging/containerfile.py" "$containerfile" >"$work/healthcheck"
NIM_SERVER_PORT=$port bash -c "$(cat "$work/healthcheck")" || fail "the health check of a server that is ready"
kill $server
wait $server || fail "the server did not end well"
! NIM_SERVER_PORT=$port bash -c "$(cat "$work/healthcheck")" 2>/dev/null || fail "the health check of a server that is gone"
# The image is built with the same libraries as everywhere, but for those of the tests.
libraries() { grep -oE '\b[a-z][a-z0-9.+-]*-dev\b' | grep -vE '^(dpkg|libgtest|libgmock)-dev$' | sort -u; }
diff <(sed -n '/^RUN.*apt-get update/,/^WORKDIR/p' "$containerfile" | libraries) \
  <(sed -n '/^packages=(/,/^)/p' "$source/scripts/install_deps.sh" | libraries) ||
  fail "the image (<) and install_deps.sh (>) install different libraries"

mkdir -p "$root/var/lib/chorus/uploads/chorus-uploads-left"
install_package --purge chorus
for left in usr/bin/chorus etc/chorus/chorus.yaml var/lib/chorus; do
  [ ! -e "$root/$left" ] || fail "a purge leaves /$left"
done

# ---- The unit
sed "s|/usr/bin/chorus|$build/bin/chorus|" "$source/packaging/systemd/chorus.service" >"$work/chorus.service"
systemd-analyze verify --man=no "$work/chorus.service" || fail "the unit is not valid"
exposure=$(systemd-analyze security --offline=yes --threshold=15 "$work/chorus.service" 2>&1 | tail -n 1) || fail "the unit: $exposure"
echo "$exposure"
# The system is read-only for the service, except what the unit names.
state=$(sed -n 's|^StateDirectory=|/var/lib/|p' "$source/packaging/systemd/chorus.service")
uploads=$(grep -oE -m 1 -- '--lora_upload_dir /[^ ]+' "$source/docs/adapters-at-run-time.md" | cut -d ' ' -f 2)
[ -n "$state" ] && [ -n "$uploads" ] && [[ $uploads == "$state"/* ]] ||
  fail "the unit cannot write to the directory of uploads that the documentation shows: $uploads"

# ---- The manifests
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q -r "$source/tests/packaging/requirements.txt"
"$work/venv/bin/python" "$source/tests/packaging/manifests.py" "$source/packaging/kubernetes"
echo "packaging: ok"
