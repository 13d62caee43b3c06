"""Measurements of bench/compare.py without peers: other instruction sets, one thread against all threads, and whether a
batch's answers are those that its prompts get alone."""
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile


def throughput(args, engine, *flags):
    """The report of one run of `chorus bench throughput` with one warm-up pass and one measured pass."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [args.chorus, "bench", "throughput", "--engine_dir", engine, "--prompt", args.prompt, "--new", args.new,
                   "--warmup", 1, "--passes", 1, "--json", report.name, *flags]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {done.stderr.strip()}")
        return json.loads(pathlib.Path(report.name).read_text())


def equal_answers(args, engine, count, adapters):
    """How many of `count` prompts get the same answer in one batch as alone. Prompt i is for adapter i % adapters; with 0
    adapters, all are for the base."""
    vocabulary = json.loads((args.model / "config.json").read_text())["vocab_size"]
    draw = random.Random(0)
    prompts = [[draw.randrange(vocabulary) for _ in range(args.prompt)] for _ in range(count)]
    directories = sorted(entry for entry in args.adapters.iterdir() if entry.is_dir())[:adapters] if adapters else []

    def answers(numbers):
        with tempfile.TemporaryDirectory() as folder:
            given, made = pathlib.Path(folder, "prompts.csv"), pathlib.Path(folder, "answers.csv")
            given.write_text("".join(",".join(map(str, prompts[i])) + "\n" for i in numbers))
            command = [args.chorus, "run", "--engine_dir", engine, "--input_file", given, "--output_csv", made,
                       "--max_output_len", args.new, "--end_id", -1, "--threads", args.threads]
            if directories:
                command += ["--lora_dir", *directories, "--lora_task_uids", *(i % adapters for i in numbers)]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"compare.py: {done.stderr.strip()}")
            return made.read_text().splitlines()

    together = answers(range(count))
    return sum(together[i] == answers([i])[0] for i in range(count))


def steady(rows):
    """The rows during which the read roof changed by less than a tenth; all rows if there are none."""
    def moved(row):
        return 1 - min(row["read_gb_per_s"]) / max(row["read_gb_per_s"])

    return [row for row in rows if moved(row) < 0.1] or rows


def least_step_seconds(row, roof, flops):
    """Lower bound of a generation step's time: reading its bytes at the read roof, or computing its products at the
    instruction set's peak, whichever takes longer."""
    return max(row["step_bytes"] / (max(row["read_gb_per_s"]) * 1e9),
               row["batch"] * flops / (roof["matmul_tflops"] * 1e12))


def measure_paths(args, flops):
    """{(instruction set, width, batch): [{"generation": ..., "of_roof": ..., "context": ..., "of_peak": ...}]}"""
    samples = {}
    for _ in range(args.passes):
        for isa in args.isas:
            for width, engine in args.engines.items():
                report = throughput(args, engine, "--isa", isa, "--threads", args.threads, "--batch",
                                    ",".join(map(str, args.batch)))
                roof = report["roof"]
                for row in report["results"]:
                    steps = row["generation_tokens_per_s"] / row["batch"]
                    samples.setdefault((isa, width, row["batch"]), []).append({
                        "generation": row["generation_tokens_per_s"], "read_gb_per_s": row["read_gb_per_s"],
                        "of_roof": steps * least_step_seconds(row, roof, flops),
                        "context": row["context_tokens_per_s"],
                        "of_peak": row["context_tokens_per_s"] * flops / (roof["matmul_tflops"] * 1e12)})
    return samples


def measure_threads(args):
    """Context tokens per second of the largest batch up to 8, as pairs (one thread, all threads) measured in turn."""
    batch = max([b for b in args.batch if b <= 8], default=args.batch[0])
    engine = args.engines["bf16"]
    pairs = []
    for _ in range(args.passes):
        one, all_of_them = (throughput(args, engine, "--batch", batch, "--threads", threads)["results"][0]
                            for threads in (1, args.threads))
        pairs.append((one["context_tokens_per_s"], all_of_them["context_tokens_per_s"]))
    return {"batch": batch, "pairs": pairs}


def path_lines(samples, weights, number, share):
    if not samples:
        return []
    lines = ["## Chorus by other instruction sets (`--isa`)", "",
             "| set | weights | batch | generation | of the lesser roof | context | of the set's peak |",
             "|---|---|---|---|---|---|---|"]
    for (isa, width, batch), rows in samples.items():
        middle = {key: statistics.median(row[key] for row in rows) for key in ("generation", "context", "of_peak")}
        middle["of_roof"] = statistics.median(row["of_roof"] for row in steady(rows))
        lines.append(f"| {isa} | {weights[width]} | {batch} | {number(middle['generation'])} | {share(middle['of_roof'])} | "
                     f"{number(middle['context'])} | {share(middle['of_peak'])} |")
    return lines + ["", "The lesser roof of a generation step: reading its bytes, or its products at the peak of the set's "
                    "register-resident loop (of the layers' linears), whichever takes longer.", ""]


def thread_lines(threads, count, number):
    if not threads:
        return []
    ratio = statistics.median(many / one for one, many in threads["pairs"])
    one, many = (statistics.median(pair[i] for pair in threads["pairs"]) for i in (0, 1))
    return ["## Threads", "", f"Context, batch {threads['batch']}, bfloat16: {number(one)} tokens a second by one thread, "
            f"{number(many)} by {count}, {ratio:.2f} times as many (median of {len(threads['pairs'])} pairs in turn).", ""]
