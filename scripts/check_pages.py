#!/usr/bin/env python3
"""Checks the user documentation: every link between pages has a target, every message that docs/troubleshooting.md quotes
exists in the program, and the renderers of manual pages that are installed show docs/chorus.1 without warnings."""

import itertools
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")] + sorted((ROOT / "docs").glob("*.md"))
# Messages of other programs (compiler, kernel, C library), and one that the program builds from several strings.
FOREIGN = ("Killed", "Killed signal terminated program cc1plus", "Permission denied", "Connection refused",
           "Address already in use", "Cannot assign requested address", "No such file or directory", "cannot bind to")


def anchors(page):
    """The anchors that GitHub generates for the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    names = re.findall(r"^#+ (.*)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", name.strip().lower()).replace(" ", "-") for name in names}


def broken_links():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            other = (page.parent / path).resolve() if path else page
            if not other.exists():
                yield f"{page.relative_to(ROOT)}: link to {target}, which is not there"
            elif anchor and anchor not in anchors(other):
                yield f"{page.relative_to(ROOT)}: link to {target}, which has no such heading"


def program_text():
    """All sources as one text, with adjacent string literals joined and each format placeholder replaced by NUL."""
    texts = []
    for source in sorted(ROOT.glob("src/**/*.cc")) + sorted(ROOT.glob("src/**/*.h")) + sorted(ROOT.glob("scripts/*.sh")):
        if source.name.endswith(("_test.cc", "_fuzz.cc")):
            continue
        text = re.sub(r'"\s*\n\s*"', "", source.read_text())
        texts.append(text.replace('\\"', '"'))
    return re.sub(r"\{[^{}\s]*\}", "\0", "\n".join(texts))


def occurs(piece, program):
    """Whether `program` contains the message `piece`, where placeholders may stand for up to two words."""
    if piece in program:
        return True
    words = piece.split()
    if len(words) < 3:
        return any("\0" + word in program or word + "\0" in program for word in words)
    for count in (1, 2):
        for open_words in itertools.combinations(range(len(words)), count):
            pattern = " ".join(r"[^ \n]*\0[^ \n]*" if i in open_words else re.escape(word) for i, word in enumerate(words))
            if len(words) > count + 1 and re.search(pattern, program):
                return True
    return False


def unknown_messages():
    program = program_text()
    page = ROOT / "docs/troubleshooting.md"
    for number, line in enumerate(page.read_text().splitlines(), 1):
        cells = line.split(" | ")
        if not line.startswith("| `"):
            continue
        for quoted in re.findall(r"``?\s?(.+?)\s?``?(?=[,;:.| ]|$)", cells[0].lstrip("| ")):
            if quoted in FOREIGN:
                continue
            # Capital letters and numbers in a quoted message are placeholders for its variable parts.
            pieces = re.split(r"\.\.\.|\b[A-Z][A-Z]*\b|\b\d+\b|`|'[^' ]*'", quoted)
            for piece in pieces:
                piece = piece.strip(" .,;:()")
                known = any(piece.endswith(foreign) for foreign in FOREIGN)
                if len(piece) > 8 and not known and not occurs(piece, program):
                    yield f"{page.relative_to(ROOT)}:{number}: no message of the program has '{piece}'"


def man_page_warnings():
    page = ROOT / "docs/chorus.1"
    for command in (["mandoc", "-Tlint", "-Wwarning"], ["groff", "-man", "-ww", "-z", "-Tutf8"]):
        if shutil.which(command[0]):
            done = subprocess.run([*command, page], capture_output=True, text=True)
            yield from (done.stdout + done.stderr).splitlines()


def main():
    faults = list(broken_links()) + list(unknown_messages()) + list(man_page_warnings())
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
