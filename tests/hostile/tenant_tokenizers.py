"""Hostile tokenizers in adapters' directories: false tables, expensive patterns, texts that grow."""

import base64
import json
import random
import shutil
import struct
import time

import setting
import wire
from hostile_server import HostileServer, time_scale
from stage import scenario

COMPLETIONS = "/v1/completions"
# An adapter may be out of service, 404, and a text may be refused, 400.
ENDED = {200, 400, 404}


def base_tokenizer():
    return json.loads((setting.demo / "base" / "tokenizer.json").read_text(encoding="utf-8"))


def with_tokenizer(tokenizer):
    """Returns an edit of an adapter's folder. tokenizer: the JSON value or its text."""
    def edit(folder):
        text = tokenizer if isinstance(tokenizer, str) else json.dumps(tokenizer)
        (folder / "tokenizer.json").write_text(text, encoding="utf-8")
        if '"<|begin|>"' in text:  # otherwise the configuration's tokens would contradict the tokenizer
            shutil.copy(setting.demo / "base" / "tokenizer_config.json", folder)
    return edit


def place(stage, adapters, within=20):
    """Adds adapters (name: tokenizer) at once, and a plain one after them that the scan must reach in time."""
    for name, tokenizer in adapters.items():
        stage.server.put_adapter(name, with_tokenizer(tokenizer))
    begun = time.monotonic()
    last = stage.server.put_last()
    stage.check_time(stage.server.wait_served(last, within),
                     f"a plain adapter behind {len(adapters)} hostile ones is not served after {within} s")
    stage.note(f"the scan of {len(adapters)} adapters took {time.monotonic() - begun:.1f} s; served: "
               f"{sum(name in adapters for name in stage.server.served())}")
    stage.server.remove_adapter(last)
    # The neighbour is judged during the scan too.
    stage.windows.append((begun, time.monotonic()))


def remove(stage, adapters):
    for name in adapters:
        stage.server.remove_adapter(name)


def ask_all(address, requests):
    """Sends each (adapter, prompt), one after another."""
    return [wire.ask(address, COMPLETIONS, {"model": name, "prompt": prompt, "max_tokens": 1},
                     f"{name}: {len(prompt)} bytes {prompt[:12]!r}", timeout=40) for name, prompt in requests]


# --- character maps -------------------------------------------------------------------------------------------------


def charsmap(replacements, texts, declared=None, units=1024):
    """A precompiled charsmap: a double-array trie that maps single bytes to offsets into texts.

    replacements: byte -> offset, or None for a node without a value. declared: the size stated in the header.
    """
    trie = [0] * units
    trie[0] = 0x100 << 10
    for byte, offset in replacements.items():
        node = 0x100 ^ byte
        leaf = node ^ 0x200
        trie[node] = byte | (1 << 8) | (0x200 << 10)
        if offset is not None and leaf < units:
            trie[leaf] = 0x80000000 | (offset & 0x7FFFFFFF)
    size = 4 * units if declared is None else declared
    data = struct.pack("<I", size & 0xFFFFFFFF) + struct.pack(f"<{units}I", *trie) + texts
    return base64.b64encode(data).decode()


def unigram(normalizer, score=-1.0, byte_fallback=False):
    vocabulary = [["<unk>", 0.0], ["b", score], ["c", score], ["\u00e9", score], ["\u6f22", score]]
    if byte_fallback:
        vocabulary += [[f"<0x{value:02X}>", -5.0] for value in range(256)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": normalizer,
            "pre_tokenizer": None, "post_processor": None,
            "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
            "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": byte_fallback, "vocab": vocabulary}}


def precompiled(*arguments, **options):
    return {"type": "Precompiled", "precompiled_charsmap": charsmap(*arguments, **options)}


def hostile_charsmaps():
    """Tokenizers by name: every offset that a table may state, for each kind of character and model."""
    rng = random.Random(13)
    found = {}
    texts = "\u00e9\0\u6f22\u5b57\0\U0001f600\0ab\0".encode()
    for offset in [*range(len(texts) + 3), 1 << 20, 0x7FFFFFFF]:
        found[f"cm-offset-{offset}"] = unigram(precompiled({0x61: offset, 0x78: offset}, texts), score=1e300,
                                               byte_fallback=offset % 2 == 1)
    for name, raw in {"unended": b"\xc3\xa9", "stray": b"\x80\0", "cut": b"\xf0\x9f\0", "overlong": b"\xc0\x80\0",
                      "surrogate": b"\xed\xa0\x80\0", "beyond": b"\xf4\x90\x80\x80\0", "leads": b"\xf0\xf0\xf0\0",
                      "empty": b"", "huge": b"\xc3\xa9" * 100_000 + b"\0"}.items():
        found[f"cm-text-{name}"] = unigram(precompiled({0x61: 0, 0x62: 1, 0xC3: 0, 0xE6: 0, 0xF0: 0}, raw), score=1e300)
    for declared in (0, 1, 3, 4, 4095, 4097, 4 * 1024 + len(texts), 1 << 31, 0xFFFFFFFF):
        found[f"cm-size-{declared}"] = unigram(precompiled({0x61: 0}, texts, declared=declared))
    for units in (1, 2, 255, 256, 257, 512):
        found[f"cm-units-{units}"] = unigram(precompiled({0x01: 0, 0x61: 0} if units > 400 else {}, texts, units=units))
    for number in range(8):  # a trie of random units
        data = struct.pack("<I", 4096) + bytes(rng.randrange(256) for _ in range(4096)) + texts
        found[f"cm-random-{number}"] = unigram({"type": "Precompiled",
                                                "precompiled_charsmap": base64.b64encode(data).decode()})
    nested = {"type": "Sequence", "normalizers": [precompiled({0x61: 1, 0xC3: 4}, texts), {"type": "NFD"},
                                                  precompiled({0x62: 6, 0xCC: 1}, texts),
                                                  {"type": "Replace", "pattern": {"String": "c"}, "content": "\u00e9"}]}
    found["cm-sequence"] = unigram(nested, score=1e300)
    for model in ("BPE", "WordPiece", "WordLevel"):
        tokenizer = unigram(precompiled({0x61: 1, 0x62: 4}, texts))
        words = {"<unk>": 0, "a": 1, "b": 2, "\u00e9": 3}
        tokenizer["model"] = {"type": model, "vocab": words, "unk_token": "<unk>", "merges": [],
                              "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "fuse_unk": True}
        found[f"cm-{model}"] = tokenizer
    bad_base64 = unigram({"type": "Precompiled", "precompiled_charsmap": "====" * 100})
    found["cm-not-base64"] = bad_base64
    return found


@scenario("tokenizer-charsmaps", quick=True)
def tokenizer_charsmaps(stage):
    adapters = hostile_charsmaps()
    place(stage, adapters, within=30)
    served = set(stage.server.served())
    texts = ["a" * count for count in (1, 2, 3, 7, 43, 1001)] + ["xaxb\u00e9\u6f22\U0001f600" * 40, "\u00e9a" * 333]
    requests = [(name, text) for name in adapters if name in served for text in texts]
    requests += [(name, "a") for name in adapters if name not in served]
    stage.check_answers(stage.attack(ask_all, requests), ENDED, within=10)
    remove(stage, adapters)


# --- patterns -------------------------------------------------------------------------------------------------------

PATTERNS = {
    "polynomial": "a*a*b|a", "polynomial 4": "a*a*a*a*b|a", "nested stars": "(a*)*b|a", "nested plus": "(a+)+b|a",
    "alternatives": "(a|a)*b|a", "alternatives 3": "(a|aa|aaa)*b|a", "optional": "(?:a?){40}a{40}b|a",
    "two runs": "(x+x+)+y|x|a", "lookahead": "(?=(a*a*)c)b|a", "negative lookahead": "(?!(a+)+c)a", "far look": "a(?!.*z)",
    "far look 2": "a(?=.*.*y)|.", "lookbehind": "(?<=a{1,200})b|a", "back reference": "(a+)\\1+b|a",
    "back reference 2": "(a*)(a*)\\1\\2c|a", "atomic": "(?>a*)*b|a", "possessive": "(a*+)*b|a",
    "counts": "(?:(?:a{0,60}){0,60}){0,60}b|a", "count": "a{0,100000}b|a", "classes": "[\\w\\s]*[\\w]*[\\s]*!|.",
    "any case": "(?i:a*a*b)|a", "unicode": "\\p{L}*\\p{L}*\\p{N}|\\p{L}", "words": "\\b(?:\\w+\\s*)+!|\\w", "ends": ".*.*$x|a",
    "conditional": "(a)?(?(1)b|c)*d|a", "recursion": "(?<r>a\\g<r>?b)|a", "empty": "(a|b|)*c|a", "dot": "(.*)*(.*)*b|.",
    "absent": "(?~(a*a*)b)c|a", "keep": "a*\\Ka*b|a", "grapheme": "\\X*\\X*b|a", "ignore": "(?x: a* a* b )|a",
    "look empty": "(?=" + "(?:|)" * 60 + "(?!))|a", "atomic empty": "(?>" + "(?:|)" * 60 + "(?!))|a",
    "many loops": "a" + "b*" * 2000,
    "calls": "".join(f"(\\g<{n}>\\g<{n}>\\g<{n}>)" for n in range(2, 28)) + "(a)",
    "large": "|".join(f"a{{0,{n}}}x{n}" for n in range(400)) + "|a",
}


def split_by(pattern):
    tokenizer = base_tokenizer()
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}
    return tokenizer


def replace_by(pattern):
    tokenizer = base_tokenizer()
    tokenizer["normalizer"] = {"type": "Replace", "pattern": {"Regex": pattern}, "content": "x"}
    return tokenizer


@scenario("tokenizer-patterns", quick=True)
def tokenizer_patterns(stage):
    adapters = {}
    for number, (name, pattern) in enumerate(PATTERNS.items()):
        make = (split_by, replace_by)[number % 2]
        adapters[f"rx-{name.replace(' ', '-')}"] = make(pattern)
    place(stage, adapters, within=30)
    served = set(stage.server.served())
    texts = [("a" * 600 + " ") * 33, "a" * 20_000, ("a" * 600 + " ") * 166, "a" * 100_000, "x" * 5000 + "a\u00e9 " * 5000]
    requests = [(name, text) for text in texts for name in adapters if name in served]
    half = len(requests) // 2
    for answers in stage.attack_all([(ask_all, requests[:half]), (ask_all, requests[half:])], timeout=90):
        stage.check_answers(answers, ENDED, within=15)
    remove(stage, adapters)


# --- tokenizers that are there when the server starts -----------------------------------------------------------------


@scenario("tokenizers-at-start", quick=True, neighbour=False)
def tokenizers_at_start(stage):
    """Slow and broken tokenizers delay neither the start nor other adapters' requests nor the end."""
    present = {f"aa-{name.replace(' ', '-')}": with_tokenizer(split_by(pattern)) for name, pattern in PATTERNS.items()}
    # All of these, too, would be more tokenizers than adapters may have in memory.
    present |= {f"aa-replace-{name.replace(' ', '-')}": with_tokenizer(replace_by(PATTERNS[name]))
                for name in ("look empty", "atomic empty", "many loops", "empty", "grapheme")}
    present |= {f"ab-{name}": with_tokenizer(tokenizer) for name, tokenizer in hostile_charsmaps().items()}
    present["zz-own"] = with_tokenizer(base_tokenizer())
    folder = setting.scratch() / "at-start"
    folder.mkdir(exist_ok=True)
    (folder / "cache").unlink(missing_ok=True)
    (folder / "cache").symlink_to(stage.server.folder / "cache")
    for end_at_once in (False, True):
        begun = time.monotonic()
        server = HostileServer(folder=folder, present=present)
        stage.note(f"ready after {time.monotonic() - begun:.1f} s")
        if not end_at_once:
            # The tokenizer of zz-own is the last by name, but a request for it waits only for the one being read.
            answers = ask_all(server.address, [("shout", "a"), ("zz-own", "a")])
            stage.check_answers(answers, {200, 503}, within=6)
            stage.check_time(all(answer.status == 200 for answer in answers), "a tokenizer is not read in time")
            stage.check_answers(ask_all(server.address, [(name, "a") for name in present]), ENDED | {503}, within=15)
        code, seconds = server.end()
        stage.check_time(code == 0 and seconds < 8 * time_scale(), f"SIGTERM: status {code} after {seconds:.1f} s")
        stage.check(code in (0, None), f"SIGTERM: status {code}")
        stage.faults += server.log_faults()


# --- texts that grow --------------------------------------------------------------------------------------------------


def growing_tokenizers():
    found = {}

    def add(name, **parts):
        tokenizer = base_tokenizer()
        tokenizer.update(parts)
        found[name] = tokenizer
        return tokenizer

    def replaced(pattern, content):
        return {"type": "Replace", "pattern": {"String": pattern}, "content": content}

    add("grow-replace", normalizer=replaced("a", "b" * 1000))
    add("grow-twice", normalizer={"type": "Sequence", "normalizers": [replaced("a", "b" * 300), replaced("b", "a" * 300),
                                                                     replaced("a", "b" * 300)]})
    add("grow-empty", normalizer={"type": "Replace", "pattern": {"Regex": ""}, "content": "b" * 200})
    add("grow-prepend", normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "a" * 100_000}] * 20})
    add("grow-nfkd", normalizer={"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "NFKC"}] * 50})
    add("grow-bytes", normalizer={"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 20})
    add("grow-map", normalizer=precompiled({0x61: 0}, b"a" * 50_000 + b"\0"))
    add("grow-post", post_processor={
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}}] * 300_000
        + [{"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
        "special_tokens": {"<|begin|>": {"id": "<|begin|>", "ids": [0] * 100, "tokens": ["<|begin|>"] * 100}}})
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    huge = add("added-huge")
    vocabulary = huge["model"]["vocab"]
    last = max(vocabulary, key=vocabulary.get)
    huge["model"]["merges"] = [merge for merge in huge["model"]["merges"] if "".join(merge) != last]
    vocabulary["z" * 2_000_000] = vocabulary.pop(last)
    huge["added_tokens"] = huge["added_tokens"] + [{**flags, "id": vocabulary["z" * 2_000_000], "content": "z" * 2_000_000}]
    for name, changed in {"strip": {"lstrip": True, "rstrip": True}, "word": {"single_word": True},
                          "normal": {"normalized": True, "rstrip": True}}.items():
        tokenizer = add(f"added-{name}", normalizer={"type": "Lowercase"})
        vocabulary = tokenizer["model"]["vocab"]
        tokenizer["added_tokens"] = tokenizer["added_tokens"] + [
            {**flags, **changed, "id": vocabulary[letter], "content": letter} for letter in "abcdefgh"]
    many = add("added-many")
    known = {token["content"] for token in many["added_tokens"]}
    many["added_tokens"] = many["added_tokens"] + [
        {**flags, "lstrip": True, "rstrip": True, "id": number, "content": text}
        for text, number in many["model"]["vocab"].items() if text not in known]
    merges = add("merges-many")
    merges["model"]["merges"] = merges["model"]["merges"] * 200
    deep = '{"type":"Sequence","normalizers":[' * 2000 + '{"type":"NFC"}' + "]}" * 2000
    found["deep"] = json.dumps({**base_tokenizer(), "normalizer": "HERE"}).replace('"HERE"', deep)
    pairs = add("bpe-run")
    runs = ["a" * 2**power for power in range(12)]  # merges that all apply to one run of a single letter
    vocabulary = {text: number for number, text in enumerate(["<unk>", "b", *runs])}
    rules = [[text, text] for text in runs[:-1]]
    pairs.update(pre_tokenizer=None, post_processor=None, added_tokens=[],
                 model={"type": "BPE", "unk_token": "<unk>", "vocab": vocabulary, "merges": rules})
    return found


@scenario("tokenizer-growth")
def tokenizer_growth(stage):
    adapters = growing_tokenizers()
    place(stage, adapters, within=40)
    served = set(stage.server.served())
    texts = ["a" * 1000, "a b" * 20_000, "\ufdfa" * 30_000, "a" * 2_000_000, "  a  " * 300_000]
    requests = [(name, text) for name in adapters if name in served for text in texts]
    half = len(requests) // 2
    for answers in stage.attack_all([(ask_all, requests[:half]), (ask_all, requests[half:])], timeout=90):
        stage.check_answers(answers, ENDED | {429, 503}, within=15)
    remove(stage, adapters)


@scenario("tokenizer-load")
def tokenizer_load(stage):
    """The tokenizers of many tenants share a memory budget: those that exceed it are left out, and memory stays in the
    plan.
    """
    adapters = {}
    for number in range(24):
        own = unigram(None)
        own["model"]["vocab"] = [["<unk>", 0.0]] + [[f"{number}-{n}-" + "\u00e9" * 2000, -1.0] for n in range(1500)]
        adapters[f"load-{number:02}"] = own
    place(stage, adapters, within=40)
    stage.check_answers(stage.attack(ask_all, [(name, "two dogs") for name in adapters]), ENDED | {429, 503})
    remove(stage, adapters)
