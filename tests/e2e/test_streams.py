"""Streaming: choices, stop strings, characters, log probabilities, usage; and the asynchronous client."""

import asyncio
import concurrent.futures
import json
import unittest

import openai

import setting
from server_process import TIME_SCALE
from test_answers import ask, ask_streaming, text_of

LONG = {"model": "base", "prompt": "the", "max_tokens": 200, "temperature": 0, "extra_body": {"ignore_eos": True}}


def raw_events(body, path="/v1/completions"):
    """Returns the raw data of every event of a stream."""
    connection = setting.shared_server().connect()
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode("utf-8", errors="strict")
    finally:
        connection.close()
    assert response.getheader("content-type").startswith("text/event-stream"), text
    return [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]


class Streams(unittest.TestCase):
    def test_events_end_with_done_and_hold_whole_characters(self):
        body = {"model": "base", "prompt": "the", "max_tokens": 300, "temperature": 2.0, "seed": 5, "stream": True,
                "ignore_eos": True}
        events = raw_events(body)
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual(events.count("[DONE]"), 1)
        chunks = [json.loads(event) for event in events[:-1]]
        streamed = "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])
        whole = setting.client().completions.create(**{key: body[key] for key in ("model", "prompt", "max_tokens", "seed")},
                                                    temperature=2.0, extra_body={"ignore_eos": True})
        self.assertEqual(streamed, whole.choices[0].text)
        for chunk in chunks:
            json.dumps(chunk, ensure_ascii=False).encode("utf-8", errors="strict")

    def test_choices_of_one_stream_end_each_on_their_own(self):
        chunks = list(setting.client().completions.create(
            model="base", prompt="the", max_tokens=24, temperature=2.0, seed=3, n=3, stream=True,
            stream_options={"include_usage": True}))
        ends = [choice.index for chunk in chunks for choice in chunk.choices if choice.finish_reason]
        self.assertEqual(sorted(ends), [0, 1, 2])
        whole = setting.client().completions.create(model="base", prompt="the", max_tokens=24, temperature=2.0, seed=3, n=3)
        for choice in whole.choices:
            streamed = "".join(c.text for chunk in chunks for c in chunk.choices if c.index == choice.index)
            self.assertEqual(streamed, choice.text)
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual(chunks[-1].usage.prompt_tokens, whole.usage.prompt_tokens)

    def test_usage_only_where_it_is_asked_for(self):
        row = setting.expected(1)[0]
        for options in ({}, {"stream_options": {"include_usage": False}}):
            chunks = ask_streaming(setting.client(), row, max_tokens=4, **options)
            self.assertTrue(all(chunk.usage is None for chunk in chunks))
            self.assertTrue(all(chunk.choices for chunk in chunks))
        with self.assertRaises(openai.BadRequestError) as caught:
            ask(setting.client(), row, max_tokens=4, stream_options={"include_usage": True})
        self.assertTrue(caught.exception.param.startswith("stream_options"))

    def test_stop_strings_across_tokens(self):
        client = setting.client()
        whole = client.completions.create(**LONG).choices[0].text
        for begin, size in ((3, 1), (7, 6), (20, 15), (31, 40)):
            stop = whole[begin:begin + size]
            want = whole[:whole.index(stop)]
            chunks = list(client.completions.create(**LONG, stop=["\u0001", stop], stream=True))
            self.assertEqual("".join(c.text for chunk in chunks for c in chunk.choices), want, repr(stop))
            last = [c for chunk in chunks for c in chunk.choices if c.finish_reason]
            self.assertEqual([c.finish_reason for c in last], ["stop"])
            self.assertEqual(last[0].model_extra["stop_reason"], stop)
        # The beginning of a stop string is sent as text when the rest does not follow.
        chunks = list(client.completions.create(**LONG, stop=whole[5:9] + "\u0001", stream=True))
        self.assertEqual("".join(c.text for chunk in chunks for c in chunk.choices), whole)

    def test_log_probabilities_follow_the_text(self):
        row = setting.expected(1)[0]
        chunks = ask_streaming(setting.client(), row, max_tokens=6, logprobs=True)
        entries = [entry for chunk in chunks for choice in chunk.choices if choice.logprobs
                   for entry in choice.logprobs.content or []]
        whole = ask(setting.client(), row, max_tokens=6, logprobs=True).choices[0]
        self.assertEqual([(entry.token, entry.logprob) for entry in entries],
                         [(entry.token, entry.logprob) for entry in whole.logprobs.content])
        self.assertEqual(bytes(b for entry in entries for b in entry.bytes).decode(), whole.message.content)

    def test_length_limits_go_by_either_name(self):
        row = setting.expected(1)[0]
        for name in ("max_tokens", "max_completion_tokens"):
            answer = ask(setting.client(), row, **{name: 3})
            self.assertEqual(answer.usage.completion_tokens, 3)
            self.assertEqual(answer.choices[0].finish_reason, "length")
            self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + 3)


class Async(unittest.TestCase):
    def test_mixed_adapters_at_once(self):
        rows = setting.expected(3)

        async def main():
            async with openai.AsyncOpenAI(base_url=setting.shared_server().url + "/v1", api_key="x", max_retries=0,
                                          timeout=60 * TIME_SCALE) as client:
                async def answer(row):
                    stream = await client.chat.completions.create(
                        model=setting.model_of(row), messages=[{"role": "user", "content": row["prompt"]}],
                        temperature=0, stream=True)
                    return text_of([chunk async for chunk in stream])
                return await asyncio.gather(*(answer(row) for row in rows))
        self.assertEqual(asyncio.run(main()), [row["text"] for row in rows])

    def test_left_streams_free_their_places(self):
        async def main():
            async with openai.AsyncOpenAI(base_url=setting.shared_server().url + "/v1", api_key="x", max_retries=0,
                                          timeout=60 * TIME_SCALE) as client:
                for _ in range(10):
                    stream = await client.completions.create(**{**LONG, "max_tokens": 900}, stream=True)
                    await anext(aiter(stream))
                    await stream.close()
                row = setting.expected(1)[0]
                answer = await client.completions.create(model="base", prompt=row["prompt_ids"], max_tokens=64, temperature=0)
                return answer.choices[0].text, row["text"]
        self.assertEqual(*asyncio.run(main()))


class Connections(unittest.TestCase):
    def test_one_connection_serves_many_requests(self):
        connection = setting.shared_server().connect()
        for _ in range(5):
            connection.request("POST", "/v1/completions", json.dumps({"model": "base", "prompt": "two", "max_tokens": 2}),
                               {"content-type": "application/json"})
            response = connection.getresponse()
            self.assertEqual(response.status, 200)
            response.read()
        connection.close()

    def test_parallel_refusals_disturb_nobody(self):
        row = setting.expected(1)[0]

        def one(index):
            if index % 2:
                return ask(setting.client(), row, max_tokens=64).choices[0].message.content
            try:
                ask(setting.client(), row, max_tokens=64, extra_body={"chat_template": "{{ raise_exception('no') }}"})
            except openai.PermissionDeniedError:
                return row["text"]
            return "not refused"
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(set(pool.map(one, range(16))), {row["text"]})
