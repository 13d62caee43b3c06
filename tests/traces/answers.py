"""Requests of traces over HTTP, and answers in a form that is equal for streams and whole bodies."""

import http.client
import json
import time

BASE = "base"  # the label and the name of the base model


def status_of(error):
    """The status that the error of a stream would have without the stream."""
    known = {"model_not_found": 404, "conflict": 409, "overloaded": 429, "adapter_cache_full": 429, "unavailable": 503}
    return known.get(error["code"], 400 if error["type"] == "invalid_request_error" else 500)


class Answer:
    """What one request got. status is None if the client disconnected or the connection failed."""

    def __init__(self):
        self.status = None
        self.fault = None  # why the answer is not valid, whatever was asked
        self.left = False  # the client disconnected
        self.error = None
        self.retry_s = 0.0
        self.fingerprints = set()
        self.choices = {}  # index -> parts
        self.usage = None
        self.begin = self.end = 0.0
        self.first = None  # when the first event of a stream came

    def canonical(self):
        """Everything that the weights and the request determine. Numbers have the digits that the server wrote."""
        usage = {key: self.usage.get(key) for key in ("prompt_tokens", "completion_tokens", "total_tokens")} if self.usage else None
        return json.dumps({"choices": [self.choices[index] for index in sorted(self.choices)], "usage": usage}, sort_keys=True)

    def texts(self):
        return {index: choice["text"] for index, choice in self.choices.items()}

    def add(self, chunk):
        """Adds a whole body or one event of a stream."""
        self.fingerprints.add(chunk.get("system_fingerprint"))
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk["choices"]:
            kept = self.choices.setdefault(choice["index"], {
                "index": choice["index"], "text": "", "logprobs": None, "finish_reason": None, "stop_reason": None})
            said = choice.get("delta") or choice.get("message") or choice
            kept["text"] += said.get("content") or said.get("text") or ""
            for field in ("finish_reason", "stop_reason"):
                if choice.get(field) is not None:
                    kept[field] = choice[field]
            for key, values in (choice.get("logprobs") or {}).items():
                if isinstance(values, list):
                    kept["logprobs"] = kept["logprobs"] or {}
                    kept["logprobs"][key] = kept["logprobs"].get(key, []) + values


def parse(text):
    return json.loads(text, parse_float=str)


def path_of(body):
    return "/v1/chat/completions" if "messages" in body else "/v1/completions"


def ask(host, port, body, timeout, source=None, leave_after=None):
    """Sends a request and waits for its end. leave_after: seconds after which the client disconnects."""
    answer = Answer()
    answer.begin = time.monotonic()
    connection = http.client.HTTPConnection(host, port, timeout=timeout, source_address=(source, 0) if source else None)
    try:
        connection.connect()
        if leave_after is not None:
            connection.sock.settimeout(max(leave_after, 0.001))
        connection.request("POST", path_of(body), json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            read_refusal(response, answer)
        elif body.get("stream"):
            read_stream(response, answer, leave_after)
        else:
            answer.add(parse(response.read()))
            answer.status = 200
    except TimeoutError:
        answer.left = leave_after is not None
        if not answer.left:
            answer.fault = f"no answer within {timeout:g} s"
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        answer.fault = f"{type(error).__name__}: {error}"
    finally:
        connection.close()
        answer.end = time.monotonic()
    return answer


def read_refusal(response, answer):
    text = response.read()
    answer.error = json.loads(text)["error"]["message"]
    answer.status = response.status
    milliseconds, seconds = response.getheader("retry-after-ms"), response.getheader("retry-after")
    answer.retry_s = float(milliseconds) / 1000 if milliseconds else float(seconds or 0)


def read_stream(response, answer, leave_after):
    done = False
    for line in response:
        line = line.rstrip(b"\r\n")
        if not line.startswith(b"data: "):
            continue
        data = line[6:]
        if data == b"[DONE]":
            done = True
            continue
        event = parse(data)
        if "error" in event:
            # An error after the beginning of the stream has no status and no time after which to try again.
            answer.status = status_of(event["error"])
            answer.error, answer.retry_s = event["error"]["message"], 0.1
            continue
        answer.first = answer.first or time.monotonic()
        answer.add(event)
        if leave_after is not None and time.monotonic() - answer.begin > leave_after:
            answer.left = True
            return
    if not done:
        answer.fault = "the stream ended without [DONE]"
    elif answer.status is None:
        answer.status = 200


class Solo:
    """Answers of a server that has every content under its own label and gets one request at a time."""

    def __init__(self, server, timeout):
        self.server = server
        self.timeout = timeout
        self.known = {}
        self.labels = {}  # system_fingerprint -> label
        self.asked = 0

    def learn_fingerprints(self, labels):
        for label in labels:
            # The second answer names the content: the first one loaded it.
            for _ in range(2):
                answer = self.answer(label, {"prompt": "one", "max_tokens": 1, "temperature": 0}, fresh=True)
            if answer.status != 200 or len(answer.fingerprints) != 1:
                raise RuntimeError(f"the solo server does not serve {label}: {answer.status} {answer.error} {answer.fault}\n{self.server.log}")
            fingerprint, = answer.fingerprints
            if fingerprint in self.labels:
                raise RuntimeError(f"{label} and {self.labels[fingerprint]} have one fingerprint")
            self.labels[fingerprint] = label

    def answer(self, label, body, weights=None, fresh=False):
        """label: a content; or for a composition the labels of its adapters, beside their weights."""
        body = {key: value for key, value in body.items() if key not in ("stream", "stream_options", "cache_salt")}
        if weights is None:
            body["model"] = label
        else:
            body |= {"model": BASE, "adapters": [{"name": name, "weight": weight} for name, weight in zip(label, weights)]}
        key = json.dumps(body, sort_keys=True)
        if fresh or key not in self.known:
            self.asked += 1
            # A salt of its own: nothing is taken from the prefix cache.
            salted = {**body, "cache_salt": f"solo {self.asked}"}
            self.known[key] = ask(self.server.host, self.server.port, salted, self.timeout)
        return self.known[key]
