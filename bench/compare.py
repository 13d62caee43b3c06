#!/usr/bin/env python3
"""Chorus and its peers on one model, in turn in one go; writes docs/benchmarks.md.

    bench/compare.py --engine ENGINE --model HF_DIR [--adapters DIR] [--python vllm=/path/to/its/python]

Every engine is warmed, then measured --passes times, one pass of each in turn, so that what disturbs the machine
disturbs all; medians count. Chorus is measured by `chorus bench throughput --json`, transformers + PEFT and vLLM by
bench/peer_worker.py under the Python given for them (this one without --python). A peer that is not installed is
reported as absent. ENGINE must hold the model of HF_DIR in bfloat16, built with --lora_plugin where --adapters is given.
Python's standard library alone, besides what the peers need.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = {"hf": "transformers + PEFT", "vllm": "vLLM"}


class Peer:
    """A worker process; absent holds the reason when it has none."""

    def __init__(self, kind, args, batch=1, mixed=0):
        self.kind, self.absent, self.versions = kind, None, {}
        command = [args.pythons.get(kind, sys.executable), str(ROOT / "bench/peer_worker.py"), "--peer", kind,
                   "--threads", str(args.threads)]
        if kind != "onednn":
            command += ["--model", str(args.model), "--batch", str(batch), "--mixed", str(mixed), "--rank", str(args.rank)]
            if mixed:
                command += ["--adapters", str(args.adapters)]
        self.errors = tempfile.TemporaryFile("w+")
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                            text=True)
        except OSError as error:
            self.process, self.absent = None, str(error)
            return
        answer = self.read()
        if answer is not None:
            self.absent = answer.get("absent")
            self.versions = answer.get("versions", {})

    def read(self):
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines()
        self.absent = lines[-1] if lines else f"ended with status {self.process.returncode}"
        return None

    def ask(self, **request):
        if self.absent:
            return None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.read()

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


def chorus_pass(args, works, warmup):
    """One measured pass of each of the works, and the roof beside it."""
    rows, roof, by_mixed = {}, {}, {}
    for batch, mixed in works:
        by_mixed.setdefault(mixed, []).append(batch)
    for mixed, batches in by_mixed.items():
        with tempfile.NamedTemporaryFile(suffix=".json") as report:
            command = [args.chorus, "bench", "throughput", "--engine_dir", args.engine, "--batch",
                       ",".join(map(str, batches)), "--mixed", mixed, "--prompt", args.prompt, "--new", args.new, "--warmup",
                       warmup, "--passes", 1, "--threads", args.threads, "--json", report.name]
            if mixed:
                command += ["--adapters", args.adapters]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"compare.py: {done.stderr.strip()}")
            result = json.loads(pathlib.Path(report.name).read_text())
        roof = {key: max(value, roof.get(key, 0)) for key, value in result["roof"].items()}
        roof["version"], roof["isa"] = result["version"], result["isa"]
        for row in result["results"]:
            rows[(row["batch"], row["adapters"])] = row
    return rows, roof


def peer_pass(peer, args, work):
    times = peer.ask(batch=work[0], prompt=args.prompt, new=args.new, adapters=work[1])
    if times is None or times["rest_s"] <= 0:
        return None
    return {"context_tokens_per_s": work[0] * args.prompt / times["first_s"],
            "generation_tokens_per_s": work[0] * args.new / times["rest_s"]}


def flops_per_token(config):
    """Of the layers' linears, two a weight; lm_head computes one row a prompt, attention is left out."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    size = config.get("head_dim") or hidden // heads
    kv = config.get("num_key_value_heads", heads)
    layer = hidden * size * (2 * heads + 2 * kv) + 3 * hidden * config["intermediate_size"]
    return 2 * config["num_hidden_layers"] * layer


def measure(args):
    works = [(batch, 0) for batch in args.batch] + [(batch, mixed) for batch in args.batch for mixed in args.mixed
                                                    if 0 < mixed <= batch]
    largest, mixed = max(args.batch), max([m for b, m in works], default=0)
    peers = []
    for kind in args.peers:
        if args.verbose:
            print(f"loading {NAMES[kind]}", flush=True)
        # The base alone is measured by a process that knows of no adapters: both peers pay for those they loaded.
        plain = Peer(kind, args, largest)
        peers.append((kind, plain, Peer(kind, args, largest, mixed) if mixed else plain))
    product = Peer("onednn", args)
    samples, roofs, products = {}, [], []
    for number in range(args.warmup + args.passes):
        measured = number >= args.warmup
        if args.verbose:
            print(f"pass {number + 1} of {args.warmup + args.passes}{'' if measured else ', discarded'}", flush=True)
        passes = {}
        if measured:  # it warms itself, each time it is started
            rows, roof = chorus_pass(args, works, args.warmup)
            roofs.append(roof)
            passes["chorus"] = rows
        for kind, plain, adapted in peers:
            passes[kind] = {work: peer_pass(adapted if work[1] else plain, args, work) for work in works}
        flops = product.ask()
        if not measured:
            continue
        if flops:
            products.append(flops["flops"])
        for name, rows in passes.items():
            for work, row in rows.items():
                if row is not None:
                    samples.setdefault((name, work), []).append(row)
    versions, absent = {}, {}
    for kind, plain, adapted in peers:
        versions.update({k: v for peer in (plain, adapted) for k, v in peer.versions.items()})
        for peer, what in ((plain, NAMES[kind]), (adapted, NAMES[kind] + " with adapters")):
            if peer.absent and not (peer is adapted and plain.absent):
                absent[what] = peer.absent
            peer.close()
    if product.absent:
        absent["the product by oneDNN"] = product.absent
    versions.update(product.versions)
    product.close()
    return {"works": works, "samples": samples, "roofs": roofs, "products": products, "versions": versions,
            "absent": absent}


def median(samples, name, work, what):
    values = [row[what] for row in samples.get((name, work), [])]
    return statistics.median(values) if values else None


def spread(samples, name, work, what):
    values = [row[what] for row in samples[(name, work)]]
    return (max(values) - min(values)) / statistics.median(values)


def command_output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.strip()
    except OSError:
        return ""


def machine_lines(args, load):
    cpu, flags = platform.processor() or platform.machine(), set()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            cpu = value.strip()
        if key.strip() == "flags":
            flags = set(value.split())
    sets = [f for f in ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8") if f in flags]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2 ** 30
    quiet = "" if load < 0.5 else " **Other work ran on the machine at the time: only large ratios mean anything.**"
    return [f"- {cpu} ({', '.join(sets)}), {os.cpu_count()} cores of which {args.threads} were used, {memory:.0f} GiB",
            f"- Linux {platform.release()}; load average before the first pass {load:.2f}.{quiet}"]


def number(value):
    return "-" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def share(value):
    return "-" if value is None else f"{100 * value:.0f} %"


def table(data, what, title, roof_title, roof_of, kinds):
    samples = data["samples"]
    head = ["batch", "adapters", "Chorus", "spread", roof_title] + [f"{NAMES[k]} | Chorus / it" for k in kinds]
    lines = [f"## {title}", "", "| " + " | ".join(head) + " |", "|" + "---|" * (5 + 2 * len(kinds))]
    for work in data["works"]:
        ours = median(samples, "chorus", work, what)
        row = [str(work[0]), str(work[1]), number(ours), share(spread(samples, "chorus", work, what)),
               share(roof_of(work, ours))]
        for kind in kinds:
            theirs = median(samples, kind, work, what)
            row.append(number(theirs) + " | " + ("-" if theirs is None else f"{ours / theirs:.2f}"))
        lines.append("| " + " | ".join(row) + " |")
    return lines + [""]


def page(args, data, load, config):
    kinds = [kind for kind in args.peers if any(name == kind for name, _ in data["samples"])]
    version = f"{data['roofs'][0]['version']} ({command_output('git', 'describe', '--always', '--dirty') or 'no commit'})"
    read = max(roof["read_gb_per_s"] for roof in data["roofs"])
    product = statistics.median(data["products"]) if data["products"] else None
    flops = flops_per_token(config)
    model = (f"{config['architectures'][0]}, hidden size {config['hidden_size']}, {config['num_hidden_layers']} layers, "
             f"vocabulary {config['vocab_size']}")

    def generation_share(work, _):
        return statistics.median(row["share_of_read_roof"] for row in data["samples"][("chorus", work)])

    def context_share(_, tokens):
        return tokens * flops / product if product else None

    lines = [
        "# Benchmarks", "",
        f"Written by `bench/compare.py{' --quick' if args.quick else ''}` on {datetime.date.today()}. Figures are tokens a "
        "second over all sequences and hold for this machine and run alone; use the ratios. Each engine was warmed by "
        f"{args.warmup} discarded pass{'es' if args.warmup != 1 else ''}, then measured {args.passes} "
        f"time{'s' if args.passes != 1 else ''}, in turn with the others; medians are shown, and of ours the spread, "
        "(largest - least) / median." +
        (" **A quick run: it shows that the comparison works, not how fast anything is.**" if args.quick else ""), "",
        *machine_lines(args, load),
        f"- Chorus {version}, instruction set {data['roofs'][0]['isa']}; " +
        ", ".join(f"{name} {version}" for name, version in sorted(data["versions"].items())),
        f"- {model}; bfloat16; prompt {args.prompt} random tokens, {args.new} tokens after the first, greedy" +
        (f"; adapters of rank {args.rank}" if max(w[1] for w in data["works"]) else ""),
        f"- roofs: reading memory {read:.1f} GB/s" +
        (f", a bfloat16 product of 1024 x 4096 x 4096 by oneDNN {product / 1e12:.2f} TFLOP/s" if product else "")]
    lines += [f"- absent: {what} ({why})" for what, why in data["absent"].items()]
    lines += ["", *table(data, "generation_tokens_per_s", "Generation", "of the read roof", generation_share, kinds)]
    lines += table(data, "context_tokens_per_s", "Context", "of the product roof", context_share, kinds)
    lines += ["The read roof is the best of several kernels that only read, measured before and after each row in the same "
              "process; a generation step reads the weights without the embedding table, the adapters in use and the keys "
              "and values. A context's share counts the products of the layers alone. Generation of vLLM is the time of all "
              "tokens less that of a run of one token; the others are timed token by token.", ""]
    return "\n".join(lines)


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chorus", default=ROOT / "build/release/bin/chorus", type=pathlib.Path)
    parser.add_argument("--engine", required=True, type=pathlib.Path)
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--adapters", type=pathlib.Path)
    parser.add_argument("--batch", default=None, help="default 1,8,32")
    parser.add_argument("--mixed", default=None, help="different adapters in a batch; default 8,32 with --adapters")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=None, help="default 32")
    parser.add_argument("--rank", type=int, default=16, help="largest of the adapters")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--warmup", type=int, default=None, help="discarded passes; default 2")
    parser.add_argument("--passes", type=int, default=None, help="default 5")
    parser.add_argument("--peers", default="hf,vllm")
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH",
                        help="the Python that has hf, vllm or onednn (torch)")
    parser.add_argument("--quick", action="store_true", help="batch 1 and 8, 8 tokens, one pass after one discarded")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs/benchmarks.md")
    parser.add_argument("--json", type=pathlib.Path, help="write every pass here")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args(argv)
    args.batch = [int(b) for b in (args.batch or ("1,8" if args.quick else "1,8,32")).split(",")]
    mixed = args.mixed if args.mixed is not None else ("8" if args.quick else "8,32") if args.adapters else "0"
    args.mixed = [int(m) for m in mixed.split(",")]
    if any(args.mixed) and not args.adapters:
        parser.error("--mixed needs --adapters")
    args.new = args.new or (8 if args.quick else 32)
    args.warmup = args.warmup if args.warmup is not None else 1 if args.quick else 2
    args.passes = args.passes or (1 if args.quick else 5)
    args.pythons = dict(item.split("=", 1) for item in args.python)
    args.peers = [peer for peer in args.peers.split(",") if peer]
    for peer in args.peers + list(args.pythons):
        if peer not in {*NAMES, "onednn"}:
            parser.error(f"{peer} is not one of hf, vllm, onednn")
    if "onednn" in args.peers:
        parser.error("onednn is no peer: its product is measured where torch is installed")
    if "hf" in args.pythons:
        args.pythons.setdefault("onednn", args.pythons["hf"])
    return args


def main():
    args = parse(sys.argv[1:])
    config = json.loads((args.model / "config.json").read_text())
    load = os.getloadavg()[0]
    data = measure(args)
    text = page(args, data, load, config)
    args.output.write_text(text)
    if args.json:
        rows = [{"engine": name, "batch": work[0], "adapters": work[1], "passes": passes}
                for (name, work), passes in data["samples"].items()]
        args.json.write_text(json.dumps({"rows": rows, "roofs": data["roofs"], "product_flops": data["products"],
                                         "versions": data["versions"], "absent": data["absent"]}, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
