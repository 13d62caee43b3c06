#!/usr/bin/env bash
# Usage: scripts/layer_tests.sh PRESET SECONDS LAYER...
# Builds and runs the tests of these layers with a preset. SECONDS: no layer is begun later than that after the start; those that
# changed last come first (scripts/changed_sources.sh), and those that are left out are named. Empty: no limit.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1 limit=$2
shift 2
cmake --preset "$preset" >/dev/null

layers=()
if [ -n "$limit" ]; then
  for layer in $(scripts/changed_sources.sh "" src | cut -d / -f 2 | awk '!seen[$0]++'); do
    case " $* " in *" $layer "*) layers+=("$layer") ;; esac
  done
fi
for layer in "$@"; do
  case " ${layers[*]} " in *" $layer "*) ;; *) layers+=("$layer") ;; esac
done

tests_of() {
  cmake --build --preset "$preset" --target "${@/%/_test}"
  local names=("${@#chorus_}")
  ctest --test-dir "build/$preset" --no-tests=error --output-on-failure -j "$(nproc)" -R "^($(IFS='|'; echo "${names[*]}"))\."
}

layers=("${layers[@]/#/chorus_}")
if [ -z "$limit" ]; then
  tests_of "${layers[@]}"
  exit
fi
left_out=
for layer in "${layers[@]}"; do
  if [ $SECONDS -ge "$limit" ]; then
    left_out+=" ${layer#chorus_}"
  else
    tests_of "$layer"
  fi
done
[ -z "$left_out" ] || echo "not begun within $limit s:$left_out"
