"""HTTPS: the real client, client certificates, new certificates, and clients that speak no TLS."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import unittest

import openai

import certificates
import setting
from server_process import TIME_SCALE, ServerProcess, wait_until


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = setting.scratch() / "tls"
        cls.folder.mkdir()
        cls.first = certificates.make(cls.folder, "first")
        cls.cert, cls.key = cls.folder / "server.pem", cls.folder / "server.key"
        cls.install(cls.first)
        cls.authority = certificates.make(cls.folder, "authority")
        cls.server = ServerProcess(
            setting.chorus, [*setting.demo_arguments(), "--tls_cert_file", cls.cert, "--tls_key_file", cls.key],
            tls=ssl.create_default_context(cafile=cls.first[0]))

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    @classmethod
    def install(cls, pair):
        for source, target in zip(reversed(pair), (cls.key, cls.cert)):
            fresh = target.with_suffix(".new")
            shutil.copy(source, fresh)
            os.replace(fresh, target)

    @staticmethod
    def client(server, context):
        return openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0, timeout=60 * TIME_SCALE,
                             http_client=openai.DefaultHttpxClient(verify=context))

    def peer(self, context=None):
        """The certificate of the server, as bytes."""
        context = context or ssl._create_unverified_context()
        with socket.create_connection((self.server.host, self.server.port), timeout=60 * TIME_SCALE) as raw:
            with context.wrap_socket(raw, server_hostname="localhost") as secure:
                return ssl.DER_cert_to_PEM_cert(secure.getpeercert(binary_form=True))

    def until_served(self, pair):
        expected = ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(pair[0].read_text()))
        wait_until(lambda: self.peer() == expected)
        self.assertEqual(self.peer(), expected)

    def test_answers_are_those_without_tls(self):
        self.assertTrue(self.server.url.startswith("https://"))
        asked = {"model": "roman", "prompt": "two cats", "max_tokens": 16}
        plain = setting.client().completions.create(**asked).choices[0].text
        with self.client(self.server, self.server.tls) as client:
            self.assertEqual(client.completions.create(**asked).choices[0].text, plain)
            stream = client.completions.create(**asked, stream=True)
            self.assertEqual("".join(chunk.choices[0].text for chunk in stream if chunk.choices), plain)
        with self.assertRaises(openai.APIConnectionError):
            self.client(self.server, ssl.create_default_context()).models.list()

    def test_bench_serve(self):
        def bench(url, *options):
            done = subprocess.run([setting.chorus, "bench", "serve", "--url", url, "--streams", "4", "--requests", "20",
                                   "--prompt", "8", "--output", "4", "--verify", *map(str, options)],
                                  capture_output=True, text=True, timeout=120 * TIME_SCALE)
            return done.returncode, done.stdout + done.stderr
        code, text = bench(self.server.url, "--ca_cert", self.first[0])
        self.assertEqual(code, 0, text)
        self.assertIn("compared with their solo answers: 20, different: 0", text)
        code, text = bench(self.server.url)
        self.assertEqual(code, 1)
        self.assertIn("/v1/models was not answered: TLS: the server's certificate is not accepted: self-signed", text)
        code, text = bench(self.server.url, "--ca_cert", self.authority[0])
        self.assertEqual(code, 1)
        self.assertIn("is not accepted", text)
        code, text = bench(self.server.url.replace("https", "http"))
        self.assertIn("/v1/models was not answered: status 400", text)
        self.assertEqual(code, 1)
        for url, options, message in ((self.server.url, ("--ca_cert", self.key), "no certificates in PEM form"),
                                      ("http://127.0.0.1:1", ("--ca_cert", self.first[0]), "--ca_cert needs an https:// URL")):
            code, text = bench(url, *options)
            self.assertEqual(code, 2, text)
            self.assertIn(message, text)

    def test_plain_http_is_told_so(self):
        with socket.create_connection((self.server.host, self.server.port), timeout=60 * TIME_SCALE) as raw:
            raw.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while data := raw.recv(4096):
                answer += data
        self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), answer)
        self.assertIn(b"This port speaks TLS; use https:// in the URL.", answer)

    def test_old_versions_are_refused(self):
        context = ssl._create_unverified_context()
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            self.peer(context)

    def test_certificates_are_read_again(self):
        self.addCleanup(lambda: (self.install(self.first), self.until_served(self.first)))
        second = certificates.make(self.folder, "second")
        self.install(second)
        self.until_served(second)
        # Files that do not belong together change nothing, also on SIGHUP.
        shutil.copy(self.first[1], self.key)
        before = self.server.log.count("the TLS certificate stays as it was")
        self.server.signal(signal.SIGHUP)
        wait_until(lambda: self.server.log.count("the TLS certificate stays as it was") > before)
        self.assertIn("it is not the key of the certificate", self.server.log)
        self.until_served(second)
        self.assertIsNone(self.server.process.poll())

    def test_clients_need_a_certificate(self):
        own = certificates.make(self.folder, "alice", self.authority)
        stranger = certificates.make(self.folder, "stranger")
        accepted = ssl.create_default_context(cafile=self.first[0])
        accepted.load_cert_chain(*own)
        arguments = [*setting.demo_arguments(), "--tls_cert_file", self.first[0], "--tls_key_file", self.first[1],
                     "--tls_client_ca_file", self.authority[0]]
        with ServerProcess(setting.chorus, arguments, tls=accepted) as server:
            self.assertIn("base", [model.id for model in self.client(server, accepted).models.list()])
            refused = ssl.create_default_context(cafile=self.first[0])
            refused.load_cert_chain(*stranger)
            for context in (refused, ssl.create_default_context(cafile=self.first[0])):
                with self.assertRaises(openai.APIConnectionError):
                    self.client(server, context).models.list()

    def test_faults_of_the_files_end_the_start(self):
        for arguments, expected in (
                (["--tls_cert_file", self.cert], "--tls_cert_file needs --tls_key_file"),
                (["--tls_key_file", self.key], "--tls_key_file needs --tls_cert_file"),
                (["--tls_client_ca_file", self.cert], "--tls_client_ca_file needs --tls_cert_file"),
                (["--tls_cert_file", self.folder / "none.pem", "--tls_key_file", self.key], "none.pem"),
                (["--tls_cert_file", self.cert, "--tls_key_file", self.authority[1]], "not the key of the certificate")):
            server = ServerProcess(setting.chorus, [*setting.demo_arguments(), *arguments], wait=False)
            self.assertEqual(server.wait_exit(), 2)
            self.assertIn(expected, server.log)
