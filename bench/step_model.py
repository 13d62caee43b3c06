#!/usr/bin/env python3
"""A model of a step's time, checked on this machine with one thread and with all, that tells what more cores would do.

    bench/step_model.py --engine_dir ENGINE --model HF_DIR [--batch 1,8,32] [--cores CORES=GB_PER_S...]

A step reads its bytes, computes its products and meets at barriers:

    seconds = max(bytes / read rate, products / (threads * product rate)) + rest / threads + fork-joins * their cost

Measured with one thread: the product rate (the best of the context steps) and, for each batch, the rest (what a
generation step takes beside the larger of its reading and its products). Measured with all threads: the read rate and the
cost of a fork-join. The check compares the model's generation step of all threads with the measured one.

The rest is divided by the threads, although for few rows some small ops (norms, writing keys and values) and at any batch the
copy of the logits are done by one of them.

For CORES, the read rate is CORES times that of one thread, at most GB_PER_S, and the cost of a fork-join grows in proportion to
the threads, because all of them take and return the same cache lines. Tokens a second are of all sequences. Standard library
only; the machine should do nothing else.
"""
import argparse
import json
import os
import pathlib
import statistics

import chorus_alone
from benchmark_page import ROOT, flops_per_token

# (most rows, fork-joins of a layer), counted in a Llama of hidden size 2048: an op with many rows is divided, one with few is
# not worth it.
FORK_JOINS = ((1, 6), (4, 7), (8, 10), (float("inf"), 13))


class Measured:
    """Medians of several runs of `chorus bench throughput` with a number of threads."""

    def __init__(self, args, threads):
        reports = [chorus_alone.throughput(args, args.engine_dir, "--threads", threads, "--batch",
                                           ",".join(map(str, args.batch))) for _ in range(args.passes)]
        self.threads = threads
        self.read_rate = max(report["roof"]["read_gb_per_s"] for report in reports) * 1e9
        self.fork_join = statistics.median(report["roof"]["fork_join_us"] for report in reports) * 1e-6
        rows = [row for report in reports for row in report["results"]]
        self.step_bytes = {row["batch"]: row["step_bytes"] for row in rows}
        of_batch = {batch: [row for row in rows if row["batch"] == batch] for batch in args.batch}
        self.step = {batch: batch / statistics.median(row["generation_tokens_per_s"] for row in some)
                     for batch, some in of_batch.items()}
        self.context = {batch: statistics.median(row["context_tokens_per_s"] for row in some)
                        for batch, some in of_batch.items()}


def fork_joins(layers, batch):
    return layers * next(count for rows, count in FORK_JOINS if batch <= rows)


class StepModel:
    def __init__(self, one, all_threads, layers, flops):
        self.one, self.all_threads, self.layers, self.flops = one, all_threads, layers, flops
        self.product_rate = max(one.context.values()) * flops
        # With a rate that is too high for some batch, the rest would be negative.
        self.rest = {batch: max(0.0, one.step[batch] - self.bound(batch, 1, one.read_rate)) for batch in one.step}

    def bound(self, batch, threads, read_rate):
        return max(self.one.step_bytes[batch] / read_rate, batch * self.flops / (threads * self.product_rate))

    def step(self, batch, threads, read_rate, fork_join):
        return (self.bound(batch, threads, read_rate) + self.rest[batch] / threads +
                fork_joins(self.layers, batch) * fork_join)


def print_row(*cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def print_check(model):
    print_row("batch", "threads", "model, ms", "measured, ms", "model / measured")
    print("|---|---|---|---|---|")
    for batch, measured in model.all_threads.step.items():
        predicted = model.step(batch, model.all_threads.threads, model.all_threads.read_rate, model.all_threads.fork_join)
        print_row(batch, model.all_threads.threads, f"{predicted * 1e3:.1f}", f"{measured * 1e3:.1f}", f"{predicted / measured:.2f}")


def print_forecast(model, machines):
    print_row("cores", "GB/s", "batch", "tokens/s", "reading or products", "the rest", "fork-joins")
    print("|---|---|---|---|---|---|---|")
    for cores, most in machines:
        rate = min(cores * model.one.read_rate, most * 1e9)
        fork_join = model.all_threads.fork_join * cores / model.all_threads.threads
        for batch in model.all_threads.step:
            step = model.step(batch, cores, rate, fork_join)
            parts = (model.bound(batch, cores, rate), model.rest[batch] / cores, fork_joins(model.layers, batch) * fork_join)
            print_row(cores, f"{rate / 1e9:.0f}", batch, f"{batch / step:.0f}", *(f"{100 * part / step:.0f} %" for part in parts))


def machine(text):
    cores, rate = text.split("=")
    return int(cores), float(rate)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chorus", default=ROOT / "build/release/bin/chorus", type=pathlib.Path)
    parser.add_argument("--engine_dir", required=True, type=pathlib.Path)
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--batch", default="1,8,32")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--cores", action="append", default=[], type=machine, metavar="CORES=GB_PER_S")
    args = parser.parse_args()
    args.batch = [int(batch) for batch in args.batch.split(",")]
    config = json.loads((args.model / "config.json").read_text())
    one, all_threads = (Measured(args, threads) for threads in (1, len(os.sched_getaffinity(0))))
    model = StepModel(one, all_threads, config["num_hidden_layers"], flops_per_token(config))
    print(f"one thread: reads {one.read_rate / 1e9:.1f} GB/s, products {model.product_rate / 1e9:.0f} GFLOP/s; "
          f"{all_threads.threads} threads: read {all_threads.read_rate / 1e9:.1f} GB/s, a fork-join {all_threads.fork_join * 1e6:.2f} us\n")
    print_check(model)
    if args.cores:
        print()
        print_forecast(model, args.cores)


if __name__ == "__main__":
    main()
