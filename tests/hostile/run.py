#!/usr/bin/env python3
"""Runs hostile clients and tenants against a server, each beside a neighbour that must not be affected.

    run.py --chorus build/release/bin/chorus --demo examples/demo [--quick] [--only TEXT] [--sanitized] [--report FILE]

Standard library only. A scenario that fails prints why; exit status 1 when one does.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

SANITIZED_TIME_SCALE = "3"
# A scenario in which something was only late runs again: a busy machine may have caused it. A fault of the server comes back.
TRIES = 3


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chorus", required=True, type=Path, help="the program")
    parser.add_argument("--demo", required=True, type=Path, help="examples/demo: base/ and adapters/")
    parser.add_argument("--only", action="append", help="only scenarios whose name holds this text; may be repeated")
    parser.add_argument("--quick", action="store_true", help="the subset for every change")
    parser.add_argument("--sanitized", action="store_true",
                        help="the program has ASan and UBSan: three times the time, and memory is not judged")
    parser.add_argument("--list", action="store_true", help="names of the scenarios, and no more")
    parser.add_argument("--report", type=Path, help="file for what was measured, as JSON lines")
    return parser.parse_args()


def chosen_scenarios(arguments):
    import access  # noqa: F401 a module registers its scenarios
    import bodies  # noqa: F401
    import connections  # noqa: F401
    import fairness  # noqa: F401
    import http_table  # noqa: F401
    import requests_fuzz  # noqa: F401
    import reuse  # noqa: F401
    import small_stacks  # noqa: F401
    import templates  # noqa: F401
    import tenant_files  # noqa: F401
    import tenant_links  # noqa: F401
    import tenant_tokenizers  # noqa: F401
    from stage import SCENARIOS
    return [one for one in SCENARIOS if (one.quick or not arguments.quick)
            and (not arguments.only or any(text in one.name for text in arguments.only))]


def show(name, measured, faults, notes, seconds):
    def number(key):
        return f"{measured[key]:6.0f}" if key in measured else "     -"
    print(f"{name:<28} {'FAIL' if faults else 'ok':<5}{number('alone_ms')}{number('beside_ms')}{number('beside_p90_ms')}"
          f"{number('longest_ms')}   {number('peak_mib')}{number('plan_mib')}   {seconds:5.1f}", flush=True)
    for note in notes:
        print(f"    {note}")
    for fault in faults[:8]:
        print(f"    fault: {fault}")
    if len(faults) > 8:
        print(f"    and {len(faults) - 8} more faults")
    sys.stdout.flush()


def busy_seconds():
    """Seconds of processors' time that were used since the machine started, by anybody."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def await_quiet_machine(most_s=60):
    """Waits for a second in which the processors are idle for nine tenths of the time, but no longer than most_s seconds."""
    end = time.monotonic() + most_s
    while time.monotonic() < end:
        begin, busy = time.monotonic(), busy_seconds()
        time.sleep(1)
        if busy_seconds() - busy <= 0.1 * os.cpu_count() * (time.monotonic() - begin):
            return


class Runner:
    """Scenarios with the same settings share a server, one after another, until one ends it."""

    def __init__(self, report):
        self.server = None
        self.settings = None
        self.failed = []
        self._report = open(report, "w", encoding="utf-8") if report else None

    def run(self, one):
        from hostile_server import HostileServer
        from stage import Stage
        begun, earlier = time.monotonic(), []
        for number in range(TRIES):
            if self.server is None or self.settings != one.server:
                self.end_server()
                self.server, self.settings = HostileServer(*one.server), one.server
            stage = Stage(self.server)
            measured = stage.perform(one)
            if one.ends_server or stage.faults or stage.late:  # a fault here must not affect the next run
                self.server.end()
                self.server = None
            if stage.faults or not stage.late:
                break
            if number < TRIES - 1:
                earlier += [f"run {number + 1}: {late}" for late in stage.late[:3]]
                await_quiet_machine()
        self._result(one.name, measured, stage.faults + stage.late, earlier + stage.notes, time.monotonic() - begun)

    def end_server(self):
        """SIGTERM must end the server in time with status 0 and nothing forbidden in the log; leak reports come at the
        end.
        """
        if self.server is None:
            return
        log_begin = len(self.server.run.log_lines)
        code, seconds = self.server.end()
        faults = self.server.log_faults(log_begin)
        if code != 0:
            faults.append(f"SIGTERM after the scenarios with {' '.join(self.settings[0]) or 'no flags'}: status {code}")
        if faults:
            self._result("the end of the server", {}, faults, [], seconds)
        self.server = None

    def _result(self, name, measured, faults, notes, seconds):
        show(name, measured, faults, notes, seconds)
        if faults:
            self.failed.append(name)
        if self._report:
            self._report.write(json.dumps({"name": name, "faults": faults, "notes": notes, **measured}) + "\n")
            self._report.flush()


def main():
    arguments = parse()
    if arguments.sanitized:
        os.environ.setdefault("CHORUS_TEST_TIME_SCALE", SANITIZED_TIME_SCALE)
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "e2e"))
    import setting
    setting.chorus = str(arguments.chorus.resolve())
    setting.demo = arguments.demo.resolve()
    setting.sanitized = arguments.sanitized

    scenarios = chosen_scenarios(arguments)
    if arguments.list or not scenarios:
        print("\n".join(f"{one.name}{'  (quick)' if one.quick else ''}" for one in scenarios) or "no such scenario")
        sys.exit(0 if scenarios else 1)
    # Columns: times to first token of the neighbour in milliseconds, memory in MiB.
    print(f"{'scenario':<28} {'':<5} alone beside   p90longest     peak  plan      s")
    runner = Runner(arguments.report)
    begun = time.monotonic()
    # Scenarios with the same settings run one after another, because they share a server.
    order = list(dict.fromkeys(one.server for one in scenarios))
    for one in sorted(scenarios, key=lambda one: order.index(one.server)):
        runner.run(one)
    runner.end_server()
    print(f"{len(scenarios)} scenarios in {time.monotonic() - begun:.0f} s, failed: {', '.join(runner.failed) or 'none'}")
    sys.exit(1 if runner.failed else 0)


if __name__ == "__main__":
    main()
