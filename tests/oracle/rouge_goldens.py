#!/usr/bin/env python3
"""Makes tests/goldens/rouge.json: ROUGE scores by the package rouge-score, stems by NLTK, and random numbers by NumPy.

usage: rouge_goldens.py OUTPUT      needs rouge-score and numpy; written with rouge-score 0.1.2, NLTK 3.10, NumPy 2
"""

import json
import random
import sys

import numpy
from nltk.stem import porter
from rouge_score import rouge_scorer, scoring

NAMES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
STEMS = ("run", "hopp", "fall", "troubl", "relat", "condit", "vietnam", "happ", "sky", "fl", "oper", "gener", "yy", "syzyg",
         "ag", "be", "filin", "a", "log", "theolog", "electric", "form", "aeiou", "controll", "adopt", "toy", "1st", "n0")
SUFFIXES = ("", "s", "es", "ies", "sses", "ed", "ied", "eed", "ing", "y", "ly", "alli", "ally", "ational", "ation", "izer",
            "ization", "iveness", "fulness", "ousness", "fulli", "logi", "ology", "icate", "ative", "ful", "ness", "ement",
            "ment", "ent", "sion", "tion", "ion", "ate", "ize", "e", "ee", "ll", "iviti", "biliti", "bly", "er", "ism", "y")
IRREGULAR = ("sky", "skies", "dying", "lying", "tying", "news", "innings", "inning", "outings", "cannings", "howe",
             "proceed", "exceed", "succeed", "dies", "died", "spied", "enjoy", "enjoyment", "by", "is", "hiss", "ionize")
ODD = ("\u0130stanbul", "\u212aelvin", "na\u00efve", "co-op", "3.5", "don't", "\u4f60\u597d", "\U0001f600", "UPPER", "_x_", "\u00a0",
       "\u2028", "\t", "e\u0301")


def word(rng):
    kind = rng.random()
    if kind < 0.1:
        return rng.choice(ODD)
    if kind < 0.2:
        return rng.choice(IRREGULAR)
    return rng.choice(STEMS) + rng.choice(SUFFIXES)


def text(rng, vocabulary):
    count = rng.choice((0, 1, 2, 5, 12, 30))
    words = [rng.choice(vocabulary) if rng.random() < 0.8 else word(rng) for _ in range(count)]
    return "".join(w + rng.choice((" ", " ", " ", ", ", " .\n", "\n", "\n\n", "\r\n", " \n ")) for w in words)


def pairs(rng, count):
    for _ in range(count):
        vocabulary = [word(rng) for _ in range(rng.choice((2, 6, 20)))]
        yield text(rng, vocabulary), text(rng, vocabulary)


def score(reference, prediction, stem):
    scores = rouge_scorer.RougeScorer(NAMES, use_stemmer=stem).score(reference, prediction)
    return [[s.precision, s.recall, s.fmeasure] for s in (scores[name] for name in NAMES)]


def aggregate(rows):
    """As the metric `rouge` of the package evaluate with the seed 0."""
    numpy.random.seed(0)
    aggregator = scoring.BootstrapAggregator()
    for row in rows:
        aggregator.add_scores({name: scoring.Score(*s) for name, s in zip(NAMES, row)})
    result = aggregator.aggregate()
    return [result[name].mid.fmeasure for name in NAMES]


def rounded(value):
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.12g}")


def golden():
    rng = random.Random(7)
    stemmer = porter.PorterStemmer()
    words = sorted({s + e for s in STEMS for e in SUFFIXES if rng.random() < 0.35} | set(IRREGULAR))
    rows = [(r, p, rng.random() < 0.5) for r, p in pairs(rng, 40)]
    scores = [score(*row) for row in rows]
    return {
        "stems": {w: stemmer.stem(w) for w in words},
        "scores": [{"reference": r, "prediction": p, "stem": stem, "scores": rounded(s)}
                   for (r, p, stem), s in zip(rows, scores)],
        "aggregates": [{"count": n, "values": rounded(aggregate(scores[:n]))} for n in (1, 2, 5, 40)],
        "permutations": [{"seed": seed, "order": numpy.random.default_rng(seed).permutation(n).tolist()}
                         for seed, n in ((0, 1), (0, 8), (1, 33), (2**40 + 5, 20))],
        "deviation": rounded([float(numpy.std([s[i][2] for s in scores])) for i in range(4)]),
    }


def main():
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(golden(), file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
