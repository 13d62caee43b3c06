"""What the openai package relies on: types of answers and errors, headers, retries, timeouts, both clients."""

import asyncio
import json
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import openai
import pydantic

import setting
from server_process import TIME_SCALE, ServerProcess, soon, wait_until

ASK = {"model": "base", "prompt": "two dogs", "max_tokens": 4, "temperature": 0}
CHAT = {"model": "base", "messages": [{"role": "user", "content": "two dogs"}], "max_tokens": 4, "temperature": 0}
LONG = {"model": "base", "prompt": "the", "max_tokens": 900, "temperature": 0, "extra_body": {"ignore_eos": True}}


class Forwarding:
    """A proxy in front of the shared server. The first answers are errors of the tests' choice, and all requests are counted."""

    def __init__(self, *errors):
        """errors: status and headers of each."""
        self.errors = list(errors)
        self.headers = []  # of each request
        self.times = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.headers.append(dict(self.headers.items()))
                outer.times.append(time.monotonic())
                if outer.errors:
                    status, headers = outer.errors.pop(0)
                    answer = b'{"error":{"message":"again","type":"t","param":null,"code":null}}'
                else:
                    status, headers, parsed = setting.shared_server().request("POST", self.path, body)
                    headers = {"content-type": "application/json"}
                    answer = json.dumps(parsed).encode()
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(answer))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def headers_of_refusal(server, body, path="/v1/completions"):
    """Status and the headers that clients follow."""
    status, headers, _ = server.request("POST", path, body)
    return status, {name: headers[name] for name in ("retry-after", "retry-after-ms", "x-should-retry") if name in headers}


def connections(server):
    """How many connections the server has accepted, this one included."""
    return server.metric("chorus_http_connections_total", outcome="accepted")


class Types(unittest.TestCase):
    """Answers are valid objects of the package's strict types, without a field that is missing."""

    # The package's types do not admit these nulls, which OpenAI's own service sends: the end of a choice that goes on, and
    # the log probability of an echoed prompt's first token.
    NULLS = (("finish_reason",), ("logprobs", "token_logprobs", 0))

    def valid(self, answer):
        try:
            checked = type(answer).model_validate(answer.model_dump(exclude_unset=True), strict=True)
            self.assertEqual(checked.model_dump(), answer.model_dump())
        except pydantic.ValidationError as error:
            for fault in error.errors():
                self.assertIn(fault["loc"][2:], self.NULLS, fault)
                self.assertIsNone(fault["input"], fault)

    def test_completions(self):
        client = setting.client()
        for more in ({}, {"logprobs": 3}, {"n": 2, "best_of": 3, "temperature": 1, "seed": 1}, {"echo": True, "logprobs": 0},
                     {"stop": ["e", "o"]}):
            with self.subTest(more):
                answer = client.completions.create(**{**ASK, **more})
                self.valid(answer)
                self.assertLess(abs(answer.created - time.time()), 60 * TIME_SCALE)
                self.assertTrue(all(choice.finish_reason in ("stop", "length") for choice in answer.choices))

    def test_completions_of_a_stream(self):
        for more in ({}, {"logprobs": 3}, {"n": 2, "temperature": 1, "seed": 1}):
            for chunk in setting.client().completions.create(**{**ASK, **more}, stream=True):
                self.valid(chunk)

    def test_chat(self):
        client = setting.client()
        for more in ({}, {"logprobs": True, "top_logprobs": 3}, {"n": 2, "temperature": 1, "seed": 1}, {"stop": "e"}):
            with self.subTest(more):
                self.valid(client.chat.completions.create(**{**CHAT, **more}))
                chunks = list(client.chat.completions.create(**{**CHAT, **more}, stream=True,
                                                             stream_options={"include_usage": True}))
                for chunk in chunks:
                    self.valid(chunk)
                self.assertEqual(len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}), 1)

    def test_responses(self):
        respond = setting.client().responses.create
        ask = {"model": "base", "input": "two dogs", "max_output_tokens": 4, "temperature": 0}
        self.valid(respond(**ask))
        for event in respond(**ask, stream=True):
            self.valid(event)

    def test_models(self):
        for model in setting.client().models.list():
            self.valid(model)
            self.valid(setting.client().models.retrieve(model.id))
        with self.assertRaises(openai.NotFoundError):
            setting.client().models.retrieve("nobody")

    def test_stream_helper_puts_the_answer_together(self):
        client = setting.client()
        # The helper raises an error for answers that max_tokens ends.
        chat = {**CHAT, "messages": [{"role": "user", "content": setting.expected(1)[0]["prompt"]}], "max_tokens": 64}
        whole = client.chat.completions.create(**chat, logprobs=True)
        with client.chat.completions.stream(**chat, logprobs=True) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_completion()
        self.assertIn("content.delta", kinds)
        self.assertIn("content.done", kinds)
        self.assertEqual(final.choices[0].message.content, whole.choices[0].message.content)
        self.assertEqual(final.choices[0].finish_reason, whole.choices[0].finish_reason)
        self.assertEqual([e.logprob for e in final.choices[0].logprobs.content],
                         [e.logprob for e in whole.choices[0].logprobs.content])


class Errors(unittest.TestCase):
    def test_each_status_is_its_class(self):
        client = setting.client()
        for ask, kind, status in [
                (lambda: client.completions.create(**{**ASK, "temperature": 9}), openai.BadRequestError, 400),
                (lambda: client.chat.completions.create(**CHAT, extra_body={"chat_template": "x"}),
                 openai.PermissionDeniedError, 403),
                (lambda: client.completions.create(**{**ASK, "model": "nobody"}), openai.NotFoundError, 404),
                (lambda: client.embeddings.create(model="base", input="x"), openai.NotFoundError, 404)]:
            with self.assertRaises(kind) as caught:
                ask()
            error = caught.exception
            self.assertEqual(error.status_code, status)
            self.assertEqual(error.request_id, error.response.headers["x-request-id"])
            self.assertEqual(set(error.body), {"message", "type", "param", "code"})
            self.assertIsInstance(error.type, str)
            self.assertIn(error.body["message"], str(error))

    def test_an_error_of_a_stream_that_did_not_begin_has_its_status(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            list(setting.client().completions.create(**{**ASK, "prompt": [10**6]}, stream=True))
        self.assertEqual(caught.exception.param, "prompt")

    def test_closed_port_is_a_connection_error(self):
        client = openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="x", max_retries=0)
        with self.assertRaises(openai.APIConnectionError):
            client.completions.create(**ASK)


class Surface(unittest.TestCase):
    """What the package has and this server does not: each call ends with one error that says so, and is not tried again."""

    def test_other_services_are_not_found(self):
        client = setting.client().with_options(max_retries=2)
        calls = {
            "embeddings": lambda: client.embeddings.create(model="base", input="x"),
            "moderations": lambda: client.moderations.create(input="x"),
            "images": lambda: client.images.generate(prompt="x"),
            "speech": lambda: client.audio.speech.create(model="base", voice="alloy", input="x"),
            "files": lambda: client.files.list(),
            "batches": lambda: client.batches.create(completion_window="24h", endpoint="/v1/completions", input_file_id="f"),
            "fine tuning": lambda: client.fine_tuning.jobs.list(),
            "vector stores": lambda: client.vector_stores.list(),
            "conversations": lambda: client.conversations.create(),
            "containers": lambda: client.containers.list(),
            "evals": lambda: client.evals.list(),
            "stored response": lambda: client.responses.retrieve("resp_1"),
            "its input": lambda: client.responses.input_items.list("resp_1"),
            "cancelled response": lambda: client.responses.cancel("resp_1"),
            "deleted response": lambda: client.responses.delete("resp_1"),
            "stored chat": lambda: client.chat.completions.retrieve("chatcmpl-1"),
            "its messages": lambda: client.chat.completions.messages.list("chatcmpl-1"),
            "changed chat": lambda: client.chat.completions.update("chatcmpl-1", metadata={}),
            "deleted chat": lambda: client.chat.completions.delete("chatcmpl-1"),
        }
        for name, call in calls.items():
            with self.subTest(name):
                with self.assertRaises(openai.NotFoundError) as caught:
                    call()
                self.is_one_error(caught.exception)

    def test_known_paths_with_other_methods(self):
        client = setting.client().with_options(max_retries=2)
        for name, call in {"stored chats": lambda: client.chat.completions.list(),
                           "deleted model": lambda: client.models.delete("roman")}.items():
            with self.subTest(name):
                with self.assertRaises(openai.APIStatusError) as caught:
                    call()
                self.assertEqual(caught.exception.status_code, 405)
                self.assertTrue(caught.exception.response.headers["allow"])
                self.is_one_error(caught.exception)
        self.assertIn("roman", [model.id for model in client.models.list()])

    def is_one_error(self, error):
        self.assertEqual(set(error.body), {"message", "type", "param", "code"})
        self.assertTrue(error.body["message"].endswith((".", "?")) or " " in error.body["message"], error.body)
        self.assertEqual(error.request_id, error.response.headers["x-request-id"])
        self.assertEqual(error.response.request.headers["x-stainless-retry-count"], "0")

    def test_structured_answers_are_refused_by_name(self):
        class Animals(pydantic.BaseModel):
            dogs: int
        with self.assertRaises(openai.BadRequestError) as caught:
            setting.client().chat.completions.parse(**CHAT, response_format=Animals)
        self.assertEqual(caught.exception.param, "response_format")

    def test_urls_may_end_with_a_slash(self):
        url = setting.shared_server().url + "/v1/"
        client = openai.OpenAI(base_url=url, api_key="x", max_retries=0, timeout=60 * TIME_SCALE)
        self.assertEqual(client.completions.create(**ASK).usage.completion_tokens, 4)


class Responses(unittest.TestCase):
    def test_raw_answers_have_headers(self):
        raw = setting.client().completions.with_raw_response.create(**ASK)
        self.assertEqual(raw.status_code, 200)
        self.assertEqual(raw.headers["content-type"], "application/json")
        self.assertEqual(raw.request_id, raw.headers["x-request-id"])
        self.assertEqual(raw.parse().usage.completion_tokens, 4)
        self.assertEqual(raw.parse().usage.total_tokens, raw.parse().usage.prompt_tokens + 4)

    def test_request_ids(self):
        answers = [setting.client().completions.create(**ASK) for _ in range(2)]
        self.assertNotEqual(answers[0]._request_id, answers[1]._request_id)
        named = setting.client().completions.create(**ASK, extra_headers={"x-request-id": "mine-7"})
        self.assertEqual(named._request_id, "mine-7")

    def test_streaming_response(self):
        with setting.client().completions.with_streaming_response.create(**ASK, stream=True) as response:
            self.assertTrue(response.headers["content-type"].startswith("text/event-stream"))
            lines = [line for line in response.iter_lines() if line]
        self.assertEqual(lines[-1], "data: [DONE]")

    def test_bodies_may_have_fields_and_headers_of_clients(self):
        client = setting.client(default_headers={"x-custom": "1"}, organization="org", project="project")
        answer = client.completions.create(**ASK, user="someone", extra_query={"a": "b"})
        self.assertEqual(answer.usage.completion_tokens, 4)

    def test_timeouts_end_the_request(self):
        client, ended = setting.client().with_options(timeout=0.05), False
        for _ in range(3):  # a client that stalls may find the whole answer
            try:
                client.completions.create(**{**LONG, "n": 16})
            except openai.APITimeoutError:
                ended = True
                break
        self.assertTrue(ended)
        self.assertEqual(setting.client().completions.create(**ASK).usage.completion_tokens, 4)


class Retries(unittest.TestCase):
    def test_retries_wait_as_the_server_says(self):
        """The package tries again after 409, 429 and 503, with the wait of retry-after-ms."""
        for status in (409, 429, 503):
            with self.subTest(status), Forwarding(*[(status, {"retry-after-ms": "300", "retry-after": "50"})] * 2) as proxy:
                answer = setting.client(proxy).with_options(max_retries=2).completions.create(**ASK)
                self.assertEqual(answer.usage.completion_tokens, 4)
                self.assertEqual(len(proxy.times), 3)
                for before, after in zip(proxy.times, proxy.times[1:]):
                    self.assertTrue(0.25 <= after - before < 50, after - before)
                self.assertEqual([h["x-stainless-retry-count"] for h in proxy.headers], ["0", "1", "2"])

    def test_the_last_refusal_is_raised(self):
        with Forwarding(*[(429, {"retry-after-ms": "1"})] * 3) as proxy:
            with self.assertRaises(openai.RateLimitError):
                setting.client(proxy).with_options(max_retries=1).completions.create(**ASK)
            self.assertEqual(len(proxy.times), 2)

    def test_refusals_that_pass_say_when(self):
        """A full queue is 429 with a wait, and a client that retries gets its answer."""
        arguments = [*setting.demo_arguments(), "--max_queue_size", "1", "--max_batch_size", "1"]
        with ServerProcess(setting.chorus, arguments) as server:
            client = setting.client(server)
            streams = []

            def fill():
                with self.assertRaises(openai.RateLimitError) as caught:
                    for _ in range(50):
                        streams.append(client.completions.create(**LONG, stream=True))
                return caught.exception

            # A stream may end before the next request arrives, also several if this client is slow.
            for _ in range(20):
                self.assertEqual(fill().code, "overloaded")
                status, headers = headers_of_refusal(server, ASK)
                if status == 429:
                    break
            self.assertEqual(status, 429)
            self.assertGreater(int(headers["retry-after-ms"]), 0)
            self.assertGreater(int(headers["retry-after"]), 0)
            threading.Timer(0.3, lambda: [stream.close() for stream in streams]).start()
            answer = client.with_options(max_retries=100).completions.create(**ASK)
            self.assertEqual(answer.usage.completion_tokens, 4)

    def test_a_server_that_loads_is_503_until_it_answers(self):
        server = ServerProcess(setting.chorus, setting.demo_arguments(), wait=False)
        try:
            server.wait_listening()
            answer = setting.client(server).with_options(max_retries=200).completions.create(**ASK)
            self.assertEqual(answer.usage.completion_tokens, 4)
        finally:
            server.stop()

    def test_faults_of_the_request_are_not_tried_again(self):
        for body, status in [({**ASK, "temperature": 9}, 400), ({**ASK, "model": "nobody"}, 404)]:
            with Forwarding() as proxy:
                with self.assertRaises(openai.APIStatusError) as caught:
                    setting.client(proxy).with_options(max_retries=3).completions.create(**body)
                self.assertEqual(caught.exception.status_code, status)
                self.assertEqual(len(proxy.times), 1)

    def test_a_request_timeout_is_final(self):
        with ServerProcess(setting.chorus, [*setting.demo_arguments(), "--request_timeout", "0.05"]) as server:
            client = setting.client(server).with_options(max_retries=3)

            def seconds():
                begin = time.monotonic()
                with self.assertRaises(openai.InternalServerError) as caught:
                    client.completions.create(**{**LONG, "n": 16})
                self.assertEqual(caught.exception.status_code, 504)
                self.assertEqual(caught.exception.response.headers["x-should-retry"], "false")
                self.assertEqual(caught.exception.response.request.headers["x-stainless-retry-count"], "0")
                return time.monotonic() - begin
            self.assertTrue(soon(seconds, 5))


class Async(unittest.TestCase):
    def client(self):
        return openai.AsyncOpenAI(base_url=setting.shared_server().url + "/v1", api_key="x", max_retries=0,
                                  timeout=60 * TIME_SCALE)

    def test_everything_of_the_other_client(self):
        async def main():
            async with self.client() as client:
                names = [model.id async for model in client.models.list()]
                answer = await client.completions.create(**ASK)
                chat = await client.chat.completions.create(**CHAT)
                raw = await client.chat.completions.with_raw_response.create(**CHAT)
                chunks = [chunk async for chunk in await client.chat.completions.create(**CHAT, stream=True)]
                with self.assertRaises(openai.NotFoundError):
                    await client.completions.create(**{**ASK, "model": "nobody"})
                return names, answer, chat, raw, chunks
        names, answer, chat, raw, chunks = asyncio.run(main())
        self.assertEqual(names, ["base", *setting.adapter_names()])
        self.assertEqual(answer.choices[0].text, setting.client().completions.create(**ASK).choices[0].text)
        self.assertEqual(raw.parse().choices[0].message.content, chat.choices[0].message.content)
        self.assertEqual("".join(c.delta.content or "" for chunk in chunks for c in chunk.choices),
                         chat.choices[0].message.content)

    def test_one_connection_serves_stream_after_stream(self):
        """The package reads a body to its end before it uses the connection again, so the body must end after [DONE]."""
        async def main():
            async with self.client() as client:
                texts = []
                for _ in range(3):
                    stream = await client.chat.completions.create(**CHAT, stream=True)
                    texts.append("".join([c.delta.content or "" async for chunk in stream for c in chunk.choices]))
                async with client.chat.completions.stream(**{**CHAT, "max_tokens": 64}) as stream:
                    final = await stream.get_final_completion()
                return texts, final.choices[0].message.content
        for _ in range(3):  # the client closes a connection that is idle for 5 s, which may happen on a busy machine
            before = connections(setting.shared_server())
            texts, final = asyncio.run(main())
            opened = connections(setting.shared_server()) - before
            if opened == 2:
                break
        self.assertEqual(opened, 2, "the client's, and that of the count itself")
        self.assertEqual(len(set(texts)), 1)
        self.assertTrue(final.startswith(texts[0]))

    def test_cancelled_tasks_free_their_places(self):
        server = setting.shared_server()

        def aborted():
            return server.metric("request_finish_total", finished_reason="abort")

        async def main():
            async with self.client() as client:
                tasks = [asyncio.create_task(client.completions.create(**{**LONG, "n": 8})) for _ in range(8)]
                while server.active() < 64 and not any(task.done() for task in tasks):
                    await asyncio.sleep(0.02)
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
                return ended, await client.completions.create(**ASK)
        for _ in range(3):  # a task may end first if this client is slow
            before = aborted()
            ended, answer = asyncio.run(main())
            self.assertEqual(answer.usage.completion_tokens, 4)
            self.assertTrue(wait_until(lambda: server.active() == 0))
            if aborted() - before == 64:
                break
        self.assertTrue(all(isinstance(end, asyncio.CancelledError) for end in ended), ended)
        self.assertEqual(aborted() - before, 64)

    def test_many_at_once_equal_one_by_one(self):
        bodies = [{**ASK, "prompt": prompt, "model": model} for prompt in ("two dogs", "red cats", "a house")
                  for model in ("base", *setting.adapter_names())]
        alone = [setting.client().completions.create(**body).choices[0].text for body in bodies]

        async def main():
            async with self.client() as client:
                answers = await asyncio.gather(*(client.completions.create(**body) for body in bodies * 4))
                return [answer.choices[0].text for answer in answers]
        self.assertEqual(asyncio.run(main()), alone * 4)
