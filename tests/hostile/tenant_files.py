"""Expensive adapter files: patterns in configurations, headers of weights, and names that are logged."""

import io
import json
import os
import random
import re
import struct
import time
import zipfile

import setting
import wire
from stage import scenario, timed_out

COMPLETIONS = "/v1/completions"
ENDED = {200, 400, 404}
# Longest log line that one file of a tenant may cause.
LONGEST_LINE = 5000


def config_of(folder):
    return json.loads((folder / "adapter_config.json").read_text())


def with_config(**changes):
    def edit(folder):
        (folder / "adapter_config.json").write_text(json.dumps({**config_of(folder), **changes}))
    return edit


def with_config_text(text):
    def edit(folder):
        (folder / "adapter_config.json").write_text(text)
    return edit


def with_weights(data):
    """data: the file's bytes, or a function that writes them to an open file."""
    def edit(folder):
        with open(folder / "adapter_model.safetensors", "wb") as file:
            if callable(data):
                data(file)
            else:
                file.write(data)
    return edit


def ask_names(address, names):
    return [wire.ask(address, COMPLETIONS, {"model": name, "prompt": "two dogs", "max_tokens": 1}, name, timeout=40)
            for name in names]


def place_and_ask(stage, edits, within, source="german"):
    """Adds adapters (name: edit) one after another and requests them; a plain adapter added last must be served in
    time.
    """
    log_begin = len(stage.server.run.log_lines)
    begun = time.monotonic()
    for name, edit in edits.items():
        stage.server.put_adapter(name, edit, source=source)
    last = stage.server.put_last()
    stage.check_time(stage.server.wait_served(last, within),
                     f"a plain adapter behind {len(edits)} hostile ones is not served after {within} s")
    stage.note(f"the scan took {time.monotonic() - begun:.1f} s")
    stage.check_answers(stage.attack(ask_names, [*edits, *edits, last]), ENDED)
    # The neighbour is judged during the scan too.
    stage.windows.append((begun, time.monotonic()))
    left_out = [line for line in stage.server.run.log_lines[log_begin:] if "adapter left out" in line]
    longest = max(left_out, key=len, default="")
    stage.check(len(longest) < LONGEST_LINE, f"a line of the log has {len(longest)} characters: {longest[:200]}")
    for name in [*edits, last]:
        stage.server.remove_adapter(name)


# --- configurations ---------------------------------------------------------------------------------------------------


@scenario("adapter-patterns", quick=True)
def adapter_patterns(stage):
    """Thousands of patterns for ranks and scales, each of polynomial cost in the length of a module's name."""
    polynomial = [f".*.*.*.*(?:\\d|[x-z]{{0}}\\d)(?#{n})" for n in range(4096)]
    nested = [f"(\\w+\\.?)+(\\w+\\.?)+!{n}" for n in range(512)]
    calls = "".join(f"(\\g<{n}>\\g<{n}>\\g<{n}>)" for n in range(2, 27)) + "(a)"
    place_and_ask(stage, {
        "pt-alpha": with_config(alpha_pattern=dict.fromkeys(polynomial, 1.0)),
        "pt-rank": with_config(rank_pattern=dict.fromkeys(polynomial, 4)),
        "pt-both": with_config(alpha_pattern=dict.fromkeys(polynomial, 1.0), rank_pattern=dict.fromkeys(polynomial, 4)),
        "pt-nested": with_config(alpha_pattern=dict.fromkeys(nested, 1.0)),
        "pt-looks": with_config(alpha_pattern={f"(?=(.*.*)x{n})y": 1.0 for n in range(1000)}),
        "pt-back": with_config(alpha_pattern={f"(.*)(.*)\\1\\2{n}x": 1.0 for n in range(1000)}),
        "pt-counts": with_config(alpha_pattern={f"(?:(?:.{{0,99}}){{0,99}}){{0,99}}{n}": 1.0 for n in range(100)}),
        "pt-plain": with_config(alpha_pattern={f"layers.{n}.no_such_module": 1.0 for n in range(100_000)}),
        "pt-long": with_config(alpha_pattern={"a?" * 50_000 + "a" * 50_000: 1.0}),
        "pt-target": with_config(target_modules="(.*.*.*.*)*q_proj|(\\w+\\.)+(\\w+\\.)+v_proj"),
        "pt-calls": with_config(target_modules=calls),
        "pt-rank-calls": with_config(rank_pattern={calls: 4}),
        "pt-exclude": with_config(exclude_modules="(.*.*.*.*)*z_proj"),
        "pt-targets": with_config(target_modules=[f"m{n}" for n in range(300_000)]),
        "pt-layers": with_config(layers_to_transform=list(range(300_000)), layers_pattern=["x"] * 10_000),
        "pt-saved": with_config(modules_to_save=["(.*)*"] * 50_000),
    }, within=20)


@scenario("adapter-configs", quick=True)
def adapter_configs(stage):
    """Configurations with values of every wrong type and size."""
    deep = "[" * 100_000 + "]" * 100_000
    wide = "{" + ",".join(f'"k{n}":1' for n in range(400_000)) + "}"
    edits = {"cf-deep": with_config_text(deep), "cf-objects": with_config_text('{"a":' * 50_000 + "1" + "}" * 50_000),
             "cf-wide": with_config_text(wide), "cf-empty": with_config_text(""), "cf-null": with_config_text("null"),
             "cf-text": with_config_text('"' + "a" * 5_000_000 + '"'), "cf-bytes": with_config_text("\ufffe\u0000")}
    wrong = [None, True, -1, 0, 2**31, 2**63, 1e308, -1e308, "", "x" * 5000, [], {}, [[]], {"a": {"b": []}}, "\n\x1b[31mX"]
    fields = ["r", "lora_alpha", "target_modules", "bias", "use_dora", "use_rslora", "rank_pattern", "alpha_pattern",
              "modules_to_save", "layers_to_transform", "peft_type", "task_type", "fan_in_fan_out", "init_lora_weights"]
    rng = random.Random(5)
    for number in range(40):
        changes = {rng.choice(fields): rng.choice(wrong) for _ in range(rng.choice([1, 1, 2]))}
        edits[f"cf-{number:02}"] = with_config(**changes)
    place_and_ask(stage, edits, within=20)


# --- weights ----------------------------------------------------------------------------------------------------------


def header_of_many(megabytes, shape="[0]"):
    """Writes a header of that size whose tensors are all empty."""
    def write(file):
        parts, size, number = [], 2, 0
        while size < megabytes * 1_000_000:
            part = f'"{number:x}":{{"dtype":"F32","shape":{shape},"data_offsets":[0,0]}}'
            parts.append(part)
            size += len(part) + 1
            number += 1
        text = ("{" + ",".join(parts) + "}").encode()
        file.write(struct.pack("<Q", len(text)) + text)
    return write


def header_text(text, tail=b""):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data + tail


def declared_header(length, kept=1000, sparse=0):
    def write(file):
        file.write(struct.pack("<Q", length) + b"{" + b" " * kept)
        if sparse:
            file.truncate(sparse)
    return write


@scenario("adapter-headers", quick=True)
def adapter_headers(stage):
    """Headers with millions of tensors, or with a false stated length."""
    edits = {"hd-1": with_weights(header_of_many(1)), "hd-20": with_weights(header_of_many(20)),
             "hd-31": with_weights(header_of_many(31)), "hd-40": with_weights(header_of_many(40)),
             "hd-95": with_weights(header_of_many(95)),
             "hd-shapes": with_weights(header_of_many(20, "[" + ",".join(["1"] * 60) + ",0]")),
             "hd-names": with_weights(header_text("{" + ",".join(
                 f'"{"n" * 100_000}{n}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for n in range(200)) + "}")),
             "hd-metadata": with_weights(header_text('{"__metadata__":{' + ",".join(
                 f'"k{n}":"v"' for n in range(1_500_000)) + "}}")),
             "hd-deep": with_weights(header_text('{"a":' + "[" * 2_000_000 + "]" * 2_000_000 + "}")),
             "hd-shape": with_weights(header_text('{"a":{"dtype":"F32","shape":[' + ",".join(["1"] * 5_000_000)
                                                  + '],"data_offsets":[0,4]}}', b"\0\0\0\0")),
             "hd-product": with_weights(header_text(
                 '{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}'))}
    for length in (0, 1, 1 << 25, 1 << 31, 1 << 32, 1 << 62, (1 << 64) - 1):
        edits[f"hd-length-{length}"] = with_weights(declared_header(length))
    # A sparse file has the stated length without using the disk.
    edits["hd-sparse"] = with_weights(declared_header(2_000_000_000, sparse=2_100_000_000))
    edits["hd-sparse-32"] = with_weights(declared_header((32 << 20) - 8, sparse=34 << 20))
    place_and_ask(stage, edits, within=40)


# --- archives: adapter_model.bin --------------------------------------------------------------------------------------


def with_archive(data):
    """data: the bytes of adapter_model.bin, or a function that writes them to an open file."""
    def edit(folder):
        (folder / "adapter_model.safetensors").unlink()
        with open(folder / "adapter_model.bin", "wb") as file:
            if callable(data):
                data(file)
            else:
                file.write(data)
    return edit


def archive(entries):
    """A stored zip archive of (name, bytes)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        for name, data in entries:
            file.writestr(name, data)
    return buffer.getvalue()


def sparse_directory(entries, comment):
    """An archive whose directory has long comments that are holes of the file, so that it takes little of the disk."""
    def write(file):
        local = b"PK\x03\x04" + b"\0" * 22 + struct.pack("<HH", 3, 0) + b"a/x"
        file.write(local)
        begin = file.tell()
        for number in range(entries):
            name = b"a/%06d" % number
            file.write(b"PK\x01\x02" + b"\0" * 24 + struct.pack("<HHH", len(name), 0, comment) + b"\0" * 12 + name)
            file.seek(comment, os.SEEK_CUR)
        size = file.tell() - begin
        file.write(b"PK\x05\x06" + b"\0" * 4 + struct.pack("<HHII", entries, entries, size, begin) + b"\0\0")
    return write


def pickle_of_many(count):
    """A dictionary of tensors that all view one storage of 4 bytes."""
    def text(value):
        return b"X" + struct.pack("<I", len(value)) + value
    storage = b"(" + text(b"storage") + b"ctorch\nFloatStorage\n" + text(b"0") + text(b"cpu") + b"J\1\0\0\0tQ"
    tensor = (b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"J\0\0\0\0(J\1\0\0\0t(J\1\0\0\0t\x89"
              b"ccollections\nOrderedDict\n)RtR")
    return b"\x80\x02}(" + b"".join(text(b"%d" % number) + tensor for number in range(count)) + b"u."


@scenario("adapter-archives", quick=True)
def adapter_archives(stage):
    """PyTorch files with huge directories and pickles, and other files under their name."""
    version = ("a/version", b"3\n")
    place_and_ask(stage, {
        "ar-sparse": with_archive(sparse_directory(1900, 32_000)),
        "ar-entries": with_archive(archive([(f"a/{number}", b"") for number in range(60_000)])),
        "ar-nested": with_archive(archive([("a/data.pkl", b"\x80\x02" + b"(" * 20_000_000), version])),
        "ar-pickle": with_archive(archive([("a/data.pkl", b"\x80\x02" + b"N0" * 25_000_000 + b"."), version])),
        "ar-tensors": with_archive(archive([("a/data.pkl", pickle_of_many(100_000)), version, ("a/data/0", b"\0" * 4)])),
        "ar-legacy": with_archive(b"\x80\x02" + b"(" * 40_000_000),
        "ar-other": with_archive(b"x" * 40_000_000),
        "ar-empty": with_archive(b""),
        "ar-cut": with_archive(archive([("a/data.pkl", pickle_of_many(3)), version, ("a/data/0", b"\0" * 4)])[:-30]),
    }, within=40)


# --- names ------------------------------------------------------------------------------------------------------------

CONTROLS = "\x1b[31mRED\x1b]0;title\x07\x08\r\nFORGED [error] a line of its own\x7f\x9b2J\u202egnol\u2028"


def ask_with_names(address):
    answers = []
    for name in (CONTROLS, "\u0000", "a\x1b[2Jb", "\u009b31m", "x" * 100_000, "../../etc/passwd", "/etc/passwd", "..",
                 "base/../shout", "\ud800"):
        answers.append(wire.ask(address, COMPLETIONS, {"model": name, "prompt": "x", "max_tokens": 1}, f"model {name[:20]!r}"))
    for body in ({"model": "base", CONTROLS: 1, "prompt": 1}, {"model": "base", "prompt": "x", "stop": {CONTROLS: 1}},
                 {"model": "base", "prompt": "x", "adapters": [{"name": CONTROLS, "weight": 1}]},
                 {"model": "base", "prompt": "x", "user": CONTROLS, "max_tokens": 1, "logit_bias": {CONTROLS: 1}}):
        answers.append(wire.ask(address, COMPLETIONS, body, f"field {str(body)[:40]!r}"))
    for path in ("/v1/models/%1b%5b31mRED", "/v1/models/%0d%0aFORGED%20line", "/v1/%9b%7f", "/%00", "/v1/models/%2e%2e%2fbase",
                 "/v1/models/..%2f..%2fetc%2fpasswd"):
        answers.append(wire.ask(address, path, None, f"path {path}", method="GET"))
    for header in ("a\x1b[31mb", "a\x7fb", "x" * 5000, "caf\xe9", "a\tb"):
        answers.append(wire.ask(address, "/v1/models", None, f"id {header[:10]!r}", method="GET",
                                headers={"X-Request-Id": header, "User-Agent": header}))
    wire.exchange(address, b"GET /v1/models/\x1b[31mRED HTTP/1.1\r\nHost: \x1b[31m\r\n\r\n", wait=0.5)
    wire.exchange(address, b"\x1b[31mRED /\x1b[2J HTTP/1.1\r\nX-\x1b[31m: \x1b[31m\r\n\r\n", wait=0.5)
    return answers


@scenario("control-characters", quick=True)
def control_characters(stage):
    """Control characters in requests, file names and file contents are escaped in the log."""
    log_begin = len(stage.server.run.log_lines)
    answers = stage.attack(ask_with_names)
    for answer in answers or []:  # a message may quote the name with JSON escapes
        if timed_out(answer.status):
            stage.check_time(False, f"{answer.label}: {answer.status}")
            continue
        allowed = {200, 400, 404} if answer.label.startswith("id") else {400, 404, 405}
        stage.check(answer.status in allowed, f"{answer.label}: {answer.status}")
        stage.check(not re.search(r"[\x00-\x09\x0b-\x1f]", answer.body), f"{answer.label}: a raw control character")
    names = ["\x1b[31mred", "new\nFORGED line", "return\rFORGED line", "bell\x07", "c1-\u009b31m", "bidi-\u202egnol",
             "sep-\u2028line", "del\x7f"]
    for name in names:
        stage.server.put_adapter(name)
        stage.server.put_adapter(f"broken {name}", with_weights(b"x"))
    raw = os.fsencode(str(stage.server.adapters)) + b"/raw-\xff\xfe\x1b[31m"
    os.mkdir(raw)
    open(raw + b"/adapter_config.json", "wb").close()
    inside = {
        "in-key": with_config(**{CONTROLS: 1}), "in-type": with_config(peft_type=CONTROLS),
        "in-target": with_config(target_modules=[CONTROLS]), "in-pattern": with_config(alpha_pattern={CONTROLS + "(": 1}),
        "in-bias": with_config(bias=CONTROLS), "in-text": with_config_text("{\x1b[31m" + CONTROLS),
        "in-tensor": with_weights(header_text(json.dumps(
            {CONTROLS: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}), b"\0\0\0\0")),
        "in-dtype": with_weights(header_text(json.dumps(
            {"a": {"dtype": CONTROLS, "shape": [1], "data_offsets": [0, 4]}}), b"\0\0\0\0")),
        "in-template": lambda folder: (folder / "chat_template.jinja").write_text("{% " + CONTROLS),
        "in-tokenizer": lambda folder: (folder / "tokenizer.json").write_text(
            json.dumps({"model": {"type": CONTROLS}, "added_tokens": [], "normalizer": {"type": CONTROLS}})),
        "in-raise": lambda folder: (folder / "chat_template.jinja").write_text(
            "{{ raise_exception(" + json.dumps(CONTROLS) + ") }}"),
    }
    for name, edit in inside.items():
        stage.server.put_adapter(name, edit)
    last = stage.server.put_last()
    stage.check(stage.server.wait_served(last), "the scan does not end")
    chats = [("/v1/chat/completions", {"model": name, "messages": [{"role": "user", "content": "x"}], "max_tokens": 1})
             for name in inside]
    for answer in stage.attack(ask_bodies, chats) or []:
        stage.check(answer.status in ENDED, f"{answer.label}: {answer.status}")
    lines = stage.server.run.log_lines[log_begin:]
    stage.check(not any(line.lstrip().startswith("FORGED") for line in lines), "a name made a line of the log of its own")
    shown = [name for name in stage.server.served() if any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in name)]
    stage.check(not shown, f"/v1/models lists {shown}")
    for name in [*names, *(f"broken {name}" for name in names), *inside, last]:
        stage.server.remove_adapter(name)
    os.unlink(raw + b"/adapter_config.json")
    os.rmdir(raw)


def ask_bodies(address, requests):
    return [wire.ask(address, path, body, str(body)[:60]) for path, body in requests]


# --- churn ------------------------------------------------------------------------------------------------------------


def break_adapters(address, folder, stage_folder, source, seconds, seed):
    """A tenant that replaces, damages and removes adapters at random."""
    import shutil
    from pathlib import Path
    folder, stage_folder, source = Path(folder), Path(stage_folder), Path(source)
    rng, end, count = random.Random(seed), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        count += 1
        target = folder / f"t{rng.randrange(6)}"
        kind = rng.randrange(8)
        try:
            if kind == 0:
                shutil.rmtree(target, ignore_errors=True)
            elif kind <= 3:
                staged = stage_folder / f"churn-{seed}-{count}"
                shutil.copytree(source / rng.choice(["german", "json", "shout"]), staged)
                if rng.random() < 0.3:
                    (staged / "chat_template.jinja").write_text(rng.choice(["{{ messages[0].content }}", "{% for", ""]))
                shutil.rmtree(target, ignore_errors=True)
                staged.rename(target)
            elif kind == 4:
                weights = target / "adapter_model.safetensors"
                data = bytearray(weights.read_bytes())
                data[rng.randrange(len(data))] ^= 1
                weights.write_bytes(data)
            elif kind == 5:
                os.truncate(target / "adapter_model.safetensors", rng.randrange(50_000))
            elif kind == 6:
                (target / rng.choice(sorted(os.listdir(target)))).unlink()
            else:
                os.mkfifo(target / f"pipe{count}")
        except OSError:
            pass  # another tenant's process was faster
        time.sleep(rng.random() * 0.15)
    return []


def ask_churned(address, seconds, seed):
    rng, end, answers = random.Random(seed), time.monotonic() + seconds, []
    names = [f"t{n}" for n in range(6)]
    while time.monotonic() < end:
        body = {"model": rng.choice([*names, "german", "base"]), "prompt": "hi " * rng.randrange(1, 30),
                "max_tokens": rng.choice([1, 8]), "n": rng.choice([1, 1, 3])}
        if rng.random() < 0.2:
            body.update(model="base", adapters=[{"name": name, "weight": 1} for name in rng.sample([*names, "german"], 2)])
        answers.append(wire.ask(address, COMPLETIONS, body, f"churn {body['model']}"))
        time.sleep(0.01)
    return answers


@scenario("adapter-churn")
def adapter_churn(stage):
    server = stage.server
    paths = (str(server.adapters), str(server.staged_folder().parent), str(setting.demo / "adapters"))
    results = stage.attack_all([(break_adapters, *paths, 10, 1), (break_adapters, *paths, 10, 2), (ask_churned, 10, 3),
                                (ask_churned, 10, 4)])
    for answers in results[2:]:
        stage.check_answers(answers, {200, 400, 404, 409, 429})
    for number in range(6):
        server.remove_adapter(f"t{number}")
