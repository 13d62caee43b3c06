#!/usr/bin/env python3
"""Makes tests/goldens/text/tokenizers/configured.jsonl: a tokenizer.json, or other files with a tokenizer, with files
beside it that add tokens or change them.

A row has the "base" (NAME.json, or "vocab_and_merges" as in text_file_goldens.py), its "padding" if it is not null, the "files" beside it, and what transformers makes of
them: the "names" of special tokens, and for each text its ids, their text, and their text without special tokens.

Usage: text_configured_goldens.py   (needs transformers)
"""
import json
import logging
import pathlib
import tempfile
import warnings

import text_goldens
import tokenizer_kinds
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

OUT = text_goldens.OUT
TEXTS = ["a <x> b<y>  <|Z|> c", "<x><y><|z|>", " NewToken newtoken <N><n> <W> x<W>", "the </s> help<s> <unk>x<|endoftext|> ", "<p> <q> <r>the<|Z|>"]


def token(content, **flags):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False, **flags}


def typed(content, **flags):
    return {"__type": "AddedToken", **token(content, **flags)}


def cases():
    """(base, config, special_tokens_map, added_tokens, padding)"""
    decoder = {"0": token("<|endoftext|>", special=True)}
    old = {"<x>": 430, "<y>": 421}
    yield "gpt2", {}, None, None, None
    # added_tokens.json
    yield "gpt2", {}, None, old, None
    yield "gpt2", {"added_tokens_decoder": decoder}, None, old, None
    yield "gpt2", {"eos_token": "<x>", "extra_special_tokens": ["<y>"]}, None, old, None
    yield "gpt2", {}, {"additional_special_tokens": ["<y>", "<|Z|>"], "pad_token": "<x>"}, old, None
    yield "gpt2", {"eos_token": "<|Z|>"}, None, {"<|Z|>": 0, "<x>": 3}, None
    yield "lowercase", {}, None, {"<|Z|>": 310, "<X>": 309}, None
    yield "lowercase", {"cls_token": typed("<N>"), "pad_token": "NewToken"}, {"unk_token": typed("<Z>")}, {"<N>": 421, "NewToken": 422, "<Z>": 423}, None
    yield "lowercase", {}, None, {"<W>": 1, "<N>": 500}, None
    yield "llama2", {"mask_token": typed("a", single_word=True)}, {"unk_token": {"content": "<x>", "lstrip": True}}, {"a": 0, "<x>": 1}, None
    # special_tokens_map.json
    yield "gpt2", {"pad_token": "<x>"}, {"pad_token": {"content": "<y>", "lstrip": True}, "eos_token": "<|endoftext|>"}, None, None
    yield "gpt2", {"pad_token": "<x>", "added_tokens_decoder": decoder}, {"pad_token": "<y>", "eos_token": "<|Z|>"}, None, None
    yield "gpt2", {"extra_special_tokens": ["<x>"]}, {"extra_special_tokens": ["<y>", "<x>", {"content": "<q>", "rstrip": True}]}, None, None
    yield "lowercase", {}, {"extra_special_tokens": ["<|z|>", {"content": "<|Z|>"}]}, None, None
    yield "gpt2", {"additional_special_tokens": ["<x>"]}, {"additional_special_tokens": ["<y>"]}, None, None
    yield "gpt2", {"q_token": "<q>", "a_token": typed("<y>")}, {"r_token": "<r>", "p_token": "<p>", "q_token": "<x>"}, None, None
    yield "gpt2", {"extra_special_tokens": {"q": "<q>"}}, {"extra_special_tokens": {"r": "<r>", "p": "<p>"}}, None, None
    # special tokens of tokenizer_config.json
    yield "gpt2", {"additional_special_tokens": ["<x>", typed("<y>", lstrip=True), "<|Z|>"]}, None, None, None
    yield "gpt2", {"additional_special_tokens": ["<x>"], "extra_special_tokens": ["<y>"]}, None, None, None
    yield "gpt2", {"additional_special_tokens": ["<x>"], "extra_special_tokens": []}, None, None, None
    yield "gpt2", {"extra_special_tokens": {"z_token": "<x>", "b_token": "<y>", "a_token": "<p>"}}, None, None, None
    yield "gpt2", {"additional_special_tokens": {"z_token": "<x>", "b_token": "<y>"}}, None, None, None
    yield "gpt2", {"z_token": "<x>", "b_token": "<y>", "extra_special_tokens": {"b_token": "<q>", "a_token": "<p>"}}, None, None, None
    yield "gpt2", {"model_specific_special_tokens": {"z_token": "<x>", "b_token": "<y>"}}, None, None, None
    yield "gpt2", {"mask_token": "<x>", "cls_token": "<y>", "pad_token": "<p>", "sep_token": "<q>", "unk_token": "<r>", "bos_token": "<|Z|>"}, None, None, None
    yield "gpt2", {"bos_token": typed("<x>", lstrip=True), "eos_token": "<x>", "pad_token": "", "unk_token": None}, None, None, None
    yield "gpt2", {"bos_token": "the", "pad_token": "help"}, None, None, None
    yield "llama2", {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<p>"}, None, None, None
    yield "lowercase", {"eos_token": "NewToken", "pad_token": "<N>"}, None, None, None
    yield "lowercase", {"eos_token": "NewToken", "added_tokens_decoder": {"300": token("NewToken", normalized=True)}}, None, None, None
    yield "lowercase", {"bos_token": typed("<X>", normalized=True), "eos_token": {"__type": "AddedToken", "content": "<|Z|>"}}, None, None, None
    # added_tokens_decoder
    yield "gpt2", {"added_tokens_decoder": {**decoder, "431": token("<x>"), "421": token("<y>", special=True)}}, None, None, None
    yield "gpt2", {"added_tokens_decoder": {"0": token("<|endoftext|>", lstrip=True, rstrip=True)}}, None, None, None
    yield "gpt2", {"added_tokens_decoder": {"0": token("<x>", lstrip=True)}}, None, None, None
    yield "gpt2", {"eos_token": "<x>", "added_tokens_decoder": {"420": token("<x>"), "421": {"content": "<y>"}}}, None, None, None
    yield "lowercase", {"added_tokens_decoder": {"302": token("<W>"), "301": token("<N>"), "300": token("NewToken", normalized=True, single_word=True)}}, None, None, None
    yield "lowercase", {"added_tokens_decoder": {"302": token("<W>", normalized=True, lstrip=True), "303": token("<|Z|>", normalized=True)}}, None, None, None
    yield "llama2", {"added_tokens_decoder": {"1": token("<s>", rstrip=True, special=True), "480": token("<x>", normalized=True), "481": token("<|Z|>", single_word=True)}}, None, None, None
    # others
    yield "gpt2", {"split_special_tokens": True, "pad_token": "<x>"}, None, {"<y>": 430}, None
    yield "llama2", {"split_special_tokens": True}, None, None, None
    yield "gpt2", {}, None, None, "<p>"
    yield "gpt2", {"pad_token": "<x>"}, None, None, "<p>"
    # without a tokenizer.json
    qwen, new = {"tokenizer_class": "Qwen2Tokenizer"}, {"<x>": 420, "<y>": 421}
    slow = "vocab_and_merges"
    yield slow, {**qwen, "eos_token": "<x>"}, {"eos_token": token("<x>")}, new, None
    yield slow, {**qwen, "eos_token": "<x>"}, {"eos_token": token("<x>", lstrip=True)}, new, None
    yield slow, {**qwen, "eos_token": typed("<y>", lstrip=True)}, None, new, None
    yield slow, {**qwen, "additional_special_tokens": ["<y>"]}, None, new, None
    yield slow, qwen, {"additional_special_tokens": ["<y>"]}, new, None
    yield slow, qwen, {"extra_special_tokens": ["<y>"], "image_token": "<x>"}, new, None
    yield slow, {**qwen, "additional_special_tokens": ["<x>"], "extra_special_tokens": ["<y>"]}, None, new, None
    yield slow, {**qwen, "added_tokens_decoder": {"420": token("<y>")}}, {"eos_token": "<x>"}, {"<x>": 421}, None
    yield slow, {**qwen, "eos_token": "<x>", "added_tokens_decoder": {"420": token("<x>", normalized=True)}}, None, None, None


def write_base(base, padding, directory):
    """Writes the files with the tokenizer, and returns the function that reads a directory with them."""
    if base == "vocab_and_merges":
        tokenizer_kinds.files_of(Tokenizer.from_file(str(OUT / "gpt2.json")), directory)
        (directory / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
        return AutoTokenizer.from_pretrained
    document = json.loads((OUT / f"{base}.json").read_text())
    document["padding"] = padding
    (directory / "tokenizer.json").write_text(json.dumps(document))
    return PreTrainedTokenizerFast.from_pretrained


def main():
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    rows = []
    for base, config, special, added, padding in cases():
        files = {"tokenizer_config.json": config, "special_tokens_map.json": special, "added_tokens.json": added}
        files = {name: value for name, value in files.items() if value is not None}
        if padding:
            padding = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": padding}
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            read = write_base(base, padding, directory)
            for file, value in files.items():
                (directory / file).write_text(json.dumps(value))
            t = read(name)
        out = []
        for text in TEXTS:
            ids = t(text, add_special_tokens=False)["input_ids"]
            out.append({"text": text, "ids": ids, "decoded": t.decode(ids), "skipped": t.decode(ids, skip_special_tokens=True)})
        # The files are texts, because the order of their keys counts.
        row = {"base": base, "files": {file: json.dumps(value) for file, value in files.items()}, "names": t.special_tokens_map, "cases": out}
        rows.append({**row, "padding": padding} if padding else row)
    text_goldens.dump(OUT / "configured.jsonl", rows)


if __name__ == "__main__":
    main()
