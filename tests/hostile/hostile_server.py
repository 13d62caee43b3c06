"""A server for hostile clients. It runs on copies of the demo in a scratch folder; its memory, plan and log are
checked.
"""

import os
import re
import resource
import shutil
import ssl
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "e2e"))
import server_process  # noqa: E402
import setting  # noqa: E402

DRAIN_S = 5
# Memory that the process needs beyond its plan: code, stacks and allocator overhead. For a model of usual size this is
# within the 10 % margin, for the demo's 10 MB it is more.
UNPLANNED_MIB = 64
SMALL_STACK = 256 << 10
INTAKE_TIMEOUT_S = 10  # the server's default

SANITIZER_REPORT = re.compile(r"ERROR: \w+Sanitizer|runtime error:|SUMMARY: \w+Sanitizer|terminate called|stack smashing")


def time_scale():
    """Factor for all time limits, relative to a release build."""
    return server_process.TIME_SCALE


class HostileServer:
    """`chorus serve` with one computing thread and a folder of adapters that tests may write to."""

    def __init__(self, flags=(), small_stacks=False, folder=None, present=None):
        """present: adapters (name: edit) that are there when the server starts, beside those of the demo."""
        self.folder = Path(folder or setting.scratch())
        self.adapters = self.folder / "adapters"
        self.outside = self.folder / "outside"
        self._stage = self.folder / "stage"
        self._staged = 0
        shutil.rmtree(self.adapters, ignore_errors=True)
        shutil.copytree(setting.demo / "adapters", self.adapters)
        self.outside.mkdir(exist_ok=True)
        self._stage.mkdir(exist_ok=True)
        for name, edit in (present or {}).items():
            self.put_adapter(name, edit)
        own = {"--lora_dir": self.adapters, "--lora_refresh_interval": "1", "--lora_refresh": "sync", "--threads": "1",
               "--kv_cache_max_tokens": "16384", "--max_cpu_loras": "8", "--adapter_text_memory": "128",
               "--drain_timeout": DRAIN_S,
               "--intake_timeout": str(INTAKE_TIMEOUT_S * time_scale()), "--cache_dir": self.folder / "cache"}
        arguments = [setting.demo / "base", *flags]
        for name, value in own.items():
            arguments += [] if name in flags else [name, value]
        env = {"ASAN_OPTIONS": "detect_stack_use_after_return=1:malloc_context_size=12",
               "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"}
        small = small_stacks and not setting.sanitized
        # The limit at the start of the process sets the stack size of its threads.
        preexec = (lambda: resource.setrlimit(resource.RLIMIT_STACK, (SMALL_STACK, SMALL_STACK))) if small else None
        # The server's certificate is self-signed.
        tls = ssl.create_default_context(cafile=flags[flags.index("--tls_cert_file") + 1]) \
            if "--tls_cert_file" in flags else None
        self.run = server_process.ServerProcess(setting.chorus, arguments, env=env, preexec=preexec, tls=tls)
        self.pid = self.run.process.pid
        self.address = (self.run.host, self.run.port)

    def alive(self):
        return self.run.process.poll() is None

    # --- memory -------------------------------------------------------------------------------------------------

    def memory_mib(self, key):
        """A value of /proc/PID/status in MiB. key: VmRSS or VmHWM."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) / 1024
        return 0.0

    def forget_peak(self):
        """Resets VmHWM to the memory that is held now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def plan_mib(self):
        """Sum of the memory table that the server printed at its start."""
        rows = re.findall(r"^(?:[\dTZ:.+ -]+ info)? {2,}(\S.*?) {2,}([\d.]+) MiB", self.run.log, re.M)
        return sum(float(size) for name, size in dict(rows).items() if name not in ("total", "available"))

    def open_files(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    # --- adapters -----------------------------------------------------------------------------------------------

    def put_adapter(self, name, edit=None, source="shout"):
        """Adds a copy of a demo adapter, changed by edit(folder), with one atomic rename, as tenants do."""
        staged = self.staged_folder()
        shutil.copytree(setting.demo / "adapters" / source, staged)
        if edit is not None:
            edit(staged)
        self.remove_adapter(name)
        staged.rename(self.adapters / name)

    def put_last(self):
        """Adds a plain adapter that a scan reaches after all others. Returns its name, which was never used before."""
        self._staged += 1
        name = f"zz-plain-{self._staged}"
        self.put_adapter(name)
        return name

    def staged_folder(self):
        """An unused path in the adapters' file system."""
        self._staged += 1
        return self._stage / str(self._staged)

    def remove_adapter(self, name):
        shutil.rmtree(self.adapters / name, ignore_errors=True)

    def served(self):
        """Names of /v1/models."""
        return [model["id"] for model in self.run.request("GET", "/v1/models")[2]["data"]]

    def wait_served(self, name, timeout=60, gone=False):
        """Whether the name appears in time, or with `gone` disappears."""
        return self.wait(lambda: (name in self.served()) != gone, timeout)

    def wait_logged(self, text, timeout=15, since=0):
        return self.wait(lambda: any(text in line for line in self.run.log_lines[since:]), timeout)

    def wait(self, condition, timeout):
        deadline = time.monotonic() + timeout * time_scale()
        while time.monotonic() < deadline and self.alive():
            if condition():
                return True
            time.sleep(0.1)
        return condition() if self.alive() else False

    # --- faults -------------------------------------------------------------------------------------------------

    def log_faults(self, since=0):
        """Log lines that no attack may cause."""
        faults = []
        for line in self.run.log_lines[since:]:
            if SANITIZER_REPORT.search(line):
                faults.append(f"the log has a report: {line[:200]}")
            # Bytes that are not UTF-8 were decoded as printable backslash escapes.
            if re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", line.replace("\t", " ")):
                faults.append(f"the log has a control character: {line[:200]!r}")
        return faults[:3]

    def end(self):
        """Sends SIGTERM and returns the exit status, None if the server did not end, and the seconds."""
        begun = time.monotonic()
        if self.alive():
            self.run.signal()
            try:
                self.run.wait_exit(timeout=DRAIN_S + 25)
            except Exception:  # noqa: BLE001 it is killed, and reported by the status
                self.run.process.kill()
                self.run.process.wait()
                return None, time.monotonic() - begun
        return self.run.process.returncode, time.monotonic() - begun
