#!/usr/bin/env python3
"""Mutated files against the reference readers.

Valid files of every kind are mutated, COUNT times a kind with seeds from FIRST on, and read by chorus_read_digest and by
the kind's own library. Fails when ours crashes, takes over 2 s or 256 MB, says more than one line, or accepts what the
reference refuses or reads otherwise. Refusing what the reference accepts is allowed, and counted with its reasons.

Usage: mutations.py --digest build/release/tests/chorus_read_digest --chorus build/release/bin/chorus
                    [--count 10000] [--first 1] [--kinds A,B] [--jobs N] [--keep DIR]
"""
import argparse
import collections
import multiprocessing
import os
import pathlib
import random
import re
import resource
import select
import subprocess
import sys
import tempfile
import time

import references
from mutate import mutate
from samples import KINDS, hostile_files, samples

LIMIT_S = 2.0
LIMIT_KB = 256 << 10
GRACE_S = 10  # of a loaded machine, for the whole of an answer; the limit is on the time that the reader itself measures


class Digest:
    """The chorus_read_digest process; started again after a crash."""

    def __init__(self, program):
        self.program, self.process = program, None

    def read(self, reader, data):
        """(error or None, microseconds, kilobytes, verdict, text)"""
        if self.process is None or self.process.poll() is not None:
            limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
            self.process = subprocess.Popen([self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=limit)
        try:
            self.process.stdin.write(f"{reader} {len(data)}\n".encode() + data)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        if not select.select([self.process.stdout], [], [], GRACE_S)[0]:
            self.process.kill()
            self.process.wait()
            return "hangs", 0, 0, "", ""
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            return f"crashes with status {self.process.wait()}", 0, 0, "", ""
        words = line.decode("utf-8", "replace").rstrip("\n").split(" ", 3)
        return None, int(words[0]), int(words[1]), words[2], words[3] if len(words) > 3 else ""


def mutation_of(reader, found, kind, seed):
    rng = random.Random(f"{kind} {seed}")
    name, data = found[seed % len(found)]
    for _ in range(20):
        try:
            return name, mutate(reader, data, rng)
        except (RecursionError, ValueError, KeyError, IndexError, TypeError, OverflowError):
            continue  # the edit did not apply to this document
    return name, data


def judge(digest, reader, data):
    """(fault or None, class, reason, microseconds, kilobytes)"""
    fault, micros, kilobytes, verdict, text = digest.read(reader, data)
    if fault is None and micros > LIMIT_S * 1e6:
        fault = f"takes {micros / 1e6:.1f} s"
    if fault is None and kilobytes > LIMIT_KB:
        fault = f"takes {kilobytes >> 10} MB"
    if fault is None and verdict not in ("ok", "error"):
        fault = "says several lines"
    if fault or reader not in references.REFERENCES:
        return fault, verdict, text if verdict == "error" else "", micros, kilobytes
    expected = references.read(reader, data)
    if verdict == "ok":
        if references.same(text, expected):
            return None, "same result", "", micros, kilobytes
        return ("accepts what the reference refuses" if expected is None else "reads something else"), "", "", micros, kilobytes
    if expected is None:
        return None, "both refuse", "", micros, kilobytes
    return None, "stricter", text, micros, kilobytes


def work(arguments, reader, found, kind, seeds, at, results):
    """Runs in a process of its own: a reference reader may crash."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # reference readers that panic say so at length
    digest = Digest(arguments.digest)
    for seed in seeds:
        at.value = seed
        name, data = mutation_of(reader, found, kind, seed)
        results.put((seed, name, *judge(digest, reader, data)))
    results.put(None)


def run_share(arguments, reader, found, kind, seeds, report):
    """One share of the seeds, in a child that is replaced when the reference crashes it."""
    seeds = list(seeds)
    while seeds:
        at, results = multiprocessing.Value("q", -1), multiprocessing.SimpleQueue()
        child = multiprocessing.Process(target=work, args=(arguments, reader, found, kind, seeds, at, results), daemon=True)
        child.start()
        done = False
        while not done:
            while results.empty() and child.is_alive():
                time.sleep(0.005)
            if results.empty():
                break
            result = results.get()
            done = result is None
            if result is not None:
                report(result)
        child.join()
        if done:
            return
        crashed = at.value  # by the reference: ours runs in a process of its own
        name, data = mutation_of(reader, found, kind, crashed)
        fault, micros, kilobytes, verdict, text = Digest(arguments.digest).read(reader, data)
        if verdict == "ok":
            fault = "accepts what crashes the reference"
        report((crashed, name, fault, "reference crashes", text, micros, kilobytes))
        seeds = seeds[seeds.index(crashed) + 1:]


def run_kind(arguments, kind, own_configs):
    reader, found = samples(kind, own_configs)
    digest = Digest(arguments.digest)
    for name, data in found:  # the valid files themselves
        fault, seen, reason, *_ = judge(digest, reader, data)
        if fault or seen not in ("same result", "ok"):
            sys.exit(f"{kind}: the valid file {name} is not read: {fault or seen} {reason}")
    begun = time.monotonic()
    seeds = range(arguments.first, arguments.first + arguments.count)
    with multiprocessing.Manager() as manager:
        collected = manager.list()
        shares = [multiprocessing.Process(target=lambda i=i: run_share(arguments, reader, found, kind, seeds[i::arguments.jobs],
                                                                       collect(collected)))
                  for i in range(arguments.jobs)]
        for share in shares:
            share.start()
        for share in shares:
            share.join()
        results = [row for part in collected for row in part]
    counts, reasons, faults = collections.Counter(), collections.Counter(), []
    for seed, name, fault, seen, reason, _, _ in results:
        if fault:
            faults.append((seed, name, fault))
        counts["faults" if fault else seen] += 1
        if seen == "stricter":
            reasons[re.sub(r"'[^']*'|\d+|\[[^]]*\]", "_", reason)] += 1
    slowest, largest = max(r[5] for r in results), max(r[6] for r in results)
    summary = ", ".join(f"{n} {seen}" for seen, n in sorted(counts.items()))
    print(f"{kind:18} {len(results)} mutations of {len(found)} files: {summary}; slowest {slowest / 1e3:.0f} ms, "
          f"largest {largest >> 10} MB, {time.monotonic() - begun:.0f} s", flush=True)
    for reason, n in reasons.most_common(arguments.reasons):
        print(f"    {n:6} stricter: {reason}")
    for seed, name, fault in sorted(faults)[:20]:
        print(f"  FAULT seed {seed} of {name}: {fault}")
        if arguments.keep:
            pathlib.Path(arguments.keep).mkdir(parents=True, exist_ok=True)
            (pathlib.Path(arguments.keep) / f"{kind}-{seed}").write_bytes(mutation_of(reader, found, kind, seed)[1])
    if len(results) != arguments.count:
        print(f"  FAULT {arguments.count - len(results)} mutations were not judged")
        return 1
    return len(faults)


def collect(collected):
    """Reports in parts of 200, for the manager's sake; the last part at exit."""
    part = []

    def report(row):
        part.append(row)
        if len(part) == 200:
            collected.append(list(part))
            part.clear()

    multiprocessing.util.Finalize(None, lambda: collected.append(list(part)), exitpriority=10)
    return report


def run_hostile(arguments):
    """Pickles that would run a command: each is refused in one line, and none runs."""
    faults = 0
    digest = Digest(arguments.digest)
    with tempfile.TemporaryDirectory() as directory:
        marker = pathlib.Path(directory) / "executed"
        files = list(hostile_files(marker))
        for name, data in files:
            fault, _, _, verdict, text = digest.read("torch", data)
            if fault or verdict != "error" or marker.exists():
                faults += 1
                print(f"  FAULT hostile pickle {name}: {fault or verdict} {text} {'EXECUTED' if marker.exists() else ''}")
        print(f"{'hostile pickles':18} {len(files)} files: {len(files) - faults} refused, none executed")
    return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--digest", required=True)
    parser.add_argument("--chorus", required=True)
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--reasons", type=int, default=12)
    parser.add_argument("--keep", help="a directory for the files that show faults")
    arguments = parser.parse_args()
    multiprocessing.set_start_method("fork")
    os.environ["RUST_BACKTRACE"] = "0"
    import torch  # before forking: once for all processes
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        from samples import configs
        own_configs = configs(arguments.chorus, pathlib.Path(directory))
        faults = run_hostile(arguments)
        for kind in arguments.kinds.split(","):
            faults += run_kind(arguments, kind, own_configs)
    print(f"{faults} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
