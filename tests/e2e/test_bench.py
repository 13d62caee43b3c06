"""`chorus bench serve` against a real server, and `bench/plot_load.py` on its reports."""

import http.server
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path
from xml.etree import ElementTree

import setting
from server_process import TIME_SCALE, ServerProcess, wait_until

PLOT = Path(__file__).resolve().parents[2] / "bench/plot_load.py"
SVG = "{http://www.w3.org/2000/svg}"


def bench(url, *options, json_file=None):
    """Returns exit status, standard output and the last line on stderr."""
    arguments = [setting.chorus, "bench", "serve", "--url", url, *map(str, options)]
    if json_file:
        arguments += ["--json", str(json_file)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120 * TIME_SCALE)
    return done.returncode, done.stdout, (done.stderr.strip().splitlines() or [""])[-1]


def plot(report, svg, *options):
    return subprocess.run([sys.executable, PLOT, report, svg, *options], capture_output=True, text=True,
                          timeout=60 * TIME_SCALE)


class Picture:
    """The plot of a report, after checks that every plot must pass."""

    def __init__(self, test, report, *options):
        svg = setting.scratch() / "load.svg"
        done = plot(report, svg, *options)
        test.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        root = ElementTree.parse(svg).getroot()
        test.assertEqual((root.tag, root.get("viewBox")), (SVG + "svg", "0 0 760 420"))
        self.texts = [element.text for element in root.iter(SVG + "text")]
        self.title = root.find(SVG + "title").text
        test.assertEqual(self.title, self.texts[0])
        for element in root.iter():
            for limit, names in ((760, ("x", "x1", "x2", "width")), (420, ("y", "y1", "y2", "height"))):
                for name in set(names) & set(element.keys()):
                    test.assertTrue(0 <= float(element.get(name)) <= limit, ElementTree.tostring(element))
        self.curves = []  # the points of each
        for path in root.iterfind(f"{SVG}path[@class='line']"):
            test.assertRegex(path.get("d"), r"^M[\d.]+ [\d.]+(L[\d.]+ [\d.]+)*$")
            points = [tuple(map(float, point.split())) for point in re.split("[ML]", path.get("d"))[1:]]
            for x, y in points:
                test.assertTrue(64 <= x <= 736 and 72 <= y <= 364, points)
            for (x, y), (next_x, next_y) in zip(points, points[1:]):
                test.assertTrue(x <= next_x and y > next_y, "curves go right and up")
            test.assertEqual(points[-1][1], 72, "a curve ends at 100 %")
            self.curves.append(points)


class Load(unittest.TestCase):
    def test_mixed_adapters(self):
        report = setting.scratch() / "load.json"
        code, table, _ = bench(setting.shared_server().url, "--model", "base", "--adapters", "all", "--rate", 60,
                               "--requests", 60, "--prompt", "4:40", "--output", "3:9", "--zipf", 0.7, "--churn", 0.3,
                               "--slo_ttft_ms", 1e-3, "--slo_itl_ms", 1e6, json_file=report)
        self.assertEqual(code, 0)
        self.assertIn("60 requests sent, 60 answered in full, 0 failed", table)
        figures = json.loads(report.read_text())
        self.assertEqual((figures["sent"], figures["complete"], figures["errors"]), (60, 60, {}))
        self.assertEqual(figures["goodput"]["requests"], 0, "no token comes within a microsecond")
        self.assertEqual(sum(row["sent"] for row in figures["models"]), 60)
        self.assertLessEqual({row["model"] for row in figures["models"]}, {"base", *setting.adapter_names()})
        self.assertGreater(len(figures["models"]), 3)
        first, whole = figures["time_to_first_token_ms"], figures["latency_ms"]
        self.assertLessEqual(0, first["p50"])
        self.assertLessEqual(first["p50"], first["p90"])
        self.assertLessEqual(first["max"], whole["max"])
        # Every request generates at least three tokens, as the server counts them.
        self.assertGreaterEqual(figures["output_tokens_per_s"] * figures["seconds"], 3 * 60 - 1)
        self.assertGreaterEqual(figures["prompt_tokens_per_s"] * figures["seconds"], 4 * 60 - 1)
        self.check_plot(report, figures)

    def check_plot(self, report, figures):
        picture = Picture(self, report)
        self.assertEqual(picture.title, f"60 requests/s, {1 + len(setting.adapter_names())} models, 60 answered")
        for text in ("milliseconds", "share of all, %", "100", "between tokens", "time to first token", "whole request"):
            self.assertIn(text, picture.texts)
        keys = ("inter_token_ms", "time_to_first_token_ms", "latency_ms")
        curves = [figures["quantiles"][key] for key in keys]
        self.assertEqual([len(points) for points in picture.curves], [len(curve) for curve in curves])
        for key, curve in zip(keys, curves):
            self.assertEqual(len(curve), min(400, figures[key]["count"]))
            self.assertAlmostEqual(curve[-1], figures[key]["max"])
            middle = len(curve) // 2
            self.assertLessEqual(curve[middle - 1], figures[key]["p50"])
            self.assertLessEqual(figures[key]["p50"], curve[middle])
        self.assertEqual(max(points[-1][0] for points in picture.curves), 736, "the longest latency ends the axis")

    def test_a_seed_is_one_load(self):
        reports = []
        for seed in (1, 1, 2):
            report = setting.scratch() / "seed.json"
            bench(setting.shared_server().url, "--model", "all", "--rate", 200, "--requests", 40, "--prompt", "1:20",
                  "--output", 2, "--seed", seed, json_file=report)
            figures = json.loads(report.read_text())
            reports.append(({row["model"]: row["sent"] for row in figures["models"]},
                            round(figures["prompt_tokens_per_s"] * figures["seconds"])))
        self.assertEqual(reports[0], reports[1])
        self.assertNotEqual(reports[0], reports[2])

    def test_arrivals_do_not_wait_for_answers(self):
        """Requests to a server that accepts and never answers are all sent at their planned times."""
        # A busy machine may delay the client or this server, so one of several tries must succeed.
        spans = []
        while len(spans) < 5 and not (spans and abs(spans[-1] - 19 / 20) <= 0.5):
            spans.append(self.seconds_of_arrivals())
        self.assertAlmostEqual(spans[-1], 19 / 20, delta=0.5, msg=spans)

    def seconds_of_arrivals(self):
        listed = b'{"data":[{"id":"one"}]}'
        arrived, kept = [], []
        with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
            def serve():
                connection, _ = silent.accept()
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(listed), listed))
                for _ in range(20):
                    kept.append(silent.accept()[0])
                    arrived.append(time.monotonic())
            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            report = setting.scratch() / "silent.json"
            code, table, line = bench(f"http://127.0.0.1:{silent.getsockname()[1]}", "--rate", 20, "--arrival", "constant",
                                      "--requests", 20, "--timeout_s", 10, json_file=report)
            thread.join(timeout=60 * TIME_SCALE)
        self.assertEqual((code, line), (1, "chorus: error: no request was answered in full"), table)
        self.assertEqual(json.loads(report.read_text())["errors"]["timeout"]["count"], 20)
        self.assertEqual(len(arrived), 20)
        return arrived[-1] - arrived[0]


class ClosedLoop(unittest.TestCase):
    def test_every_answer_is_the_solo_answer(self):
        report = setting.scratch() / "closed.json"
        code, table, line = bench(setting.shared_server().url, "--model", "base", "--adapters", "all", "--streams", 12,
                                  "--requests", 150, "--prompt", "4:24", "--output", "2:9", "--pool", 3, "--verify",
                                  "--extra_body", '{"logprobs": 2}', json_file=report)
        self.assertEqual((code, line), (0, ""), table)
        self.assertIn("12 streams at a time: 150 requests sent, 150 answered in full, 0 failed", table)
        self.assertIn("compared with their solo answers: 150, different: 0\n", table)
        figures = json.loads(report.read_text())
        self.assertEqual([figures[key] for key in ("streams", "verified", "different", "unknown_content", "refused_429")],
                         [12, 150, 0, 0, 0])
        self.assertLessEqual(figures["time_to_first_token_ms"]["p90"], figures["time_to_first_token_ms"]["p99"])
        picture = Picture(self, report)
        self.assertEqual(picture.title, f"12 streams, {1 + len(setting.adapter_names())} models, 150 answered")

    def test_refusals_recover(self):
        """One adapter fits in the cache, so that requests for another one are refused while it is in use."""
        report = setting.scratch() / "recovered.json"
        with ServerProcess(setting.chorus, [*setting.demo_arguments(), "--max_lora_rank", 32,
                                                          "--max_cpu_loras", 1, "--max_gpu_loras", 1]) as server:
            options = ("--adapters", "all", "--streams", 16, "--requests", 80, "--prompt", 8, "--output", 8, "--pool", 2)
            code, table, line = bench(server.url, *options, "--verify", "--retries", 1000, json_file=report)
            self.assertEqual((code, line), (0, ""), table)
            figures = json.loads(report.read_text())
            self.assertEqual((figures["complete"], figures["verified"], figures["different"]), (80, 80, 0), table)
            self.assertGreater(figures["refused_429"], 0)
            self.assertGreater(figures["recovered"], 0)
            self.assertEqual(figures["refused_429"], figures["retries"])
            self.assertIn(f"answered in full after that: {figures['recovered']}\n", table)
            # Without tries the same load fails in part.
            bench(server.url, *options, json_file=report)
            figures = json.loads(report.read_text())
            self.assertGreater(figures["errors"]["status 429"]["count"], 0)
            self.assertEqual((figures["retries"], figures["recovered"]), (0, 0))

    def test_a_different_answer_ends_with_status_1(self):
        """A server whose answers are right while it has one request at a time."""
        running, lock = [0], threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def reply(self, kind, body):
                self.send_response(200)
                self.send_header("content-type", kind)
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.reply("application/json", b'{"data":[{"id":"one"}]}')

            def do_POST(self):
                with lock:
                    running[0] += 1
                self.rfile.read(int(self.headers["content-length"]))
                time.sleep(0.2)
                with lock:
                    text = "alone" if running[0] == 1 else "crowd"
                time.sleep(0.2)
                with lock:
                    running[0] -= 1
                event = json.dumps({"choices": [{"index": 0, "text": text}]})
                self.reply("text/event-stream", f"data: {event}\n\ndata: [DONE]\n\n".encode())

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_address[1]}"
            code, table, line = bench(url, "--streams", 3, "--requests", 9, "--pool", 1, "--verify")
            server.shutdown()
        self.assertEqual(code, 1, table)
        self.assertRegex(line, r"^chorus: error: --verify: \d of 9 answers are not their solo answers; the first: one, "
                               r"prompt 0 at byte \d+: got .*crowd.*, alone .*alone")
        self.assertRegex(table, r"compared with their solo answers: 9, different: [1-9]\n")

    def test_loads_that_cannot_be(self):
        url = setting.shared_server().url
        for options, message in (
                (("--streams", 2, "--rate", 1), "excludes"),
                (("--streams", 2, "--arrival", "constant"), "excludes"),
                (("--streams", 0), "out of range"),
                (("--verify", "--temperature", 0.5), "--verify: answers of temperature 0.5 are random"),
                (("--verify", "--extra_body", '{"temperature": 1}'), "--verify: answers of temperature 1 are random"),
                (("--extra_body", "[]"), "--extra_body: give a JSON object"),
                (("--extra_body", "{"), "--extra_body"),
                (("--extra_body", '{"stream": false}'), "--extra_body: stream is the load's own field")):
            with self.subTest(options):
                code, _, line = bench(url, *options)
                self.assertEqual(code, 2)
                self.assertIn(message, line)
        code, _, line = bench(url, "--model", "nobody", "--streams", 2, "--verify")
        self.assertEqual(code, 1)
        self.assertIn("--verify: nobody did not answer prompt 0 alone: status 404", line)


class Plots(unittest.TestCase):
    def report(self, gaps, first=(), whole=()):
        """Writes a report with these milliseconds."""
        file = setting.scratch() / "figures.json"
        file.write_text(json.dumps({
            "complete": 3, "load": {"rate": 0.5, "models": 1},
            "quantiles": {"inter_token_ms": gaps, "time_to_first_token_ms": first, "latency_ms": whole}}))
        return file

    def test_any_range(self):
        for gaps in ([], [5], [0, 0], [0, 1e-6, 1e9], [41.1, 41.2], [1e-300, 1e300]):
            with self.subTest(gaps):
                picture = Picture(self, self.report(gaps))
                self.assertEqual(picture.title, "0.5 requests/s, 1 model, 3 answered")
                self.assertEqual([len(points) for points in picture.curves], [len(gaps)] if gaps else [])
                self.assertEqual("between tokens (none)" in picture.texts, not gaps)
                self.assertIn("whole request (none)", picture.texts)

    def test_axes_are_logarithmic_and_linear(self):
        picture = Picture(self, self.report([1, 10, 100], [10], [0, 100]))
        self.assertEqual(picture.curves, [[(64, 266.7), (400, 169.3), (736, 72)], [(400, 72)], [(64, 218), (736, 72)]])
        for text in ("1", "2", "5", "10", "20", "50", "100"):
            self.assertIn(text, picture.texts)

    def test_a_title_is_text(self):
        picture = Picture(self, self.report([1]), "--title", "a<b>&\"c\"'\n\x1b\ufffe\U0001d11e")
        self.assertEqual(picture.title, "a<b>&\"c\"'   \U0001d11e")

    def test_files_that_are_no_report(self):
        file, svg = setting.scratch() / "other.json", setting.scratch() / "other.svg"
        for text in ("", "[]", "{}", '{"quantiles": {"inter_token_ms": [1]}}', '{"quantiles": [1]}'):
            file.write_text(text)
            done = plot(file, svg)
            self.assertEqual((done.returncode, done.stderr),
                             (1, f"plot_load.py: {file} is not a report of chorus bench serve --json\n"), text)
        file.unlink()
        done = plot(file, svg)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1))
        self.assertIn(str(file), done.stderr)
        self.assertFalse(svg.exists())


class Failures(unittest.TestCase):
    def test_refusals_are_counted(self):
        report = setting.scratch() / "refused.json"
        code, table, line = bench(setting.shared_server().url, "--model", "base,nobody", "--rate", 100, "--requests", 30,
                                  "--prompt", 4, "--output", 2, json_file=report)
        self.assertEqual(code, 0)
        figures = json.loads(report.read_text())
        refused = figures["errors"]["status 404"]
        self.assertIn("nobody", refused["first"])
        self.assertEqual(refused["count"] + figures["complete"], 30)
        code, _, line = bench(setting.shared_server().url, "--model", "nobody", "--rate", 100, "--requests", 3)
        self.assertEqual((code, line), (1, "chorus: error: no request was answered in full"))

    def test_nobody_there(self):
        with socket.socket() as taken:  # a port that no other program can listen at
            taken.bind(("127.0.0.1", 0))
            code, _, line = bench(f"http://127.0.0.1:{taken.getsockname()[1]}")
        self.assertEqual(code, 1)
        self.assertTrue(line.startswith("chorus: error: --url: /v1/models was not answered"), line)

    def answered(self, server):
        return server.metric("chorus_http_requests_total", route="/v1/completions", status="200")

    def test_server_that_dies(self):
        report = setting.scratch() / "died.json"
        for seconds in (2, 8, 32):  # if this test is slow, the load may end before the server
            server = ServerProcess(setting.chorus, setting.demo_arguments())

            def end():
                wait_until(lambda: self.answered(server) >= 5)
                server.process.kill()
            killer = threading.Thread(target=end)
            killer.start()
            code, _, _ = bench(server.url, "--rate", 40, "--duration", seconds, "--prompt", 4, "--output", 8, json_file=report)
            killer.join()
            server.process.wait()
            self.assertEqual(code, 0)
            figures = json.loads(report.read_text())
            if "no connection" in figures["errors"]:
                break
        self.assertGreater(figures["complete"], 0)
        self.assertIn("no connection", figures["errors"])
        self.assertEqual(figures["complete"] + sum(e["count"] for e in figures["errors"].values()), figures["sent"])

    def test_interrupt_prints_what_there_is(self):
        server = setting.shared_server()
        before = self.answered(server)
        process = subprocess.Popen(
            [setting.chorus, "bench", "serve", "--url", server.url, "--rate", "5", "--duration", "600",
             "--prompt", "4", "--output", "4"], stdout=subprocess.PIPE, text=True)
        # Of so many answers the program has read at least the first.
        self.assertTrue(wait_until(lambda: self.answered(server) >= before + 8))
        process.send_signal(signal.SIGINT)
        table = process.communicate(timeout=60 * TIME_SCALE)[0]
        self.assertEqual(process.returncode, 0)
        self.assertRegex(table, r"[1-9]\d* requests sent, [1-9]\d* answered in full")
        self.assertIn("time to first token", table)
