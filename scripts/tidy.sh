#!/usr/bin/env bash
# Usage: scripts/tidy.sh [--most N] [--all | REVISION]
# Runs clang-tidy on all sources or on those changed since REVISION, with the compile commands of the plain preset.
# REVISION defaults to the merge base with origin/main or, on main itself, to the commit 5 first-parent commits ago. A
# changed header is checked through the sources of its directory that include it. --most: at most N sources, those
# changed last first (a source takes 10 s, and CI an hour in all).
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh --ci
cmake --preset plain >/dev/null

most=
if [ "${1:-}" = --most ]; then most=$2; shift 2; fi

base=${1:-}
if [ "$base" = --all ]; then
  changed=$(git ls-files 'src/*.cc' 'tests/*.cc')
else
  changed=$(scripts/changed_sources.sh "$base" 'src/*.cc' 'src/*.h' 'include/*.h' 'tests/*.cc' 'tests/*.h')
fi

sources=()
for file in $changed; do
  case $file in
    *.cc) sources+=("$file") ;;
    src/*.h)
      for user in $(git grep -lF "#include \"${file#src/}\"" -- "$(dirname "$file")/*.cc"); do sources+=("$user"); done ;;
  esac
done
[ ${#sources[@]} -gt 0 ] || { echo "tidy: no source changed"; exit 0; }
# fuzz targets and tests outside that build have no compile command and are not checked
known=$(printf '%s\n' "${sources[@]}" | awk '!seen[$0]++' |
        while read -r f; do if grep -qF "/$f\"" build/plain/compile_commands.json; then echo "$f"; fi; done)
[ -n "$known" ] || { echo "tidy: no changed source has a compile command"; exit 0; }
all=$(wc -l <<<"$known")
[ -z "$most" ] || known=$(head -n "$most" <<<"$known")
echo "tidy: $(wc -l <<<"$known") of $all changed sources"
xargs -n 4 -P "$(nproc)" clang-tidy-19 -p build/plain --quiet --warnings-as-errors='*' <<<"$known" 2> >(
  grep -vE '^[0-9]+ warnings? (generated|treated)|^Suppressed|^Use -' >&2)
