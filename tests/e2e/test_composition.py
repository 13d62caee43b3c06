"""The request field "adapters", which composes several adapters in one answer."""

import concurrent.futures
import unittest

import openai

import setting


def compose(client, prompt, terms, **options):
    body = {"adapters": [{"name": name, "weight": weight} for name, weight in terms]}
    return client.chat.completions.create(model="base", messages=[{"role": "user", "content": prompt}], temperature=0,
                                          max_tokens=24, extra_body=body, **options)


def lora_rows():
    """One row for each adapter that may be composed, which are those without DoRA."""
    return list({row["adapter"]: row for row in setting.expected(1)
                 if row["adapter"] and not setting.uses_dora(row["adapter"])}.values())


class Composition(unittest.TestCase):
    def test_one_adapter_of_weight_one_is_that_adapter(self):
        client = setting.client()
        for row in lora_rows():
            own = client.chat.completions.create(model=row["adapter"], temperature=0, max_tokens=24,
                                                 messages=[{"role": "user", "content": row["prompt"]}])
            answer = compose(client, row["prompt"], [(row["adapter"], 1)])
            self.assertEqual(answer.choices[0].message.content, own.choices[0].message.content)
            self.assertEqual(answer.model, "base")
            self.assertNotEqual(answer.system_fingerprint, own.system_fingerprint)

    def test_in_a_mixed_batch_as_alone(self):
        client = setting.client()
        rows = lora_rows()
        first, second = rows[0]["adapter"], rows[1]["adapter"]
        mixes = [[(first, 1.0), (second, weight)] for weight in (0.25, 0.5, 1.0, -0.5)]
        mixes += [[(row["adapter"], 1.0)] for row in rows]
        prompt = rows[0]["prompt"]
        text = lambda terms: compose(client, prompt, terms).choices[0].message.content
        alone = [text(terms) for terms in mixes]
        self.assertGreater(len(set(alone)), 2)
        with concurrent.futures.ThreadPoolExecutor(len(mixes)) as pool:
            self.assertEqual(list(pool.map(text, mixes)), alone)
        chunks = list(compose(client, prompt, mixes[1], stream=True))
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks), alone[1])
        completion = client.completions.create(
            model="base", prompt=prompt, temperature=0, max_tokens=8,
            extra_body={"adapters": [{"name": first, "weight": 1.0}]})
        own = client.completions.create(model=first, prompt=prompt, temperature=0, max_tokens=8)
        self.assertEqual(completion.choices[0].text, own.choices[0].text)

    def test_refusals_name_the_field(self):
        client = setting.client()
        name = lora_rows()[0]["adapter"]
        with self.assertRaises(openai.NotFoundError) as caught:
            compose(client, "x", [(name, 1), ("nobody", 1)])
        self.assertIn("The model `nobody` does not exist", str(caught.exception))
        dora = [adapter for adapter in setting.adapter_names() if setting.uses_dora(adapter)]
        for terms, part in [([(name, "much")], "adapters[0].weight"), ([(name, 1), (name, 2)], "adapters[1].name"),
                            ([], "adapters"), ([(f"a{i}", 1) for i in range(99)], "adapters"), ([("base", 1)], "base"),
                            ([(dora[0], 1)], f"The adapter '{dora[0]}' uses DoRA"),
                            ([(name, 1), (dora[0], 0.5)], f"The adapter '{dora[0]}' uses DoRA")]:
            with self.assertRaises(openai.BadRequestError, msg=part) as caught:
                compose(client, "x", terms)
            self.assertIn(part, str(caught.exception))
            if "DoRA" in part:
                self.assertEqual((caught.exception.param, caught.exception.code), ("adapters", "invalid_value"))
        with self.assertRaises(openai.BadRequestError) as caught:
            client.completions.create(model=name, prompt="x", extra_body={"adapters": [{"name": name, "weight": 1}]})
        self.assertEqual(caught.exception.param, "adapters")
