#!/usr/bin/env python3
"""Holds what chorus_step_probe and callgrind wrote (scripts/regression.sh) against ops.txt and instructions.txt.

Exit status 1 if the ops differ or the instructions are more, with a line for each; --update writes the files instead.
"""
import argparse
import difflib
import pathlib
import re
import sys

TOLERANCE = 0.02
HERE = pathlib.Path(__file__).resolve().parent
UPDATE = "if it is meant, scripts/regression.sh --update"


def ops_by_step(path):
    """{step: [op lines]} of the probe's output, in which step names are not indented and the ops of a step are."""
    steps, name = {}, None
    for line in path.read_text().splitlines():
        if line.startswith(" "):
            steps[name].append(line)
        else:
            name = line
            steps[name] = []
    return steps


def instructions(path):
    """(own, all) instructions of one callgrind dump. "own" excludes libraries, whose counts depend on the state of the
    heap and on alignment."""
    own = total = 0
    own_object, names, skip = False, {}, False
    for line in path.read_text().splitlines():
        if line.startswith("ob="):
            number, _, name = line[3:].partition(" ")
            if name:
                names[number] = name
            own_object = "chorus_step_probe" in names.get(number, number)
        elif line.startswith("cob="):  # of a called function; used only to learn its name
            number, _, name = line[4:].partition(" ")
            if name:
                names[number] = name
        elif line.startswith("calls="):
            skip = True  # the next line is the callee's cost, which is counted in the callee's own lines
        elif re.match(r"[+\-*\d]", line):
            if skip:
                skip = False
                continue
            fields = line.split()
            cost = int(fields[1]) if len(fields) > 1 else 0
            total += cost
            own += cost if own_object else 0
    return own, total


def allocations(path):
    """{caller: number of heap allocations} of one callgrind dump."""
    names, callers, caller, callee = {}, {}, "", ""

    def name_of(text):
        number, _, name = text.partition(" ")
        if name:
            names[number] = name
        return names.get(number, number)

    for line in path.read_text().splitlines():
        if line.startswith("fn="):
            caller = name_of(line[3:])
        elif line.startswith("cfn="):
            callee = name_of(line[4:])
        elif line.startswith("calls=") and re.fullmatch(r"(malloc|calloc|realloc|operator new.*)('\d+)?", callee):
            if not caller.startswith("operator new"):
                callers[caller] = callers.get(caller, 0) + int(line[6:].split()[0])
    return callers


def dumps_of(work, engine):
    steps = (work / f"{engine}.steps").read_text().split()
    return {step: work / f"{engine}.counts.{i + 1}" for i, step in enumerate(steps)}


def counts_of(work, engine):
    return {step: instructions(dump) for step, dump in dumps_of(work, engine).items()}


def without_allocations(work):
    """Problems for steps that allocate: each measured step has run before and must not allocate again."""
    return [f"{step}: {calls} allocations of the heap by {caller}" for engine in ("plain", "adapters")
            for step, dump in dumps_of(work, engine).items() for caller, calls in allocations(dump).items()]


def read_counts(path):
    """(compiler, {step: (own, all)}) of instructions.txt."""
    compiler, counts = "", {}
    for line in path.read_text().splitlines():
        if line.startswith("# compiler: "):
            compiler = line[len("# compiler: "):]
        elif line and not line.startswith("#"):
            step, own, total = line.split()
            counts[step] = (int(own), int(total))
    return compiler, counts


def counts_text(compiler, counts):
    lines = ["# Instructions of each step on the AVX2 path with one thread: the program's own, and with libraries.",
             f"# compiler: {compiler}"]
    return "\n".join(lines + [f"{step} {own} {total}" for step, (own, total) in counts.items()]) + "\n"


def major(compiler):
    return re.findall(r"\d+", compiler.rpartition(")")[2] or compiler)[:1]


def same_without_adapters(work, counts):
    """Problems if an engine with adapters enabled but unused does other work than an engine without adapters."""
    problems = []
    plain, enabled = ops_by_step(work / "plain.ops"), ops_by_step(work / "adapters.ops")
    for step, (own, _) in counts["plain"].items():
        if plain[step] != enabled[step]:
            problems.append(f"{step}: different ops when adapters are enabled but unused")
        if own != counts["adapters"][step][0]:
            problems.append(f"{step}: {counts['adapters'][step][0]} instructions where adapters are enabled and none is "
                            f"used, {own} where they are not")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    ops_file, counts_file = HERE / "ops.txt", HERE / "instructions.txt"
    ops = (args.work / "adapters.ops").read_text()
    counts = {engine: counts_of(args.work, engine) for engine in ("plain", "adapters")}
    if min(own for engine in counts.values() for own, _ in engine.values()) < 100_000:
        sys.exit("regression: a step without instructions was counted: does callgrind see chorusMeasuredStep?")
    problems = same_without_adapters(args.work, counts) + without_allocations(args.work)
    if args.update:
        ops_file.write_text(ops)
        counts_file.write_text(counts_text(args.compiler, counts["adapters"]))
        print(f"regression: wrote {ops_file.name} and {counts_file.name}")
    else:
        diff = list(difflib.unified_diff(ops_file.read_text().splitlines(), ops.splitlines(), "ops.txt", "now", "", "", 1,
                                         ""))
        if diff:
            problems.append("other ops than bench/regression/ops.txt has:\n" + "\n".join(diff))
        compiler, expected = read_counts(counts_file)
        if set(expected) != set(counts["adapters"]):
            problems.append("other steps than bench/regression/instructions.txt has")
        elif major(compiler) != major(args.compiler):
            print(f"regression: {args.compiler} is not {compiler}: instructions are not compared with its")
        else:
            for step, now in counts["adapters"].items():
                for what, was, is_now in zip(("own", "all"), expected[step], now):
                    change = is_now / was - 1
                    if change < -TOLERANCE:
                        print(f"regression: {step}: {100 * change:+.1f} % {what} instructions; keep the gain with "
                              "scripts/regression.sh --update")
                    elif change > TOLERANCE:
                        problems.append(f"{step}: {is_now} {what} instructions, {100 * change:+.1f} % of {was}")
    for step, (own, total) in counts["adapters"].items():
        print(f"{step:26} {own:12} {total:12}")
    for problem in problems:
        print(f"regression: {problem}")
    if problems:
        sys.exit(f"regression: {len(problems)} differences; {UPDATE}")


if __name__ == "__main__":
    main()
