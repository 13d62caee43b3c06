#!/usr/bin/env python3
"""Plays traces of requests and adapter changes against a server; every answer must be byte-equal to its solo answer.

    run.py --chorus build/release/bin/chorus --demo examples/demo                       the scenarios
    run.py --chorus ... --demo ... --seconds 30 --seed 1                                the scenarios, then drawn traces
    run.py --chorus ... --demo ... --replay tests/traces/scenarios/NAME.json --times 5  one trace

A solo answer is the answer to the same request by a quiet server of the same engine, from the content that the answer names
in system_fingerprint. After a fault, the trace is made smaller and written to a file for --replay. Python's standard
library suffices.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
sys.path.insert(0, str(HERE))

from answers import Solo  # noqa: E402
from contents import CONTENTS, COPY, MAX_RANK, composable, write_content  # noqa: E402
from player import ANSWER_S, Player  # noqa: E402
from server_process import ServerProcess  # noqa: E402
from timed_trace import draw, read_trace, shrink, text_of  # noqa: E402


class Run:
    def __init__(self, arguments, scratch, solo_server):
        self.arguments = arguments
        self.solo = Solo(solo_server, ANSWER_S)
        self.player = Player(arguments.chorus, arguments.demo / "base", scratch / "contents", scratch / "cache",
                             scratch, self.solo)

    def play(self, trace, name):
        """Plays a trace. After a fault it prints and writes what is needed to repeat it, and ends the program."""
        begun = time.monotonic()
        faults = self.player.play(trace)
        if not faults:
            return
        print(f"{name}: {len(faults)} faults after {time.monotonic() - self.begun:.1f} s", flush=True)
        print("\n".join(fault[:3000] for fault in faults[:3]), flush=True)
        wanted = kind_of(faults[0])
        smaller = shrink(trace, lambda t: any(kind_of(fault) == wanted for fault in self.player.play(t)),
                         self.arguments.shrink_seconds)
        file = self.arguments.failed
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text_of(smaller))
        print(f"{len(trace['events'])} events were reduced to {len(smaller['events'])}; one play took "
              f"{time.monotonic() - begun:.1f} s at most. Play them again with\n  {sys.argv[0]} --chorus "
              f"{self.arguments.chorus} --demo {self.arguments.demo} --replay {file} --times 20")
        if len(smaller["events"]) <= 12:
            print(text_of(smaller))
        sys.exit(1)

    def run(self):
        self.begun = time.monotonic()
        self.solo.learn_fingerprints(CONTENTS)
        if self.arguments.replay:
            for _ in range(self.arguments.times):
                self.play(read_trace(self.arguments.replay), self.arguments.replay.name)
        else:
            for file in sorted((HERE / "scenarios").glob("*.json")):
                if not self.arguments.only_drawn:
                    self.play(read_trace(file), file.name)
            end = time.monotonic() + self.arguments.seconds
            number = 0
            while time.monotonic() < end:
                seed = f"{self.arguments.seed}-{number}"
                self.play(draw(seed), f"seed {seed}")
                number += 1
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.player.counts.items()))
        print(f"no fault in {time.monotonic() - self.begun:.0f} s: {counts}; {self.solo.asked} solo answers")
        if not self.player.counts["answers"]:
            sys.exit("nothing was answered")


def kind_of(fault):
    """What a smaller trace must show too: the sentence without names, times and numbers."""
    return fault.split(": ", 1)[-1].split("\n")[0][:12]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chorus", required=True, type=Path, help="the program")
    parser.add_argument("--demo", required=True, type=Path, help="examples/demo")
    parser.add_argument("--seconds", type=float, default=0, help="draw traces for so long (0)")
    parser.add_argument("--seed", default="1", help="of the drawn traces (1); the timing of the server is not drawn")
    parser.add_argument("--replay", type=Path, help="plays this trace alone")
    parser.add_argument("--times", type=int, default=1, help="how often --replay plays it (1)")
    parser.add_argument("--only_drawn", action="store_true", help="leave the scenarios out")
    parser.add_argument("--shrink_seconds", type=float, default=120, help="time to make a failing trace smaller (120)")
    parser.add_argument("--failed", type=Path, default=Path("build/traces/failed.json"), help="where it is written")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chorus-traces-") as directory:
        scratch = Path(directory)
        for label in CONTENTS:
            write_content(label, arguments.demo / "base", arguments.demo / "adapters", scratch / "contents" / label)
            if composable(label):
                shutil.copytree(scratch / "contents" / label, scratch / "contents" / (label + COPY))
        with ServerProcess(arguments.chorus, [
                arguments.demo / "base", "--lora_dir", scratch / "contents", "--cache_dir", scratch / "cache", "--dtype",
                "float32", "--max_lora_rank", MAX_RANK, "--max_batch_size", 16, "--log_level", "warning"]) as server:
            Run(arguments, scratch, server).run()


if __name__ == "__main__":
    main()
