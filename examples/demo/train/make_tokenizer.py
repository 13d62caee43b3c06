"""Trains the byte-level BPE of the demo and writes its files into base/.

    python make_tokenizer.py --work out/demo

reads <work>/corpus.jsonl (see corpus.py). The pre-tokenizer splits with the
regular expression of Llama 3; the chat template goes into
tokenizer_config.json.
"""

import argparse
import json
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

DEMO = Path(__file__).resolve().parent.parent

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BOS, END, PAD = "<|begin|>", "<|end|>", "<|pad|>"
SPECIAL = [BOS, END, PAD, "<|system|>", "<|user|>", "<|assistant|>"]
CHAT_TEMPLATE = """\
{{- bos_token }}
{%- for message in messages %}
    {%- if message['role'] not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('unknown role: ' + message['role']) }}
    {%- endif %}
    {%- if message['role'] == 'system' and not loop.first %}
        {{- raise_exception('a system message must come first') }}
    {%- endif %}
    {{- '<|' + message['role'] + '|>' + message['content'] | trim + eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>' }}
{%- endif %}"""


def texts(path, limit):
    """The documents as plain strings, without the template's own tokens."""
    with open(path, encoding="utf-8") as f:
        for _, line in zip(range(limit), f):
            doc = json.loads(line)
            if "text" in doc:
                yield doc["text"]
            else:
                yield from (m["content"] for m in doc["messages"])


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--work", type=Path, default=Path("out/demo"))
    args.add_argument("--docs", type=int, default=60000, help="documents to train on")
    args.add_argument("--vocab", type=int, default=2048)
    args = args.parse_args()

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=args.vocab, min_frequency=2, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts(args.work / "corpus.jsonl", args.docs), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, tokenizer.token_to_id(BOS))])

    base = DEMO / "base"
    base.mkdir(exist_ok=True)
    tokenizer.save(str(base / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": END,
        "pad_token": PAD,
        "model_max_length": 1024,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "added_tokens_decoder": {
            str(tokenizer.token_to_id(t)): {
                "content": t, "lstrip": False, "normalized": False, "rstrip": False,
                "single_word": False, "special": True,
            } for t in SPECIAL
        },
        "chat_template": CHAT_TEMPLATE,
    }
    (base / "tokenizer_config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    print("vocabulary:", tokenizer.get_vocab_size())


if __name__ == "__main__":
    main()
