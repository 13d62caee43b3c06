"""Plays a trace against a server and compares every answer with the solo answer of the content that it names."""

import collections
import ctypes
import http.client
import itertools
import json
import shutil
import threading
import time

from answers import BASE, ask
from contents import COPY
from server_process import TIME_SCALE, ServerProcess
from timed_trace import server_arguments

# Time after a change in which the earlier content may still be served: the interval of the scan, one second in which
# files must not change, and the scan itself, on a busy machine that may stall for seconds.
LAG_S = 20.0 * TIME_SCALE
ANSWER_S = 180 * TIME_SCALE  # long, because the machine may be busy
RENAME_EXCHANGE = 2
AT_FDCWD = -100


def form_of(directory):
    """The two files of an adapter as the body of an upload, and its type."""
    boundary, parts = "chorus-trace-5c1f", []
    for part, file in (("config", "adapter_config.json"), ("weights", "adapter_model.safetensors")):
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{part}"; filename="{file}"\r\n\r\n'
        parts += [head.encode(), (directory / file).read_bytes(), b"\r\n"]
    return b"".join([*parts, f"--{boundary}--\r\n".encode()]), f"multipart/form-data; boundary={boundary}"


def exchange(first, second):
    """Exchanges two directories, with no time in between at which one is missing."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, bytes(first), AT_FDCWD, bytes(second), RENAME_EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), f"renameat2 {first} {second}")


class Player:
    def __init__(self, chorus, base, contents, cache, scratch, solo):
        """contents: the directory that has each content by its label. cache: of engines."""
        self.chorus, self.base, self.contents, self.cache, self.solo = chorus, base, contents, cache, solo
        self.scratch = scratch
        self.plays = 0
        self.counts = collections.Counter()

    def play(self, trace):
        """Returns the faults as sentences."""
        self.plays += 1
        folder = self.scratch / f"play{self.plays}"
        self.served, self.staged = folder / "served", folder / "staged"
        self.served.mkdir(parents=True)
        self.staged.mkdir()
        self.history = collections.defaultdict(lambda: [(0.0, None)])  # name -> times and labels, None while absent
        self.history[BASE] = [(0.0, BASE)]
        for name, label in trace["start"].items():
            shutil.copytree(self.contents / label, self.served / name)
            self.history[name] = [(0.0, label)]
        self.results, self.faults = [], []
        server = ServerProcess(self.chorus, [self.base, "--lora_dir", self.served, "--cache_dir", self.cache,
                                             "--enable_admin", "--lora_upload_dir", folder / "uploads",
                                             *server_arguments(trace)])
        try:
            # The base model's fingerprint covers the engine's limits, which the trace's flags set.
            first = ask(server.host, server.port, {"model": BASE, "prompt": "one", "max_tokens": 1}, ANSWER_S)
            self.base_fingerprints = first.fingerprints
            self.run_events(trace, server)
            alive = server.process.poll() is None
        finally:
            code = server.stop()
        faults = [] if alive else ["the server ended by itself"]
        if code != 0:
            faults.append(f"the server's exit status is {code}: {server.log[-2000:]}")
        faults += self.faults
        faults += [fault for event, answer in self.results for fault in [self.judge(event, answer)] if fault]
        shutil.rmtree(folder, ignore_errors=True)
        self.counts["traces"] += 1
        return faults

    def run_events(self, trace, server):
        begin, threads = time.monotonic(), []
        for event in trace["events"]:
            pause = begin + event["at"] * TIME_SCALE - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            if event["do"] == "ask":
                thread = threading.Thread(target=self.ask, args=(server, event))
                thread.start()
                threads.append(thread)
            elif event["do"] in ("upload", "rollback", "pin", "unpin"):
                self.administer(server, event)
            else:
                self.change(event)
        for thread in threads:
            thread.join()
        if trace.get("settle"):
            self.settle(server)

    def settle(self, server):
        """Asks every name until its last content is served."""
        for name in sorted(self.history):
            changed, label = self.history[name][-1]
            while True:
                self.ask(server, {"at": "the end", "do": "ask", "body": {
                    "model": name, "prompt": "two red dogs", "max_tokens": 8, "temperature": 0, "logprobs": 0}})
                answer = self.results[-1][1]
                if answer.status == 404 if label is None else label in map(self.label_of, answer.fingerprints):
                    break
                if answer.begin > changed + LAG_S:
                    self.faults.append(f"{name} at the end: the content {label} is not served")
                    break
                time.sleep(0.1)

    def label_of(self, fingerprint):
        """The label of a content by the fingerprint of answers; None if it is unknown."""
        return BASE if fingerprint in self.base_fingerprints else self.solo.labels.get(fingerprint)

    def change(self, event):
        target = self.served / event["name"]
        new = self.staged / "new"
        if event["do"] == "put":
            shutil.copytree(self.contents / event["content"], new)
            self.history[event["name"]].append((time.monotonic(), event["content"]))
            if target.exists():
                exchange(new, target)
                shutil.rmtree(new)
                self.counts["replaced"] += 1
            else:
                new.rename(target)
                self.counts["added"] += 1
        elif target.exists():
            self.history[event["name"]].append((time.monotonic(), None))
            target.rename(new)
            shutil.rmtree(new)
            self.counts["removed"] += 1

    def administer(self, server, event):
        """Sends a request that changes an adapter or its pin."""
        path, what = f"/v1/admin/adapters/{event['name']}", event["do"]
        body, headers = None, {}
        if what == "upload":
            method = "PUT"
            body, headers["content-type"] = form_of(self.contents / event["content"])
        else:
            method = "DELETE" if what == "unpin" else "POST"
            path += "/rollback" if what == "rollback" else "/pin"
        begin = time.monotonic()
        connection = http.client.HTTPConnection(server.host, server.port, timeout=ANSWER_S)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            status, answer = response.status, json.loads(response.read())
        finally:
            connection.close()
        self.counts[f"{what} {status}"] += 1
        # A pin may be too much for the cache or find no room in it; the other names may be absent.
        allowed = {"upload": (200,), "rollback": (200, 404), "pin": (200, 400, 404, 429), "unpin": (200, 404)}[what]
        if status not in allowed:
            self.faults.append(f"{what} of {event['name']} at {event['at']}: status {status}: {answer}")
        elif status == 200 and what in ("upload", "rollback"):
            label = self.solo.labels.get("fp_" + answer["content_hash"][:12])
            if what == "upload" and label != event["content"]:
                self.faults.append(f"the upload of {event['content']} at {event['at']} is served as {label}")
            self.history[event["name"]].append((begin, label))

    def ask(self, server, event):
        """Asks, again after a refusal that allows it."""
        end = time.monotonic() + ANSWER_S
        while True:
            answer = ask(server.host, server.port, event["body"], ANSWER_S, event.get("from"), event.get("leave_after"))
            if answer.status not in (409, 429, 503) or answer.fault or time.monotonic() > end:
                break
            self.counts[f"status {answer.status}"] += 1
            if answer.retry_s <= 0:
                answer.fault = f"status {answer.status} says no time after which to try again"
                break
            time.sleep(min(answer.retry_s, 1))
        self.results.append((event, answer))

    # --- judging ----------------------------------------------------------------------------------------------------

    def labels_of(self, name, answer):
        """The contents that `name` may have had while the request ran; None among them if it may have been absent."""
        since = answer.begin - LAG_S
        changes = [change for change in self.history[name] if change[0] <= answer.end]
        first = max((i for i, change in enumerate(changes) if change[0] <= since), default=0)
        return {label for _, label in changes[first:]}

    def judge(self, event, answer):
        body = event["body"]
        names = [term["name"] for term in body.get("adapters", [])] or [body["model"]]
        about = f"{'+'.join(names)} at {event['at']}"
        possible = [self.labels_of(name, answer) for name in names]
        if answer.fault:
            return f"{about}: {answer.fault}"
        if answer.status == 404:
            self.counts["status 404"] += 1
            return None if any(None in labels for labels in possible) else f"{about}: {answer.error}"
        if answer.status not in (None, 200, 400):
            return f"{about}: status {answer.status}: {answer.error}"
        if answer.left and not answer.choices:
            self.counts["left"] += 1
            return None
        solos, fault = self.solo_answers(body, answer, possible)
        if fault:
            return f"{about}: {fault}"
        if answer.left:
            self.counts["left"] += 1
            good = any(solo.choices.get(index, {"text": ""})["text"].startswith(text)
                       for solo in solos for index, text in answer.texts().items())
            return None if good else f"{about}: the beginning {answer.texts()} is not that of {solos[0].texts()}"
        if answer.status == 400:
            self.counts["status 400"] += 1
            return None if any(solo.status == 400 for solo in solos) else f"{about}: {answer.error}"
        self.counts["answers"] += 1
        if any(solo.status == 200 and solo.canonical() == answer.canonical() for solo in solos):
            return None
        return f"{about}: got\n  {answer.canonical()}\n alone\n  {solos[0].canonical()} {solos[0].error or ''}"

    def solo_answers(self, body, answer, possible):
        """The solo answers one of which is right, or a fault."""
        if "adapters" in body:
            # The fingerprint of a composition is that of the adapters' fingerprints, which need not be their contents' yet.
            weights = [term["weight"] for term in body["adapters"]]
            present = [sorted(labels - {None}) for labels in possible]
            combined = itertools.product(*present)
            solos = [self.solo.answer(apart(labels), body, weights) for labels in combined]
            return solos, None if solos else "an answer of an adapter that is absent"
        if answer.status == 400:
            return [self.solo.answer(label, body) for label in possible[0] - {None}], None
        if len(answer.fingerprints) != 1:
            return [], f"the answer names {len(answer.fingerprints)} contents: {answer.fingerprints}"
        fingerprint, = answer.fingerprints
        label = self.label_of(fingerprint)
        if label is None:
            return [], f"the answer names an unknown content: {fingerprint}"
        if label not in possible[0]:
            return [], f"the answer names the content {label}; it was one of {sorted(map(str, possible[0]))}"
        return [self.solo.answer(label, body)], None


def apart(labels):
    """Labels of a composition, in which a name may occur once."""
    return [label + COPY if label in labels[:i] else label for i, label in enumerate(labels)]
