#!/usr/bin/env python3
"""Makes the chat template goldens: tests/goldens/text/chat/.

snippets.jsonl: {"template", and "output" or "error"} for small templates, rendered by transformers' own environment
with the variables in context.json. templates.jsonl: {"name", "template"} whole templates in the styles of well-known
models; renderings.jsonl: {"template" (a name), "conversation" (a number), "add_generation_prompt", and "output" or
"error"}; conversations.jsonl: {"messages", "tools"}.

Usage: text_chat_goldens.py   (needs transformers and jinja2)
"""
import json
import pathlib

import jinja2
import transformers
from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

from text_chat_families import FAMILIES, MORE_SNIPPETS
from text_chat_snippets import CONTEXT, SNIPPETS
from text_chat_templates import CONVERSATIONS, TEMPLATES

OUT = pathlib.Path(__file__).resolve().parent.parent / "goldens" / "text" / "chat"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def dump(name, rows):
    (OUT / name).write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))


def attempt(row, render):
    try:
        row["output"] = render()
    except Exception as e:
        row["error"] = type(e).__name__
    return row


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "context.json").write_text(json.dumps(CONTEXT, ensure_ascii=False) + "\n")
    dump("snippets.jsonl", [attempt({"template": s}, lambda: _compile_jinja_template(s).render(**json.loads(json.dumps(CONTEXT)))) for s in SNIPPETS + MORE_SNIPPETS])
    dump("templates.jsonl", [{"name": n, "template": t} for n, t in {**TEMPLATES, **FAMILIES}.items()])
    dump("conversations.jsonl", CONVERSATIONS)
    rows = []
    for name, template in {**TEMPLATES, **FAMILIES}.items():
        for i, conversation in enumerate(CONVERSATIONS):
            for prompt in [False, True]:
                row = {"template": name, "conversation": i, "add_generation_prompt": prompt}
                rows.append(attempt(row, lambda: render_jinja_template(
                    [conversation["messages"]], tools=conversation["tools"], chat_template=template,
                    add_generation_prompt=prompt, **TOKENS)[0][0]))
    dump("renderings.jsonl", rows)
    (OUT / "versions.json").write_text(json.dumps({"transformers": transformers.__version__, "jinja2": jinja2.__version__}) + "\n")


if __name__ == "__main__":
    main()
