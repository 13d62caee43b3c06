"""Checks the instructions of a Containerfile that nothing runs here, and prints the script of its health check."""

import json
import re
import sys

INSTRUCTIONS = {"FROM", "RUN", "WORKDIR", "COPY", "USER", "ENV", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK",
                "ENTRYPOINT", "CMD"}

text = re.sub(r"^#.*\n", "", open(sys.argv[1], encoding="utf-8").read(), flags=re.M)
lines = re.sub(r"\\\n\s*", " ", text).splitlines()
found = [(line.split()[0], line.split(None, 1)[1]) for line in lines if line.strip()]
unknown = [name for name, _ in found if name not in INSTRUCTIONS]
assert not unknown, unknown
stages = [i for i, (name, _) in enumerate(found) if name == "FROM"]
assert len(stages) == 2 and all(found[i][1].startswith("debian:12-slim") for i in stages)
last = dict(found[stages[1]:])
assert last["USER"].split(":")[0].isdigit() and not last["USER"].startswith("0")
for name in ("ENTRYPOINT", "CMD"):
    assert all(isinstance(word, str) for word in json.loads(last[name]))
check = json.loads(last["HEALTHCHECK"].split("CMD ", 1)[1])
assert check[:2] == ["/bin/bash", "-c"]
print(check[2])
