#!/usr/bin/env python3
"""Checks rules of the source tree that a compiler does not check. Prints one line per violation; exits with 1 if any.

  layers   a source includes only its own layer and the layers before it in LADDER
  sizes    a source over 800 lines is refused
  models   only src/models/ names the class of a model: no other layer tells models apart
  names    variables and fields are in snake_case (clang-tidy checks all other names; to it a lambda is a variable)
  types    no two types of the program have one name in one namespace: the linker would merge their functions in silence
  tests    no skipped or disabled test, no test that cannot fail
  state    no thread_local variable: what belongs to a thread is passed as an argument
  words    no TODO, no commented-out include, no merge conflict marker
  docs     every file and directory that a page of documentation names in backticks exists
  fuzz     a fuzz target names the sources it parses, and has a corpus and a planted bug that applies
  weight   goldens, fuzz corpora and the demo stay within their sizes
"""
import pathlib
import re
import shutil
import subprocess
import sys

LADDER = ["base", "formats", "text", "kernels", "comm", "checkpoint", "lora", "models", "engine", "convert", "runtime",
          "server", "cli"]
API_FROM = "checkpoint"  # this layer and all later ones may include headers of include/chorus
MAX_LINES = 800
MAX_MIB = {"tests/goldens": 12, "tests/fuzz": 3, "examples/demo": 16}

# A declaration of a variable or field in camelCase that is no lambda.
CAMEL_VARIABLE = re.compile(r"^\s*(?:(?:static|constexpr|const|mutable) )*(?!return|using|case|throw|delete|new)"
                            r"(?:auto|(?:\w+::)*[A-Za-z_]\w*(?:<[^;=()]*>)?)[&*]*\s+[&*]*"
                            r"(?!k[A-Z])([a-z]+[A-Z]\w*)\s*(?:=(?!\s*\[)|;|\{)")
# malloc has no argument that could carry what the hook must know about its thread.
THREAD_LOCAL = {"tests/support/malloc_hook.cc"}
MODEL_CLASS = re.compile(r"\b[A-Z]\w*(?:ForCausalLM|ForConditionalGeneration|LMHeadModel)\b")

root = pathlib.Path(__file__).resolve().parent.parent
has_git = shutil.which("git") is not None and (root / ".git").exists()
listed = has_git and subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True,
                                    text=True)
if listed and listed.returncode == 0:
    files = [root / line for line in listed.stdout.splitlines() if (root / line).is_file()]
else:  # an exported tree, or a checkout that git does not trust
    outside = {".git", "build"}
    files = [f for f in root.rglob("*") if f.is_file() and not outside & set(f.relative_to(root).parts)]
errors = []


def complain(path, line, text):
    errors.append(f"{path.relative_to(root)}:{line}: {text}")


def check_source(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    if len(lines) > MAX_LINES:
        complain(path, len(lines), f"{len(lines)} lines, more than {MAX_LINES}")
    parts = path.relative_to(root).parts
    layer = parts[1] if parts[0] == "src" else None
    # Tests, their helpers and fuzz targets in src/ may also include the shared headers in tests/fuzz and tests/support.
    is_test = "testing" in parts or re.search(r"(_test|_fuzz|^test)\.cc$", path.name)
    for_tests = {"fuzz", "support"} if is_test else set()
    for number, line in enumerate(lines, 1):
        if layer and layer != "models" and not is_test and MODEL_CLASS.search(line.split("//")[0]):
            complain(path, number, "names the class of a model outside src/models/")
        if layer or parts[0] == "tests":
            variable = CAMEL_VARIABLE.match(line)
            if variable:
                complain(path, number, f"'{variable.group(1)}' is a variable or field and no snake_case")
        include = re.match(r'\s*#include "([a-z_]+)/', line)
        if include and layer:
            other = include.group(1)
            if other == "chorus":
                if LADDER.index(layer) < LADDER.index(API_FROM):
                    complain(path, number, f"layer {layer} includes the public API")
            elif other in for_tests:
                continue
            elif other not in LADDER:
                complain(path, number, f"includes {other}/, which is no layer")
            elif LADDER.index(other) > LADDER.index(layer):
                complain(path, number, f"layer {layer} includes the later layer {other}")
        inner = re.match(r'\s*#include "kernels/(\w+)/([\w-]+)\.h"', line)
        if inner and layer != "kernels" and parts[0] in {"src", "tests", "examples"}:
            # A backend may change its own files; the layers above it know the contracts of its ops.
            if inner[1] != inner[2] and inner[0].strip() != '#include "kernels/attention/kv_layout.h"':
                complain(path, number, "includes a file of the kernels that is no contract of an op")
        if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", line):
            complain(path, number, "a mark of unfinished work")
        if re.search(r"GTEST_SKIP|\bDISABLED_|(EXPECT|ASSERT)_TRUE\(true\)", line):
            complain(path, number, "a test that may not run or cannot fail")
        if "thread_local" in line.split("//")[0] and path.relative_to(root).as_posix() not in THREAD_LOCAL:
            complain(path, number, "thread_local state: pass it as an argument")
        if re.match(r"\s*//\s*#include", line):
            complain(path, number, "commented-out code")


types = {}  # qualified name -> where it is defined


def collect_types(path):
    """Types at namespace scope. A namespace ends with the comment that clang-format writes; those of SIMD code are left
    out, because each instruction set compiles them once more."""
    namespaces = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        opened = re.match(r"(?:inline )?namespace ?([\w:]*) ?\{$", line)
        if opened:
            namespaces.append(opened.group(1))
        elif re.match(r"\}  // namespace", line) and namespaces:
            namespaces.pop()
        defined = re.match(r"(?:class|struct|enum class|union) (?:alignas\(\w+\) )?([\w:]+)[^;:]*(?: : [^;]*)?\{", line)
        if defined and "" not in namespaces and "HWY_NAMESPACE" not in namespaces:
            name = "::".join([*namespaces, defined.group(1)])
            first = types.setdefault(name, f"{path.relative_to(root)}:{number}")
            if first != f"{path.relative_to(root)}:{number}":
                complain(path, number, f"defines {name}, which {first} defines too")


def check_docs(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for name in re.findall(r"`((?:src|include|tests|scripts|examples|docs|bench|cmake)/[\w./-]*)`", line):
            if not (root / name).exists():
                complain(path, number, f"names {name}, which does not exist")


def check_fuzz_target(path):
    parsed = re.findall(r"^// parses: (.+)$", path.read_text(encoding="utf-8"), re.M)
    if not parsed:
        complain(path, 1, "has no line '// parses: FILES'")
    for name in " ".join(parsed).split():
        if not (root / name).exists():
            complain(path, 1, f"parses {name}, which does not exist")
    corpus = root / "tests/fuzz" / path.stem
    if not corpus.is_dir() or not any(corpus.iterdir()):
        complain(path, 1, f"has no corpus in {corpus.relative_to(root)}")
    if not any((root / "tests/fuzz/planted").glob(f"{path.stem}.*.patch")):
        complain(path, 1, "has no planted bug in tests/fuzz/planted")


def check_planted_bug(path):
    target = re.fullmatch(r"(\w+_fuzz)\.\w+\.patch", path.name)
    if not target or not any((root / "src").rglob(f"{target.group(1)}.cc")):
        complain(path, 1, "is not named TARGET.NAME.patch for a fuzz target")
    if not has_git:
        return
    applied = subprocess.run(["git", "apply", "--check", path], cwd=root, capture_output=True)
    if applied.returncode != 0:
        complain(path, 1, "no longer applies to the source")


for file in files:
    if file.name.endswith("_fuzz.cc"):
        check_fuzz_target(file)
    if file.suffix in {".cc", ".h", ".cu", ".cuh"}:
        check_source(file)
        if file.relative_to(root).parts[0] == "src" and not re.search(r"(_test|_fuzz|^test)\.cc$", file.name):
            collect_types(file)
    if file.parent == root / "tests/fuzz/planted":
        check_planted_bug(file)
for file in files:
    if file.suffix in {".cc", ".h", ".md", ".py", ".sh", ".json", ".txt", ".cmake"}:
        for mark in re.finditer(rb"^(?:<{7}|>{7}) ", file.read_bytes(), re.M):
            complain(file, file.read_bytes()[:mark.start()].count(b"\n") + 1, "a conflict left by a merge")
    if file.suffix == ".md" and file.name != "CHANGELOG.md":
        check_docs(file)
for folder, limit in MAX_MIB.items():
    size = sum(f.stat().st_size for f in files if (root / folder) in f.parents)
    if size > limit << 20:
        errors.append(f"{folder}: {size / (1 << 20):.1f} MiB, more than {limit}")
print("\n".join(errors) if errors else f"check_tree: {len(files)} files, no violation")
sys.exit(1 if errors else 0)
