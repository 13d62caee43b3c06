#!/usr/bin/env python3
"""Makes the tokenizer goldens: tests/goldens/text/tokenizers/.

Trains tiny byte pair tokenizers with the tokenizers library, and writes what it encodes and decodes for a list of
hostile strings. strings.jsonl holds the strings; NAME.json a tokenizer; NAME.jsonl one line per string:
{"ids", "special" (ids with special tokens, when they differ), "text", "skipped" (decoded without special tokens, when
it differs)}; NAME.decode.jsonl random ids with their decoding; variants.jsonl components in place of a base's own;
words.jsonl the same for tokenizers of whole words, on the base bert.json, with random ids.

Usage: text_goldens.py [words]   words: only words.jsonl and its base (needs tokenizers; versions.json has the version that made the committed files)
"""
import json
import pathlib
import random
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).resolve().parent.parent / "goldens" / "text" / "tokenizers"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

CORPUS = [
    "The quick brown fox jumps over the lazy dog. It's what they've said; we'll see, I'm sure you'd agree.",
    "In 2023 there were 1234567 lines of code, 42 tests and 3.14159 reasons to add more.",
    "def main(argc, argv):\n    for i in range(10):\n        print(i)\n    return 0\n",
    "Größe, façade, naïve, coöperate, Ελληνικά, русский текст, 日本語の文章, 中文字符, 한국어 문장",
    "the the the there then this that those these thing thanks think through though thought",
    "hello hello help held hold world word work worker working works",
    "\n\n\t\t  spaces   and\ttabs \r\n and lines\r\n",
    "emoji 😀 😃 👍🏽 👨‍👩‍👧 ❤️ and symbols ∑ ∫ √ € £ ¥",
] * 4


def strings():
    fixed = [
        "", " ", "  ", "   ", "\n", "\r\n", "\r", "\t", " \n", "\n ", "  \n  \n", "\n\n\n", " \t \n \r\n x", "a\u00a0b", "\u3000全角",
        "a", "ab", "hello", "hello world", " hello", "  hello", "hello ", "hello  ", "hello   world", "Hello, World!",
        "it's", "IT'S", "It'S", "they've we'll I'm you'd don't", "THEY'VE WE'LL I'M YOU'D DON'T", "'s", "''s", "'", "s'", "'ſ", "x'ſy", "l'été", "'re're", "'lL 'Ve 'RE",
        "1", "12", "123", "1234", "12345678901", "1 2 3", "a1b2", "3.14", "1,000,000", "½ ⅓ ², ①②", "٣٤٥", "Ⅳ",
        "!", "!!", "!!!\n", "...\n\n", "?!?\r\n", " !\n", "a!b", "a !b", "foo_bar __init__", "x+=1; y//2", "<html><b>x</b></html>",
        "日本語", "日本語 テキスト", "中文,标点。", "한국어", "ภาษาไทย", "हिन्दी", "العربية", "עברית שלום", "\u202eabc\u202c", "مرحبا 123",
        "é", "e\u0301", "Å", "A\u030a", "\u212b", "ﬁ", "ǆ", "ß", "İ", "I\u0307", "Ω", "\u2126", "가", "\u1100\u1161", "각", "\u1100\u1161\u11a8", "q\u0323\u0307", "q\u0307\u0323", "\u0958",
        "😀", "👍🏽", "👨\u200d👩\u200d👧", "❤️", "🇩🇪🇫🇷", "a😀b", " 😀 ", "😀😀😀😀", "\u200b", "a\u200bb", "\ufeffbom", "\u0301", " \u0301x",
        "\x00", "a\x00b", "\x7f", "\x01\x02", "\u0085", "a\u0085b", "\u2028\u2029", "\ufffd", "\U0010ffff", "\ue000", "\x1c\x1d",
        "<|endoftext|>", "a<|endoftext|>b", "a <|endoftext|> b", "<|endoftext|><|endoftext|>", "<|endoftext", "<s>", "</s>", "<s>hi</s>", "<unk>", "<pad>", "[MASK]", "a [MASK] b", "[MASK][MASK]",
        "<|start|>user<|end|>\n", "x<L>y", "x  <L>  y", "x<R>y", "x  <R>  y", "<R>\n\n<L>", "  <B>  <B>  ", "a<B>b", "<W>", "a<W>", "<W>a", " <W> ", "(<W>)", "<W><W>", "é<W>", "<W>_", "wörd", "a wörd b", "awördb", "WÖRD", "wo\u0308rd", "<N>", "<n>", "x<N>y", "NewToken", "newtoken", "NEWTOKEN", "aNewTokenb", "<LONG", "<LONGER>", "<LONG>ER>",
        "a" * 300, "ab" * 200, "x " * 100, " " * 129, "\n" * 70, "1" * 100, "日" * 100, "hello" * 60, "a\u0301" * 60, "'s" * 50,
        "pneumonoultramicroscopicsilicovolcanoconiosis", "https://example.com/a?b=c&d=%20e#f", "C:\\Users\\x", "{\"a\": [1, 2.5, null]}",
        "▁", "▁▁", "a▁b", "▁hello▁world", "Ġ", "Ċ", "Ġhello", "<0x41>", "<0xE4>",
        "def f(x):\n\treturn x\n\n\n# end", "    four\n        eight\n", "trailing   \n", "a\n\n\nb", "a \n b", "a\r\n\r\nb", "\t\tx", " \u00a0 x", "x\u2003y", "x \u2003 y", "…", "“quoted” ‘single’ it’s", "—dash–", "№5", "10€", "50%", "#tag @user", "a.b.c", "e.g. i.e.",
    ]
    rng = random.Random(11)
    atoms = ["a", "Z", "the", " ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "1", "234", "é", "e\u0301", "日本", "😀", "👨\u200d👩", "!", "--", "<|endoftext|>", "<s>", "\u00a0", "\u3000", "_", "ß", "\u0301", "ſ", "K", "İ", "한", "\u200d", "ا", "½", ".", "hello", " world", "<B>", "<W>", "wörd"]
    for _ in range(130):
        fixed.append("".join(rng.choice(atoms) for _ in range(rng.randint(2, 14))))
    return fixed


def train(tokenizer, size, special, alphabet=True, **kw):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [], **kw)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return train(t, 420, ["<|endoftext|>"])


def roberta():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    train(t, 380, ["<s>", "<pad>", "</s>", "<unk>", AddedToken("[MASK]", lstrip=True, special=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return t


def llama3():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    train(t, 450, [])
    vocab = json.loads(t.to_str())
    # A word that no merge produces: only ignore_merges finds it.
    vocab["model"]["vocab"]["Ġworldwide"] = len(vocab["model"]["vocab"])
    t = Tokenizer.from_str(json.dumps(vocab))
    t.add_special_tokens(["<|endoftext|>", "<s>", "<|start|>", "<|end|>"])
    bos = t.token_to_id("<s>")
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", bos)])])
    return t


def qwen2():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    train(t, 430, [])
    t.add_special_tokens(["<|endoftext|>", "<|start|>", "<|end|>"])
    t.add_tokens([AddedToken("<B>", lstrip=True, rstrip=True), AddedToken("<L>", lstrip=True), AddedToken("<R>", rstrip=True),
                  AddedToken("<W>", single_word=True), AddedToken("wörd", single_word=True, normalized=True),
                  AddedToken("<N>", normalized=True), AddedToken("NewToken", normalized=False), AddedToken("<LONG"), AddedToken("<LONGER>")])
    return t


def llama2():
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")  # for training only
    train(t, 480, ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)], alphabet=False, limit_alphabet=70)
    j = json.loads(t.to_str())
    j["pre_tokenizer"] = None
    j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
    t = Tokenizer.from_str(json.dumps(j))
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return t


def metaspace():
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    return train(t, 300, ["<unk>", "<s>"], alphabet=False, limit_alphabet=80)


def lowercase():
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits(individual_digits=True)])
    train(t, 300, ["<unk>"], alphabet=False, limit_alphabet=80, end_of_word_suffix="</w>")
    t.add_tokens([AddedToken("NewToken", normalized=True), AddedToken("<N>", normalized=True), AddedToken("<W>", single_word=True, normalized=False)])
    return t


def unigram():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    t.train_from_iterator([c for c in CORPUS if c.isascii()], trainers.UnigramTrainer(
        vocab_size=260, special_tokens=["<unk>", "<s>"], unk_token="<unk>", show_progress=False))
    t.add_tokens([AddedToken("NewToken", normalized=True), AddedToken("<W>", single_word=True, normalized=False)])
    return t


def word_vocabulary(pieces, special, prefix):
    """A vocabulary of whole words, characters and pieces of the corpus."""
    rng = random.Random(3)
    words = sorted({w for line in CORPUS for w in line.lower().split()} | {c for line in CORPUS for c in line} | set("!?.,'|"))
    tokens = list(special) + words
    if prefix is not None:
        for word in words:
            for _ in range(pieces):
                at = rng.randrange(len(word))
                tokens.append(prefix + word[at:at + rng.randint(1, 4)])
        tokens += [prefix + chr(c) for c in range(97, 123)]
    return {t: i for i, t in enumerate(dict.fromkeys(t for t in tokens if t.strip()))}


def bert(lowercase, **options):
    vocab = word_vocabulary(3, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], "##")
    t = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=options.pop("most", 100)))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase, **options)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.post_processor = processors.BertProcessing(("[SEP]", vocab["[SEP]"]), ("[CLS]", vocab["[CLS]"]))
    t.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    t.add_tokens([AddedToken("NewToken", normalized=True), AddedToken("<W>", single_word=True, lstrip=True)])
    return t


def word_level():
    t = Tokenizer(models.WordLevel(word_vocabulary(0, ["<unk>", "<pad>", "|"], None), unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.decoder = decoders.CTC(pad_token="<pad>", word_delimiter_token="|")
    t.add_special_tokens(["<unk>", "<pad>"])
    return t


def suffixes():
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=True))
    t.normalizer = normalizers.BertNormalizer(lowercase=False)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.BPEDecoder()
    return train(t, 320, ["<unk>"], alphabet=False, limit_alphabet=90, end_of_word_suffix="</w>")


def prefixes():
    t = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.FixedLength(length=7)])
    t.decoder = decoders.WordPiece(cleanup=False)
    return train(t, 320, ["<unk>"], alphabet=False, limit_alphabet=90, continuing_subword_prefix="##")


def variants():
    """List of (base, overrides of top-level keys); "model" is merged instead of replaced."""
    split = lambda pattern, behavior, invert=False: {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    sequence = lambda *parts: {"type": "Sequence", "pretokenizers": list(parts)}
    out = []
    for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
        for invert in [False, True]:
            out.append(("gpt2", {"pre_tokenizer": sequence(split({"Regex": r"\s|[a-e]+|'"}, behavior, invert), byte_level)}))
            out.append(("gpt2", {"pre_tokenizer": sequence(split({"String": "l"}, behavior, invert), byte_level)}))
        out.append(("gpt2", {"pre_tokenizer": sequence({"type": "Punctuation", "behavior": behavior}, byte_level)}))
    for pre in [{"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "Digits", "individual_digits": False}, {"type": "Digits", "individual_digits": True},
                {"type": "CharDelimiterSplit", "delimiter": "o"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
                {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": False}, split({"Regex": r"(?=[A-Z])|x*"}, "Isolated"),
                split({"Regex": r"\p{Lu}\p{Ll}*|\p{Han}|[[:punct:]]|\d{2}(?=\d)"}, "Isolated"), split({"Regex": LLAMA3}, "Removed", True)]:
        out.append(("gpt2", {"pre_tokenizer": sequence(pre, byte_level)}))
    for normalizer in [{"type": "NFC"}, {"type": "NFD"}, {"type": "NFKC"}, {"type": "NFKD"}, {"type": "Lowercase"}, {"type": "StripAccents"},
                       {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}]}, {"type": "Strip", "strip_left": True, "strip_right": False},
                       {"type": "Strip", "strip_left": False, "strip_right": True}, {"type": "Prepend", "prepend": "he"}, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": "_"},
                       {"type": "Replace", "pattern": {"String": "l"}, "content": ""}]:
        out.append(("gpt2", {"normalizer": normalizer}))
        out.append(("qwen2", {"normalizer": normalizer}))
    out.append(("gpt2", {"normalizer": {"type": "ByteLevel"}, "pre_tokenizer": None}))
    out.append(("gpt2", {"decoder": None}))
    for chain in [[{"type": "Strip", "content": " ", "start": 1, "stop": 1}], [{"type": "Fuse"}, {"type": "Strip", "content": "a", "start": 2, "stop": 2}],
                  [{"type": "Replace", "pattern": {"Regex": "▁+"}, "content": "."}, {"type": "ByteFallback"}], [{"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}],
                  [{"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}], [{"type": "Fuse"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True}]]:
        out.append(("llama2", {"decoder": {"type": "Sequence", "decoders": chain}}))
    for model in [{"byte_fallback": False}, {"byte_fallback": False, "fuse_unk": False}, {"byte_fallback": False, "unk_token": None}, {"ignore_merges": True}]:
        out.append(("llama2", {"model": model}))
    return out


def word_variants():
    """Variants of whole-word tokenizers, with fewer cases and some decoded ids."""
    bert_normalizer = lambda clean, chinese, accents, lower: {"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": chinese, "strip_accents": accents, "lowercase": lower}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    sequence = lambda *parts: {"type": "Sequence", "pretokenizers": list(parts)}
    word_level = {"type": "WordLevel", "unk_token": "[UNK]"}
    return [("bert", {}), ("bert", {"model": {"max_input_chars_per_word": 3}}), ("bert", {"model": {"continuing_subword_prefix": "h"}}), ("bert", {"model": word_level}),
            ("bert", {"normalizer": bert_normalizer(False, False, None, False)}), ("bert", {"normalizer": bert_normalizer(True, False, True, False)}),
            ("bert", {"normalizer": bert_normalizer(True, True, False, True)}), ("bert", {"normalizer": {"type": "Nmt"}}),
            ("bert", {"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False}}), ("bert", {"decoder": {"type": "CTC", "pad_token": "[PAD]", "word_delimiter_token": "|", "cleanup": True}}),
            ("bert", {"decoder": {"type": "CTC", "pad_token": "##", "word_delimiter_token": "|", "cleanup": False}}), ("bert", {"decoder": {"type": "BPEDecoder", "suffix": "e"}}),
            ("bert", {"model": word_level, "pre_tokenizer": {"type": "UnicodeScripts"}}), ("bert", {"pre_tokenizer": {"type": "FixedLength", "length": 3}}),
            ("gpt2", {"pre_tokenizer": sequence({"type": "UnicodeScripts"}, byte_level)}), ("gpt2", {"pre_tokenizer": sequence({"type": "FixedLength", "length": 2}, {"type": "BertPreTokenizer"}, byte_level)}),
            ("gpt2", {"decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, {"type": "BPEDecoder", "suffix": "e"}]}})]


def write_words():
    """bert.json and words.jsonl."""
    (OUT / "bert.json").write_text(json.dumps(json.loads(bert(True).to_str()), ensure_ascii=False, separators=(",", ":")))
    texts = [json.loads(line) for line in (OUT / "strings.jsonl").read_text().splitlines()]
    rng, rows = random.Random(7), []
    for base, changes in word_variants():
        document = json.loads((OUT / f"{base}.json").read_text())
        for key, value in changes.items():
            if key == "model":
                document["model"].update(value)
            else:
                document[key] = value
        tokenizer = Tokenizer.from_str(json.dumps(document))
        picked = [i for i in sorted(rng.sample(range(len(texts)), 14)) if len(texts[i]) < 80]
        ids = [random_ids(tokenizer, rng)[:12] for _ in range(5)]
        rows.append({"base": base, "changes": changes, "cases": [{"string": i, **encode_row(tokenizer, texts[i])} for i in picked],
                     "decodings": [[some, tokenizer.decode(some, skip_special_tokens=False), tokenizer.decode(some, skip_special_tokens=True)] for some in ids]})
    dump(OUT / "words.jsonl", rows)


def dump(path, rows):
    path.write_text("".join(json.dumps(r, ensure_ascii=True, separators=(",", ":")) + "\n" for r in rows))


def encode_row(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    special = tokenizer.encode(text, add_special_tokens=True).ids
    row = {"ids": ids}
    if special != ids:
        row["special"] = special
    row["text"] = tokenizer.decode(special, skip_special_tokens=False)
    if row["text"] == text:
        del row["text"]
    skipped = tokenizer.decode(special, skip_special_tokens=True)
    if skipped != row.get("text", text):
        row["skipped"] = skipped
    return row


def random_ids(tokenizer, rng):
    size = tokenizer.get_vocab_size()
    return [rng.randrange(size + 2) for _ in range(rng.randint(1, 24))]


def main():
    if sys.argv[1:] == ["words"]:
        return write_words()
    OUT.mkdir(parents=True, exist_ok=True)
    texts = strings()
    dump(OUT / "strings.jsonl", texts)
    bases = {}
    for make in [gpt2, roberta, llama3, qwen2, llama2, metaspace, lowercase, unigram]:
        name, tokenizer = make.__name__, make()
        text = tokenizer.to_str()
        bases[name] = json.loads(text)
        (OUT / f"{name}.json").write_text(json.dumps(bases[name], ensure_ascii=False, separators=(",", ":")))
        dump(OUT / f"{name}.jsonl", [encode_row(tokenizer, s) for s in texts])
        rng = random.Random(name)
        rows = []
        for _ in range(200):
            ids = random_ids(tokenizer, rng)
            rows.append([ids, tokenizer.decode(ids, skip_special_tokens=False), tokenizer.decode(ids, skip_special_tokens=True)])
        dump(OUT / f"{name}.decode.jsonl", rows)
    rows = []
    rng = random.Random(5)
    for base, changes in variants():
        document = json.loads(json.dumps(bases[base]))
        for key, value in changes.items():
            if key == "model":
                document["model"].update(value)
            else:
                document[key] = value
        tokenizer = Tokenizer.from_str(json.dumps(document))
        picked = sorted(rng.sample(range(len(texts)), 40)) + [i for i, s in enumerate(texts) if "hello" in s][:6]
        picked = [i for i in picked if len(texts[i]) < 80]
        cases = []
        for i in picked:
            try:
                cases.append({"string": i, **encode_row(tokenizer, texts[i])})
            except BaseException as e:  # the library panics on a few strings that a normalizer empties
                if "Panic" not in type(e).__name__:
                    raise
        rows.append({"base": base, "changes": changes, "cases": cases})
    dump(OUT / "variants.jsonl", rows)
    write_words()
    (OUT / "versions.json").write_text(json.dumps({"tokenizers": tokenizers.__version__}) + "\n")


if __name__ == "__main__":
    main()
