#!/usr/bin/env python3
"""Chorus and its peers on one model, in turn in one go; writes docs/benchmarks.md.

    bench/compare.py --model HF_DIR --engine ENGINE [--adapters DIR] [--python vllm=/path/to/its/python]
                     [--engine int8=ENGINE --engine int4=ENGINE] [--engine_per_token int8=ENGINE]
                     [--engine_int8_inputs int8=ENGINE --engine_int8_inputs int4=ENGINE]
                     [--vllm int8=DIR --vllm int4=DIR]
                     [--gguf bf16=FILE --gguf int8=Q8_0 --gguf int4=Q4_K_M --llama llama-batched-bench]
                     [--openvino bf16=DIR --openvino int8=DIR --openvino int4=DIR]
                     [--isas avx512,avx2] [--scaling]

For each width of the weights, every engine is warmed up and then measured --passes times, one pass of each in turn, so
that a disturbance affects all engines alike. Medians count, and the page is written after each pass. Chorus is measured
by `chorus bench throughput --json`, every peer by bench/peer_worker.py under the Python given for it (this one without --python).
Engines of one width of the weights are compared with each other: transformers + PEFT and vLLM read HF_DIR in bfloat16,
all others what is given for a width. Adapters are measured in bfloat16. After its passes, each engine answers some prompts
in one batch and then one by one, and the answers are compared. A peer that is not installed is reported as absent.
ENGINE must hold the model of HF_DIR, the one of bfloat16 built with --lora_plugin where --adapters is given.
--isas and --scaling measure Chorus alone, after the peers. Python's standard library alone, besides what the peers need.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import benchmark_page
import chorus_alone
from benchmark_page import CHORUS, CHORUS_INT8, CHORUS_PER_TOKEN, ROOT

WIDTHS = tuple(benchmark_page.WEIGHTS)


class Peer:
    """The worker process of one peer. absent: why there is no process, or None."""

    def __init__(self, kind, args, model=None, batch=1, mixed=0):
        self.kind, self.absent, self.versions = kind, None, {}
        command = [args.pythons.get(kind, sys.executable), str(ROOT / "bench/peer_worker.py"), "--peer", kind,
                   "--threads", str(args.threads)]
        if model is not None:
            command += ["--model", str(model), "--batch", str(batch), "--mixed", str(mixed), "--rank", str(args.rank)]
        if mixed:
            command += ["--adapters", str(args.adapters)]
        if kind == "llama":
            command += ["--program", args.llama]
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

    def measure(self, args, work):
        times = self.ask(batch=work[0], prompt=args.prompt, new=args.new, adapters=work[1])
        if times is None or times["rest_s"] <= 0:
            return None
        return {"context_tokens_per_s": work[0] * args.prompt / times["first_s"],
                "generation_tokens_per_s": work[0] * args.new / times["rest_s"]}

    def equal_answers(self, args, count, adapters):
        """How many of `count` answers of a batch are those that the prompts get alone; None if the worker cannot tell."""
        result = self.ask(batch=count, prompt=args.prompt, new=args.new, adapters=adapters, compare=True)
        return result and result["equal"]

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


def chorus_engines(args, width):
    """[(name of its figures, engine directory)] of Chorus's engines of a width."""
    return [(name, engines[width]) for name, engines in args.engines_by_inputs.items() if width in engines]


def chorus_pass(args, engine, works):
    """(rows, roof): a measured pass of each of `works`, after a warm-up pass since Chorus is started anew."""
    rows, roof, by_mixed = {}, {}, {}
    for batch, mixed in works:
        by_mixed.setdefault(mixed, []).append(batch)
    for mixed, batches in by_mixed.items():
        flags = ["--batch", ",".join(map(str, batches)), "--mixed", mixed, "--threads", args.threads]
        result = chorus_alone.throughput(args, engine, *flags, *(["--adapters", args.adapters] if mixed else []))
        roof = {key: max(value, roof.get(key, 0)) for key, value in result["roof"].items() if key != "fork_join_us"}
        roof["version"], roof["isa"] = result["version"], result["isa"]
        for row in result["results"]:
            rows[(row["batch"], row["adapters"])] = row
    return rows, roof


def works_of(args, width):
    """[(batch size, number of different adapters)] of all table rows of a width."""
    works = [(batch, 0) for batch in args.batch]
    if width == "bf16":
        works += [(batch, mixed) for batch in args.batch for mixed in args.mixed if 0 < mixed <= batch]
    return works


def peer_works(args, kind, works):
    """Those of `works` that a peer is measured with."""
    batches, mixed = args.peer_batches.get(kind, args.batch), args.peer_mixed.get(kind, [0, *args.mixed])
    return [work for work in works if work[0] in batches and work[1] in mixed]


def load_peers(args, width):
    """[(kind, peer for steps without adapters, peer for steps with adapters)] of a width."""
    works = works_of(args, width)
    wanted = [(kind, args.model) for kind in args.peers] if width == "bf16" else []
    for kind, models in (("vllm", args.vllms), ("llama", args.ggufs), ("openvino", args.openvinos)):
        wanted += [(kind, models[width])] if width in models else []
    peers = []
    for kind, model in wanted:
        if args.verbose:
            print(f"loading {benchmark_page.NAMES[kind]} {width}", flush=True)
        # Work without adapters is measured in a process without adapters: peers are slower if any are loaded.
        mixed = max((count for _, count in peer_works(args, kind, works)), default=0)
        largest = max(args.batch)
        plain = Peer(kind, args, model, largest)
        peers.append((kind, plain, Peer(kind, args, model, largest, mixed) if mixed else plain))
    return peers


def one_pass(args, width, works, peers, ours):
    """({(width, engine, work): row}, roof) of one pass. Chorus is measured only if `ours`; otherwise roof is None."""
    rows, roof = {}, None
    if ours:
        for name, engine in chorus_engines(args, width):
            by_work, roof = chorus_pass(args, engine, works)
            rows.update({(width, name, work): row for work, row in by_work.items()})
    for kind, plain, adapted in peers:
        for work in peer_works(args, kind, works):
            row = (adapted if work[1] else plain).measure(args, work)
            if row is not None:
                rows[(width, kind, work)] = row
    return rows, roof


def batch_invariance(args, width, works, peers):
    """{(width, engine, adapters): (equal answers, answers)}: are a batch's answers those that its prompts get alone?"""
    count = min(8, max(args.batch))
    if count == 1:
        return {}
    equal = {}
    for adapters in sorted({0, min(count, max(mixed for _, mixed in works))}):
        for name, engine in chorus_engines(args, width):
            equal[(width, name, adapters)] = chorus_alone.equal_answers(args, engine, count, adapters)
        for kind, plain, adapted in peers:
            if not adapters or adapted is not plain:
                equal[(width, kind, adapters)] = (adapted if adapters else plain).equal_answers(args, count, adapters)
    return {key: (value, count) for key, value in equal.items() if value is not None}


def note_peers(data, width, peers):
    """Adds the peers' versions and the reasons why some are absent."""
    for kind, plain, adapted in peers:
        name = f"{benchmark_page.NAMES[kind]} {width}"
        data["versions"].update(plain.versions)
        if plain.absent:
            data["absent"][name] = plain.absent
        elif adapted.absent:
            data["absent"][name + " with adapters"] = adapted.absent


def measure(args, flops_per_token, write):
    """Measures width by width, so that only the peers of one width are in memory. Calls `write` with the data so far
    after each counted pass."""
    data = {"works": {}, "samples": {}, "roofs": [], "products": [], "versions": {}, "absent": {}, "exact": {},
            "paths": {}, "threads": None}
    product = Peer("onednn", args)
    data["versions"].update(product.versions)
    if product.absent:
        data["absent"]["the product by oneDNN"] = product.absent
    for width in args.engines:
        works = data["works"][width] = works_of(args, width)
        peers = load_peers(args, width)
        for number in range(args.warmup + args.passes):
            measured = number >= args.warmup
            if args.verbose:
                print(f"{width}: pass {number + 1} of {args.warmup + args.passes}{'' if measured else ', discarded'}",
                      flush=True)
            rows, roof = one_pass(args, width, works, peers, measured)
            flops = product.ask()
            note_peers(data, width, peers)
            if not measured:
                continue
            data["roofs"].append(roof)
            if flops:
                data["products"].append(flops["flops"])
            for key, row in rows.items():
                data["samples"].setdefault(key, []).append(row)
            write(data)
        data["exact"].update(batch_invariance(args, width, works, peers))
        note_peers(data, width, peers)
        write(data)
        for _, plain, adapted in peers:
            plain.close()
            adapted.close()
    product.close()
    if args.isas:
        data["paths"] = chorus_alone.measure_paths(args, flops_per_token)
        write(data)
    if args.scaling:
        data["threads"] = chorus_alone.measure_threads(args)
        write(data)


def by_width(parser, items, option):
    """{width: path} from all occurrences of --option [WIDTH=]PATH."""
    result = {}
    for item in items:
        width, path = item.split("=", 1) if "=" in item else ("bf16", item)
        if width not in WIDTHS:
            parser.error(f"--{option} {item}: {width} is not one of {', '.join(WIDTHS)}")
        result[width] = path
    return {width: result[width] for width in WIDTHS if width in result}


def numbers_by_peer(items):
    """{peer: [number]} from all occurrences of --option PEER=NUMBERS."""
    pairs = [item.split("=", 1) for item in items]
    return {peer: [int(number) for number in numbers.split(",")] for peer, numbers in pairs}


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chorus", default=ROOT / "build/release/bin/chorus", type=pathlib.Path)
    parser.add_argument("--engine", action="append", required=True, metavar="[WIDTH=]DIR", help="bf16 without a width")
    parser.add_argument("--engine_int8_inputs", action="append", default=[], metavar="WIDTH=DIR",
                        help="int8 or int4: an engine with --activations int8")
    parser.add_argument("--engine_per_token", action="append", default=[], metavar="int8=DIR",
                        help="an engine with --activations int8_per_token")
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--adapters", type=pathlib.Path)
    parser.add_argument("--batch", default=None, help="default 1,8,32")
    parser.add_argument("--peer_batch", action="append", default=[], metavar="PEER=SIZES",
                        help="only these of --batch for a peer that would take too long")
    parser.add_argument("--peer_mixed", action="append", default=[], metavar="PEER=COUNTS",
                        help="likewise of --mixed; 0 is without adapters")
    parser.add_argument("--mixed", default=None, help="different adapters in a batch; default 8,32 with --adapters")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=None, help="default 32")
    parser.add_argument("--rank", type=int, default=16, help="largest of the adapters")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--warmup", type=int, default=None, help="discarded passes; default 2")
    parser.add_argument("--passes", type=int, default=None, help="default 5")
    parser.add_argument("--peers", default="hf,vllm", help="of those that read --model: hf, vllm")
    parser.add_argument("--vllm", action="append", default=[], metavar="WIDTH=DIR",
                        help="int8 or int4: the model as bench/vllm_quantised.py writes it")
    parser.add_argument("--gguf", action="append", default=[], metavar="WIDTH=FILE", help="the model for llama.cpp")
    parser.add_argument("--llama", default="llama-batched-bench", help="llama.cpp's benchmark program")
    parser.add_argument("--openvino", action="append", default=[], metavar="WIDTH=DIR",
                        help="the model as optimum-cli exported it")
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH",
                        help="the Python that has hf, vllm, openvino or onednn (torch)")
    parser.add_argument("--isas", default="", help="instruction sets to force on Chorus alone, of this machine's")
    parser.add_argument("--scaling", action="store_true", help="context of Chorus by one thread and by all")
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
    args.engines = by_width(parser, args.engine, "engine")
    args.engines_by_inputs = {CHORUS: args.engines,
                              CHORUS_INT8: by_width(parser, args.engine_int8_inputs, "engine_int8_inputs"),
                              CHORUS_PER_TOKEN: by_width(parser, args.engine_per_token, "engine_per_token")}
    ours = {width for engines in args.engines_by_inputs.values() for width in engines}
    if "bf16" in args.engines_by_inputs[CHORUS_INT8] or set(args.engines_by_inputs[CHORUS_PER_TOKEN]) - {"int8"}:
        parser.error("--engine_int8_inputs is for int8 and int4, --engine_per_token for int8")
    args.vllms = by_width(parser, args.vllm, "vllm")
    if "bf16" in args.vllms:
        parser.error("--vllm is for int8 and int4: in bfloat16 vLLM reads --model")
    args.ggufs = by_width(parser, args.gguf, "gguf")
    args.openvinos = by_width(parser, args.openvino, "openvino")
    for width in {"bf16", *ours, *args.vllms, *args.ggufs, *args.openvinos} - set(args.engines):
        parser.error(f"{width} needs an --engine of that width")
    args.peer_batches, args.peer_mixed = numbers_by_peer(args.peer_batch), numbers_by_peer(args.peer_mixed)
    args.isas = [isa for isa in args.isas.split(",") if isa]
    args.pythons = dict(item.split("=", 1) for item in args.python)
    args.peers = [peer for peer in args.peers.split(",") if peer]
    for peer in args.peers:
        if peer not in ("hf", "vllm"):
            parser.error(f"--peers: {peer} is not one of hf, vllm")
    for option, given in (("python", args.pythons), ("peer_batch", args.peer_batches), ("peer_mixed", args.peer_mixed)):
        for peer in given:
            if peer not in (*benchmark_page.NAMES, "onednn"):
                parser.error(f"--{option}: {peer} is not one of {', '.join(benchmark_page.NAMES)}, onednn")
    if "hf" in args.pythons:
        args.pythons.setdefault("onednn", args.pythons["hf"])
    return args


def main():
    args = parse(sys.argv[1:])
    config = json.loads((args.model / "config.json").read_text())
    load = os.getloadavg()[0]

    def write(data):
        args.output.write_text(benchmark_page.page(args, data, load, config))
        if args.json:
            rows = [{"weights": width, "engine": name, "batch": work[0], "adapters": work[1], "passes": passes}
                    for (width, name, work), passes in data["samples"].items()]
            args.json.write_text(json.dumps({"rows": rows, "roofs": data["roofs"], "product_flops": data["products"],
                                             "versions": data["versions"], "absent": data["absent"],
                                             "exact": [{"weights": width, "engine": name, "adapters": adapters,
                                                        "equal": equal, "of": count}
                                                       for (width, name, adapters), (equal, count) in data["exact"].items()],
                                             "paths": [{"isa": isa, "weights": width, "batch": batch, "passes": passes}
                                                       for (isa, width, batch), passes in data["paths"].items()],
                                             "threads": data["threads"]}, indent=1) + "\n")

    measure(args, benchmark_page.flops_per_token(config), write)
    print(args.output.read_text())


if __name__ == "__main__":
    main()
