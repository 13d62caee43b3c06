"""Answers to requests; many are compared with the reference answers."""

import concurrent.futures
import unittest

import setting
from server_process import ServerProcess


def ask(client, row, **options):
    return client.chat.completions.create(
        model=setting.model_of(row), messages=[{"role": "user", "content": row["prompt"]}], temperature=0, **options)


def ask_streaming(client, row, **options):
    """The chunks of a chat stream."""
    return list(ask(client, row, stream=True, **options))


def text_of(chunks, index=0):
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices
                   if choice.index == index)


class LoraStorage(unittest.TestCase):
    def test_adapters_of_eight_bits_answer_alike_in_less_memory(self):
        rows = [row for row in setting.expected() if row["adapter"]]
        sizes = {}
        for storage in ("model", "int8"):
            with ServerProcess(setting.chorus, [*setting.demo_arguments(), "--enable_admin", "--lora_storage",
                                                storage]) as server:
                client = setting.client(server)
                with concurrent.futures.ThreadPoolExecutor(len(rows)) as pool:
                    answers = list(pool.map(lambda row: ask(client, row, max_tokens=64), rows))
                for row, answer in zip(rows, answers):
                    with self.subTest(storage=storage, model=row["adapter"], prompt=row["prompt"]):
                        self.assertEqual(answer.choices[0].message.content, row["text"])
                for name in setting.adapter_names():
                    sizes[storage, name] = server.request("GET", f"/v1/admin/adapters/{name}")[2]["bytes"]
        for name in setting.adapter_names():
            # The demo's adapters are float32 in memory, a few of whose bytes are not A and B but magnitudes.
            self.assertLess(sizes["int8", name], sizes["model", name] / 2, name)


class Models(unittest.TestCase):
    def test_list_holds_base_and_adapters(self):
        models = list(setting.client().models.list())
        self.assertEqual([model.id for model in models], ["base", *setting.adapter_names()])
        for model in models:
            self.assertEqual(model.object, "model")
            self.assertEqual(model.owned_by, "vllm")
            self.assertGreater(model.created, 0)
            self.assertEqual(model.model_extra["root"], "base")
            self.assertIsNone(model.model_extra["parent"])
            self.assertTrue(model.model_extra["permission"][0]["allow_sampling"])

    def test_retrieve(self):
        name = setting.adapter_names()[0]
        self.assertEqual(setting.client().models.retrieve(name).id, name)


class Chat(unittest.TestCase):
    def test_every_model_answers_as_peft_does(self):
        client = setting.client()
        for row in setting.expected():
            with self.subTest(model=setting.model_of(row), prompt=row["prompt"]):
                answer = ask(client, row, max_tokens=64)
                self.assertEqual(answer.choices[0].message.content, row["text"])
                self.assertEqual(answer.choices[0].message.role, "assistant")
                self.assertEqual(answer.choices[0].finish_reason, "stop")
                self.assertEqual(answer.model, setting.model_of(row))
                self.assertEqual(answer.object, "chat.completion")
                self.assertTrue(answer.id.startswith("chatcmpl-"))
                self.assertTrue(answer.system_fingerprint.startswith("fp_"))
                self.assertEqual(answer.usage.prompt_tokens, len(row["prompt_ids"]))
                self.assertEqual(answer.usage.completion_tokens, len(row["generated_ids"]))

    def test_adapters_answer_one_prompt_differently(self):
        rows = {setting.model_of(row): row for row in reversed(setting.expected())}
        prompt = rows["base"]["prompt"]
        client = setting.client()
        answers = {name: ask(client, {**row, "prompt": prompt}, max_tokens=64).choices[0].message.content
                   for name, row in rows.items()}
        self.assertEqual(len(set(answers.values())), len(setting.adapter_names()) + 1, answers)

    def test_stream_is_the_same_text(self):
        client = setting.client()
        for row in setting.expected(1):
            chunks = ask_streaming(client, row, max_tokens=64, stream_options={"include_usage": True})
            self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
            self.assertEqual(text_of(chunks), row["text"])
            self.assertTrue(all(chunk.object == "chat.completion.chunk" for chunk in chunks))
            self.assertEqual(len({chunk.id for chunk in chunks}), 1)
            self.assertEqual(chunks[-1].choices, [])
            self.assertEqual(chunks[-1].usage.completion_tokens, len(row["generated_ids"]))
            self.assertEqual(chunks[-2].choices[0].finish_reason, "stop")
            self.assertGreater(len(chunks), 4, "tokens come one by one")

    def test_content_parts_and_default_length(self):
        row = setting.expected(1)[0]
        answer = setting.client().chat.completions.create(
            model="base", messages=[{"role": "user", "content": [{"type": "text", "text": row["prompt"]}]}])
        self.assertEqual(answer.choices[0].message.content, row["text"], "greedy by the model's own defaults")

    def test_choices(self):
        row = setting.expected(1)[0]
        chunks = ask_streaming(setting.client(), row, max_tokens=8, n=3)
        self.assertEqual(len({text_of(chunks, index) for index in range(3)}), 1)
        answer = ask(setting.client(), row, max_tokens=8, n=2)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1])
        self.assertEqual(answer.usage.completion_tokens, 16)
        self.assertEqual(answer.usage.prompt_tokens, len(row["prompt_ids"]))

    def test_log_probabilities(self):
        row = setting.expected(1)[0]
        content = ask(setting.client(), row, max_tokens=3, logprobs=True).choices[0].logprobs.content
        self.assertEqual(len(content), 3)
        self.assertEqual("".join(entry.token for entry in content), row["text"][:len("".join(
            entry.token for entry in content))])
        for entry in content:
            self.assertLessEqual(entry.logprob, 0)
            self.assertEqual(bytes(entry.bytes).decode(), entry.token)


class Completions(unittest.TestCase):
    def test_prompt_shapes(self):
        client = setting.client()
        rows = [row for row in setting.expected() if row["adapter"] is None][:2]
        ids = [row["prompt_ids"] for row in rows]
        one = client.completions.create(model="base", prompt=ids[0], max_tokens=64, temperature=0)
        self.assertEqual(one.choices[0].text, rows[0]["text"])
        self.assertEqual(one.object, "text_completion")
        self.assertTrue(one.id.startswith("cmpl-"))
        two = client.completions.create(model="base", prompt=ids, max_tokens=64, temperature=0)
        self.assertEqual([choice.text for choice in two.choices], [row["text"] for row in rows])
        self.assertEqual(two.usage.prompt_tokens, sum(map(len, ids)))
        self.assertEqual(two.usage.completion_tokens, sum(len(row["generated_ids"]) for row in rows))
        text = client.completions.create(model="base", prompt="two dogs", temperature=0)
        listed = client.completions.create(model="base", prompt=["two dogs"], temperature=0)
        self.assertEqual(text.choices[0].text, listed.choices[0].text)
        self.assertLessEqual(text.usage.completion_tokens, 16, "OpenAI's default length")

    def test_length_stop_and_echo(self):
        client = setting.client()
        row = [row for row in setting.expected() if row["adapter"] is None][0]
        ask = dict(model="base", prompt=row["prompt_ids"], temperature=0)
        short = client.completions.create(**ask, max_tokens=2)
        self.assertEqual(short.choices[0].finish_reason, "length")
        self.assertEqual(short.usage.completion_tokens, 2)
        word = row["text"].split()[2]
        stopped = client.completions.create(**ask, max_tokens=64, stop=["never", word])
        self.assertEqual(stopped.choices[0].text, row["text"][:row["text"].index(word)])
        self.assertEqual(stopped.choices[0].finish_reason, "stop")
        self.assertEqual(stopped.choices[0].model_extra["stop_reason"], word)
        echoed = client.completions.create(model="base", prompt="two dogs", max_tokens=4, temperature=0, echo=True)
        self.assertTrue(echoed.choices[0].text.startswith("two dogs"))

    def test_stream(self):
        client = setting.client()
        row = setting.expected(1)[1]
        chunks = list(client.completions.create(
            model=setting.model_of(row), prompt=row["prompt_ids"], max_tokens=64, temperature=0, stream=True,
            stream_options={"include_usage": True}))
        self.assertEqual("".join(choice.text for chunk in chunks for choice in chunk.choices), row["text"])
        self.assertEqual(chunks[-1].usage.total_tokens, len(row["prompt_ids"]) + len(row["generated_ids"]))

    def test_seeds(self):
        client = setting.client()
        ask = dict(model="base", prompt="the", max_tokens=24, temperature=2.0, extra_body={"ignore_eos": True})
        first = client.completions.create(**ask, seed=1).choices[0].text
        self.assertEqual(client.completions.create(**ask, seed=1).choices[0].text, first)
        many = client.completions.create(**ask, seed=1, n=3).choices
        self.assertEqual(many[0].text, first)
        self.assertGreater(len({choice.text for choice in many}), 1)
        self.assertEqual(client.completions.create(**ask, seed=2).choices[0].text, many[1].text)

    def test_log_probabilities(self):
        row = [row for row in setting.expected() if row["adapter"] is None][0]
        logprobs = setting.client().completions.create(
            model="base", prompt=row["prompt_ids"], max_tokens=4, temperature=0, logprobs=1).choices[0].logprobs
        self.assertEqual(len(logprobs.tokens), 4)
        self.assertEqual(logprobs.text_offset[0], 0)
        for token, value, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
            self.assertEqual(top, {token: value})


class Concurrency(unittest.TestCase):
    def test_parallel_streams_equal_solo_answers(self):
        client = setting.client()
        rows = (setting.expected(4) * 2)[:16]
        solo = [text_of(ask_streaming(client, row, max_tokens=64)) for row in rows]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            together = list(pool.map(lambda row: text_of(ask_streaming(client, row, max_tokens=64)), rows))
        self.assertEqual(together, solo)
        self.assertEqual(solo, [row["text"] for row in rows])
