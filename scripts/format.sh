#!/usr/bin/env bash
# Checks the format of every C++ and CUDA source against .clang-format: lists the sources that differ and fails. With
# --fix it reformats them.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(--dry-run)
[ "${1:-}" = --fix ] && mode=(-i)
sources=$(git ls-files -co --exclude-standard '*.cc' '*.h' '*.cu' '*.cuh')
wrong=$(xargs -n 40 -P "$(nproc)" clang-format-19 --style=file "${mode[@]}" <<<"$sources" 2>&1 |
        sed -n 's/^\([^:]*\):[0-9]*:.*code should be clang-formatted.*/\1/p' | sort -u)
[ -z "$wrong" ] && exit 0
echo "not formatted (scripts/format.sh --fix does it):" $wrong
exit 1
