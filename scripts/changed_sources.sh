#!/usr/bin/env bash
# Usage: scripts/changed_sources.sh [REVISION [PATTERN...]]
# Lists the files that changed since REVISION, most recently changed first. REVISION defaults to the merge base with
# origin/main or, on main itself, to the commit 5 first-parent commits ago.
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:-}
shift || true
if [ -z "$base" ]; then
  base=$(git merge-base origin/main HEAD 2>/dev/null || true)
  if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
    commits=$(git rev-list --first-parent --count HEAD)
    base=$(git rev-list --first-parent HEAD | sed -n "$((commits < 6 ? commits : 6))p")
  fi
fi
for commit in $(git rev-list --first-parent "$base"..HEAD); do
  git diff --name-only --diff-filter=d "$commit^" "$commit" -- "$@"
done | awk '!seen[$0]++' | while read -r file; do
  if [ -f "$file" ]; then echo "$file"; fi
done
