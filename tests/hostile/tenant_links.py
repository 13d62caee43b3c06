"""Links, pipes and devices in adapters' directories, links that change while the server reads, removed directories."""

import os
import random
import shutil
import time
from pathlib import Path

import wire
from stage import scenario

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RACE_S = 14
MARK = "MARK-OF-A-FILE-OUTSIDE"
# Used as a template, the file's content shows the client that the file was read.
SECRET_TEMPLATE = "{{ raise_exception('" + MARK + "') }}"


def ask_chats(address, names, seconds=0.0, pause=0.0):
    """Requests each name once, and again until the seconds have passed."""
    answers, end = [], time.monotonic() + seconds
    while True:
        for name in names:
            answers.append(wire.ask(address, CHAT, {"model": name, "messages": [{"role": "user", "content": "x"}],
                                                    "max_tokens": 1}, name))
        time.sleep(pause)
        if time.monotonic() >= end:
            return answers


def write_secrets(server):
    (server.outside / "template.jinja").write_text(SECRET_TEMPLATE)
    (server.outside / "secret.txt").write_text(MARK)
    folder = server.outside / "adapter"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(server.adapters / "shout", folder)
    (folder / "chat_template.jinja").write_text(SECRET_TEMPLATE)
    return folder


def no_leak(stage, answers, log_begin):
    for answer in answers or []:
        stage.check(MARK not in answer.body, f"{answer.label} shows a file from outside: {answer.body[:120]}")
    stage.check(MARK not in "\n".join(stage.server.run.log_lines[log_begin:]), "the log shows a file from outside")


def linked(name, target):
    """An edit that replaces one file of an adapter by a link."""
    def edit(folder):
        path = folder / name
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(target)
    return edit


@scenario("adapter-links", quick=True)
def adapter_links(stage):
    """Static links: those that leave the root or enter another tenant's directory are refused, those inside are
    followed.
    """
    server, log_begin = stage.server, len(stage.server.run.log_lines)
    outside = write_secrets(server)
    server.put_adapter("victim", lambda folder: (folder / "chat_template.jinja").write_text(SECRET_TEMPLATE))
    out, neighbour = server.outside, "../victim/chat_template.jinja"
    edits = {"ln-absolute": linked("chat_template.jinja", out / "template.jinja"),
             "ln-relative": linked("chat_template.jinja", "../../outside/template.jinja"),
             "ln-neighbour": linked("chat_template.jinja", neighbour),
             "ln-neighbour-absolute": linked("chat_template.jinja", server.adapters / "victim" / "chat_template.jinja"),
             "ln-weights": linked("adapter_model.safetensors", "../victim/adapter_model.safetensors"),
             "ln-config": linked("adapter_config.json", out / "adapter" / "adapter_config.json"),
             "ln-tokenizer": linked("tokenizer.json", out / "secret.txt"),
             "ln-more": linked("additional_chat_templates/other.jinja", out / "template.jinja"),
             "ln-proc": linked("chat_template.jinja", "/proc/self/environ"),
             "ln-descriptor": linked("chat_template.jinja", "/proc/self/fd/0"),
             "ln-loop": linked("chat_template.jinja", "chat_template.jinja")}

    def folder_link(folder):
        shutil.rmtree(folder / "additional_chat_templates", ignore_errors=True)
        (folder / "additional_chat_templates").symlink_to(out)
    edits["ln-folder"] = folder_link

    def chain(folder):
        (folder / "one").symlink_to("..")
        (folder / "chat_template.jinja").symlink_to("one/victim/chat_template.jinja")
    edits["ln-chain"] = chain

    def within(folder):
        (folder / "blobs").mkdir()
        (folder / "blobs" / "t").write_text("{{ messages[0].content }}")
        (folder / "chat_template.jinja").symlink_to("blobs/t")
    for name, edit in edits.items():
        server.put_adapter(name, edit)
    (server.adapters / "ln-whole").symlink_to(outside)
    (server.adapters / "ln-whole-neighbour").symlink_to("victim")
    server.put_adapter("inside", within)
    last = server.put_last()
    # A scan may overlook a name that appears while it reads the directory.
    stage.check(server.wait_served(last) and server.wait_served("inside"), "the scan does not end")
    hostile = [*edits, "ln-whole", "ln-whole-neighbour"]
    answers = stage.attack(ask_chats, hostile)
    stage.check_answers(answers, {200, 400, 404})
    no_leak(stage, answers, log_begin)
    for name in hostile:
        if name not in ("ln-more", "ln-folder", "ln-loop", "ln-descriptor"):  # these may be served without the link
            stage.check(name not in server.served(), f"{name} is served")
    stage.check_answers(stage.attack(ask_chats, ["inside", last]), {200})
    for name in ("ln-whole", "ln-whole-neighbour"):
        (server.adapters / name).unlink()
    for name in [*edits, "victim", "inside", last]:
        server.remove_adapter(name)


@scenario("adapter-links-followed", flags=("--lora_dir_links", "follow"))
def adapter_links_followed(stage):
    """With --lora_dir_links follow, links are followed."""
    server = stage.server
    outside = write_secrets(server)
    (outside / "chat_template.jinja").unlink()
    (server.adapters / "elsewhere").symlink_to(outside)
    stage.check(server.wait_served("elsewhere"), "a link that may be followed is not served")
    stage.check_answers(stage.attack(ask_chats, ["elsewhere"]), {200})
    (server.adapters / "elsewhere").unlink()


def swap_files(address, path, spare, good, bad, seconds, seed):
    """Keeps a file unchanged until the scan reads its directory, then replaces it by a link, hoping to hit the scan."""
    path, spare, rng = Path(path), Path(spare), random.Random(seed)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        spare.unlink(missing_ok=True)
        spare.write_text(f"{good}{' ' * rng.randrange(50)}")
        spare.rename(path)
        time.sleep(1.0 + rng.random())  # a directory is read after a second without changes
        spare.unlink(missing_ok=True)
        spare.symlink_to(bad)
        spare.rename(path)
        time.sleep(0.02 + 0.3 * rng.random())
    return []


def swap_folders(address, path, spare, source, bad, seconds):
    """Like swap_files, for the whole directory."""
    path, spare, count = Path(path), Path(spare), 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        count += 1
        if path.is_symlink():
            path.unlink()
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(source, spare)
        spare.rename(path)
        time.sleep(1.1 + 0.05 * (count % 13))
        path.rename(spare)
        path.symlink_to(bad)
        time.sleep(0.02 * (count % 9))
        shutil.rmtree(spare, ignore_errors=True)
    return []


@scenario("adapter-links-race")
def adapter_links_race(stage):
    """A file is replaced by a link after it was checked: the server must read the file that it checked."""
    server, log_begin = stage.server, len(stage.server.run.log_lines)
    outside = write_secrets(server)

    def many_files(folder):
        (folder / "chat_template.jinja").write_text("harmless")
        for number in range(3000):  # makes the scan slow between check and use
            (folder / f"f{number}").touch()
    racing = [f"race-{number}" for number in range(4)]
    for name in [*racing, "race-folder"]:
        server.put_adapter(name, None if name == "race-folder" else many_files)
    stage.check(server.wait_served("race-folder"), "the adapters are not served before the race")
    calls = [(swap_files, str(server.adapters / name / "chat_template.jinja"), str(server.staged_folder()), "harmless",
              str(server.outside / "template.jinja"), RACE_S, seed) for seed, name in enumerate(racing)]
    calls.append((swap_folders, str(server.adapters / "race-folder"), str(server.staged_folder()),
                  str(server.adapters / "shout"), str(outside), RACE_S))
    answers = stage.attack_all([*calls, (ask_chats, [*racing, "race-folder"], RACE_S + 1, 0.03)])[-1]
    stage.check_answers(answers, {200, 400, 404, 409})
    no_leak(stage, answers, log_begin)
    for name in [*racing, "race-folder"]:
        if (server.adapters / name).is_symlink():
            (server.adapters / name).unlink()
        server.remove_adapter(name)


@scenario("adapter-pipes", quick=True)
def adapter_pipes(stage):
    """Pipes, devices and sockets in place of files: the server never waits for a writer."""
    server = stage.server

    def piped(name):
        def edit(folder):
            (folder / name).unlink(missing_ok=True)
            os.mkfifo(folder / name)
        return edit
    files = ["adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "tokenizer_config.json",
             "chat_template.jinja", "special_tokens_map.json", "tokenizer.model", "chat_template.json"]
    names = []
    for number, name in enumerate(files):
        server.put_adapter(f"pipe-{number}", piped(name))
        server.put_adapter(f"device-{number}", linked(name, "/dev/zero"))
        names += [f"pipe-{number}", f"device-{number}"]
    server.put_adapter("pipe-folder", lambda folder: (folder / "chat_template.jinja").mkdir())
    last = server.put_last()
    stage.check(server.wait_served(last), "a plain adapter behind pipes is not served")
    stage.check_answers(stage.attack(ask_chats, [*names, "pipe-folder"]), {200, 400, 404}, within=10)
    for name in [*names, "pipe-folder", last]:
        server.remove_adapter(name)


# --- removed directories ----------------------------------------------------------------------------------------------


def ask_removed(address, name):
    return [wire.ask(address, f"/v1/models/{name}", None, "models", method="GET"),
            wire.ask(address, COMPLETIONS, {"model": name, "prompt": "x", "max_tokens": 1}, "completions"),
            wire.ask(address, CHAT, {"model": name, "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}, "chat"),
            wire.ask(address, COMPLETIONS, {"model": "base", "prompt": "x", "max_tokens": 1,
                                            "adapters": [{"name": name, "weight": 1}]}, "composition")]


def removal(stage):
    server = stage.server
    for name, used in (("gone-used", True), ("gone-unused", False)):
        server.put_adapter(name)
        stage.check(server.wait_served(name), f"{name} is not served at first")
        if used:
            stage.check_answers(stage.attack(ask_removed, name), {200})
        server.remove_adapter(name)
        stage.check(server.wait_served(name, gone=True), f"{name} is still listed after its directory went")
        answers = stage.attack(ask_removed, name)
        stage.check_answers(answers, {404, 400})
        for answer in answers or []:
            stage.check(answer.status == 404 or answer.label == "composition",
                        f"{name} is gone, and {answer.label} answer {answer.status}")
        server.put_adapter(name)
        stage.check(server.wait_served(name), f"{name} came back and is not served")
        stage.check_answers(stage.attack(ask_removed, name), {200})
        server.remove_adapter(name)


@scenario("adapter-removed-sync", quick=True)
def adapter_removed_sync(stage):
    """Removing a directory removes its adapter, used or not."""
    removal(stage)


@scenario("adapter-removed", flags=("--lora_refresh", "add"))
def adapter_removed(stage):
    """Without sync, a removed name gets the same status from the list of models and from requests."""
    server = stage.server
    for name, used in (("gone-used", True), ("gone-unused", False)):
        server.put_adapter(name)
        stage.check(server.wait_served(name), f"{name} is not served at first")
        if used:
            stage.check_answers(stage.attack(ask_removed, name), {200})
        server.remove_adapter(name)
        time.sleep(4)
        # The first request finds that the files of the unused one are missing, and ends the name.
        stage.attack(ask_removed, name)
        answers = stage.attack(ask_removed, name) or []
        stage.check_answers(answers, {200, 400, 404})
        expected = 200 if used else 404
        statuses = {answer.label: answer.status for answer in answers}
        stage.check(all(statuses[label] == expected for label in ("models", "completions", "chat")),
                    f"a removed name answers {statuses}")
