#!/usr/bin/env python3
"""Writes the pages that the program generates: docs/flags.md, docs/chorus.1, and the table of models in README.md.

usage: scripts/generated_pages.py [PROGRAM]      PROGRAM: build/release/bin/chorus

FlagsPageTest, ManPageTest and ArchitecturesTableTest fail if a page is not what the program prints.
"""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN = "<!-- chorus inspect --architectures -->\n"
END = "<!-- end -->\n"


def output(program, *arguments):
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/bin/chorus"
    (ROOT / "docs/flags.md").write_text(output(program, "flags"))
    (ROOT / "docs/chorus.1").write_text(output(program, "flags", "--man"))
    readme = ROOT / "README.md"
    before, begin, rest = readme.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{readme}: no table between the lines {BEGIN.strip()} and {END.strip()}")
    readme.write_text(before + BEGIN + output(program, "inspect", "--architectures") + END + after)


if __name__ == "__main__":
    main()
