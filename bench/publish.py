#!/usr/bin/env python3
"""Measures how long a training loop waits for the first answer of an adapter that it publishes.

A made-up Llama with random weights is served, and adapters of about 25 MB (bfloat16, rank 64, all linears of 10 layers) are
uploaded under one name, each in place of the one before. Prints the times from the first byte of the upload to its answer, from
the request to the first token, and their sum. The machine should be idle. Standard library only.

Usage: bench/publish.py --chorus build/release/bin/chorus [--uploads 20] [--keep FOLDER]
"""

import argparse
import http.client
import json
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))
from made_up_model import SMALL, adapter_config, adapter_weights, make_base  # noqa: E402
from server_process import ServerProcess  # noqa: E402

RANK = 64


def publish(connection, body):
    connection.request("PUT", "/v1/admin/adapters/student", body, {"content-type": "application/octet-stream"})
    response = connection.getresponse()
    answer = response.read()
    if response.status != 200:
        raise SystemExit(f"status {response.status}: {answer.decode()}")


def first_token(connection):
    body = {"model": "student", "prompt": "two red dogs", "max_tokens": 1, "temperature": 0, "stream": True,
            "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"status {response.status}: {response.read().decode()}")
    line = response.readline()
    now = time.monotonic()
    response.read()
    if not line.startswith(b"data: "):
        raise SystemExit(f"no event: {line}")
    return now


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chorus", type=pathlib.Path, required=True)
    parser.add_argument("--uploads", type=int, default=20)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the model and its engine, which later runs use again")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chorus-publish-") as scratch:
        folder = arguments.keep or pathlib.Path(scratch)
        if not (folder / "base").exists():
            make_base(folder / "base", SMALL)
        with ServerProcess(arguments.chorus, [
                folder / "base", "--dtype", "bfloat16", "--cache_dir", folder / "cache", "--enable_admin", "--lora_upload_dir",
                folder / "uploads", "--max_lora_rank", RANK, "--log_level", "warning"]) as server:
            host = server.url.removeprefix("http://")
            connection = http.client.HTTPConnection(host)
            times = []
            for number in range(arguments.uploads + 2):
                body = adapter_weights(SMALL, RANK, {"adapter_config.json": adapter_config(SMALL, RANK)})
                begin = time.monotonic()
                publish(connection, body)
                published = time.monotonic()
                answered = first_token(connection)
                if number >= 2:  # the first ones warm up
                    times.append((published - begin, answered - published, answered - begin))
    print(f"{len(body) / 1e6:.1f} MB, {len(times)} uploads, ms: median (least to most)")
    for name, column in zip(("upload and its answer", "request to first token", "upload to first token"), zip(*times)):
        values = [1000 * value for value in column]
        print(f"  {name:24}{statistics.median(values):7.1f} ({min(values):.1f} to {max(values):.1f})")


if __name__ == "__main__":
    main()
