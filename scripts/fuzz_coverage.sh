#!/usr/bin/env bash
# Usage: scripts/fuzz_coverage.sh [TARGET...]
# Measures which share of lines the corpus of each fuzz target covers in the sources (files or directories) that the
# target names in its "// parses:" lines. Fails if it is below 70 %. The environment variable SHOW=1 lists every source.
set -euo pipefail
cd "$(dirname "$0")/.."
least=70
scripts/install_deps.sh --ci
cmake --preset coverage >/dev/null
[ $# -gt 0 ] || set -- $(git ls-files -co --exclude-standard 'src/*_fuzz.cc' | xargs -n 1 basename -s .cc | sort)
cmake --build --preset coverage --target "${@/%/_replay}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
for target in "$@"; do
  sources=()
  for named in $(sed -n 's|^// parses: ||p' "$(git ls-files -co --exclude-standard "src/*/$target.cc")"); do
    if [ -d "$named" ]; then
      sources+=("$named"/*.cc)
    elif [ -f "$named" ]; then
      sources+=("$named")
    else
      echo "$target: parses $named, which does not exist"; failed=1
    fi
  done
  [ ${#sources[@]} -gt 0 ] || { echo "$target: no '// parses: FILE' line"; failed=1; continue; }
  LLVM_PROFILE_FILE="$work/$target.raw" build/coverage/"${target}_replay" "tests/fuzz/$target" 1 0 >/dev/null
  llvm-profdata-19 merge -o "$work/$target.prof" "$work/$target.raw"
  report=$(llvm-cov-19 report build/coverage/"${target}_replay" -instr-profile "$work/$target.prof" "${sources[@]}")
  [ -z "${SHOW:-}" ] || echo "$report"
  percent=$(awk '$1 == "TOTAL" { print $10 + 0 }' <<<"$report")
  verdict=
  awk -v p="$percent" -v least=$least 'BEGIN { exit !(p < least) }' && { verdict=", under $least %"; failed=1; }
  printf '%-28s %6.1f %% of the lines of %d sources%s\n' "$target" "$percent" ${#sources[@]} "$verdict"
done
exit $failed
