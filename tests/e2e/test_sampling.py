"""Penalties, biases and log probabilities through the openai client."""

import math
import unittest

import openai
import setting


def row():
    return setting.expected(1)[0]


def complete(prompt, **options):
    extra = {name: options.pop(name) for name in list(options)
             if name in ("repetition_penalty", "min_tokens", "bad_words", "no_repeat_ngram_size", "ignore_eos",
                         "include_stop_str_in_output", "skip_special_tokens", "top_k", "min_p",
                         "stop_token_ids")}
    options = {"max_tokens": 24, "temperature": 0, **options}
    return setting.client().completions.create(model="base", prompt=prompt, extra_body=extra, **options).choices[0]


def prompt_ids():
    return row()["prompt_ids"]


class LogProbs(unittest.TestCase):
    def test_alternatives_of_completions(self):
        choice = complete(prompt_ids(), logprobs=5, max_tokens=6)
        found = choice.logprobs
        self.assertEqual(len(found.tokens), len(found.token_logprobs))
        for token, value, top in zip(found.tokens, found.token_logprobs, found.top_logprobs):
            self.assertLessEqual(value, 0)
            self.assertGreaterEqual(len(top), 1)
            self.assertEqual(max(top.values()), value, "greedy takes the likeliest")
            self.assertIn(token, top)
            self.assertLessEqual(sum(math.exp(x) for x in top.values()), 1.0001)

    def test_alternatives_of_chat(self):
        asked = row()
        answer = setting.client().chat.completions.create(
            model="base", messages=[{"role": "user", "content": asked["prompt"]}], temperature=0, max_tokens=64,
            logprobs=True, top_logprobs=3)
        content = answer.choices[0].logprobs.content
        self.assertEqual(len(content), len(asked["generated_ids"]))
        for entry in content:
            self.assertEqual(len(entry.top_logprobs), 3)
            values = [one.logprob for one in entry.top_logprobs]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertEqual(entry.top_logprobs[0].token, entry.token)
        seen = b"".join(bytes(entry.bytes) for entry in content[:-1]).decode()
        self.assertEqual(seen, answer.choices[0].message.content)

    def test_echo_scores_the_prompt(self):
        ids = prompt_ids() + row()["generated_ids"]
        split = len(prompt_ids())
        alone = complete(prompt_ids(), logprobs=1, max_tokens=len(ids) - split)
        echoed = complete(ids, logprobs=1, max_tokens=1, echo=True).logprobs
        self.assertIsNone(echoed.token_logprobs[0])
        self.assertEqual(len(echoed.tokens), len(ids) + 1)
        self.assertEqual(echoed.token_logprobs[split:len(ids)], alone.logprobs.token_logprobs)
        self.assertEqual(echoed.tokens[split:len(ids)], alone.logprobs.tokens)


class Rules(unittest.TestCase):
    def test_a_bias_forces_and_forbids(self):
        first = row()["generated_ids"][0]
        free = complete(prompt_ids(), max_tokens=1, logprobs=0).logprobs.tokens
        forced = complete(prompt_ids(), max_tokens=3, logprobs=0, logit_bias={str(first + 1): 100}).logprobs.tokens
        self.assertEqual(len(set(forced)), 1)
        forbidden = complete(prompt_ids(), max_tokens=1, logprobs=0, logit_bias={str(first): -100}).logprobs.tokens
        self.assertNotEqual(forbidden, free)

    def test_penalties_end_repetition(self):
        options = {"max_tokens": 24, "ignore_eos": True, "logprobs": 0}
        forced = {"logit_bias": {str(row()["generated_ids"][0]): 50}}
        self.assertEqual(len(set(complete(prompt_ids(), **options, **forced).logprobs.tokens)), 1)
        penalised = complete(prompt_ids(), **options, frequency_penalty=2, presence_penalty=2).logprobs.tokens
        free = complete(prompt_ids(), **options).logprobs.tokens
        self.assertGreater(len(set(penalised)), len(set(free)) - 1)
        unique = complete(prompt_ids(), **options, no_repeat_ngram_size=1).logprobs.tokens
        self.assertEqual(len(set(unique)), len(unique))

    def test_min_tokens_and_bad_words(self):
        choice = complete(prompt_ids(), min_tokens=24, max_tokens=24, logprobs=0)
        self.assertEqual(choice.finish_reason, "length")
        text = complete(prompt_ids()).text
        letter = next(c for c in text if c.isalpha())
        self.assertFalse(complete(prompt_ids(), bad_words=[letter]).text.startswith(text))

    def test_seeded_answers_repeat(self):
        options = {"temperature": 1.5, "seed": 7, "presence_penalty": 0.5, "repetition_penalty": 1.1}
        self.assertEqual(complete(prompt_ids(), **options).text, complete(prompt_ids(), **options).text)

    def test_refusals_name_the_field(self):
        cases = [({"presence_penalty": 3}, "presence_penalty"), ({"frequency_penalty": -3}, "frequency_penalty"),
                 ({"logit_bias": {"x": 1}}, "logit_bias"), ({"logit_bias": {"99999999": 1}}, "logit_bias"),
                 ({"stop_token_ids": [99999999]}, "stop_token_ids"),
                 ({"logit_bias": {"1": 101}}, "logit_bias"), ({"repetition_penalty": 0}, "repetition_penalty"),
                 ({"min_tokens": 25}, "min_tokens"), ({"bad_words": [""]}, "bad_words"), ({"logprobs": 6}, "logprobs")]
        for options, field in cases:
            with self.subTest(field=field), self.assertRaises(openai.BadRequestError) as refused:
                complete(prompt_ids(), **options)
            self.assertEqual(refused.exception.param, field)
