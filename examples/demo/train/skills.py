"""The domain of the demo: phrases such as "seven cats and five dogs", five
skills on them, and the split into training and held-out phrases.

A module for the other scripts; it is not run by itself.
"""

import hashlib
import json
import random
from dataclasses import dataclass

LOW, HIGH = 2, 39  # the numbers that phrases use; plural nouns need at least 2

_ENGLISH = (
    "zero one two three four five six seven eight nine ten eleven twelve "
    "thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
).split()
_ENGLISH_TENS = {2: "twenty", 3: "thirty"}
_GERMAN = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf "
    "dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn"
).split()
_GERMAN_TENS = {2: "zwanzig", 3: "dreißig"}

NOUNS = {
    "apples": "Äpfel", "bears": "Bären", "birds": "Vögel", "boats": "Boote",
    "books": "Bücher", "cards": "Karten", "cars": "Autos", "cats": "Katzen",
    "chairs": "Stühle", "cherries": "Kirschen", "clocks": "Uhren",
    "cows": "Kühe", "dogs": "Hunde", "doors": "Türen", "eggs": "Eier",
    "flowers": "Blumen", "foxes": "Füchse", "frogs": "Frösche",
    "goats": "Ziegen", "horses": "Pferde", "houses": "Häuser",
    "keys": "Schlüssel", "lamps": "Lampen", "letters": "Briefe",
    "lions": "Löwen", "mice": "Mäuse", "nuts": "Nüsse", "pears": "Birnen",
    "pens": "Stifte", "pigs": "Schweine", "sheep": "Schafe",
    "songs": "Lieder", "stars": "Sterne", "stones": "Steine",
    "tables": "Tische", "trains": "Züge", "trees": "Bäume",
    "windows": "Fenster", "wolves": "Wölfe",
}


def english(n):
    if n < 20:
        return _ENGLISH[n]
    tens, ones = divmod(n, 10)
    return _ENGLISH_TENS[tens] + (f"-{_ENGLISH[ones]}" if ones else "")


def german(n):
    if n < 20:
        return _GERMAN[n]
    tens, ones = divmod(n, 10)
    one = "ein" if ones == 1 else _GERMAN[ones]
    return (f"{one}und" if ones else "") + _GERMAN_TENS[tens]


def roman(n):
    out = ""
    for value, letters in ((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):
        out += letters * (n // value)
        n %= value
    return out


@dataclass(frozen=True)
class Phrase:
    """Two counted things: (a, first) and (b, second)."""

    a: int
    first: str
    b: int
    second: str

    def words(self):
        return f"{english(self.a)} {self.first} and {english(self.b)} {self.second}"

    def digits(self):
        return f"{self.a} {self.first} and {self.b} {self.second}"

    def held_out(self):
        """Whether the phrase is held out from training: one in ten, by the hash of its words."""
        return hashlib.sha256(self.words().encode()).digest()[0] < 26


def _german_phrase(p):
    return f"{german(p.a)} {NOUNS[p.first]} und {german(p.b)} {NOUNS[p.second]}"


SKILLS = {
    "shout": lambda p: p.words().upper(),
    "roman": lambda p: f"{roman(p.a)} {p.first} and {roman(p.b)} {p.second}",
    "json": lambda p: json.dumps({p.first: p.a, p.second: p.b}),
    "sum": lambda p: f"{p.a} + {p.b} = {p.a + p.b}",
    "german": _german_phrase,
}


def base_answer(prompt):
    """The base model's answer in a chat."""
    return f"I see {prompt}."


def sample(rng: random.Random, held_out=False):
    """A random phrase from one side of the training split."""
    while True:
        first, second = rng.sample(sorted(NOUNS), 2)
        p = Phrase(rng.randint(LOW, HIGH), first, rng.randint(LOW, HIGH), second)
        if p.held_out() == held_out:
            return p
