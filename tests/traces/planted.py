#!/usr/bin/env python3
"""Shows that the traces can find bugs. Each patch planted/NAME.patch puts a bug into the server. It is applied to a copy of
the sources under build/planted/, and the program built from it must fail in the scenarios or in drawn traces within two
minutes. Not part of CI. Usage: tests/traces/planted.py [NAME...]
"""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

LIMIT_S = 120
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COPY = ROOT / "build/planted"


def build(patch):
    """Builds `chorus` with the patch in the copy and returns its path. The copy keeps its objects between patches."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, COPY / name
        if not source.is_file() or (target.exists() and target.read_bytes() == source.read_bytes()):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    subprocess.run(["patch", "-s", "-p1", "-i", patch], cwd=COPY, check=True)
    # CI's flags, so that a compiler cache has most objects.
    subprocess.run(["cmake", "--preset", "release", "-DCHORUS_WERROR=ON"], cwd=COPY, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "--preset", "release", "--target", "chorus"], cwd=COPY, check=True,
                   stdout=subprocess.DEVNULL)
    return COPY / "build/release/bin/chorus"


def find(chorus, *options):
    """Plays traces and returns the line that reports the first fault, or None."""
    done = subprocess.run(
        [sys.executable, HERE / "run.py", "--chorus", chorus, "--demo", ROOT / "examples/demo", "--shrink_seconds", "0",
         "--failed", COPY / "build/failed.json", *options], capture_output=True, text=True)
    found = re.search(r"^.*faults after.*$", done.stdout, re.M)
    if done.returncode != 0 and not found:
        sys.exit(done.stdout + done.stderr)
    return found.group(0) if found else None


def main():
    missed = 0
    for patch in sorted((HERE / "planted").glob("*.patch")):
        if sys.argv[1:] and patch.stem not in sys.argv[1:]:
            continue
        chorus = build(patch)
        scenarios = find(chorus)
        begun = time.monotonic()
        drawn = find(chorus, "--only_drawn", "--seconds", str(LIMIT_S), "--seed", "planted")
        missed += not (scenarios or drawn)
        print(f"{patch.stem:32} scenarios: {scenarios or 'NOT FOUND'}; drawn: {drawn or 'NOT FOUND'} "
              f"({time.monotonic() - begun:.0f} s)", flush=True)
    shutil.rmtree(COPY, ignore_errors=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
