#!/usr/bin/env python3
"""Loads that servers of many adapters meet, by `chorus bench serve`.

    bench/workloads.py [--only NAME...] [--flags "--lora_storage int8"] [--keep FOLDER]
    bench/workloads.py --url http://127.0.0.1:8000 --adapters NAME...

  forty    40 adapters, each with 5 requests a minute at random times
  popular  32 streams over 32, 100, 300 and 1,000 adapters, all alike popular and with Zipf's law of exponent 1.5; the cache
           holds all of them, or 200
  shared   12 streams over 12 adapters, each with a long prompt whose first 1,024 tokens all requests of the adapter share

A made-up Llama of 128 million weights is served with adapters of rank 16. Output tokens a second are of all streams together.
In `forty` and `shared` every answer is compared with the answer that its adapter gives alone ("exact"). In `popular` the column
"of bytes" compares with 32 adapters alike popular: 1.00 means that the time of a token grew as the bytes did that a step of
generation reads, which are the weights and the adapters that are in the step on average.

With --url a server that runs already is measured, of any program with OpenAI's completions API: `forty` with its first 40 of
--adapters, `shared` with its first 12. The machine should do nothing else. Standard library only.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))
from made_up_model import SMALL, make_adapter, make_base  # noqa: E402
from server_process import ServerProcess  # noqa: E402

RANK, STREAMS = 16, 32


def adapter_names(count):
    return [f"lora-{number:04}" for number in range(count)]


def measured(arguments, url, names, *load):
    """The report of `chorus bench serve` on these adapters."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [arguments.chorus, "bench", "serve", "--url", url, "--model", ",".join(names), "--extra_body",
                   '{"ignore_eos": true}', "--json", report.name, *load]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        # Status 1 with a report: some answers are not their solo answers.
        if not pathlib.Path(report.name).read_text():
            sys.exit(f"workloads.py: {done.stderr.strip()}")
        return json.loads(pathlib.Path(report.name).read_text())


def latencies(report):
    first, gap = report["time_to_first_token_ms"], report["time_per_output_token_ms"]
    return (f"{report['output_tokens_per_s']:7.1f} tokens/s; first token p50 {first['p50']:.0f} ms, p99 {first['p99']:.0f} ms; "
            f"later ones p50 {gap['p50']:.1f} ms, p99 {gap['p99']:.1f} ms")


def exactness(report):
    wrong = (report["different"] or 0) + report["unfinished"] + sum(error["count"] for error in report["errors"].values())
    return f"exact {report['verified'] - (report['different'] or 0)} of {report['verified']}, {wrong} wrong or failed"


def forty(arguments, url, names):
    report = measured(arguments, url, names, "--rate", len(names) * 5 / 60, "--duration", arguments.seconds, "--prompt",
                      "64:256", "--output", "16:64", "--pool", 2, "--verify")
    print(f"forty    {latencies(report)}; {exactness(report)}", flush=True)


def shared(arguments, url, names):
    report = measured(arguments, url, names, "--streams", len(names), "--duration", arguments.seconds, "--shared_prefix", 1024,
                      "--prompt", 1088, "--output", 32, "--pool", 2, "--verify")
    print(f"shared   {latencies(report)}; {exactness(report)}", flush=True)


def distinct(count, skew):
    """Expected number of different adapters among STREAMS independent requests."""
    weights = [1 / rank**skew for rank in range(1, count + 1)]
    return sum(1 - (1 - weight / sum(weights))**STREAMS for weight in weights)


def popular(arguments, url, names, held, reference):
    for skew in (0, 1.5):
        report = measured(arguments, url, names, "--streams", STREAMS, "--duration", arguments.seconds, "--prompt", 16,
                          "--output", 64, "--zipf", skew)
        value_bytes = 1 if "lora_storage int8" in arguments.flags else 2
        bytes_of_step = 2 * SMALL.weights() + value_bytes * distinct(len(names), skew) * SMALL.adapter_values(RANK)
        reference.setdefault("bytes", bytes_of_step)
        reference.setdefault("rate", report["output_tokens_per_s"])
        of_bytes = report["output_tokens_per_s"] * bytes_of_step / (reference["rate"] * reference["bytes"])
        failed = report["unfinished"] + sum(error["count"] for error in report["errors"].values())
        print(f"popular  {len(names):4} adapters, Zipf {skew:3}, cache of {held:4}: {latencies(report)}; "
              f"of bytes {of_bytes:.2f}; {failed} failed", flush=True)


def serve_and_measure(arguments, folder):
    if not (folder / "base").exists():
        make_base(folder / "base", SMALL)
    wanted = {"forty": 40, "shared": 12, "popular": arguments.most}
    for name in adapter_names(max(count for load, count in wanted.items() if load in arguments.only)):
        if not (folder / "adapters" / name).exists():
            make_adapter(folder / "adapters" / name, SMALL, RANK)

    def server(held, most_tokens):
        return ServerProcess(arguments.chorus, [
            folder / "base", "--dtype", "bfloat16", "--cache_dir", folder / "cache", "--lora_dir", folder / "adapters",
            "--max_lora_rank", RANK, "--max_cpu_loras", held, "--adapter_overload", "wait", "--kv_cache_max_tokens", most_tokens,
            "--max_seq_len", 2048, "--log_level", "warning", *arguments.flags.split()])

    if "forty" in arguments.only:
        with server(64, 65536) as process:
            forty(arguments, process.url, adapter_names(40))
    if "shared" in arguments.only:
        with server(64, 65536) as process:
            shared(arguments, process.url, adapter_names(12))
    if "popular" in arguments.only:
        reference = {}
        for count in sorted({count for count in (32, 100, 300, arguments.most) if count <= arguments.most}):
            for held in sorted({count, min(count, 200)}, reverse=True):
                with server(held, 16384) as process:
                    popular(arguments, process.url, adapter_names(count), held, reference)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chorus", type=pathlib.Path, default=ROOT / "build/release/bin/chorus")
    parser.add_argument("--only", nargs="+", choices=["forty", "popular", "shared"], default=["forty", "popular", "shared"])
    parser.add_argument("--flags", default="", help="further flags of chorus serve; not --quantize, of which the bytes know nothing")
    parser.add_argument("--seconds", type=float, default=60, help="of each load")
    parser.add_argument("--most", type=int, default=1000, help="adapters of the load `popular`; each takes 6.3 MB on disk")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for model, adapters and engine, which later runs use again")
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("--adapters", nargs="+", default=[], help="its adapters")
    arguments = parser.parse_args()
    if arguments.url:
        forty(arguments, arguments.url, arguments.adapters[:40])
        shared(arguments, arguments.url, arguments.adapters[:12])
        return
    with tempfile.TemporaryDirectory(prefix="chorus-workloads-") as scratch:
        serve_and_measure(arguments, arguments.keep or pathlib.Path(scratch))


if __name__ == "__main__":
    main()
