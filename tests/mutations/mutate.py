"""Seeded mutations: of bytes, of numbers, and of the fields of JSON documents, npy headers, safetensors headers and the
pickles inside PyTorch files."""
import io
import json
import re
import struct
import zipfile

NUMBERS = [0, 1, -1, 2, 7, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1,
           2**63, 2**64 - 1, 2**64, 10**30]
VALUES = [None, True, False, 0, 1, -1, 2.5, 1e308, "", "x", "\n", [], {}, [1], {"a": 1}, 2**63, "\ud7ff", "<s>"]


def mutate_bytes(data, rng):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
        at = rng.randrange(len(data)) if data else 0
        kind = rng.randrange(9)
        if not data:
            data += bytes([rng.randrange(256)])
        elif kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.randrange(256)
        elif kind == 2:
            data.insert(at, rng.randrange(256))
        elif kind == 3:
            del data[at]
        elif kind == 4 and rng.random() < 0.3:
            del data[at:]
        elif kind == 5:  # a run goes elsewhere
            run = bytes(data[at:at + rng.randint(1, 40)])
            to = rng.randrange(len(data))
            data[to:to + rng.choice([0, len(run)])] = run
        elif kind == 6:  # a binary number
            width = rng.choice("BHIQ")
            raw = struct.pack("<" + width, rng.choice(NUMBERS) % (1 << 8 * struct.calcsize(width)))
            data[at:at + len(raw)] = raw
        elif kind == 7:
            digits = list(re.finditer(rb"\d+", bytes(data)))
            if digits:
                found = rng.choice(digits)
                value = rng.choice([int(found.group()[:18]) + rng.choice([-1, 1, 8]), rng.choice(NUMBERS)])
                data[found.start():found.end()] = str(value).encode()
        elif kind == 8:
            del data[at:at + rng.randint(1, 40)]
    return bytes(data)


def mutate_json(text, rng):
    """A document of the same grammar with other contents; sometimes a key twice."""
    document = json.loads(text)
    for _ in range(rng.choice([1, 1, 2, 3])):
        places = []

        def walk(node):
            children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
            for key, child in children:
                places.append((node, key))
                if len(places) < 4000:
                    walk(child)

        walk(document)
        if not places:
            break
        node, key = rng.choice(places)
        kind = rng.randrange(6)
        if kind == 0:
            node[key] = rng.choice(VALUES)
        elif kind == 1:
            del node[key]
        elif kind == 2:
            other, there = rng.choice(places)
            if there in (other if isinstance(other, dict) else range(len(other))):
                node[key] = json.loads(json.dumps(other[there]))
        elif kind == 3 and isinstance(node.get(key) if isinstance(node, dict) else node[key], (int, float)):
            node[key] = rng.choice(NUMBERS)
        elif kind == 4 and isinstance(node, dict):
            node[rng.choice([key + "x", "type", "a"])] = node.pop(key)
        elif isinstance(node[key], str):
            node[key] = mutate_bytes(node[key].encode(), rng).decode("utf-8", "replace")
    out = json.dumps(document, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.1:
        keys = list(re.finditer(r'"[^"\\]+": ', out))
        if keys:  # one key twice in an object
            first = rng.choice(keys)
            out = out[:first.start()] + first.group() + json.dumps(rng.choice(VALUES[:14])) + ", " + out[first.start():]
    return out.encode()


def mutate_safetensors(data, rng):
    if rng.random() < 0.4:
        return mutate_bytes(data, rng)
    size = struct.unpack("<Q", data[:8])[0]
    header = data[8:8 + size]
    header = mutate_json(header.decode(), rng) if rng.random() < 0.6 else mutate_bytes(header, rng)
    return struct.pack("<Q", len(header)) + header + data[8 + size:]


def mutate_npy(data, rng):
    if rng.random() < 0.4:
        return mutate_bytes(data, rng)
    size = struct.unpack("<H", data[8:10])[0]
    header = mutate_bytes(data[10:10 + size].rstrip(), rng)
    if rng.random() < 0.7:
        header = header.ljust(size - 1) + b"\n"
    return data[:8] + struct.pack("<H", len(header) % 65536) + header + data[10 + size:]


def rezip(data, rng, change):
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        names = old.namelist()
        chosen = rng.choice(names) if rng.random() < 0.3 else names[0]
        for name in names:
            contents = old.read(name)
            new.writestr(name, change(contents) if name == chosen else contents)
    return out.getvalue()


def mutate_torch(data, rng):
    if data[:2] == b"PK" and rng.random() < 0.6:
        return rezip(data, rng, lambda contents: mutate_bytes(contents, rng))
    return mutate_bytes(data, rng)


def mutate_text_json(data, rng):
    return mutate_json(data.decode(), rng) if rng.random() < 0.6 else mutate_bytes(data, rng)


def mutate_npz(data, rng):
    """Half of the files keep right checksums, so that the reader gets to the arrays."""
    if rng.random() < 0.5:
        return mutate_bytes(data, rng)
    return rezip(data, rng, lambda contents: mutate_npy(contents, rng))


MUTATORS = {"safetensors": mutate_safetensors, "npy": mutate_npy, "npz": mutate_npz, "flax": mutate_bytes, "torch": mutate_torch, "engine_file": mutate_bytes}


def mutate(reader, data, rng):
    return MUTATORS.get(reader, mutate_text_json)(data, rng)
