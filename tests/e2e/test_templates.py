"""Chat templates over HTTP: a request's own, documents, continued messages; adapters with their own template and tokenizer."""

import json
import shutil
import time
import unittest

import openai

import setting
from server_process import ServerProcess, soon, wait_until

ASK = {"model": "base", "max_tokens": 1, "temperature": 0}


def prompt_tokens(messages, server=None, **extra):
    client = setting.client(server or setting.trusting_server())
    body = {key: extra.pop(key) for key in ("model",) if key in extra}
    return client.chat.completions.create(**{**ASK, **body}, messages=messages, extra_body=extra).usage.prompt_tokens


def token_count(text, server=None):
    """Number of tokens of a text by the server's count; the template prints only the content."""
    return prompt_tokens([{"role": "user", "content": text}], server, chat_template="{{ messages[0].content }}")


class RequestTemplates(unittest.TestCase):
    MESSAGES = [{"role": "user", "content": "two dogs run"}]

    def test_text_and_variables(self):
        template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ more | default('') }}"
        short = prompt_tokens(self.MESSAGES, chat_template=template)
        longer = prompt_tokens(self.MESSAGES, chat_template=template, chat_template_kwargs={"more": " and the dogs sleep"})
        self.assertGreater(longer, short)

    def test_documents_reach_the_template(self):
        template = "{{ messages[0].content }}{{ documents | tojson if documents }}"
        plain = prompt_tokens(self.MESSAGES, chat_template=template)
        self.assertGreater(prompt_tokens(self.MESSAGES, chat_template=template, documents=[{"title": "a", "text": "b"}]), plain)

    def test_continued_messages(self):
        messages = self.MESSAGES + [{"role": "assistant", "content": "two dogs"}]
        closed = prompt_tokens(messages, add_generation_prompt=False)
        continued = prompt_tokens(messages, add_generation_prompt=False, continue_final_message=True)
        self.assertLess(continued, closed, "the end of the last message is left out")
        with self.assertRaises(openai.BadRequestError) as caught:
            prompt_tokens(messages, continue_final_message=True)
        self.assertEqual(caught.exception.param, "continue_final_message")

    def test_hostile_templates_are_cut_short(self):
        for template in ["{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
                         "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}", "{{ 'a' * 10**12 }}",
                         "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
                         "{{ ''.__class__.__mro__ }}", "{% include '/etc/passwd' %}", "{{ raise_exception('no') }}",
                         "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", "{% if %}", "x" * (1 << 17)]:
            def seconds(template=template):
                begin = time.monotonic()
                with self.assertRaises(openai.BadRequestError):
                    prompt_tokens(self.MESSAGES, chat_template=template)
                return time.monotonic() - begin
            with self.subTest(template=template[:60]):
                self.assertTrue(soon(seconds, 5))
        self.assertGreater(prompt_tokens(self.MESSAGES), 0)

    def test_an_error_names_the_line_once(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            prompt_tokens(self.MESSAGES, chat_template="a\n{{ raise_exception('no') }}")
        self.assertEqual(caught.exception.body["message"], "chat template line 2: no")

    def test_developers_are_system_unless_the_template_names_them(self):
        messages = [{"role": "developer", "content": "be brief"}, *self.MESSAGES]
        as_system = [{**messages[0], "role": "system"}, *self.MESSAGES]
        for template in (None, "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"):
            more = {"chat_template": template} if template else {}
            self.assertEqual(prompt_tokens(messages, **more), prompt_tokens(as_system, **more))
        knows = "{% for m in messages %}{{ m.role * 9 if m.role == 'developer' else m.role }}{% endfor %}"
        self.assertGreater(prompt_tokens(messages, chat_template=knows), prompt_tokens(as_system, chat_template=knows))

    def test_refused_without_trust(self):
        body = {"model": "base", "messages": self.MESSAGES, "max_tokens": 1}
        for field in ({"chat_template": "{{ messages[0].content }}"},
                      {"chat_template_kwargs": {"chat_template": "{{ messages[0].content }}"}}):
            with self.subTest(field=field):
                status, _, answer = setting.shared_server().request("POST", "/v1/chat/completions", {**body, **field})
                self.assertEqual((status, answer["error"]["param"]), (403, "chat_template"))
                self.assertIn("--trust_request_templates", answer["error"]["message"])

    def test_refused_by_name(self):
        for field, value in (("chat_template", 7), ("chat_template_kwargs", []), ("chat_template_kwargs", {"messages": []}),
                             ("documents", "x"), ("add_generation_prompt", "yes")):
            with self.subTest(field=field, value=value):
                with self.assertRaises(openai.BadRequestError) as caught:
                    prompt_tokens(self.MESSAGES, **{field: value})
                self.assertEqual(caught.exception.param, field)


class AdapterTexts(unittest.TestCase):
    """Adapters with a template, with a tokenizer, and with a tokenizer of more tokens than the model."""

    @classmethod
    def setUpClass(cls):
        source = setting.demo / "adapters" / setting.adapter_names()[0]
        cls.adapters = setting.scratch() / "texts"
        for name in ("plain", "styled", "spelled", "grown"):
            shutil.copytree(source, cls.adapters / name)
        (cls.adapters / "styled" / "chat_template.jinja").write_text("{{ messages[0].content }}")
        tokenizer = json.loads((setting.demo / "base" / "tokenizer.json").read_text(encoding="utf-8"))
        tokenizer["model"]["merges"] = []  # without merges every word is split into letters
        (cls.adapters / "spelled" / "tokenizer.json").write_text(json.dumps(tokenizer))
        shutil.copy(setting.demo / "base" / "tokenizer_config.json", cls.adapters / "spelled")
        vocabulary = tokenizer["model"]["vocab"]
        end = max(max(vocabulary.values()), *(token["id"] for token in tokenizer["added_tokens"])) + 1
        tokenizer["added_tokens"].append({"id": end, "content": "<|new|>", "special": True, "normalized": False,
                                          "single_word": False, "lstrip": False, "rstrip": False})
        (cls.adapters / "grown" / "tokenizer.json").write_text(json.dumps(tokenizer))
        arguments = [setting.demo / "base", "--lora_dir", cls.adapters, "--dtype", "float32", "--cache_dir",
                     setting.scratch() / "cache", "--trust_request_templates"]
        cls.server = ServerProcess(setting.chorus, arguments)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_each_uses_its_own(self):
        messages = [{"role": "user", "content": "two dogs run"}]
        counts = {name: prompt_tokens(messages, self.server, model=name) for name in ("base", "plain", "styled", "spelled")}
        self.assertEqual(counts["plain"], counts["base"])
        self.assertEqual(counts["styled"], token_count("two dogs run", self.server), "the template prints the content alone")
        self.assertGreater(counts["spelled"], counts["base"])

    def test_completions_use_it_too(self):
        def count(name):
            return setting.client(self.server).completions.create(
                model=name, prompt="two dogs run", max_tokens=1).usage.prompt_tokens
        self.assertEqual(count("plain"), count("base"))
        self.assertEqual(count("styled"), count("base"))
        self.assertGreater(count("spelled"), count("base"))

    def test_more_tokens_than_the_model_are_refused(self):
        # Tokenizers may be read after the start.
        self.assertTrue(wait_until(
            lambda: "grown" not in [model.id for model in setting.client(self.server).models.list()]))
        self.assertTrue(self.server.wait_logged("adapter left out"))
        line = next(line for line in self.server.log_lines if "adapter left out" in line)
        self.assertIn("grown", line)
        self.assertIn("embeddings", line)
