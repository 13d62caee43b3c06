#!/usr/bin/env python3
"""Shows that the fuzz targets can find bugs. Each patch tests/fuzz/planted/TARGET.NAME.patch weakens a bounds check of
a parser. The patch is applied to a copy of the source, TARGET is linked with that copy (plain preset, ASan) and fuzzed
from its corpus for at most a minute. Not part of CI. Usage: scripts/planted_bugs.py [TARGET...]
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

LIMIT_S = 60
root = pathlib.Path(__file__).resolve().parent.parent
build = root / "build/plain"


def linkWithPlant(patch, target, work):
    """Links the fuzz target as work/fuzzer. The patched object precedes the libraries and so replaces theirs."""
    source = re.search(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M).group(1)
    planted = work / source
    planted.parent.mkdir(parents=True)
    shutil.copy(root / source, planted)
    subprocess.run(["patch", "-s", "-p1", "-i", patch], cwd=work, check=True)
    entry = next(e for e in json.loads((build / "compile_commands.json").read_text()) if e["file"] == str(root / source))
    command = entry["command"].replace(str(root / source), str(planted))
    command = re.sub(r"-o \S+", f"-o {work}/planted.o", command) + " -Wno-error"  # a fault may leave a variable unused
    subprocess.run(command, shell=True, cwd=entry["directory"], check=True)
    commands = subprocess.run(["ninja", "-C", build, "-t", "commands", target], capture_output=True, text=True, check=True)
    link = next(line for line in commands.stdout.splitlines()[::-1] if f"-o {target} " in line)
    link = link.replace(f"-o {target} ", f"-o {work}/fuzzer {work}/planted.o ")
    subprocess.run(link, shell=True, cwd=build, check=True)
    return source


def seconds(target, work):
    """Fuzzes until the first finding and returns the time; None when there is no finding."""
    shutil.copytree(root / "tests/fuzz" / target, work / "corpus")
    options = [f"-max_total_time={LIMIT_S}", "-timeout=2", "-rss_limit_mb=256", f"-artifact_prefix={work}/"]
    dictionary = root / f"tests/fuzz/{target}.dict"
    if dictionary.exists():
        options.append(f"-dict={dictionary}")
    environment = os.environ | {"ASAN_OPTIONS": "quarantine_size_mb=16:symbolize=0",
                                "UBSAN_OPTIONS": "halt_on_error=1"}
    begun = time.monotonic()
    run = subprocess.run([work / "fuzzer", *options, work / "corpus"], env=environment, capture_output=True)
    return time.monotonic() - begun if run.returncode != 0 else None


subprocess.run(["cmake", "--preset", "plain"], cwd=root, check=True, stdout=subprocess.DEVNULL)
missed = 0
for patch in sorted((root / "tests/fuzz/planted").glob("*.patch")):
    target = patch.name.split(".")[0]
    if sys.argv[1:] and target not in sys.argv[1:] and patch.stem not in sys.argv[1:]:
        continue
    subprocess.run(["cmake", "--build", build, "--target", target], check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        source = linkWithPlant(patch, target, work)
        found = seconds(target, work)
    missed += found is None
    print(f"{patch.stem:28} {source:34}", f"found in {found:.1f} s" if found is not None else "NOT FOUND", flush=True)
sys.exit(1 if missed else 0)
