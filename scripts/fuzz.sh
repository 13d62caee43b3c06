#!/usr/bin/env bash
# Usage: scripts/fuzz.sh [SECONDS [TARGET...]] or scripts/fuzz.sh SECONDS --changed or
#   scripts/fuzz.sh SECONDS --least N [TARGET...]
# Runs fuzz targets under ASan and UBSan, two at a time, each starting from its corpus in tests/fuzz/, which is not
# modified. Default: every target for 30 seconds. --changed selects the targets whose parsers, source or corpus changed,
# see scripts/changed_sources.sh, and takes about four minutes at most. --least selects those N of the targets that were fuzzed
# least according to tests/fuzz/hours.tsv, and adds their run to that file. Inputs that reach new code are kept in
# build/fuzz/, and the next run goes on from them. A finding is printed with its input in base64.
# The environment variable SEED=N makes a run reproducible, so that CI tests consecutive changes with the same inputs;
# otherwise every run has new inputs.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-30}
shift || true
scripts/install_deps.sh --ci
cmake --preset dev >/dev/null
if [ "${1:-}" = --changed ]; then
  changed=$(scripts/changed_sources.sh "" src tests/fuzz)
  set --
  for source in $(git ls-files -co --exclude-standard 'src/*_fuzz.cc'); do
    target=$(basename "$source" .cc)
    for parsed in "$source" "tests/fuzz/$target" $(sed -n 's|^// parses: ||p' "$source"); do
      grep -qE "^$parsed(/|\$)" <<<"$changed" && { set -- "$@" "$target"; break; }
    done
  done
  [ $# -gt 0 ] || { echo "fuzz: no parser changed"; exit 0; }
  # A change of many parsers, such as a rename, shares four minutes between them.
  share=$((480 / $#))
  [ "$share" -ge 5 ] || share=5
  [ "$seconds" -le "$share" ] || seconds=$share
fi
all=$(git ls-files -co --exclude-standard 'src/*_fuzz.cc' | xargs -n 1 basename -s .cc | sort)
export HOURS=
if [ "${1:-}" = --least ]; then
  HOURS=tests/fuzz/hours.tsv
  count=$2
  shift 2
  [ $# -gt 0 ] || set -- $all
  set -- $(for target in "$@"; do
    printf '%s %s\n' "$(awk -v target="$target" '$1 == target { print $2 }' $HOURS)" "$target"
  done | sort -s -n -k 1,1 -t ' ' | awk '{ print $NF }' | sed "${count}q")
fi
[ $# -gt 0 ] || set -- $all
cmake --build --preset dev --target "$@"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# ASan keeps every distinct stack of an allocation for ever. A recursive interpreter makes new ones with most inputs: with
# all frames they take 125 MB after 18,000 templates, which counts towards the limit of memory below.
export ASAN_OPTIONS=quarantine_size_mb=16:malloc_context_size=3 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-19

fuzz() {
  local target=$1 seconds=$2 work=$3 status=0
  local corpus=$work/$target/corpus
  local timeout=2
  # A run of hours shares the machine with other work, which may stop it for seconds. The targets themselves measure
  # processor time.
  [ -z "$HOURS" ] || { corpus=build/fuzz/$target; timeout=60; }
  mkdir -p "$work/$target" "$corpus"
  cp tests/fuzz/"$target"/* "$corpus"
  local options=(-max_total_time="$seconds" -timeout=$timeout -rss_limit_mb=256 -print_final_stats=1 -seed="${SEED:-0}")
  [ -f "tests/fuzz/$target.dict" ] && options+=(-dict="tests/fuzz/$target.dict")
  local TIMEFORMAT='%U %S'
  { time build/dev/"$target" "${options[@]}" -artifact_prefix="$work/$target/" "$corpus" >"$work/$target/log" 2>&1; } \
    2>"$work/$target/time" || status=$?
  if [ $status -ne 0 ]; then
    echo "$target: FAILED"
    grep -v '^#' "$work/$target/log" | tail -60
    for input in "$work/$target"/{crash,timeout,oom,leak,slow-unit}-*; do
      [ -f "$input" ] && echo "base64 of the input (base64 -d, then build/dev/$target FILE): $(base64 -w 0 "$input")"
    done
    return 1
  fi
  local inputs
  inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$target/log")
  [ -z "$HOURS" ] || record "$target" "$(tail -n 1 "$work/$target/time")" "$inputs"
  echo "$target: $inputs inputs, peak $(sed -n 's/^stat::peak_rss_mb: *//p' "$work/$target/log") MB, no finding"
}

# Adds a run to $HOURS, whose columns are the target, its processor time in seconds, its inputs, and the day of its last run.
# time: user and system time in seconds.
record() {
  local target=$1 time=$2 inputs=$3
  (
    flock 9
    awk -v target="$target" -v time="$time" -v inputs="$inputs" -v day="$(date +%F)" '
      BEGIN { FS = OFS = "\t"; split(time, part, " "); seconds = part[1] + part[2] }
      $1 == target { seconds += $2; inputs += $3; next }
      { print }
      END { printf "%s\t%.0f\t%.0f\t%s\n", target, seconds, inputs, day }' $HOURS | sort >"$HOURS.new"
    mv "$HOURS.new" $HOURS
  ) 9>build/fuzz/lock
}
export -f fuzz record
printf '%s\n' "$@" | xargs -P 2 -I{} bash -c 'fuzz "$@"' fuzz {} "$seconds" "$work"
