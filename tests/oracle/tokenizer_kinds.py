"""Kinds of tokenizers with their reference: compare_tokenizers.py compares them, text_file_goldens.py records some."""
import base64
import json
import pathlib
import random

import text_goldens

GOLDENS = text_goldens.OUT


class HuggingFace:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.size = max(tokenizer.get_vocab().values()) + 1
        self.added = [t.content for t in tokenizer.get_added_tokens_decoder().values()]

    def encode(self, text):
        return {"ids": self.tokenizer.encode(text, add_special_tokens=False).ids, "special": self.tokenizer.encode(text).ids}

    def decode(self, ids):
        whole = self.tokenizer.decode(ids, skip_special_tokens=False)
        return {"text": whole, "skipped": self.tokenizer.decode(ids, skip_special_tokens=True), "streamed": whole}


def save(tokenizer, directory):
    tokenizer.save(str(directory / "tokenizer.json"))
    return HuggingFace(tokenizer)


def files_of(tokenizer, directory):
    """vocab.json and merges.txt of a byte pair tokenizer."""
    model = json.loads(tokenizer.to_str())["model"]
    (directory / "vocab.json").write_text(json.dumps(model["vocab"]))
    (directory / "merges.txt").write_text("#version: 0.2\n" + "".join(" ".join(m) + "\n" for m in model["merges"]))
    return model


def slow(config):
    def make(directory):
        from transformers import AutoTokenizer
        files_of(text_goldens.gpt2(), directory)
        (directory / "tokenizer_config.json").write_text(json.dumps(config))
        (directory / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
        return HuggingFace(AutoTokenizer.from_pretrained(directory).backend_tokenizer)
    return make


def vocab_text(config):
    def make(directory):
        from transformers import AutoTokenizer
        vocab = text_goldens.word_vocabulary(3, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], "##")
        (directory / "vocab.txt").write_text("".join(t + "\n" for t in vocab))
        (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **config}))
        (directory / "config.json").write_text(json.dumps({"model_type": "bert"}))
        return HuggingFace(AutoTokenizer.from_pretrained(directory).backend_tokenizer)
    return make


def ranks():
    """Ranks of tiktoken: the bytes, then the tokens of a trained tokenizer in their order."""
    to_byte = {c: b for b, c in enumerate_alphabet()}
    t = text_goldens.gpt2()
    vocab = sorted(t.get_vocab().items(), key=lambda item: item[1])
    out = [bytes([b]) for b in range(256)]
    for token, _ in vocab:
        if 1 < len(token) < 13 and all(c in to_byte for c in token):  # not <|endoftext|>
            out.append(bytes(to_byte[c] for c in token))
    return {token: rank for rank, token in enumerate(dict.fromkeys(out))}


def enumerate_alphabet():
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    fresh = 256
    for b in range(256):
        if b in keep:
            yield b, chr(b)
        else:
            yield b, chr(fresh)
            fresh += 1


class Tiktoken:
    def __init__(self, encoding, special, before=()):
        self.encoding, self.before = encoding, list(before)
        self.special = special
        self.size, self.added = encoding.n_vocab, list(special)[:6]
        self.known = set(encoding._mergeable_ranks.values()) | set(special.values())

    def encode(self, text):
        ids = self.encoding.encode(text, allowed_special="all")
        return {"ids": ids, "special": self.before + ids}

    def decode(self, ids):
        ids = [i for i in ids if i in self.known]
        names = set(self.special.values())
        return {"text": self.encoding.decode(ids), "skipped": self.encoding.decode([i for i in ids if i not in names])}


def tiktoken_file(name, pattern, tokens, before=(), normalize=None):
    def make(directory):
        import tiktoken
        mergeable = ranks()
        (directory / name).write_text("".join(f"{base64.b64encode(t).decode()} {r}\n" for t, r in mergeable.items()))
        special = {token: len(mergeable) + i for token, i in tokens.items()}
        encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=mergeable, special_tokens=special)
        reference = Tiktoken(encoding, special, [special[b] for b in before])
        if normalize:
            from tokenizers import normalizers
            plain = reference.encode
            reference.encode = lambda text: plain(getattr(normalizers, normalize)().normalize_str(text))
        return reference
    return make


def llama3_tokens():
    names = ["<|begin_of_text|>", "<|end_of_text|>", *(f"<|reserved_special_token_{i}|>" for i in range(4)), "<|start_header_id|>", "<|end_header_id|>",
             "<|reserved_special_token_4|>", "<|eot_id|>", *(f"<|reserved_special_token_{i}|>" for i in range(5, 251))]
    return {n: i for i, n in enumerate(names)}


def qwen_tokens():
    return {n: i for i, n in enumerate(["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205))])}


def tekken(path):
    def make(directory):
        from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
        import mistral_common
        file = pathlib.Path(path) if path else pathlib.Path(mistral_common.__file__).parent / "data/tekken_240911.json"
        (directory / "tekken.json").write_bytes(file.read_bytes())
        t = Tekkenizer.from_file(directory / "tekken.json")

        class Reference:  # mistral-common does not recognise special tokens in a text
            size, added = t.n_words, []

            def encode(self, text):
                if any(t.id_to_piece(i) in text for i in range(20)):
                    raise ValueError("the references differ")
                return {"ids": t.encode(text, bos=False, eos=False), "special": t.encode(text, bos=True, eos=False)}

            def decode(self, ids):
                ids = [i for i in ids if i < t.n_words]
                return {"skipped": t.decode(ids, special_token_policy=SpecialTokenPolicy.IGNORE)}
        return Reference()
    return make


def sentencepiece_model(name):
    def make(directory):
        import sentencepiece
        file = GOLDENS.parent / "sentencepiece" / f"{name}.model"
        (directory / "tokenizer.model").write_bytes(file.read_bytes())
        sp = sentencepiece.SentencePieceProcessor(model_file=str(file))
        control = [sp.id_to_piece(i) for i in range(sp.get_piece_size()) if sp.is_control(i) or sp.is_unknown(i)]

        class Reference:
            size, added = sp.get_piece_size(), []

            def encode(self, text):
                # sentencepiece does not recognise special tokens in a text, and Hugging Face takes "<0x41>" for a byte.
                if any(c in text for c in control) or "\x00" in text or "<0x" in text:
                    raise ValueError("the references differ")
                return {"ids": sp.encode(text)}

            def decode(self, ids):
                return {}
        return Reference()
    return make


def kinds(tekken_file=None):
    from tiktoken_ext import openai_public
    cl100k = r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
    o200k = "|".join([r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
                      r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
                      r"""\p{N}{1,3}""", r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""", r"""\s*[\r\n]+""", r"""\s+(?!\S)""", r"""\s+"""])
    trained = {f.__name__: (lambda directory, f=f: save(f(), directory)) for f in
               [text_goldens.gpt2, text_goldens.roberta, text_goldens.llama3, text_goldens.qwen2, text_goldens.llama2, text_goldens.metaspace,
                text_goldens.lowercase, text_goldens.unigram, text_goldens.word_level, text_goldens.suffixes, text_goldens.prefixes]}
    return trained | {
        "bert_uncased": lambda d: save(text_goldens.bert(True), d),
        "bert_cased": lambda d: save(text_goldens.bert(False, strip_accents=True, handle_chinese_chars=False, most=12), d),
        "vocab_and_merges.gpt2": slow({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True}),
        "vocab_and_merges.codegen": slow({"tokenizer_class": "CodeGenTokenizer", "add_prefix_space": True}),
        "vocab_and_merges.roberta": slow({"tokenizer_class": "RobertaTokenizer", "mask_token": {"__type": "AddedToken", "content": "<mask>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False}}),
        "vocab_and_merges.qwen2": slow({"tokenizer_class": "Qwen2Tokenizer", "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}),
        "vocab_and_merges.deberta": slow({"tokenizer_class": "DebertaTokenizer"}),
        "vocab_text.bert": vocab_text({}),
        "vocab_text.bert_cased": vocab_text({"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False}),
        "tiktoken.llama3": tiktoken_file("tokenizer.model", text_goldens.LLAMA3, llama3_tokens(), ["<|begin_of_text|>"]),
        "tiktoken.qwen": tiktoken_file("qwen.tiktoken", text_goldens.QWEN2, qwen_tokens(), normalize="NFC"),
        "tiktoken.r50k": tiktoken_file("r50k_base.tiktoken", openai_public.r50k_pat_str, {"<|endoftext|>": 0}),
        "tiktoken.cl100k": tiktoken_file("cl100k_base.tiktoken", cl100k, {"<|endoftext|>": 1, "<|fim_prefix|>": 2, "<|fim_middle|>": 3, "<|fim_suffix|>": 4, "<|endofprompt|>": 20}),
        "tiktoken.o200k": tiktoken_file("o200k_base.tiktoken", o200k, {"<|endoftext|>": 1, "<|endofprompt|>": 20}),
        "tekken": tekken(tekken_file),
        "sentencepiece.bpe": sentencepiece_model("bpe"),
        "sentencepiece.unigram": sentencepiece_model("unigram"),
        "sentencepiece.unigram_bytes": sentencepiece_model("unigram_bytes"),
    }
