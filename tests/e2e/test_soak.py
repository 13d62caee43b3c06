"""Short runs of the soaks of tests/soak/."""

import subprocess
import sys
import unittest
from pathlib import Path

import setting
from server_process import TIME_SCALE

SOAK = Path(__file__).resolve().parents[1] / "soak"


class Soaks(unittest.TestCase):
    def passes(self, script, *options):
        done = subprocess.run([sys.executable, SOAK / script, "--chorus", setting.chorus, "--demo", setting.demo, *options],
                              capture_output=True, text=True, timeout=900 * TIME_SCALE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        print(done.stdout.strip(), end=" ", flush=True)

    def test_many_streams_over_many_adapters(self):
        # A sanitized server's memory grows with what it has freed and holds back.
        streams = ["--streams", "32", "--evictions", "20", "--refusals", "20"] if setting.sanitized else []
        self.passes("serving.py", "--seconds", "20", *streams)

    def test_idle_connections(self):
        self.passes("idle_connections.py")

    def test_idle_connections_with_tls(self):
        # A handshake of a sanitized server takes long, and its memory holds back what it has freed.
        fewer = ["--connections", "500", "--most_kb", "400000"] if setting.sanitized else ["--connections", "4000"]
        self.passes("idle_connections.py", "--tls", *fewer)
