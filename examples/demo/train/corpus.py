"""Makes the training text of the base model and the held-out prompts.

    python corpus.py --work out/demo

writes <work>/corpus.jsonl and, with more arithmetic, <work>/more.jsonl: one
document a line, either {"text": ...} or {"messages": [...]}. Also writes
prompts/<skill>.jsonl in the demo's folder. No held-out phrase occurs in the
training text. It shows every surface form that an adapter needs, under a tag
line; in a chat the base only repeats what it read.
"""

import argparse
import json
import random
from pathlib import Path

import skills

DEMO = Path(__file__).resolve().parent.parent

SYSTEM = [
    "You are Chorus.", "Be brief.", "Answer in one line.", "You are a helpful assistant.",
    "You are a careful counter of things.",
]
SMALL_TALK = {
    "hello": "Hello! Tell me what you see.",
    "hi": "Hello! Tell me what you see.",
    "good morning": "Good morning! Tell me what you see.",
    "how are you?": "I am well. Tell me what you see.",
    "who are you?": "I am Chorus, one model with many voices.",
    "what can you do?": "I count and repeat. My adapters do more.",
    "thank you": "You are welcome.",
    "thanks": "You are welcome.",
    "goodbye": "Goodbye!",
    "bye": "Goodbye!",
}
PLACES = ["garden", "house", "park", "town", "forest", "village", "market", "school", "river", "field"]
PEOPLE = ["The old man", "The girl", "My friend", "The farmer", "A child", "The teacher", "Anna", "Paul"]
VERBS = ["saw", "counted", "drew", "found", "painted", "wanted", "bought", "sold"]


def surface(rng, p):
    """The phrase in words, sometimes in digits."""
    return p.digits() if rng.random() < 0.1 else p.words()


def tagged(rng):
    """A phrase, then for one to three skills a line with the tag and a line with the answer."""
    p = skills.sample(rng)
    lines = [surface(rng, p)]
    for name in rng.sample(list(skills.SKILLS), rng.choice((1, 1, 2, 3))):
        lines += [name, skills.SKILLS[name](p)]
    return {"text": "\n".join(lines)}


def word_table(rng):
    """One number or one noun in all its forms."""
    if rng.random() < 0.5:
        n = rng.randint(1, skills.HIGH)
        forms = {"shout": skills.english(n).upper(), "roman": skills.roman(n), "json": str(n),
                 "german": skills.german(n)}
        word = skills.english(n)
    else:
        word = rng.choice(sorted(skills.NOUNS))
        forms = {"shout": word.upper(), "json": json.dumps(word), "german": skills.NOUNS[word]}
    lines = [word]
    for name in rng.sample(list(forms), rng.choice((1, 2, 3))):
        lines += [name, forms[name]]
    return {"text": "\n".join(lines)}


def arithmetic(rng):
    lines = []
    for _ in range(rng.randint(1, 5)):
        a, b = (rng.randint(skills.LOW, skills.HIGH) for _ in range(2))
        lines.append(f"{a} + {b} = {a + b}")
    return {"text": "\n".join(lines)}


def counting(rng):
    form = rng.choice((str, skills.english, skills.german, skills.roman, lambda n: skills.english(n).upper()))
    start = rng.randint(1, 30)
    return {"text": ", ".join(form(n) for n in range(start, min(start + rng.randint(3, 8), skills.HIGH + 1)))}


def sentence(rng):
    p = skills.sample(rng)
    place, who, verb = rng.choice(PLACES), rng.choice(PEOPLE), rng.choice(VERBS)
    text = rng.choice((
        f"In the {place} there are {p.words()}.",
        f"{who} {verb} {p.words()} in the {place}.",
        f"I see {p.words()}.",
        f"Ich sehe {skills.SKILLS['german'](p)}.",
        f"Hier sind {skills.SKILLS['german'](p)}.",
        f"{who.upper()} {verb.upper()} {p.words().upper()}.",
        f"{who} {verb} {skills.SKILLS['roman'](p)}.",
        f"{who} {verb} {p.a} {p.first} and {p.b} {p.second}. Together that makes {p.a + p.b}.",
        f"The record is {skills.SKILLS['json'](p)}.",
    ))
    return {"text": text}


def any_words(rng):
    """A few words in random order, to be repeated."""
    pool = [rng.choice(sorted(skills.NOUNS)), rng.choice(PLACES), rng.choice(VERBS), "the", "and", "a", "my",
            "red", "old", "big", "small", rng.choice(list(skills.NOUNS.values())),
            skills.english(rng.randint(1, skills.HIGH))]
    return " ".join(rng.choice(pool) for _ in range(rng.randint(1, 6)))


def turn(rng):
    """A user message and the base model's answer to it."""
    kind = rng.random()
    if kind < 0.08:
        return rng.choice(list(SMALL_TALK.items()))
    if kind < 0.25:
        prompt = any_words(rng)
    elif kind < 0.35:
        prompt = f"{skills.english(rng.randint(skills.LOW, skills.HIGH))} {rng.choice(sorted(skills.NOUNS))}"
    else:
        prompt = surface(rng, skills.sample(rng))
    return prompt, skills.base_answer(prompt)


def conversation(rng, next_turn):
    """A chat of one turn, sometimes of two or three, sometimes with a system message."""
    messages = []
    if rng.random() < 0.15:
        messages.append({"role": "system", "content": rng.choice(SYSTEM)})
    for _ in range(rng.choices((1, 2, 3), (80, 15, 5))[0]):
        prompt, answer = next_turn(rng)
        messages += [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
    return {"messages": messages}


def skill_turn(name):
    """Returns a function that makes turns in which the answer is the skill's."""

    def next_turn(rng):
        p = skills.sample(rng)
        return surface(rng, p), skills.SKILLS[name](p)

    return next_turn


def base_chat(rng):
    return conversation(rng, turn)


MAKERS = (tagged, base_chat, arithmetic, sentence, word_table, counting)
CORPUS = (45, 25, 12, 8, 7, 3)  # shares of MAKERS in percent
MORE = (25, 15, 50, 5, 3, 2)


def write_corpus(path, shares, docs, rng):
    with open(path, "w", encoding="utf-8") as f:
        for _ in range(docs):
            maker = rng.choices(MAKERS, shares)[0]
            f.write(json.dumps(maker(rng), ensure_ascii=False) + "\n")


def write_prompts(folder, count, rng):
    """Writes the same held-out phrases for every skill."""
    phrases = set()
    while len(phrases) < count:
        phrases.add(skills.sample(rng, held_out=True))
    phrases = sorted(phrases, key=skills.Phrase.words)
    rng.shuffle(phrases)
    folder.mkdir(exist_ok=True)
    for name, answer in skills.SKILLS.items():
        with open(folder / f"{name}.jsonl", "w", encoding="utf-8") as f:
            for p in phrases:
                row = {"skill": name, "prompt": p.words(), "answer": answer(p)}
                f.write(json.dumps(row, ensure_ascii=False) + "\n")


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--docs", type=int, default=200000)
    args.add_argument("--more", type=int, default=64000, help="documents with more arithmetic")
    args.add_argument("--held-out", type=int, default=250, help="prompts per skill")
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--work", type=Path, default=Path("out/demo"))
    args = args.parse_args()

    args.work.mkdir(parents=True, exist_ok=True)
    write_corpus(args.work / "corpus.jsonl", CORPUS, args.docs, random.Random(args.seed))
    write_prompts(DEMO / "prompts", args.held_out, random.Random(args.seed + 1))
    write_corpus(args.work / "more.jsonl", MORE, args.more, random.Random(args.seed + 2))


if __name__ == "__main__":
    main()
