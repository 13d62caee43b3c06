#!/usr/bin/env python3
"""Tests of the page at "/" in a headless Chromium, with the demo model.

  run.py --chorus PROGRAM --demo examples/demo [--picture FILE]

--picture also writes a picture of the page with four answers and a batch of five sequences."""

import argparse
import base64
import json
import shutil
import sys
import tempfile
import threading
import unittest
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "e2e"))

from browser import Browser
from server_process import ServerProcess

PROMPT = "seven cats and five dogs"
# A name that would become an element, and run a script, if it were inserted as HTML.
HOSTILE = "<img src=x onerror=document.title=1>"

options = None
scratch = None
server = None
browser = None


def setUpModule():
    global scratch, server, browser
    scratch = Path(tempfile.mkdtemp(prefix="chorus-page-test-"))
    adapters = scratch / "adapters"
    shutil.copytree(options.demo / "adapters", adapters)
    shutil.copytree(options.demo / "adapters" / "roman", adapters / HOSTILE)
    server = ServerProcess(options.chorus, [options.demo / "base", "--lora_dir", adapters, "--dtype", "float32",
                                            "--cache_dir", scratch / "cache"])
    browser = Browser()


def tearDownModule():
    browser.close()
    server.stop()
    shutil.rmtree(scratch, ignore_errors=True)


def answer_of(model, max_tokens=24):
    status, _, answer = server.request("POST", "/v1/chat/completions", {
        "model": model, "messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "max_tokens": max_tokens})
    assert status == 200, answer
    return answer["choices"][0]["message"]["content"]


@contextmanager
def long_answers(of, models):
    """Asks the server `of` for a long answer by each of `models`, and waits until the page shows that all of them share a
    step. The answers are complete when the block ends.
    """
    threads = [threading.Thread(target=of.request, args=("POST", "/v1/completions", {
        "model": model, "prompt": PROMPT, "max_tokens": 400, "ignore_eos": True})) for model in models]
    for thread in threads:
        thread.start()
    try:
        browser.wait(f"document.querySelector('#live-text').textContent.startsWith('{len(models)} sequences share the step')")
        yield
    finally:
        for thread in threads:
            thread.join()


def text(selector):
    return browser.run(f"document.querySelector({json.dumps(selector)}).textContent")


def choose(names):
    browser.run("document.querySelectorAll('#choices input').forEach((box) => {"
                f"const wanted = {json.dumps(names)}.includes(box.value); if (box.checked !== wanted) box.click(); }})")


def fill(selector, value):
    browser.run(f"(() => {{ const field = document.querySelector({json.dumps(selector)}); field.focus(); field.select(); }})()")
    browser.type(value)


class Page(unittest.TestCase):
    def setUp(self):
        browser.size(1280, 900)
        browser.scheme("light")
        browser.complaints.clear()
        browser.open(server.url + "/")
        browser.wait("document.querySelectorAll('#choices input').length > 0")

    def tearDown(self):
        self.assertEqual(browser.complaints, [])

    def fields(self, temperature="0", max_tokens="24"):
        browser.run("document.querySelector('#sampling').open = true")
        browser.run("['temperature', 'max_tokens'].forEach((n) => document.querySelector(`[name=${n}]`).value = '')")
        fill("[name=temperature]", temperature)
        fill("[name=max_tokens]", max_tokens)

    def send(self, names, prompt=PROMPT):
        choose(names)
        fill("#prompt", prompt)
        browser.key("Enter", modifiers=2)

    def finish(self):
        browser.wait("document.querySelector('#stop').disabled")

    def test_answers_stand_side_by_side_and_are_those_of_the_api(self):
        self.fields()
        names = ["base", "roman", "shout"]
        self.send(names)
        browser.wait("document.querySelectorAll('.card').length === 3")
        self.finish()
        self.assertEqual(text("#status"), "All answers are complete.")
        for index, name in enumerate(names):
            card = f".card:nth-child({index + 1})"
            self.assertEqual(text(f"{card} h3"), name)
            self.assertTrue(text(f"{card} .text").startswith(answer_of(name)), text(f"{card} .text"))
            self.assertRegex(text(f"{card} .figures"), r"^first token after \d+ ms . [\d.]+ tokens/s . \d+ tokens . complete$")
        tops = browser.run("[...document.querySelectorAll('.card')].map((c) => c.getBoundingClientRect().top)")
        self.assertEqual(len(set(tops)), 1, "one row on a wide screen")

    def test_without_colours_the_text_is_plain(self):
        self.fields()
        browser.click("#heat")
        self.send(["roman"])
        self.finish()
        self.assertEqual(text(".card .text"), answer_of("roman"))
        self.assertEqual(browser.run("document.querySelectorAll('.card .token').length"), 0)

    def test_completions_and_every_sampling_field(self):
        browser.run("document.querySelector('#sampling').open = true")
        values = {"temperature": "0.7", "top_p": "0.9", "top_k": "20", "max_tokens": "8", "seed": "7",
                  "presence_penalty": "0.5", "frequency_penalty": "-0.5", "repetition_penalty": "1.1"}
        for name, value in values.items():
            fill(f"[name={name}]", value)
        browser.click("[value=completion]")
        self.send(["german"], "one two")
        self.finish()
        sent = {name: float(value) if "." in value else int(value) for name, value in values.items()}
        expected = server.request("POST", "/v1/completions", {**sent, "model": "german", "prompt": "one two"})[2]
        self.assertTrue(text(".card .text").startswith(expected["choices"][0]["text"]), text(".card"))
        self.assertEqual(text("#error"), "")

    def test_each_token_shows_what_else_could_have_followed(self):
        self.fields()
        self.send(["roman"])
        self.finish()
        browser.run("document.querySelector('#heat').focus()")
        browser.run("document.querySelector('.card [role=option]').focus()")
        first = text(".others caption")
        rows = browser.run("[...document.querySelectorAll('.others tr')].map((r) => parseFloat(r.lastElementChild.textContent))")
        self.assertGreaterEqual(len(rows), 2)
        self.assertEqual(rows, sorted(rows, reverse=True))
        self.assertLessEqual(sum(rows), 100.5)
        browser.key("ArrowRight")
        self.assertNotEqual(text(".others caption"), first)
        self.assertEqual(browser.run("document.activeElement.getAttribute('aria-selected')"), "true")
        self.assertEqual(browser.run("document.querySelectorAll('.card [tabindex=\"0\"]').length"), 1, "one stop of Tab")
        browser.key("End")
        self.assertTrue(browser.run("document.activeElement === document.querySelector('.card .text').lastElementChild"))
        browser.hover(".card [role=option]")
        self.assertEqual(text(".others caption"), first)

    def test_stop_ends_the_answers(self):
        self.fields(max_tokens="900")
        browser.click("[value=completion]")
        self.send(["base"], "the")
        browser.wait("document.querySelectorAll('.card .token').length > 2 || document.querySelector('#stop').disabled")
        browser.key("Escape")
        self.finish()
        self.assertIn(text("#status"), ("Stopped.", "All answers are complete."))
        self.assertNotIn("waiting", text(".card .figures"))

    def test_errors_are_sentences(self):
        self.send([])
        self.assertEqual(text("#error"), "Choose at least one model.")
        self.send(["base"], "")
        fill("#prompt", " ")
        browser.run("document.querySelector('#prompt').value = ''")
        browser.click("#send")
        self.assertEqual(text("#error"), "Enter a prompt.")
        self.fields(temperature="5")
        self.send(["base"])
        self.assertIn("Temperature: ", text("#error"))
        self.fields()
        self.send(["base"], "word " * 4000)
        browser.wait("document.querySelector('.card .fault').textContent !== ''")
        self.assertIn("maximum context length", text(".card .fault"))
        self.assertEqual(text("#status"), "0 of 1 answers are complete.")

    def test_names_are_text_and_never_elements(self):
        self.fields()
        self.send([HOSTILE])
        self.finish()
        self.assertIn(HOSTILE, text("#choices"))
        self.assertEqual(text(".card h3"), HOSTILE)
        self.assertEqual(browser.run("document.querySelectorAll('img').length"), 0)
        self.assertEqual(browser.run("document.title"), "Chorus")

    def test_the_policy_stops_scripts_that_were_inserted(self):
        browser.run("(() => { const s = document.createElement('script'); s.textContent = 'document.title = \"bad\"';"
                    "document.body.append(s); })()")
        self.assertEqual(browser.run("document.title"), "Chorus")
        self.assertTrue(any("Content Security Policy" in line for line in browser.complaints), browser.complaints)
        browser.complaints.clear()

    def test_a_phone_needs_no_sideways_scrolling(self):
        browser.size(340, 700)
        self.fields()
        self.send(["base", "roman", HOSTILE])
        self.finish()
        browser.run("document.querySelector('.card [role=option]').focus()")
        self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), 340)
        lefts = browser.run("[...document.querySelectorAll('.card')].map((c) => c.getBoundingClientRect().left)")
        self.assertEqual(len(set(lefts)), 1, "one column")

    def test_light_and_dark_are_readable(self):
        self.fields()
        self.send(["base"])
        self.finish()
        ratios = {}
        for scheme in ("light", "dark"):
            browser.scheme(scheme)
            ratios[scheme] = browser.run("""(() => {
              const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
              const luminance = (rgb) => rgb.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 :
                ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
              const back = (node) => { for (let n = node; n; n = n.parentElement) {
                const rgb = parts(getComputedStyle(n).backgroundColor); if (rgb.length === 3 || rgb[3] > 0) return rgb; }
                return [255, 255, 255]; };
              return [...document.querySelectorAll('h1, p, label, button:not(:disabled), legend, .token, summary')]
                .filter((n) => n.offsetParent && n.textContent.trim()).map((n) => {
                  const [a, b] = [luminance(parts(getComputedStyle(n).color)), luminance(back(n))].sort((x, y) => y - x);
                  return [(a + 0.05) / (b + 0.05), n.textContent.trim().slice(0, 30)]; }).sort((x, y) => x[0] - y[0])[0];
            })()""")
            self.assertGreaterEqual(ratios[scheme][0], 4.5, ratios)
        browser.scheme("light")

    def test_everything_is_reached_and_named_without_a_mouse(self):
        browser.run("document.querySelector('#sampling').open = true; document.activeElement.blur()")
        reached = []
        for _ in range(40):
            browser.key("Tab")
            reached.append(browser.run("document.activeElement.id || document.activeElement.name || document.activeElement.value"
                                       " || document.activeElement.tagName"))
        for name in ("find", "all", "none", "reload", "kind", "prompt", "temperature", "top_p", "top_k", "max_tokens", "seed",
                     "presence_penalty", "frequency_penalty", "repetition_penalty", "heat", "key", "send"):
            self.assertIn(name, reached)
        order = [reached.index(name) for name in ("find", "prompt", "temperature", "heat", "send")]
        self.assertEqual(order, sorted(order))
        nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
        unnamed = [node["role"]["value"] for node in nodes if not node["ignored"] and node.get("role", {}).get("value") in
                   ("button", "textbox", "searchbox", "checkbox", "radio", "spinbutton") and not node["name"]["value"]]
        self.assertEqual(unnamed, [])

    def test_the_batch_and_the_caches_are_drawn(self):
        state = {"max_batch_size": 4, "waiting": 2,
                 "sequences": [{"model": "roman", "phase": "generation", "in_step": True},
                               {"model": "roman", "phase": "context", "in_step": True},
                               {"model": HOSTILE, "phase": "generation", "in_step": False}],
                 "kv_cache": {"total_blocks": 100, "used_blocks": 25, "cached_blocks": 50},
                 "adapter_cache": {"used_bytes": 3 << 20, "total_bytes": 12 << 20, "adapters": [
                     {"name": "roman", "in_use": 2, "bytes": 2 << 20, "state": "device"},
                         {"name": HOSTILE, "in_use": 0, "bytes": 1 << 20, "state": "host"}]}}
        answers = f"(() => {{ const real = fetch; window.fetch = (path, o) => path === 'v1/batch' ? Promise.resolve(" \
                  f"new Response({json.dumps(json.dumps(state))})) : real(path, o); }})()"
        script = browser.call("Page.addScriptToEvaluateOnNewDocument", source=answers)["identifier"]
        browser.open(server.url + "/")
        browser.wait("!document.querySelector('#live').hidden")
        browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
        self.assertEqual(text("#live-text"), "2 sequences share the step; 2 wait.")
        self.assertEqual(browser.run("[...document.querySelectorAll('#batch i')].map((i) => i.className)"),
                         ["", "context", "paused", "empty"])
        self.assertEqual(browser.run("[...document.querySelectorAll('#batch-legend li')].map((i) => i.textContent)"),
                         [f"{HOSTILE}: 1", "roman: 2"])
        self.assertIn("25 blocks in use, 50 kept for reuse, 25 free", text("#caches"))
        self.assertIn("Adapter cache: 3.0 MiB of 12 MiB", text("#caches"))
        self.assertIn(f"{HOSTILE}: idle, host, 1.0 MiB", text("#caches"))
        widths = browser.run("[...document.querySelectorAll('#caches .bar i')].map((i) => i.style.width)")
        self.assertEqual(widths, ["25%", "50%", "25%", "0%"])
        self.assertEqual(browser.run("document.querySelectorAll('img').length"), 0)

    def test_the_batch_of_the_server_is_followed(self):
        with long_answers(server, ["roman", "base", "roman"]):
            self.assertEqual(browser.run("[...document.querySelectorAll('#batch-legend li')].map((i) => i.textContent)"),
                             ["base: 1", "roman: 2"])
            self.assertRegex(text("#caches"), r"KV cache: [1-9]\d* blocks in use")
            self.assertIn("roman: in use, device", text("#caches"))
        browser.wait("document.querySelector('#live-text').textContent.startsWith('No sequence runs')")
        self.assertIn("roman: idle, device", text("#caches"))

    def test_what_is_chosen_with_the_keyboard_is_asked(self):
        browser.run("document.querySelector('#none').click(); document.querySelector('#find').focus()")
        browser.type("rom")
        browser.key("Tab")
        browser.key(" ")
        self.assertEqual(browser.run("[...document.querySelectorAll('#choices input:checked')].map((b) => b.value)"), ["roman"])

    def test_the_key_is_sent_and_not_kept(self):
        fill("#key", "a-key")
        browser.run("window.sent = []; const real = fetch; window.fetch = (path, o) => { window.sent.push("
                    "[path, o.headers.authorization]); return real(path, o); }")
        browser.click("#reload")
        browser.wait("window.sent.length > 0")
        self.assertIn(["v1/models", "Bearer a-key"], browser.run("window.sent"))
        browser.open(server.url + "/")
        self.assertEqual(browser.run("document.querySelector('#key').value"), "")
        self.assertEqual(browser.run("[localStorage.length, sessionStorage.length, document.cookie]"), [0, 0, ""])


class Picture(unittest.TestCase):
    """The picture in the documentation."""

    def test_picture(self):
        browser.size(1180, 920)
        browser.scheme("light")
        with ServerProcess(options.chorus, [options.demo / "base", "--lora_dir", options.demo / "adapters", "--dtype",
                                            "float32", "--cache_dir", scratch / "cache"]) as plain:
            browser.open(plain.url + "/")
            browser.wait("document.querySelectorAll('#choices input').length > 0")
            choose(["base", "roman", "german", "sum"])
            fill("#prompt", "seventeen cats and forty dogs")
            browser.key("Enter", modifiers=2)
            browser.wait("document.querySelectorAll('.card').length === 4 && document.querySelector('#stop').disabled")
            browser.run("document.querySelector('.card:nth-child(2) [role=option]').focus()")
            browser.run("window.scrollTo(0, 0)")
            with long_answers(plain, ["german", "german", "roman", "shout", "base"]):
                data = base64.b64decode(browser.call("Page.captureScreenshot", format="png")["data"])
        self.assertLess(len(data), 200_000)
        if options.picture:
            options.picture.write_bytes(data)


class WithoutServer(unittest.TestCase):
    def test_a_server_that_is_gone_is_said_in_a_sentence(self):
        with ServerProcess(options.chorus, [options.demo / "base", "--cache_dir", scratch / "cache", "--dtype", "float32"]) as gone:
            browser.open(gone.url + "/")
            browser.wait("document.querySelectorAll('#choices input').length === 1")
        browser.click("#reload")
        browser.wait("document.querySelector('#error').textContent !== ''")
        self.assertEqual(text("#error"), "The server cannot be reached. Is it still running?")


def main():
    global options
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chorus", required=True, type=Path, help="the program")
    parser.add_argument("--demo", required=True, type=Path, help="examples/demo")
    parser.add_argument("--picture", type=Path, help="where a picture of the page is written")
    parser.add_argument("--only", help="only tests whose name holds this text")
    options = parser.parse_args()
    options.chorus = str(options.chorus.resolve())
    loader = unittest.TestLoader()
    if options.only:
        loader.testNamePatterns = [f"*{options.only}*"]
    result = unittest.TextTestRunner(verbosity=2).run(loader.loadTestsFromModule(sys.modules[__name__]))
    sys.exit(0 if result.wasSuccessful() else 1)


if __name__ == "__main__":
    main()
