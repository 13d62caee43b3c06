#!/usr/bin/env python3
"""Streams of many clients over many adapters, far more than the caches hold, for minutes.

    serving.py --chorus build/release/bin/chorus --demo examples/demo --seconds 600

Every answer must be byte-equal to its solo answer, which a quiet server gave before. Refusals with status 429 are tried
again after the time that they name, and in the end every request must be answered. Memory must stay flat. Adapters must
have been evicted and requests refused at least as often as --evictions and --refusals say: otherwise nothing was tested.
"""

import argparse
import collections
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "e2e"), str(ROOT / "traces")]
from answers import Solo, ask  # noqa: E402
from contents import write_adapter  # noqa: E402
from server_process import TIME_SCALE, ServerProcess  # noqa: E402

RANKS = [2, 4, 8]
ANSWER_S = 120 * TIME_SCALE
BODIES = [
    {"prompt": "two red dogs and seven cats", "max_tokens": 12, "temperature": 0, "ignore_eos": True, "logprobs": 1},
    {"messages": [{"role": "user", "content": "twenty doors and thirty dogs"}], "max_tokens": 16, "temperature": 0,
     "logprobs": True},
    {"prompt": "the sum of nine and six", "max_tokens": 8, "temperature": 1.1, "seed": 4, "n": 2, "ignore_eos": True},
]


def kilobytes(server, key):
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise RuntimeError(f"no {key}")


def bytes_read(server):
    line = next(line for line in Path(f"/proc/{server.process.pid}/io").read_text().splitlines() if line.startswith("rchar"))
    return int(line.split()[1])


class Soak:
    def __init__(self, arguments, scratch):
        self.arguments, self.scratch = arguments, scratch
        self.names = [f"adapter-{i}" for i in range(arguments.adapters)]
        self.adapters = scratch / "adapters"
        for i, name in enumerate(self.names):
            write_adapter({"rank": RANKS[i % len(RANKS)], "seed": i, "modules": ["q_proj", "v_proj", "down_proj"]},
                          arguments.demo / "base", self.adapters / name)
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.first_ms, self.faults = [], []
        self.stop = threading.Event()

    def server(self, *flags):
        return ServerProcess(self.arguments.chorus, [
            self.arguments.demo / "base", "--lora_dir", self.adapters, "--cache_dir", self.scratch / "cache", "--dtype",
            "float32", "--max_lora_rank", max(RANKS), "--log_level", "warning", *flags])

    def learn(self):
        """Asks a quiet server everything, and measures how much one load of an adapter reads."""
        with self.server() as server:
            self.solo = Solo(server, ANSWER_S)
            before = bytes_read(server)
            for name in self.names:
                self.solo.answer(name, BODIES[0])
            self.bytes_of_load = (bytes_read(server) - before) / len(self.names)
            for name in self.names:
                for body in BODIES:
                    answer = self.solo.answer(name, body)
                    if answer.status != 200:
                        raise RuntimeError(f"{name}: {answer.status} {answer.error} {answer.fault}")

    def client(self, server, seed):
        rng = random.Random(seed)
        while not self.stop.is_set() and not self.faults:
            name, body = rng.choice(self.names), rng.choice(BODIES)
            sent = {**body, "model": name, "stream": True, "stream_options": {"include_usage": True}}
            # A refused request does not queue, so chance alone decides when it finds room. It must when the load ends.
            while True:
                answer = ask(server.host, server.port, sent, ANSWER_S, f"127.0.0.{1 + seed % 8}")
                if answer.status != 429 or time.monotonic() > self.end + ANSWER_S:
                    break
                with self.lock:
                    self.counts["refusals"] += 1
                time.sleep(answer.retry_s * rng.uniform(1, 2))
            with self.lock:
                if answer.fault or answer.status != 200:
                    self.faults.append(f"{name}: {answer.status} {answer.error} {answer.fault}")
                elif answer.canonical() != self.solo.answer(name, body).canonical():
                    self.faults.append(f"{name}: got {answer.canonical()}\nalone {self.solo.answer(name, body).canonical()}")
                else:
                    self.counts["answers"] += 1
                    self.first_ms.append(1000 * (answer.first - answer.begin))

    def run(self):
        self.learn()
        with self.server("--max_cpu_loras", 6, "--max_gpu_loras", 4, "--max_batch_size", 64, "--kv_cache_max_tokens",
                         16384, "--max_connections", 1024, "--adapter_overload", "reject") as server:
            read = bytes_read(server)
            begin = time.monotonic()
            self.end = begin + self.arguments.seconds
            clients = [threading.Thread(target=self.client, args=(server, i)) for i in range(self.arguments.streams)]
            for client in clients:
                client.start()
            middle = begin + min(120, self.arguments.seconds / 2)
            memory = None
            while time.monotonic() < self.end and not self.faults:
                time.sleep(0.5)
                if memory is None and time.monotonic() >= middle:
                    memory = kilobytes(server, "VmRSS")
            after = kilobytes(server, "VmRSS")
            self.stop.set()
            for client in clients:
                client.join()
            # Each adapter was loaded once without an eviction; every further load follows one.
            evictions = round((bytes_read(server) - read) / self.bytes_of_load) - len(self.names)
            code = server.stop()
        self.report(memory, after, evictions, code)

    def report(self, memory, after, evictions, code):
        first = sorted(self.first_ms) or [0]
        print(f"{self.arguments.streams} streams over {len(self.names)} adapters, {self.arguments.seconds:.0f} s: "
              f"{self.counts['answers']} answers equal their solo answers, {self.counts['refusals']} refused with 429 and "
              f"tried again, {evictions} evictions; resident memory {memory} kB, then {after} kB; time to first token "
              f"p50 {first[len(first) // 2]:.0f} ms, p99 {first[len(first) * 99 // 100]:.0f} ms")
        if code != 0:
            self.faults.append(f"the server's exit status is {code}")
        if memory is None or after - memory > max(memory // 50, 8192):
            self.faults.append(f"resident memory grew from {memory} to {after} kB")
        for name, count, least in (("evictions", evictions, self.arguments.evictions),
                                   ("refusals", self.counts["refusals"], self.arguments.refusals)):
            if count < least:
                self.faults.append(f"only {count} {name}")
        if self.faults:
            sys.exit("\n".join(self.faults[:5]))


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
        Soak(parser.parse_args(), Path(directory)).run()


if __name__ == "__main__":
    main()
