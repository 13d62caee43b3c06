"""Fields of a request: used, ignored or refused by name; scoring a prompt; values passed to a chat template."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

import openai

import setting

CHAT = [{"role": "user", "content": "two dogs run"}]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


def complete(**options):
    extra = options.pop("extra_body", None)
    return setting.client().completions.create(
        **{"model": "base", "max_tokens": 4, "temperature": 0, "prompt": "two dogs", **options}, extra_body=extra)


def chat(**options):
    extra = options.pop("extra_body", None)
    return setting.client().chat.completions.create(
        **{"model": "base", "max_tokens": 4, "temperature": 0, "messages": CHAT, **options}, extra_body=extra)


class Fields(unittest.TestCase):
    def refused(self, ask, param, **options):
        with self.assertRaises(openai.BadRequestError) as caught:
            ask(**options)
        self.assertEqual(caught.exception.param, param)
        return caught.exception

    def test_fields_of_other_servers_are_refused_by_name(self):
        values = {"lora_request": {"lora_name": "german", "lora_int_id": 1, "lora_path": "x"}, "lora": [{"id": 0, "scale": 1}],
                  "lora_name": "german", "lora_path": "german", "lora_dir": "german", "adapter_id": "german",
                  "guided_json": {}, "guided_regex": "a+", "guided_choice": ["a"], "guided_grammar": "root ::= x",
                  "grammar": "root ::= x", "json_schema": {}, "regex": "a+", "structural_tag": "{}", "prompt_embeds": "AA==",
                  "repeat_penalty": 1.2, "n_predict": 5, "return_token_ids": True, "mirostat": 2}
        for field, value in values.items():
            for ask in (complete, chat):
                with self.subTest(field=field, ask=ask.__name__):
                    error = self.refused(ask, field, extra_body={field: value})
                    self.assertEqual(error.code, "unsupported_parameter")
                    self.assertIn(f"'{field}'", str(error))
        self.assertIn("choose the adapter with 'model'",
                      str(self.refused(chat, "lora_request", extra_body={"lora_request": {"lora_name": "german"}})))
        self.assertIn("'repetition_penalty'", str(self.refused(chat, "repeat_penalty", extra_body={"repeat_penalty": 1.2})))
        self.refused(chat, "nvext.guided_json", extra_body={"nvext": {"guided_json": {}}})
        self.refused(chat, "messages[0].audio", messages=[{**CHAT[0], "audio": {"id": "x"}}])

    def test_what_clients_send_unasked_passes(self):
        plain = chat().choices[0].message.content
        sent = chat(user="someone", tool_choice="auto", parallel_tool_calls=True, response_format={"type": "text"},
                    metadata={"run": "1"}, store=False, service_tier="auto", modalities=["text"],
                    extra_body={"tools": [], "functions": None, "lora_request": None, "repeat_penalty": 1.0, "nvext": {},
                                "guided_json": None, "use_beam_search": False, "an_unknown_field": {"a": 1}})
        self.assertEqual(sent.choices[0].message.content, plain)
        self.assertEqual(chat(tools=[TOOL], tool_choice="none").choices[0].message.content, plain)

    def test_tools_are_refused_until_they_are_parsed(self):
        self.refused(chat, "tools", tools=[TOOL])
        self.refused(chat, "tool_choice", tool_choice="required")
        self.refused(chat, "functions", functions=[{"name": "f"}])

    def test_an_overlong_max_tokens_is_an_error_in_max_tokens(self):
        error = self.refused(complete, "max_tokens", max_tokens=5000)
        self.assertEqual(error.code, "context_length_exceeded")
        self.assertIn("'max_tokens' is too large: 5000. This model's maximum context length is", str(error))
        self.refused(chat, "max_tokens", max_tokens=5000)
        self.refused(chat, "max_completion_tokens", max_tokens=None, max_completion_tokens=5000)
        self.assertEqual(self.refused(complete, "prompt", prompt=[5] * 2000).code, "context_length_exceeded")


class Scoring(unittest.TestCase):
    def test_max_tokens_of_zero_with_echo_scores_the_prompt(self):
        row = setting.expected(1)[0]
        ids = row["prompt_ids"] + row["generated_ids"]
        scored = complete(prompt=ids, max_tokens=0, echo=True, logprobs=2)
        longer = complete(prompt=ids, max_tokens=1, echo=True, logprobs=2).choices[0].logprobs
        found = scored.choices[0].logprobs
        self.assertEqual(len(found.tokens), len(ids))
        self.assertIsNone(found.token_logprobs[0])
        self.assertEqual(found.token_logprobs, longer.token_logprobs[:len(ids)])
        self.assertEqual(found.top_logprobs, longer.top_logprobs[:len(ids)])
        self.assertEqual(scored.usage.completion_tokens, 0)
        self.assertEqual(scored.choices[0].finish_reason, "length")

    def test_scores_of_streams_and_adapters(self):
        row = next(row for row in setting.expected(1) if row["adapter"])
        ids = row["prompt_ids"] + row["generated_ids"]
        model = setting.model_of(row)
        whole = complete(model=model, prompt=ids, max_tokens=0, echo=True, logprobs=1).choices[0]
        chunks = list(complete(model=model, prompt=ids, max_tokens=0, echo=True, logprobs=1, stream=True))
        values = [value for chunk in chunks for choice in chunk.choices if choice.logprobs
                  for value in choice.logprobs.token_logprobs]
        self.assertEqual(values, whole.logprobs.token_logprobs)
        self.assertEqual("".join(choice.text for chunk in chunks for choice in chunk.choices), whole.text)
        base = complete(prompt=ids, max_tokens=0, echo=True, logprobs=1).choices[0].logprobs
        self.assertNotEqual(base.token_logprobs, whole.logprobs.token_logprobs)

    def test_without_an_echo_zero_tokens_are_an_error(self):
        for options in ({}, {"logprobs": 1}, {"echo": False}):
            with self.assertRaises(openai.BadRequestError) as caught:
                complete(max_tokens=0, **options)
            self.assertEqual(caught.exception.param, "max_tokens")


class WhatTemplatesSee(unittest.TestCase):
    TEMPLATE = ("{% for m in messages %}{{ m['content'] is not none }},{{ 'content' in m }};{% endfor %}"
                "{{ n | default('') }}{{ n | default({}) | tojson }}")
    MESSAGES = [{"role": "assistant"}, {"role": "assistant", "content": None}, {"role": "user", "content": "x"}]
    NUMBER = 123456789012345678901234567890
    RENDERED = "True,False;False,True;True,True;" + 2 * str(NUMBER)

    def test_the_server(self):
        def count(messages, template, **variables):
            return setting.client(setting.trusting_server()).chat.completions.create(
                model="base", messages=messages, max_tokens=1,
                extra_body={"chat_template": template, "chat_template_kwargs": variables}).usage.prompt_tokens
        same = "{{ messages[0].content }}"
        self.assertEqual(count(self.MESSAGES, self.TEMPLATE, n=self.NUMBER),
                         count([{"role": "user", "content": self.RENDERED}], same))
        exact = "{{ 'exact' if m == messages[0].content and m | int == n else raise_exception('rounded') }}"
        count([{"role": "user", "content": str(self.NUMBER)}], exact, n=self.NUMBER, m=str(self.NUMBER))

    def test_the_command(self):
        with tempfile.TemporaryDirectory() as name:
            tokenizer = Path(name)
            (tokenizer / "tokenizer.json").write_bytes((setting.demo / "base" / "tokenizer.json").read_bytes())
            (tokenizer / "tokenizer_config.json").write_text(json.dumps({"chat_template": self.TEMPLATE}))
            (tokenizer / "in.jsonl").write_text(
                json.dumps({"messages": self.MESSAGES, "chat_template_kwargs": {"n": self.NUMBER}}) + "\n")
            subprocess.run([setting.chorus, "chat-template", "--tokenizer_dir", name, "--input_file", tokenizer / "in.jsonl",
                            "--output_file", tokenizer / "out.jsonl"], check=True, capture_output=True)
            self.assertEqual(json.loads((tokenizer / "out.jsonl").read_text()), self.RENDERED)
