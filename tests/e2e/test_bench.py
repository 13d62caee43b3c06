"""`chorus bench serve` against a real server."""

import json
import signal
import socket
import subprocess
import threading
import time
import unittest
import xml.etree.ElementTree

import setting
from server_process import TIME_SCALE, ServerProcess


def bench(url, *options, json_file=None):
    """Returns exit status, standard output and the last line on stderr."""
    arguments = [setting.chorus, "bench", "serve", "--url", url, *map(str, options)]
    if json_file:
        arguments += ["--json", str(json_file)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120 * TIME_SCALE)
    return done.returncode, done.stdout, (done.stderr.strip().splitlines() or [""])[-1]


class Load(unittest.TestCase):
    def test_mixed_adapters(self):
        report, plot = setting.scratch() / "load.json", setting.scratch() / "load.svg"
        code, table, _ = bench(setting.shared_server().url, "--model", "base", "--adapters", "all", "--rate", 60,
                               "--requests", 60, "--prompt", "4:40", "--output", "3:9", "--zipf", 0.7, "--churn", 0.3,
                               "--slo_ttft_ms", 1e-3, "--slo_itl_ms", 1e6, "--svg", plot, json_file=report)
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
        # By the server's count every request generates at least three tokens.
        self.assertGreaterEqual(figures["output_tokens_per_s"] * figures["seconds"], 3 * 60 - 1)
        self.assertGreaterEqual(figures["prompt_tokens_per_s"] * figures["seconds"], 4 * 60 - 1)
        xml.etree.ElementTree.parse(plot)

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
                                      "--requests", 20, "--timeout_s", 3, json_file=report)
            thread.join(timeout=10)
        self.assertEqual((code, line), (1, "chorus: error: no request was answered in full"), table)
        self.assertEqual(json.loads(report.read_text())["errors"]["timeout"]["count"], 20)
        self.assertEqual(len(arrived), 20)
        self.assertAlmostEqual(arrived[-1] - arrived[0], 19 / 20, delta=0.5)


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
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        code, _, line = bench(f"http://127.0.0.1:{port}")
        self.assertEqual(code, 1)
        self.assertTrue(line.startswith("chorus: error: --url: /v1/models was not answered"), line)

    def test_server_that_dies(self):
        server = ServerProcess(setting.chorus, setting.demo_arguments())
        threading.Timer(1.0, server.process.kill).start()
        report = setting.scratch() / "died.json"
        code, _, _ = bench(server.url, "--rate", 40, "--duration", 2, "--prompt", 4, "--output", 8, json_file=report)
        server.process.wait()
        self.assertEqual(code, 0)
        figures = json.loads(report.read_text())
        self.assertGreater(figures["complete"], 0)
        self.assertIn("no connection", figures["errors"])
        self.assertEqual(figures["complete"] + sum(e["count"] for e in figures["errors"].values()), figures["sent"])

    def test_interrupt_prints_what_there_is(self):
        process = subprocess.Popen(
            [setting.chorus, "bench", "serve", "--url", setting.shared_server().url, "--rate", "5", "--duration", "600",
             "--prompt", "4", "--output", "4"], stdout=subprocess.PIPE, text=True)
        time.sleep(2 * TIME_SCALE)
        process.send_signal(signal.SIGINT)
        table = process.communicate(timeout=30 * TIME_SCALE)[0]
        self.assertEqual(process.returncode, 0)
        self.assertRegex(table, r"[1-9]\d* requests sent, [1-9]\d* answered in full")
        self.assertIn("time to first token", table)
