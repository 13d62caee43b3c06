#!/usr/bin/env python3
"""Measures how fast a byte-level BPE of 32,000 tokens encodes a text and long runs, on one thread.

The tokenizer is trained on the text, which is measured up to its first 4 MB.

Usage: tokenizer_speed.py PROBE TEXT   (needs the tokenizers library)
  PROBE  build/release/bench/chorus_tokenizer_probe
"""
import pathlib
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

probe, text = sys.argv[1:]
with tempfile.TemporaryDirectory() as directory:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train([text], trainers.BpeTrainer(vocab_size=32000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.save(f"{directory}/tokenizer.json")
    measured = pathlib.Path(directory) / "text"
    measured.write_bytes(pathlib.Path(text).read_bytes()[:4_000_000])
    subprocess.run([probe, "speed", directory, measured], check=True)
