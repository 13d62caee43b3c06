"""Deeply nested inputs on a server with thread stacks of 256 KB: recursion depth must not follow the input's depth."""

import bodies
import templates
import tenant_files
import tenant_tokenizers
from stage import scenario

TRUSTING = templates.TRUSTING


@scenario("small-stacks-templates", flags=TRUSTING, small_stacks=True)
def small_stacks_templates(stage):
    templates.template_captures(stage)
    templates.template_recursion(stage)


@scenario("small-stacks-requests", flags=TRUSTING, small_stacks=True)
def small_stacks_requests(stage):
    bodies.json_deep(stage)


@scenario("small-stacks-adapters", flags=TRUSTING, small_stacks=True)
def small_stacks_adapters(stage):
    tenant_files.adapter_configs(stage)
    deep = {name: tokenizer for name, tokenizer in tenant_tokenizers.growing_tokenizers().items()
            if name in ("deep", "grow-twice", "bpe-run")}
    tenant_tokenizers.place(stage, deep)
    stage.check_answers(stage.attack(tenant_tokenizers.ask_all, [(name, "a b" * 999) for name in deep]),
                        tenant_tokenizers.ENDED)
    tenant_tokenizers.remove(stage, deep)
