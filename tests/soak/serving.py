#!/usr/bin/env python3
"""Streams of many clients over many adapters, far more than the caches hold, for minutes.

    serving.py --chorus build/release/bin/chorus --demo examples/demo --seconds 600

`chorus bench serve` first asks every adapter every prompt alone, and then compares every answer of its load with the
solo answer: for a fifth of the time answers that are sampled with a seed, then greedy ones with log probabilities.
Refusals with status 429 are tried again after the time that they name, and in the end every request must be answered.
Memory must stay flat. Adapters must have been evicted and requests refused at least as often as --evictions and
--refusals say: otherwise nothing was tested.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "e2e"), str(ROOT / "traces")]
from contents import write_adapter  # noqa: E402
from server_process import TIME_SCALE, ServerProcess  # noqa: E402

RANKS = [2, 4, 8]
# Share of the time, and further fields of each request.
LOADS = [(0.2, {"temperature": 1.1, "seed": 4, "n": 2}), (0.8, {"logprobs": 1})]


class Sample:
    """The server at one time."""

    def __init__(self, server):
        self.time = time.monotonic()
        self.kilobytes = server.resident_kb()
        with urllib.request.urlopen(server.url + "/v1/metrics", timeout=60 * TIME_SCALE) as response:
            text = response.read().decode()
        self.evictions = int(float(re.search(r'^chorus_adapter_cache_evictions_total\{level="host"\} (\S+)', text, re.M)[1]))


class Load:
    """A run of chorus bench serve."""

    def __init__(self, arguments, server, scratch, seconds, fields):
        file, self.samples = scratch / "load.json", []
        command = [arguments.chorus, "bench", "serve", "--url", server.url, "--adapters", "all", "--streams",
                   arguments.streams, "--duration", seconds, "--prompt", "4:24", "--output", "6:16", "--pool", 3,
                   "--verify", "--retries", 1_000_000, "--timeout_s", 120 * TIME_SCALE, "--extra_body", json.dumps(fields),
                   "--json", file]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while process.poll() is None:
            self.samples.append(Sample(server))
            time.sleep(0.5)
        self.output = process.stdout.read()
        self.code = process.returncode
        self.report = json.loads(file.read_text()) if self.code == 0 else None

    def during(self):
        """The samples since the solo answers were known."""
        end = self.samples[-1].time
        return [sample for sample in self.samples if sample.time >= end - self.report["seconds"]]

    def faults(self):
        if self.code != 0:
            return [self.output]
        report = self.report
        if report["complete"] != report["sent"] or report["verified"] != report["complete"]:
            return [f"not every request was answered in full and compared:\n{self.output}"]
        return []


def run(arguments, scratch):
    for i in range(arguments.adapters):
        write_adapter({"rank": RANKS[i % len(RANKS)], "seed": i, "modules": ["q_proj", "v_proj", "down_proj"]},
                      arguments.demo / "base", scratch / "adapters" / f"adapter-{i}")
    with ServerProcess(arguments.chorus, [
            arguments.demo / "base", "--lora_dir", scratch / "adapters", "--cache_dir", scratch / "cache", "--dtype", "float32",
            "--max_lora_rank", max(RANKS), "--log_level", "warning", "--max_cpu_loras", 6, "--max_gpu_loras", 4,
            "--max_batch_size", 64, "--kv_cache_max_tokens", 16384, "--max_connections", 1024,
            # All streams and the samples come from one address.
            "--max_connections_per_client", arguments.streams + 16, "--adapter_overload", "reject"]) as server:
        loads = []
        for share, fields in LOADS:
            loads.append(Load(arguments, server, scratch, share * arguments.seconds, fields))
            faults = loads[-1].faults()
            if faults:
                return faults
        code = server.stop()
    return [*([f"the server's exit status is {code}"] if code != 0 else []), *judge(arguments, loads)]


def judge(arguments, loads):
    """Prints the figures and returns what is not as it must be."""
    greedy = loads[-1].during()
    warm = next(s for s in greedy if s.time >= greedy[0].time + min(120, arguments.seconds / 4) or s is greedy[-1])
    before, after = warm.kilobytes, greedy[-1].kilobytes
    evictions = sum(load.during()[-1].evictions - load.during()[0].evictions for load in loads)
    refusals, recovered, verified = (sum(load.report[key] for load in loads) for key in ("refused_429", "recovered", "verified"))
    first, tried = (loads[-1].report[key] for key in ("time_to_first_token_ms", "time_to_first_token_of_last_try_ms"))
    print(f"{arguments.streams} streams over {arguments.adapters} adapters, {arguments.seconds:.0f} s: {verified} answers equal "
          f"their solo answers, {refusals} tries refused with 429, {recovered} requests answered after that, {evictions} "
          f"evictions; resident memory {before} kB, then {after} kB; time to first token p50 {first['p50']:.0f} ms, p99 "
          f"{first['p99']:.0f} ms with the waits between tries"
          + (f", p50 {tried['p50']:.0f} ms, p99 {tried['p99']:.0f} ms from the last try" if tried else ""))
    faults = []
    if after - before > max(before // 50, 8192):
        faults.append(f"resident memory grew from {before} to {after} kB")
    for name, count, least in (("evictions", evictions, arguments.evictions), ("refusals", refusals, arguments.refusals),
                               ("recovered requests", recovered, 1)):
        if count < least:
            faults.append(f"only {count} {name}")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chorus", required=True, type=Path, help="the program")
    parser.add_argument("--demo", required=True, type=Path, help="examples/demo")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--adapters", type=int, default=64)
    parser.add_argument("--evictions", type=int, default=100, help="at least so many (100)")
    parser.add_argument("--refusals", type=int, default=100, help="at least so many answers of 429 (100)")
    with tempfile.TemporaryDirectory(prefix="chorus-soak-") as directory:
        faults = run(parser.parse_args(), Path(directory))
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
