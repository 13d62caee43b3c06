#!/usr/bin/env python3
"""Makes tests/goldens/text/tokenizers/files.jsonl: tokenizers of directories without a tokenizer.json.

A row has the "kind" and the "config" (tokenizer_config.json) of a directory, and cases: the index of a text in
strings.jsonl and its ids. The files of a directory are made of gpt2.json and bert.json, here and in
tokenizer_files_test.cc in the same way.

Usage: text_file_goldens.py   (needs tokenizers, transformers, tiktoken and mistral-common)
"""
import base64
import json
import pathlib
import random
import tempfile

import text_goldens
import tokenizer_kinds
from tokenizers import Tokenizer

OUT = text_goldens.OUT


def tekken(directory):
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    ranks = tokenizer_kinds.ranks()
    special = [{"rank": i, "token_str": t, "is_control": True} for i, t in enumerate(["<unk>", "<s>", "</s>", "[INST]"])]
    vocab = [{"rank": r, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for t, r in ranks.items()]
    config = {"pattern": text_goldens.LLAMA3, "num_vocab_tokens": len(vocab), "default_vocab_size": len(vocab) - 20 + 10, "default_num_special_tokens": 10, "version": "v11"}
    (directory / "tekken.json").write_text(json.dumps({"config": config, "vocab": vocab, "special_tokens": special}))
    t = Tekkenizer.from_file(directory / "tekken.json")

    class Reference:
        def encode(self, text):
            if any(s["token_str"] in text for s in special):
                raise ValueError("mistral-common does not recognise special tokens in a text")
            return {"ids": t.encode(text, bos=False, eos=False), "special": t.encode(text, bos=True, eos=False)}
    return Reference()


def main():
    committed = Tokenizer.from_file(str(OUT / "gpt2.json"))
    text_goldens.gpt2 = lambda: committed
    bert = json.loads((OUT / "bert.json").read_text())
    text_goldens.word_vocabulary = lambda *_: bert["model"]["vocab"]
    kinds = tokenizer_kinds.kinds()
    rows = [("vocab_and_merges", {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True}),
            ("vocab_and_merges", {"tokenizer_class": "CodeGenTokenizerFast", "add_prefix_space": True, "pad_token": "<pad>"}),
            ("vocab_and_merges", {"tokenizer_class": "RobertaTokenizer", "mask_token": {"content": "[MASK]", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False, "__type": "AddedToken"}}),
            ("vocab_and_merges", {"tokenizer_class": "Qwen2Tokenizer", "additional_special_tokens": ["<s>", "</s>"]}),
            ("vocab_text", {"tokenizer_class": "BertTokenizer"}),
            ("vocab_text", {"tokenizer_class": "BertTokenizer", "do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False})]
    made = [(kind, config, (tokenizer_kinds.slow if kind == "vocab_and_merges" else tokenizer_kinds.vocab_text)(config)) for kind, config in rows]
    made += [(kind, {}, kinds[kind]) for kind in ("tiktoken.llama3", "tiktoken.qwen", "tiktoken.r50k", "tiktoken.cl100k", "tiktoken.o200k")]
    made.append(("tekken", {}, tekken))
    texts = [json.loads(line) for line in (OUT / "strings.jsonl").read_text().splitlines()]
    rng, out = random.Random(9), []
    for kind, config, make in made:
        cases = []
        with tempfile.TemporaryDirectory() as directory:
            reference = make(pathlib.Path(directory))
            for i in sorted(rng.sample(range(len(texts)), 24)):
                if len(texts[i]) > 80:
                    continue
                try:
                    row = reference.encode(texts[i])
                except ValueError:
                    continue
                if row.get("special") == row["ids"]:
                    del row["special"]
                cases.append({"string": i, **row})
        out.append({"kind": kind, "config": config, "cases": cases})
    text_goldens.dump(OUT / "files.jsonl", out)


if __name__ == "__main__":
    main()
