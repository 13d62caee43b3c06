#!/usr/bin/env python3
"""Compares ids and texts with those of tokenizers, transformers, sentencepiece, tiktoken and mistral-common.

Every kind of tokenizer encodes random texts (any characters, code, long runs, added tokens in odd places), decodes them
again, and decodes random ids: whole, without special tokens, and token by token. Prints the counts and fails on any
difference. A text with which the reference panics is counted and left out.

Usage: compare_tokenizers.py PROBE [--count 20000] [--seed 1] [--kinds A,B] [--tekken FILE]
  PROBE     build/release/bench/chorus_tokenizer_probe
  --tekken  a tekken.json; default: the one that comes with mistral-common
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import text_goldens
from tokenizer_kinds import kinds, save
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers

CODE = ["def f(x):\n\treturn x**2  # why\n", "for (int i = 0; i < n; ++i) { a[i] += 1; }\n", "    if x is None:\n        pass\n",
        '{"key": [1, 2.5e-3, null], "s": "\\n"}', "SELECT * FROM t WHERE a_b='c';", "<div class=\"x\">&nbsp;</div>\r\n", "#include <vector>\n"]
ATOMS = ["a", "Z", "the", " ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "1", "234", "é", "e\u0301", "日本", "😀", "👨\u200d👩", "!", "--", "\u00a0", "\u3000",
         "_", "ß", "\u0301", "ſ", "K", "İ", "한", "\u200d", "ا", "½", ".", "hello", " world", "▁", "Ġ", "</w>", "##", "|", "<0x41>", "カタ", "ー", "ひら", "\x00", "\ufffd",
         "don't", " do not", " n't", "\u0085", "\x1c", "[UNK]", "<unk>"]


def random_text(rng, added):
    """A text of one of several kinds."""
    kind = rng.randrange(10)
    if kind == 0:  # any characters
        planes = [0x80, 0x300, 0x3000, 0x10000, 0x20000, 0x110000]
        codes = [rng.randrange(rng.choice(planes)) for _ in range(rng.randint(1, 30))]
        return "".join(chr(c) for c in codes if not 0xD800 <= c < 0xE000)
    if kind == 1:
        return "".join(rng.choice(CODE) for _ in range(rng.randint(1, 3)))
    if kind == 2:  # a long run
        return rng.choice(ATOMS)[:2] * rng.randint(1, 300) + rng.choice(ATOMS)
    if kind == 3:
        return rng.choice(text_goldens.CORPUS)[rng.randrange(40):][:rng.randint(1, 90)]
    pool = ATOMS + added * (3 if kind < 7 else 1)
    return "".join(rng.choice(pool) for _ in range(rng.randint(0, 16)))


class Probe:
    def __init__(self, program):
        self.process = subprocess.Popen([program, "lines"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def random_parts(rng):
    """A tokenizer of random parts on one of the trained models."""
    behaviors = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
    schemes = ["always", "first", "never"]
    flag = lambda: rng.random() < 0.5
    atom = lambda: rng.choice([a for a in ATOMS if a])
    # The schema of the file has one character for these.
    letter = lambda: rng.choice(["▁", "_", "o", "é", " ", "日"])
    pattern = lambda: rng.choice([atom(), Regex(rng.choice([r"\s+", r"[a-e]+", r"\p{Lu}\p{Ll}*", r"\d{1,3}(?=\d)", text_goldens.LLAMA3, r"[[:punct:]]", "\\p{Han}|'"]))])
    normal = [lambda: normalizers.NFC(), lambda: normalizers.NFD(), lambda: normalizers.NFKC(), lambda: normalizers.NFKD(), lambda: normalizers.Lowercase(),
              lambda: normalizers.StripAccents(), lambda: normalizers.Nmt(), lambda: normalizers.Strip(flag(), flag()), lambda: normalizers.Prepend(atom()),
              lambda: normalizers.Replace(pattern(), rng.choice(["", "_", "ab"])),
              lambda: normalizers.BertNormalizer(flag(), flag(), rng.choice([None, True, False]), flag())]
    pre = [lambda: pre_tokenizers.BertPreTokenizer(), lambda: pre_tokenizers.Whitespace(), lambda: pre_tokenizers.WhitespaceSplit(), lambda: pre_tokenizers.Punctuation(rng.choice(behaviors)),
           lambda: pre_tokenizers.Digits(flag()), lambda: pre_tokenizers.CharDelimiterSplit(letter()), lambda: pre_tokenizers.UnicodeScripts(), lambda: pre_tokenizers.FixedLength(rng.randint(1, 9)),
           lambda: pre_tokenizers.Metaspace(letter(), rng.choice(schemes), flag()), lambda: pre_tokenizers.Split(pattern(), rng.choice(behaviors), flag())]
    decode = [lambda: decoders.WordPiece(rng.choice(["##", "a", ""]), flag()), lambda: decoders.CTC(rng.choice(["a", "Ġ", ""]), rng.choice(["|", "e"]), flag()), lambda: decoders.BPEDecoder(rng.choice(["</w>", "e"])),
              lambda: decoders.Metaspace(letter(), rng.choice(schemes), flag()), lambda: decoders.Fuse(), lambda: decoders.Strip(letter(), rng.randrange(3), rng.randrange(3)),
              lambda: decoders.Replace(pattern(), rng.choice(["", " "])), lambda: decoders.ByteFallback(), lambda: decoders.ByteLevel()]
    some = lambda parts, most: [rng.choice(parts)() for _ in range(rng.randint(0, most))]
    t = Tokenizer.from_str(rng.choice(BASES))
    byte_level = json.loads(t.to_str())["decoder"] == {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    t.normalizer = normalizers.Sequence(some(normal, 3))
    parts = some(pre, 3)
    # Behind another splitter, the library takes every piece for the first that comes of the text's first character, also
    # one of several; Chorus takes only the first piece.
    parts[1:] = [pre_tokenizers.Metaspace(p.replacement, "always", p.split) if isinstance(p, pre_tokenizers.Metaspace) and p.prepend_scheme == "first" else p for p in parts[1:]]
    if byte_level:
        parts.append(pre_tokenizers.ByteLevel(add_prefix_space=flag(), use_regex=flag()))
    t.pre_tokenizer = pre_tokenizers.Sequence(parts)
    t.decoder = decoders.Sequence(some(decode, 3))
    return t


BASES = []


class Comparison:
    def __init__(self, probe, name):
        self.probe, self.name = probe, name
        self.texts = self.decodings = self.left_out = self.refused = 0
        self.faults = []

    def reference(self, call, *arguments):
        try:
            return call(*arguments)
        except BaseException as error:  # the library's panics are no Exceptions
            if isinstance(error, KeyboardInterrupt):
                raise
            self.left_out += 1
            return None

    def check(self, what, ours, theirs):
        if "error" in ours or any(ours[key] != value for key, value in theirs.items()):
            self.faults.append(f"{self.name}: {what!r}: ours {ours}, reference {theirs}"[:700])

    def run(self, reference, rng, count):
        """Compares `count` texts that the reference accepts, of at most three times as many."""
        most = self.texts + count
        for _ in range(3 * count):
            if self.texts >= most:
                return
            text = random_text(rng, reference.added)
            theirs = self.reference(reference.encode, text)
            if theirs is None:
                continue
            self.texts += 1
            self.check(text, self.probe.ask(encode=text), theirs)
            ids = theirs.get("special", theirs["ids"])
            if rng.random() < 0.5:
                ids = [rng.randrange(reference.size + 2) for _ in range(rng.randint(1, 20))]
            theirs = self.reference(reference.decode, ids)
            if theirs is not None:
                self.decodings += 1
                self.check(ids, self.probe.ask(decode=ids), theirs)
            if len(self.faults) > 20:
                return

    def report(self):
        refused = f", {self.refused} tokenizers refused" if self.refused else ""
        print(f"{self.name:28} {self.texts} texts, {self.decodings} decodings: {len(self.faults)} differences; "
              f"{self.left_out} left out as the reference fails{refused}", flush=True)
        for fault in self.faults[:8]:
            print("   ", fault)
        return len(self.faults)


def ambiguous(tokenizer):
    """Whether the normalizer makes two added tokens equal: which of them the library finds depends on a random hash."""
    added = [t.content for t in tokenizer.get_added_tokens_decoder().values() if t.normalized]
    return len({tokenizer.normalizer.normalize_str(content) for content in added}) < len(added)


def every_character(probe):
    """Every character in each part that classifies or maps characters."""
    comparison = Comparison(probe, "every character")
    parts = [("normalizer", n) for n in [normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(), normalizers.Lowercase(), normalizers.StripAccents(), normalizers.Nmt(),
                                         normalizers.Strip(), normalizers.BertNormalizer()]]
    parts += [("pre_tokenizer", p) for p in [pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits(True),
                                             pre_tokenizers.UnicodeScripts()]]
    for key, part in parts:
        t = text_goldens.gpt2()
        if key == "normalizer":
            t.normalizer = part
        else:
            t.pre_tokenizer = pre_tokenizers.Sequence([part, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        if key == "normalizer":
            t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        with tempfile.TemporaryDirectory() as directory:
            reference = save(t, pathlib.Path(directory))
            probe.ask(load=directory)
        different = []
        for begin in range(0, 0x110000, 64):
            text = "".join(f"a{chr(c)}b" for c in range(begin, begin + 64) if not 0xD800 <= c < 0xE000)
            if text and probe.ask(encode=text)["ids"] != reference.encode(text)["ids"]:
                for c in range(begin, begin + 64):
                    one = f"a{chr(c)}b"
                    if probe.ask(encode=one)["ids"] != reference.encode(one)["ids"]:
                        different.append(c)
            comparison.texts += 1
        if different:
            comparison.faults.append(f"{type(part).__name__}: {len(different)} characters differ: {' '.join(f'{c:X}' for c in different[:60])}")
    return comparison.report()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", help="names; also: random_parts, every_character")
    parser.add_argument("--tekken")
    options = parser.parse_args()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the library's panics say so at length
    probe, faults = Probe(options.probe), 0
    wanted = options.kinds.split(",") if options.kinds else None
    for name, make in kinds(options.tekken).items():
        if wanted and name not in wanted:
            continue
        comparison = Comparison(probe, name)
        with tempfile.TemporaryDirectory() as directory:
            reference = make(pathlib.Path(directory))
            loaded = probe.ask(load=directory)
            if "error" in loaded:
                print(f"{name}: {loaded['error']}")
                sys.exit(1)
        comparison.run(reference, random.Random(f"{name} {options.seed}"), options.count)
        faults += comparison.report()
    if not wanted or "random_parts" in wanted:
        comparison, rng = Comparison(probe, "random_parts"), random.Random(options.seed)
        BASES.extend(f().to_str() for f in [text_goldens.gpt2, text_goldens.qwen2, text_goldens.llama2, text_goldens.unigram, lambda: text_goldens.bert(True), text_goldens.word_level, text_goldens.suffixes])
        texts = 20
        while comparison.texts < options.count:
            tokenizer = random_parts(rng)
            if ambiguous(tokenizer):
                continue
            with tempfile.TemporaryDirectory() as directory:
                reference = save(tokenizer, pathlib.Path(directory))
                loaded = probe.ask(load=directory)
                if "error" in loaded:
                    comparison.refused += 1
                    continue
            before = len(comparison.faults)
            comparison.run(reference, rng, texts)
            if len(comparison.faults) > before:
                comparison.faults.append("    of " + json.dumps({k: v for k, v in json.loads(tokenizer.to_str()).items() if k in ("normalizer", "pre_tokenizer", "decoder")}))
        faults += comparison.report()
    if not wanted or "every_character" in wanted:
        faults += every_character(probe)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
