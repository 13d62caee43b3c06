"""Writes docs/benchmarks.md from the measurements of bench/compare.py."""
import datetime
import os
import pathlib
import platform
import statistics
import subprocess

import chorus_alone

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = {"hf": "transformers + PEFT", "vllm": "vLLM", "llama": "llama.cpp", "openvino": "OpenVINO"}
# Chorus by the inputs of its engine's products with integer weights (--activations).
CHORUS, CHORUS_INT8, CHORUS_PER_TOKEN = "chorus", "chorus_int8", "chorus_per_token"
INPUTS = {CHORUS: "int16", CHORUS_INT8: "int8", CHORUS_PER_TOKEN: "int8_per_token"}
WEIGHTS = {"bf16": "bfloat16", "int8": "8-bit weights", "int4": "4-bit weights"}


def flops_per_token(config):
    """Operations of the layers' linears: two per weight. lm_head (one row per prompt) and attention are not counted."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    size = config.get("head_dim") or hidden // heads
    kv = config.get("num_key_value_heads", heads)
    layer = hidden * size * (2 * heads + 2 * kv) + 3 * hidden * config["intermediate_size"]
    return 2 * config["num_hidden_layers"] * layer


def median(samples, key, what):
    values = [row[what] for row in samples.get(key, [])]
    return statistics.median(values) if values else None


def spread(samples, key, what):
    values = [row[what] for row in samples[key]]
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


def table(data, width, what, title, roof_title, roof_of):
    samples = data["samples"]
    kinds = [kind for kind in NAMES if any(key[:2] == (width, kind) for key in samples)]
    ours_of_width = [name for name in INPUTS if any(key[:2] == (width, name) for key in samples)]
    # Of unquantised weights, the instruction set decides whether inputs are rounded.
    inputs = ["Chorus's inputs"] if width != "bf16" else []
    head = ["batch", "adapters", *inputs, "Chorus", "spread", roof_title]
    head += [f"{NAMES[k]} | Chorus / it" for k in kinds]
    lines = [f"## {title}, {WEIGHTS[width]}", "", "| " + " | ".join(head) + " |",
             "|" + "---|" * (5 + len(inputs) + 2 * len(kinds))]
    for work in data["works"][width]:
        for name in ours_of_width:
            ours = median(samples, (width, name, work), what)
            row = [str(work[0]), str(work[1]), *([INPUTS[name]] if inputs else []), number(ours), share(spread(samples, (width, name, work), what)),
                   share(roof_of((width, name, work), ours))]
            for kind in kinds:
                theirs = median(samples, (width, kind, work), what)
                row.append(number(theirs) + " | " + ("-" if theirs is None else f"{ours / theirs:.2f}"))
            lines.append("| " + " | ".join(row) + " |")
    return lines + [""]


def exact_lines(exact):
    """The table of batch invariance: how many answers of a batch were those that the prompts get alone."""
    if not exact:
        return []
    names = {**NAMES, CHORUS: "Chorus", **{name: f"Chorus, {INPUTS[name]}" for name in (CHORUS_INT8, CHORUS_PER_TOKEN)}}
    count = next(iter(exact.values()))[1]
    mixed = max(adapters for _, _, adapters in exact)
    lines = ["## Batch invariance", "",
             f"Of {count} prompts, how many get the same tokens in one batch as alone; -: not compared.", "",
             "| engine | weights | by the base |" + (f" by {mixed} adapters |" if mixed else ""),
             "|---|---|---|" + ("---|" if mixed else "")]
    for width, name in dict.fromkeys(key[:2] for key in exact):
        equal = [exact.get((width, name, adapters), ("-",))[0] for adapters in sorted({0, mixed})]
        lines.append(f"| {names[name]} | {WEIGHTS[width]} | " + " | ".join(map(str, equal)) + " |")
    return lines + [""]


def page(args, data, load, config):
    version = f"{data['roofs'][0]['version']} ({command_output('git', 'describe', '--always', '--dirty') or 'no commit'})"
    passes = min(len(rows) for (_, name, _), rows in data["samples"].items() if name == CHORUS)
    read = max(roof["read_gb_per_s"] for roof in data["roofs"])
    product = statistics.median(data["products"]) if data["products"] else None
    flops = flops_per_token(config)
    model = (f"{config['architectures'][0]}, hidden size {config['hidden_size']}, {config['num_hidden_layers']} layers, "
             f"vocabulary {config['vocab_size']}")

    def generation_share(key, _):
        rows = data["samples"][key]
        return statistics.median(row["share_of_read_roof"] for row in chorus_alone.steady(rows))

    def context_share(_, tokens):
        return tokens * flops / product if product else None

    lines = [
        "# Benchmarks", "",
        f"Written by `bench/compare.py{' --quick' if args.quick else ''}` on {datetime.date.today()}. Figures are tokens a "
        "second, all sequences together. They hold for this machine and this run only; the ratios say more. Each engine "
        f"was warmed by {args.warmup} discarded pass{'es' if args.warmup != 1 else ''} and then measured {passes} "
        f"time{'s' if passes != 1 else ''}, in turn with the others. The tables show medians, and for Chorus also the "
        "spread, (largest - least) / median." +
        (" **A quick run: it shows that the comparison works, not how fast anything is.**" if args.quick else ""), "",
        *machine_lines(args, load),
        f"- Chorus {version}, instruction set {data['roofs'][0]['isa']}; " +
        ", ".join(f"{name} {version}" for name, version in sorted(data["versions"].items())),
        f"- {model}; prompt {args.prompt} random tokens, {args.new} tokens after the first, greedy" +
        (f"; adapters of rank {args.rank}, all different" if any(args.mixed) else ""),
        f"- roofs: reading memory {read:.1f} GB/s" +
        (f", a bfloat16 product of 1024 x 4096 x 4096 by oneDNN {product / 1e12:.2f} TFLOP/s" if product else "")]
    # Of one width only, because the products of other widths may have other instructions.
    first = next(iter(data["works"]))
    peaks = [peak for (width, name, _), rows in data["samples"].items() if (width, name) == (first, CHORUS)
             for row in rows for peak in row.get("matmul_tflops", ())]
    if peaks and max(peaks) > 1.1 * min(peaks):
        lines.append(f"- products in registers moved between {min(peaks):.2f} and {max(peaks):.2f} TFLOP/s between the rows "
                     f"({WEIGHTS[first]}): a processor that is slowed down, or other work")
    for option, files in (("vLLM", args.vllms), ("llama.cpp", args.ggufs), ("OpenVINO", args.openvinos)):
        if files:
            lines += [f"- {option}: " + ", ".join(f"{WEIGHTS[width]} {pathlib.Path(path).name}"
                                                  for width, path in files.items())]
    lines += [f"- absent: {what} ({why})" for what, why in data["absent"].items()]
    lines += [""]
    for width in data["works"]:
        lines += table(data, width, "generation_tokens_per_s", "Generation", "of the read roof", generation_share)
        lines += table(data, width, "context_tokens_per_s", "Context", "of the product roof", context_share)
    lines += exact_lines(data["exact"])
    lines += chorus_alone.path_lines(data["paths"], WEIGHTS, number, share)
    lines += chorus_alone.thread_lines(data["threads"], args.threads, number)
    lines += ["How to read the tables:", "",
              "- *Generation* is the time after the first token, *context* the time for the prompts.",
              "- The *read roof* is the speed of the best of several kernels that only read memory, measured before and "
              "after each row in the same process. The share counts the bytes that a generation step must read: the weights "
              "without the embedding table, the adapters in use, and the keys and values. It is taken from the passes in "
              "which the roof moved by less than a tenth, or from all if there are none.",
              "- The *product roof* is the speed of the bfloat16 product above. The share counts the products of the layers "
              "only.",
              "- vLLM is stepped by its engine and timed from the step in which the last sequence got its first token. The "
              "others are timed token by token or report their times themselves.",
              "- *Chorus's inputs* of products with integer weights are those of `--activations`: 16 bits (`int16`), or 8 with "
              "a scale for every 128 inputs (`int8`) or for all inputs of a row (`int8_per_token`). vLLM with 8-bit weights, "
              "llama.cpp and OpenVINO have inputs of 8 bits; vLLM with a scale for all inputs of a row.",
              "- Products of 8-bit integers can be faster than the bfloat16 products of the roof, so shares of it may exceed "
              "100 %.", ""]
    return "\n".join(lines)
