"""Token ids of texts and back, and the counts of cached tokens."""

import unittest
import uuid

import setting


def post(path, body, status=200):
    got, _, answer = setting.shared_server().request("POST", path, body)
    assert got == status, answer
    return answer


class Tokens(unittest.TestCase):
    def test_conversations_have_the_prompts_of_transformers(self):
        for row in setting.expected(1):
            messages = [{"role": "user", "content": row["prompt"]}]
            answer = post("/tokenize", {"model": setting.model_of(row), "messages": messages})
            self.assertEqual(answer["tokens"], row["prompt_ids"])
            self.assertEqual(answer["count"], len(row["prompt_ids"]))
            self.assertEqual(answer["max_model_len"], 1024)
            self.assertIsNone(answer["token_strs"])

    def test_text_and_ids_are_inverse(self):
        text = "twenty doors, \"and\" thirty dogs\n"
        answer = post("/v1/tokenize", {"prompt": text, "add_special_tokens": False, "return_token_strs": True})
        self.assertEqual(len(answer["token_strs"]), answer["count"])
        self.assertEqual(post("/v1/detokenize", {"tokens": answer["tokens"]}), {"prompt": text})
        row = setting.expected(1)[0]
        self.assertEqual(post("/detokenize", {"model": "base", "tokens": row["generated_ids"]})["prompt"],
                         row["text"] + "<|end|>")
        self.assertEqual(post("/detokenize", {"tokens": row["generated_ids"], "skip_special_tokens": True})["prompt"],
                         row["text"])

    def test_a_whole_conversation_is_continued(self):
        turns = [{"role": "user", "content": "two dogs"}, {"role": "assistant", "content": "I see"}]
        whole = post("/tokenize", {"messages": turns, "add_generation_prompt": False})["tokens"]
        open_turn = post("/tokenize", {"messages": turns, "add_generation_prompt": False, "continue_final_message": True})
        self.assertEqual(whole[:len(open_turn["tokens"])], open_turn["tokens"])
        self.assertGreater(len(whole), len(open_turn["tokens"]))

    def test_errors_name_the_field(self):
        for body, param in (({}, "prompt"), ({"prompt": 5}, "prompt"), ({"prompt": "x", "model": "nobody"}, "model"),
                            ({"messages": [{"role": "user"}]}, "messages[0].content"), ({"messages": [], "tools": [1]}, "tools")):
            status = 404 if param == "model" else 400
            self.assertEqual(post("/tokenize", body, status)["error"]["param"], param)
        self.assertEqual(post("/detokenize", {"tokens": [10 ** 6]}, 400)["error"]["param"], "tokens")


class CachedTokens(unittest.TestCase):
    BLOCK = 64

    def test_a_prompt_that_comes_again_is_found(self):
        prompt, salt = [4 + i % 500 for i in range(200)], {"cache_salt": uuid.uuid4().hex}
        found = (len(prompt) - 1) // self.BLOCK * self.BLOCK

        def cached(**options):
            answer = setting.client().completions.create(model="base", prompt=prompt, max_tokens=2, temperature=0,
                                                         extra_body=salt, **options)
            if not options.get("stream"):
                return answer.usage.prompt_tokens_details.cached_tokens
            return list(answer)[-1].usage.prompt_tokens_details.cached_tokens
        self.assertEqual([cached(), cached(), cached(n=3)], [0, found, found])
        self.assertEqual(cached(stream=True, stream_options={"include_usage": True}), found)

        salt = {"cache_salt": uuid.uuid4().hex}
        self.assertEqual(cached(n=3), 0, "choices of one request do not count what they share")

    def test_every_api_counts_them(self):
        salt, text = {"cache_salt": uuid.uuid4().hex}, " ".join(["two dogs run"] * 40)
        messages = [{"role": "user", "content": text}]

        def chat():
            usage = setting.client().chat.completions.create(model="base", messages=messages, max_tokens=2,
                                                             extra_body=salt).usage
            return usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens
        count, cached = chat()
        self.assertEqual(cached, 0)
        want = (count - 1) // self.BLOCK * self.BLOCK
        self.assertGreater(want, 0)
        self.assertEqual(chat(), (count, want))
        usage = setting.client().responses.create(model="base", input=text, max_output_tokens=2, extra_body=salt).usage
        self.assertEqual((usage.input_tokens, usage.input_tokens_details.cached_tokens), (count, want))
        usage = setting.anthropic_client().messages.create(model="base", messages=messages, max_tokens=2,
                                                           extra_body=salt).usage
        self.assertEqual((usage.input_tokens, usage.cache_read_input_tokens), (count - want, want))

    def test_every_event_counts_when_asked(self):
        chunks = list(setting.client().completions.create(
            model="base", prompt="the", max_tokens=8, temperature=0, stream=True,
            stream_options={"include_usage": True, "continuous_usage_stats": True}, extra_body={"ignore_eos": True}))
        counts = [chunk.usage.completion_tokens for chunk in chunks]
        self.assertEqual(counts, sorted(counts))
        self.assertEqual(counts[-1], 8)
