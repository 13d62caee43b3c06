"""Whole templates, written for text_chat_goldens.py in the styles of well-known model families, and conversations."""

_LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set system_message = '<<SYS>>\\n' + messages[0]['content'] | trim + '\\n<</SYS>>\\n\\n' %}{% set loop_messages = messages[1:] %}{% else %}{% set system_message = '' %}{% set loop_messages = messages %}{% endif %}
{%- for m in loop_messages %}
    {%- if (m.role == 'user') != (loop.index0 is even) %}
        {{- raise_exception('Roles must alternate: user, assistant, user, ...') }}
    {%- endif %}
    {%- if m.role == 'user' %}
        {{- bos_token ~ '[INST] ' ~ (system_message if loop.first else '') ~ (m.content | trim) ~ ' [/INST]' }}
    {%- elif m.role == 'assistant' %}
        {{- ' ' ~ (m.content | trim) ~ ' ' ~ eos_token }}
    {%- endif %}
{%- endfor %}"""

_LLAMA3 = """{{- bos_token }}
{%- if tools is not none and tools %}
    {{- '<|start|>system<|sep|>\\n\\nYou may call these functions:\\n\\n' }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- '\\n\\n' }}
    {%- endfor %}
    {{- '<|end|>' }}
{%- endif %}
{%- set offset = 1 if messages[0]['role'] == 'system' else 0 %}
{%- for message in messages %}
    {%- if 'tool_calls' in message and message.tool_calls %}
        {%- if not message.tool_calls | length == 1 %}
            {{- raise_exception('only single tool-calls at once') }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start|>assistant<|sep|>\\n\\n{"name": "' + call.name + '", "parameters": ' + (call.arguments | tojson) + '}<|end|>' }}
    {%- elif message.role in ['tool', 'ipython'] %}
        {{- '<|start|>ipython<|sep|>\\n\\n' }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- '<|end|>' }}
    {%- else %}
        {{- '<|start|>' + message['role'] + '<|sep|>\\n\\n' + (message['content'] if message['content'] is string else message['content'] | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('\\n')) | trim + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant<|sep|>\\n\\n' }}
{%- endif %}
"""

_CHATML = """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step=true, last=messages | length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string and not (message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or reasoning) %}
            {{- '<|im_start|>assistant\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>assistant\\n' + content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- if (loop.first and content) or not loop.first %}{{- '\\n' }}{%- endif %}
            {%- if call.function %}{%- set call = call.function %}{%- endif %}
            {{- '<tool_call>\\n{"name": "' }}{{- call.name }}{{- '", "arguments": ' }}
            {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

_MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if message.role not in ["tool", "tool_results"] and not message.get("tool_calls") %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("conversation roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}{%- else %}{{- '"' + key + '": ' + val | tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}{{- ", " if not loop.last else "]" }}
            {%- endfor %}
            {{- "[/TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for call in message.tool_calls %}
            {%- set out = call.function | tojson %}
            {{- out[:-1] }}
            {%- if not call.id is defined or call.id | length != 9 %}{{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}{%- endif %}
            {{- ', "id": "' + call.id + '"}' }}{{- ", " if not loop.last else "]" + eos_token }}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"] | trim + eos_token }}
    {%- elif message["role"] in ["tool_results", "tool"] %}
        {%- set content = message.content.content if message.content is mapping and message.content.content is defined else message.content %}
        {{- '[TOOL_RESULTS] {"content": ' + content | string + "}[/TOOL_RESULTS]" }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, not " + message.role) }}
    {%- endif %}
{%- endfor %}
"""

_ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}
"""

_GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<turn>' + role + '\\n' + message['content'] | trim + '<end>\\n' }}{% endfor %}{% if add_generation_prompt %}{{'<turn>model\\n'}}{% endif %}"""

_SCHEMA = """{%- macro type_of(spec) -%}
    {%- if spec.type == 'array' %}{{ type_of(spec['items']) }}[]
    {%- elif spec.type is sequence and spec.type is not string %}{{ spec.type | join(' | ') }}
    {%- elif spec.enum is defined %}{% for v in spec.enum %}{{ v | tojson }}{% if not loop.last %} | {% endif %}{% endfor %}
    {%- elif spec.type == 'object' and spec.properties %}{ {% for k, v in spec.properties.items() %}{{ k }}{{ '' if k in (spec.required or []) else '?' }}: {{ type_of(v) }}{{ '' if loop.last else ', ' }}{% endfor %} }
    {%- else %}{{ spec.type | default('any') }}
    {%- endif %}
{%- endmacro -%}
{%- macro block(name, title='') %}<{{ name }}{% if title %} title="{{ title | e }}"{% endif %}>
{{ caller() | indent(2, true) }}
</{{ name }}>
{% endmacro -%}
{% for tool in tools or [] %}{% set f = tool.function %}
{% call block('tool', f.name) %}{{ f.description | default('no description', true) | capitalize }}
{{ type_of(f.parameters) }}{% endcall %}
{% else %}
no tools
{% endfor %}
{% for role, group in {'system': messages | selectattr('role', '==', 'system') | list, 'rest': messages | rejectattr('role', 'eq', 'system') | list}.items() %}
{{ role | upper }}: {{ group | length }} {{ group | map(attribute='role') | unique | sort | join('+') }}
{% endfor %}
{% set ns = namespace(n=0) %}
{% for m in messages if m.content is string and m.content %}
{% set ns.n = ns.n + m.content | wordcount %}
{{ '%02d' % loop.index }} {{ m.role.title() }}: {{ m.content | replace('\\n', ' ') | truncate(30) }}
{% endfor %}
words {{ ns.n }}{{ ' (prompt)' if add_generation_prompt }}
"""

TEMPLATES = {"llama2": _LLAMA2, "llama3": _LLAMA3, "chatml": _CHATML, "mistral": _MISTRAL, "zephyr": _ZEPHYR, "gemma": _GEMMA, "schema": _SCHEMA}

_TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "the weather in a <city>", "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Größe"}, "unit": {"type": "string", "enum": ["c", "f"]}, "days": {"type": ["integer", "null"]}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"numbers": {"type": "array", "items": {"type": "number"}}, "deep": {"type": "object", "properties": {"x": {"type": "boolean"}}}}}}},
]

CONVERSATIONS = [
    {"messages": [{"role": "user", "content": "Hello"}], "tools": None},
    {"messages": [{"role": "system", "content": "  You are kind.\n"}, {"role": "user", "content": "Hi\nthere  "}], "tools": None},
    {"messages": [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": " 2 "}, {"role": "user", "content": "Größe 日本 😀"}], "tools": None},
    {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], "tools": None},
    {"messages": [{"role": "user", "content": "weather?"}], "tools": _TOOLS},
    {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "weather in Köln?"}, {"role": "assistant", "content": None, "tool_calls": [{"id": "abcdef123", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln", "unit": "c", "days": 1.5}}}]}, {"role": "tool", "name": "get_weather", "content": "{\"t\": 20}"}, {"role": "assistant", "content": "20 °C"}, {"role": "user", "content": "thanks"}], "tools": _TOOLS},
    {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "add", "arguments": "{\"numbers\": [1]}"}}, {"id": "2", "function": {"name": "add", "arguments": {}}}]}, {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}], "tools": []},
    {"messages": [{"role": "user", "content": "think"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nanswer"}, {"role": "user", "content": "more"}, {"role": "assistant", "reasoning": "why", "content": "done"}], "tools": None},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "part one"}, {"type": "image"}, {"type": "text", "text": "part two"}]}], "tools": None},
    {"messages": [], "tools": None},
    {"messages": [{"role": "tool", "content": {"content": {"a": [1, None, True]}}}], "tools": None},
    {"messages": [{"role": "narrator", "content": "<|im_end|>{{ 1 }}{% x %}"}], "tools": None},
]
