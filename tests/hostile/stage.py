"""Runs a scenario: a server, a neighbour, attackers in their own processes, and the checks.

A scenario is a function of a Stage that is registered by @scenario. It calls stage.attack() any number of times, which
runs a function of the attacker in a niced process. Checked for every scenario are the neighbour's time to first token
and statuses, the memory, the log, the server's survival, and the bodies of all responses; a scenario adds its own
checks by stage.check(), stage.check_time() and stage.check_answers().
"""

import contextlib
import dataclasses
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import setting
import wire
from hostile_server import UNPLANNED_MIB, time_scale

NEIGHBOUR = "127.0.0.2"
ALONE_S = 1.5
LEAST_ALONE = 10  # answers
# During an attack the neighbour may wait three times as long as alone. Below FLOOR_S the ratio would measure only
# timers and other programs on the machine.
RATIO = 3
FLOOR_S = 0.05
# Longest allowed wait of the neighbour for any single answer.
LONGEST_S = 4.0
NEIGHBOUR_TIMEOUT_S = 8.0
# Interval at which requests of the neighbour are due. While one waits, the later ones wait behind it; see corrected.
DUE_S = 0.025

SCENARIOS = []


@dataclasses.dataclass
class Scenario:
    name: str
    run: object
    flags: tuple
    quick: bool
    neighbour: bool
    ends_server: bool
    small_stacks: bool
    key: str
    ca: str

    @property
    def server(self):
        """Settings of the server. Scenarios with equal settings may share one."""
        return self.flags, self.small_stacks


def scenario(name, flags=(), quick=False, neighbour=True, ends_server=False, small_stacks=False, key="", ca=""):
    """Registers a scenario.

    flags: flags of `chorus serve`. quick: in the subset that runs for every change. ends_server: the scenario stops the
    server itself. small_stacks: the server's threads have 256 KB of stack; a sanitized server needs more and keeps the
    default. key: the neighbour's API key. ca: the file with the authority of the server's certificate, if it speaks HTTPS.
    """
    def register(function):
        SCENARIOS.append(Scenario(name, function, tuple(flags), quick, neighbour, ends_server, small_stacks, key, str(ca)))
        return function
    return register


def corrected(samples):
    """Corrects for coordinated omission: a long wait also counts for all requests that were due during it."""
    waits = []
    for first in samples:
        while True:
            waits.append(first)
            first -= DUE_S
            if first <= DUE_S:
                break
    return waits


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Neighbour:
    """The process of neighbour.py and its records."""

    def __init__(self, address, key, ca):
        command = [sys.executable, str(Path(__file__).parent / "neighbour.py"), address[0], str(address[1]), NEIGHBOUR,
                   str(NEIGHBOUR_TIMEOUT_S * time_scale()), key, ca]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.records = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.records.append(json.loads(line))

    def between(self, begin, end):
        """Records of the requests that began in this interval. Waits for the request that is running at its end."""
        deadline = time.monotonic() + (NEIGHBOUR_TIMEOUT_S + 2) * time_scale()
        while time.monotonic() < deadline and self.process.poll() is None:
            if self.records and self.records[-1]["begin"] >= end:
                break
            time.sleep(0.02)
        return [record for record in self.records if begin <= record["begin"] < end]

    def wait_answers(self, count):
        deadline = time.monotonic() + 20 * time_scale()
        while len(self.records) < count and time.monotonic() < deadline:
            time.sleep(0.02)

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(timeout=5)


def _attacker(connection, nice, function, arguments):
    """Main function of an attacker process."""
    os.nice(nice)
    wire.raise_file_limit()
    try:
        connection.send((function(*arguments), None))
    except Exception as error:  # noqa: BLE001 the harness reports it
        connection.send((None, f"{type(error).__name__}: {error}"))
    connection.close()


class Stage:
    def __init__(self, server):
        self.server = server
        self.faults = []
        self.late = []  # what a busy machine may cause as well; the scenario runs again
        self.notes = []
        self.answers = []
        self.windows = []
        self.neighbour = None
        self._processes = multiprocessing.get_context("spawn")

    # --- what scenarios call --------------------------------------------------------------------------------------

    def attack(self, function, *arguments, timeout=90):
        """Calls function(address, *arguments) beside the neighbour. Returns its result, or None when it failed.

        Answers in the result are searched for text that no client may see.
        """
        return self.attack_all([(function, *arguments)], timeout)[0]

    def measure(self, function, *arguments, timeout=90):
        """Like attack(), for a client that only measures times: it has the neighbour's priority and the neighbour is
        not judged.
        """
        result = self.attack_all([(function, *arguments)], timeout, nice=0)[0]
        self.windows.pop()
        return result

    def attack_all(self, calls, timeout=90, nice=19):
        """Runs several calls at once, each in a process, and returns a list of their results.

        A function with the attribute `measures` measures times during the attack and keeps its priority.
        """
        begin = time.monotonic()
        running = []
        for function, *arguments in calls:
            mine, theirs = self._processes.Pipe(duplex=False)
            process = self._processes.Process(
                target=_attacker, args=(theirs, 0 if hasattr(function, "measures") else nice, function, (self.server.address, *arguments)), daemon=True)
            process.start()
            theirs.close()
            running.append((process, mine, function))
        results = []
        for process, mine, function in running:
            result, error = None, None
            left = begin + timeout * time_scale() - time.monotonic()
            try:
                if mine.poll(max(0, left)):
                    result, error = mine.recv()
                else:
                    self.late.append(f"the attacker {function.__name__} did not end in time")
            except EOFError:
                error = "ended without a result"
            process.kill()
            process.join()
            if error is not None:
                late = error.removeprefix("RuntimeError: ").startswith("TimeoutError")
                (self.late if late else self.faults).append(f"the attacker {function.__name__} {error}")
            if isinstance(result, list):
                self.answers += [answer for answer in result if isinstance(answer, wire.Answer)]
            results.append(result)
        self.windows.append((begin, time.monotonic()))
        return results

    @contextlib.contextmanager
    def during(self, calls, begun_s=1.0, timeout=90):
        """Runs attackers during the body of the `with`, which begins after `begun_s` seconds."""
        thread = threading.Thread(target=self.attack_all, args=(calls, timeout))
        thread.start()
        time.sleep(begun_s)
        try:
            yield
        finally:
            thread.join()

    def linger(self, seconds):
        """Keeps judging the neighbour for some seconds, because an attack's work may go on after its clients
        disconnect.
        """
        begin = time.monotonic()
        time.sleep(seconds)
        self.windows.append((begin, time.monotonic()))

    def check(self, condition, text):
        if not condition:
            self.faults.append(text)

    def check_time(self, condition, text):
        """Like check() for a condition that a busy machine may break too: it must hold in one of several runs."""
        if not condition:
            self.late.append(text)

    def note(self, text):
        self.notes.append(text)

    def check_answers(self, answers, allowed, within=15.0):
        """Checks that each answer has an allowed status in time and that a refusal is JSON with a one-line message."""
        if answers is None:
            return
        for answer in answers:
            if timed_out(answer.status) or (answer.status == 504 and 504 not in allowed):
                self.late.append(f"{answer.label}: {answer.status} after {answer.seconds:.1f} s")
            elif answer.status not in allowed:
                self.faults.append(f"{answer.label}: {answer.status} {answer.body[:160]!r}")
            elif answer.seconds > within * time_scale():
                self.late.append(f"{answer.label}: {answer.status} after {answer.seconds:.1f} s")
            elif isinstance(answer.status, int) and answer.status >= 400 and answer.body:
                self.faults += [f"{answer.label}: {fault}" for fault in refusal_faults(answer)]

    # --- what run.py calls ----------------------------------------------------------------------------------------

    def perform(self, chosen):
        """Runs and judges the scenario. Returns a dictionary of measurements."""
        measured = {}
        log_begin = len(self.server.run.log_lines)
        self.server.forget_peak()
        if chosen.neighbour:
            self.neighbour = Neighbour(self.server.address, chosen.key, chosen.ca)
            self.neighbour.wait_answers(5)
            begin, known = time.monotonic(), len(self.neighbour.records)
            time.sleep(ALONE_S)
            self.neighbour.wait_answers(known + LEAST_ALONE)
            alone = self.neighbour.between(begin, time.monotonic())
        try:
            chosen.run(self)
        except Exception as error:  # noqa: BLE001 one scenario's fault is not the others'
            self.faults.append(f"{type(error).__name__}: {error}")
        if chosen.neighbour:
            if self.windows and not chosen.ends_server:
                self._judge_neighbour(alone, measured)
            self.neighbour.stop()
        if chosen.ends_server:
            pass
        elif not self.server.alive():
            self.faults.insert(0, f"the server ended with status {self.server.run.process.wait()}")
        else:
            self._judge_memory(measured)
        self.faults += self.server.log_faults(log_begin)
        self.faults += self._leaks()
        return measured

    def _judge_neighbour(self, alone, measured):
        beside = [record for begin, end in self.windows for record in self.neighbour.between(begin, end)]
        failed = sorted({str(record["status"]) for record in beside + alone if record["status"] != 200})
        check = self.check_time if all(timed_out(status) for status in failed) else self.check
        check(not failed, f"the neighbour got {', '.join(failed)}")
        alone = [record["first"] for record in alone if record["status"] == 200]
        self.check_time(alone, "the neighbour had no answer before the attack")
        if not alone:
            return
        # A failed request counts with the time until it failed.
        waits = [record["first"] for record in beside]
        if not waits:
            waits = [sum(end - begin for begin, end in self.windows)]
        before, during = corrected(alone), corrected(waits)
        measured["alone_ms"] = statistics.median(before) * 1000
        measured["beside_ms"] = statistics.median(during) * 1000
        measured["alone_p90_ms"] = quantile(before, 0.9) * 1000
        measured["beside_p90_ms"] = quantile(during, 0.9) * 1000
        measured["longest_ms"] = max(waits) * 1000
        most = max(RATIO * statistics.median(before), statistics.median(before) + FLOOR_S * time_scale())
        self.check_time(statistics.median(during) <= most,
                        f"the neighbour's first token took {measured['beside_ms']:.0f} ms (alone {measured['alone_ms']:.0f})")
        self.check_time(max(waits) <= LONGEST_S * time_scale(),
                        f"one first token of the neighbour took {max(waits):.1f} s")

    def _judge_memory(self, measured):
        measured["peak_mib"] = self.server.memory_mib("VmHWM")
        measured["plan_mib"] = self.server.plan_mib()
        if setting.sanitized:
            return
        most = 1.1 * measured["plan_mib"] + UNPLANNED_MIB
        self.check(measured["peak_mib"] <= most,
                   f"memory reached {measured['peak_mib']:.0f} MiB, planned are {measured['plan_mib']:.0f}")

    def check_memory_given_back(self, within):
        """The server's memory falls to what is planned, within so many seconds. The allocator of a sanitized server
        returns memory when it likes."""
        if setting.sanitized:
            return
        most = 1.1 * self.server.plan_mib() + UNPLANNED_MIB
        begun = time.monotonic()
        self.check_time(self.server.wait(lambda: self.server.memory_mib("VmRSS") <= most, within), "memory is not given back")
        self.note(f"given back after {time.monotonic() - begun:.1f} s")

    def _leaks(self):
        """Server paths in answers. The scratch folder's name is random, so any occurrence of it counts."""
        marks = [re.escape(self.server.folder.name), r"(?<![\w.])/(?:tmp|root|home|proc|work|usr)/"]
        found = re.compile("|".join(marks))
        return [f"{answer.label}: a path of the server: {answer.body[:200]!r}" for answer in self.answers
                if found.search(answer.body)][:3]


def timed_out(status):
    """Whether a request ended by the client's own time-out."""
    return str(status).startswith("TimeoutError")


def refusal_faults(answer):
    """Faults in the body of a refusal."""
    if not isinstance(answer.status, int) or len(answer.body) >= wire.KEPT_BODY:
        return []
    try:
        error = json.loads(answer.body)["error"]
    except (ValueError, KeyError, TypeError):
        return [f"{answer.status} with a body that is no error: {answer.body[:120]!r}"]
    message = error.get("message")
    if not isinstance(message, str) or not message or "\n" in message or len(message) > 2000:
        return [f"{answer.status} with an unclear message: {message!r:.160}"]
    return []
