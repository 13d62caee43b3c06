"""Prefix-cache reuse: what it reveals about other clients, and whether one client can evict another's prompts."""

import itertools
import random
import statistics
import time

import wire
from stage import NEIGHBOUR, scenario

COMPLETIONS = "/v1/completions"
BLOCKS = 12  # blocks of 64 tokens
TRIES = 12
_victims = itertools.count(1)
# These scenarios have their own server, so that only the attacker and a few victims share its cache.
FLAGS = ("--kv_reuse_scope", "all", "--kv_cache_max_tokens", "24576")


def prompt_of(rng, tokens=BLOCKS * 64):
    return [rng.randrange(6, 1500) for _ in range(tokens)]


def seconds_of(address, prompt, source, **fields):
    body = {"model": "base", "prompt": prompt, "max_tokens": 1, **fields}
    answer = wire.ask(address, COMPLETIONS, body, source=source, timeout=30)
    if answer.status != 200:
        raise RuntimeError(f"{answer.status}: {answer.body[:200]}")
    return answer.seconds


def probe_salts(address):
    """Median seconds for a new prompt, for the same client's prompt again, and for a prompt under another salt."""
    rng = random.Random(time.time_ns())
    seconds_of(address, [7] * 20, wire.ATTACKER)
    fresh, own, foreign, unsalted = [], [], [], []
    for number in range(TRIES):
        secret = prompt_of(rng)
        fresh.append(seconds_of(address, secret, NEIGHBOUR, cache_salt=f"victim-{number}"))
        foreign.append(seconds_of(address, secret, wire.ATTACKER, cache_salt=f"attacker-{number}"))
        unsalted.append(seconds_of(address, secret, wire.ATTACKER))
        own.append(seconds_of(address, secret, NEIGHBOUR, cache_salt=f"victim-{number}"))
    return {name: statistics.median(values) for name, values in
            (("fresh", fresh), ("own", own), ("foreign", foreign), ("unsalted", unsalted))}


@scenario("reuse-across-salts", flags=FLAGS, quick=True, neighbour=False)
def reuse_across_salts(stage):
    """A prompt under one salt is fast again only under that salt."""
    measured = stage.measure(probe_salts)
    if not measured:
        return
    stage.note(", ".join(f"{name} {seconds * 1000:.1f} ms" for name, seconds in measured.items()))
    fresh, own = measured["fresh"], measured["own"]
    stage.check_time(own < 0.6 * fresh, "a prompt is not reused under its own salt, so the test shows nothing")
    for name in ("foreign", "unsalted"):
        stage.check_time(measured[name] > own + 0.5 * (fresh - own),
                         f"{name}: {measured[name] * 1000:.1f} ms, as quick as a prompt that is known")


def probe_blocks(address):
    """Median seconds for right and wrong guesses of the last block, after a prefix that the attacker may know."""
    rng = random.Random(time.time_ns())
    right, wrong = [], []
    for number in range(TRIES):
        prefix, secret, tail = prompt_of(rng, 10 * 64), prompt_of(rng, 128), prompt_of(rng, 10)
        seconds_of(address, prefix + secret + tail, NEIGHBOUR, cache_salt="victim")
        for guess, seconds in ((secret, right), (prompt_of(rng, 128), wrong)):
            salt = f"attacker-{number}-{len(seconds)}-{guess is secret}"
            seconds_of(address, prefix, wire.ATTACKER, cache_salt=salt)
            seconds.append(seconds_of(address, prefix + guess + tail, wire.ATTACKER, cache_salt=salt))
    return {"right": statistics.median(right), "wrong": statistics.median(wrong), "fastest wrong": min(wrong)}


@scenario("reuse-guesses", flags=FLAGS, neighbour=False)
def reuse_guesses(stage):
    """A right guess of another client's prompt takes as long as a wrong one."""
    measured = stage.measure(probe_blocks)
    if not measured:
        return
    stage.note(", ".join(f"{name} {seconds * 1000:.2f} ms" for name, seconds in measured.items()))
    stage.check_time(measured["right"] > 0.75 * measured["wrong"], "a right guess is quicker than a wrong one")


def ask_each(address, prompts, source):
    """Median seconds of one request per prompt."""
    return statistics.median(seconds_of(address, prompt, source) for prompt in prompts)


def flood(address, kind, seconds, seed):
    """Sends requests that each have a new cache namespace: by a salt, or by a composition with different weights."""
    rng, count, end = random.Random(seed), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        count += 1
        if kind == "salts":
            body = {"model": "base", "prompt": [5], "max_tokens": 1, "cache_salt": f"{seed}-{count}"}
        elif kind == "long salts":
            body = {"model": "base", "prompt": prompt_of(rng), "max_tokens": 1, "cache_salt": f"{seed}-{count}"}
        elif kind == "weights":
            body = {"model": "base", "prompt": [5], "max_tokens": 1, "adapters": [{"name": "shout", "weight": 1 + count / 1e5}]}
        elif kind == "long prompts":
            body = {"model": "base", "prompt": prompt_of(rng), "max_tokens": 1}
        else:
            body = {"model": rng.choice(["german", "json", "roman", "sum"]), "prompt": prompt_of(rng, 200), "max_tokens": 1}
        wire.ask(address, COMPLETIONS, body)
    return count


def measure_victim(stage, kinds, seconds):
    """Measures the victim's cached prompts before a flood, and the first request for each prompt after it."""
    rng = random.Random(time.time_ns())
    for kind in kinds:
        prompts = [prompt_of(rng) for _ in range(3)]  # a median of three
        victim = f"127.0.1.{next(_victims)}"  # a client with nothing in the cache
        fresh = stage.measure(ask_each, prompts, victim)
        before = stage.measure(ask_each, prompts, victim)
        counts = stage.attack_all([(flood, kind, seconds, seed) for seed in (1, 2)], timeout=seconds + 30)
        after = stage.measure(ask_each, prompts, victim)
        if None in (before, fresh, after):
            return
        shown = f"cached {before * 1000:.1f} ms, fresh {fresh * 1000:.1f} ms, afterwards {after * 1000:.1f} ms"
        stage.note(f"{kind}: {sum(count or 0 for count in counts)} requests; {shown}")
        stage.check_time(before < 0.6 * fresh, f"before a flood of {kind} the neighbour's prompts are not reused: {shown}")
        stage.check_time(after < before + 0.5 * (fresh - before), f"a flood of {kind} took the neighbour's prompts away: {shown}")


@scenario("reuse-flood-of-salts", flags=FLAGS, quick=True, neighbour=False)
def reuse_flood_of_salts(stage):
    """Salts and compositions of one client do not empty another's cache."""
    measure_victim(stage, ["salts", "long salts"], 3)


@scenario("reuse-flood", flags=FLAGS, neighbour=False)
def reuse_flood(stage):
    """More cache namespaces than the server keeps, and more tokens than the cache holds."""
    measure_victim(stage, ["weights", "salts", "models"], 8)
