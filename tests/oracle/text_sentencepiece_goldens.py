#!/usr/bin/env python3
"""Makes the goldens of sentencepiece models: tests/goldens/text/sentencepiece/.

NAME.model, trained on made text; NAME.jsonl: {"text", "ids"} as sentencepiece encodes, and "decoded" as it decodes.

Usage: text_sentencepiece_goldens.py   (needs sentencepiece)
"""
import json
import pathlib
import random
import tempfile

import sentencepiece

OUT = pathlib.Path(__file__).resolve().parent.parent / "goldens" / "text" / "sentencepiece"
WORDS = ("the quick brown fox jumps over a lazy dog and runs away from hello world this is a test of tokens für größe "
         "naïve 日本 語 привет мир 12 345 can't won't").split()
# A rule is code points in hexadecimal, a tab, and their replacement.
RULES = "FB01\t66 69\nFF21\t41\n2460\t31\n41 308\tC4\n"


def corpus(rng):
    for _ in range(3000):
        yield " ".join(rng.choice(WORDS) + rng.choice(["", "s", "ing", "ed"]) for _ in range(12))


def texts(rng):
    atoms = WORDS + ["ﬁ", "Ａ", "①", "😀", "한국", "\n", "\t", "\u00a0", "  ", "   ", "!", "?", "--", "Zebra", "x"]
    yield from ["", " ", "  ", "hello", " hello", "  hello  world ", "hello ", "\nhello", "a" * 60, "ﬁne"]
    for _ in range(300):
        yield "".join(rng.choice(atoms) + rng.choice(["", " ", " "]) for _ in range(rng.randint(1, 10)))


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    common = {"minloglevel": 2, "hard_vocab_limit": False}
    with tempfile.TemporaryDirectory() as scratch:
        rules = pathlib.Path(scratch) / "rules.tsv"
        rules.write_text(RULES)
        made = {
            "bpe": dict(model_type="bpe", vocab_size=500, byte_fallback=True, normalization_rule_name="identity",
                        remove_extra_whitespaces=False),
            "unigram": dict(model_type="unigram", vocab_size=150, normalization_rule_tsv=str(rules)),
            "unigram_bytes": dict(model_type="unigram", vocab_size=380, byte_fallback=True, normalization_rule_name="identity",
                                  add_dummy_prefix=False, remove_extra_whitespaces=False),
        }
        for name, options in made.items():
            prefix = f"{scratch}/{name}"
            sentencepiece.SentencePieceTrainer.train(sentence_iterator=corpus(random.Random(3)), model_prefix=prefix, **options,
                                                     **common)
            model = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
            (OUT / f"{name}.model").write_bytes(pathlib.Path(prefix + ".model").read_bytes())
            rows = []
            for text in texts(random.Random(name)):
                ids = model.encode(text)
                rows.append({"text": text, "ids": ids, "decoded": model.decode(ids)})
            (OUT / f"{name}.jsonl").write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    (OUT / "versions.json").write_text(json.dumps({"sentencepiece": sentencepiece.__version__}) + "\n")


if __name__ == "__main__":
    main()
