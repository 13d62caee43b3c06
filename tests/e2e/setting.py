"""Settings from run.py's command line, and the servers that tests share."""

import atexit
import json
import shutil
import tempfile
from pathlib import Path

from server_process import TIME_SCALE, ServerProcess

chorus = None
demo = None
sanitized = False  # the program was built with ASan and UBSan

_scratch = None
_shared = None
_trusting = None


def scratch():
    """Temporary directory of this run, for caches and copies."""
    global _scratch
    if _scratch is None:
        _scratch = Path(tempfile.mkdtemp(prefix="chorus-e2e-"))
        atexit.register(shutil.rmtree, _scratch, ignore_errors=True)
    return _scratch


def demo_arguments(dtype="float32"):
    return [demo / "base", "--lora_dir", demo / "adapters", "--dtype", dtype, "--cache_dir", scratch() / "cache"]


def shared_server():
    global _shared
    if _shared is None:
        _shared = ServerProcess(chorus, demo_arguments())
        atexit.register(_shared.stop)
    return _shared


def trusting_server():
    """A shared server that accepts chat templates from requests."""
    global _trusting
    if _trusting is None:
        _trusting = ServerProcess(chorus, [*demo_arguments(), "--trust_request_templates"])
        atexit.register(_trusting.stop)
    return _trusting


def client(server=None, **options):
    import openai
    server = server or shared_server()
    return openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0, timeout=60 * TIME_SCALE,
                         **options)


def anthropic_client(server=None, **options):
    import anthropic
    server = server or shared_server()
    return anthropic.Anthropic(base_url=server.url, api_key="unused", max_retries=0, timeout=60 * TIME_SCALE, **options)


def adapter_names():
    return sorted(path.name for path in (demo / "adapters").iterdir() if path.is_dir())


def uses_dora(adapter):
    return json.loads((demo / "adapters" / adapter / "adapter_config.json").read_text())["use_dora"]


def expected(limit_per_model=3):
    """Reference answers of transformers and PEFT: adapter or None, prompt, prompt_ids, generated_ids, text."""
    rows, counts = [], {}
    with open(demo / "prompts" / "expected_float32.jsonl", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            counts[row["adapter"]] = counts.get(row["adapter"], 0) + 1
            if counts[row["adapter"]] <= limit_per_model:
                rows.append(row)
    return rows


def model_of(row):
    return row["adapter"] or "base"
