"""More whole templates for text_chat_goldens.py, in our own words but with the structure that model families use."""

# Llama 3.1: tools, a date, a builtin environment, tool calls as JSON, one call at most.
_LLAMA31 = r"""{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined and use_clock is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{#- the system message comes out first -#}
{%- if messages and messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start|>system<|end|>\n\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code') | join(", ") + "\n\n" }}
{%- endif %}
{{- "Today: " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\n\n" }}{%- endfor %}
{%- endif %}
{{- system_message }}{{- "<|eot|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first = messages[0]['content'] | trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("No first user message to put the tools into.") }}
    {%- endif %}
    {{- '<|start|>user<|end|>\n\nFunctions:\n\n' }}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\n\n" }}{%- endfor %}
    {{- first + "<|eot|>" }}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start|>' + message['role'] + '<|end|>\n\n' + message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}
            {{- raise_exception("One call at a time!") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {%- if builtin_tools is defined and call.name in builtin_tools %}
            {{- "<|python|>" + call.name + ".call(" }}
            {%- for name, value in call.arguments | items %}
                {{- name + '="' + value + '"' }}{%- if not loop.last %}{{- ", " }}{%- endif %}
            {%- endfor %}
            {{- ")" }}
        {%- else %}
            {{- '{"name": "' + call.name + '", ' }}{{- '"parameters": ' }}{{- call.arguments | tojson }}{{- "}" }}
        {%- endif %}
        {{- "<|eot|>" if builtin_tools is not defined else "<|eom|>" }}
    {%- else %}
        {{- "<|start|>ipython<|end|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}
        {%- else %}{{- message.content }}{%- endif %}
        {{- "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant<|end|>\n\n' }}{%- endif %}
"""

# Mistral with tekken: alternation checked over a filtered loop, tools before the last user message, ids of nine letters.
_MISTRAL_TOOLS = r"""{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}{%- set loop_messages = messages[1:] %}
{%- else %}{%- set loop_messages = messages %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[TOOLS][" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}
                    {%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}{%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}{{- "[INST]" + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST]" + message["content"] + "[/INST]" }}{%- endif %}
    {%- elif (message.tool_calls is defined and message.tool_calls is not none) %}
        {{- "[CALLS][" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call IDs should be 9 letters long!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}{{- message["content"] + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}{%- set content = message.content.content %}
        {%- else %}{%- set content = message.content %}{%- endif %}
        {{- '[RESULTS]{"content": ' + content|string + ", " }}
        {{- '"id": "' + message.tool_call_id + '"}[/RESULTS]' }}
    {%- else %}{{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
"""

# Qwen 3: walks the messages backwards to the last question, splits thinking off, groups tool answers.
_QWEN3 = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {{- "# Tools\n\n<tools>" }}
    {%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\n</tools>\n\n{\"name\": <name>, \"arguments\": <args>}<|im_end|>\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}{%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
            {%- else %}{{- '<|im_start|>' + message.role + '\n' + content }}{%- endif %}
        {%- else %}{{- '<|im_start|>' + message.role + '\n' + content }}{%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<tool_call>\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
                {{- '}\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' }}{{- content }}{{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %}
"""

# gpt-oss and Hermes: macros that print JSON schemas as types, one calling the other and itself.
_TYPES = r"""{%- macro render_type(spec, required=[], nullable=false) -%}
    {%- if spec.type == "array" -%}
        {%- if spec['items'] -%}{{- render_type(spec['items'], required) + "[]" -}}{%- else -%}any[]{%- endif -%}
        {%- if spec.nullable -%} | null{%- endif -%}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string and spec.type is not mapping -%}
        {%- if spec.type | length > 1 -%}{{- spec.type | join(" | ") }}{%- else -%}{{- spec.type[0] -}}{%- endif -%}
    {%- elif spec.oneOf -%}
        {%- for variant in spec.oneOf -%}{{- render_type(variant, required) -}}{%- if variant.description %}{{- "// " + variant.description }}{%- endif -%}{%- if not loop.last %}{{- " | " }}{% endif -%}{%- endfor -%}
    {%- elif spec.type == "string" -%}
        {%- if spec.enum -%}{{- '"' + spec.enum|join('" | "') + '"' -}}{%- else -%}string{%- endif %}
    {%- elif spec.type == "number" or spec.type == "integer" -%}number
    {%- elif spec.type == "boolean" -%}boolean
    {%- elif spec.type == "object" -%}
        {%- if spec.properties -%}{{- "{\n" }}
            {%- for name, value in spec.properties.items() -%}
                {{- name -}}{%- if name not in (spec.required or []) -%}?{%- endif -%}{{- ": " }}{{ render_type(value, spec.required or []) }}
                {%- if not loop.last -%}, {% endif -%}
            {%- endfor -%}{{- "}" }}
        {%- else -%}object{%- endif -%}
    {%- else -%}any{%- endif -%}
{%- endmacro -%}
{%- macro render_tools(namespace_name, tools) -%}
    {{- "## " + namespace_name + "\n\n" }}
    {%- for tool in tools %}
        {%- set tool = tool.function %}
        {{- "// " + (tool.description or 'nothing is said') + "\n" }}{{- "type " + tool.name + " = " }}
        {%- if tool.parameters and tool.parameters.properties %}{{- "(_: " + render_type(tool.parameters) + ") => any;\n\n" }}
        {%- else %}{{- "() => any;\n\n" }}{%- endif %}
    {%- endfor %}
{%- endmacro -%}
{%- macro frame(role, channel=none) -%}{{- "<|start|>" ~ role }}{%- if channel is not none %}{{- "<|channel|>" ~ channel }}{%- endif %}{{- "<|message|>" ~ caller() ~ "<|end|>" }}{%- endmacro -%}
{%- call frame("system") %}Reasoning: {{ reasoning_effort | default("medium", true) }}
{%- if tools %}{{ "\n\n" }}{{ render_tools("functions", tools) }}{% endif %}{% endcall -%}
{%- set last = namespace(call=none) -%}
{%- for message in messages -%}
    {%- if message.role == 'assistant' -%}
        {%- if message.thinking is defined and message.thinking -%}{%- call frame("assistant", "analysis") %}{{ message.thinking }}{% endcall -%}{%- endif -%}
        {%- if message.tool_calls -%}
            {%- set last.call = message.tool_calls[0].function -%}
            {%- call frame("assistant to=functions." ~ last.call.name, channel="commentary") %}{{ last.call.arguments if last.call.arguments is string else last.call.arguments | tojson }}{% endcall -%}
        {%- elif loop.last and not add_generation_prompt -%}{{- "<|start|>assistant<|channel|>final<|message|>" + (message.content or '') + "<|return|>" }}
        {%- else -%}{%- call frame("assistant", "final") %}{{ message.content }}{% endcall -%}{%- endif -%}
    {%- elif message.role == 'tool' -%}
        {%- if last.call is none %}{{- raise_exception("Message has tool role, but there was no previous assistant message with a tool call!") }}{%- endif %}
        {%- call frame("functions." + last.call.name + " to=assistant", "commentary") %}{{ message.content | tojson }}{% endcall -%}
    {%- else -%}{%- call frame(message.role) %}{{ message.content }}{% endcall -%}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}
"""

# DeepSeek: state in one namespace, outputs of tools between messages; Phi and SmolLM: one line each, a slice, a test.
_DEEPSEEK = r"""{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<|User|>' ~ message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is none %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls']%}{%- if not ns.is_first %}{{'<|Assistant|><|calls|><|call|>' + (tool['type'] | default('function')) + '<|sep|>' + tool['function']['name'] + '\n' + '```json' + '\n' + (tool['function']['arguments'] | tojson) + '\n' + '```' + '<|call_end|>'}}{%- set ns.is_first = true -%}{%- else %}{{'\n' + '<|call|>' + tool['function']['name']}}{{'<|calls_end|>'}}{%- endif %}{%- endfor %}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none %}{%- if ns.is_tool %}{{'<|outputs_end|>' + message['content'] + eos_token}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<|Assistant|>' + content + eos_token}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{'<|outputs|><|output|>' ~ message['content'] ~ '<|output_end|>'}}{%- set ns.is_output_first = false %}{%- else %}{{'\n<|output|>' ~ message['content'] ~ '<|output_end|>'}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<|outputs_end|>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<|Assistant|><think>\n'}}{% endif %}"""

_PHI = """{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' + '<|end|>' }}{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}"""

# Command-R: documents and tools in long filter chains; Granite: a documents loop; SmolLM 3: a switch in the system text.
_COMMAND = r"""{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = 'You are a model.\n' %}{% endif %}
{%- set switch = namespace(thinking='/think') -%}
{%- if '/no_think' in system_message %}{% set switch.thinking = '/no_think' %}{% set system_message = system_message.replace('/no_think', '').rstrip() %}{% endif -%}
{{ '<|turn|>' ~ system_message ~ ' ' ~ switch.thinking }}
{%- if documents %}{{ '\n## Documents' }}{% for document in documents %}{{ '\n\nDocument: ' }}{{ loop.index0 }}
{% for key, value in document.items() %}{{ key }}: {{ value | string | indent(2) }}
{% endfor %}{%- endfor %}{% endif %}
{%- for tool in tools or [] %}{{ '\n```python\ndef ' + tool.function.name + '(' -}}{% set parameters = tool.function.parameters.get('properties', {}) %}{%- for param, fields in parameters.items() %}{{ param }}: {% if param not in tool.function.parameters.get('required', []) %}{{ 'Optional[' + fields.type | string | lower + '] = None' }}{% else %}{{ fields.type }}{% endif %}{{ ', ' if not loop.last }}{%- endfor %}{{ '):\n    #' }}{{ tool.function.description | default('none', true) | wordcount }}{{ '#\n```' }}{% endfor %}
{%- for message in loop_messages %}
{% if (message['role'] == 'user') %}{{ '<|turn|><|user|>' + (message['content'] if message['content'] is string else message['content'] | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('\n')).strip() + '<|end|>' }}
{%- elif message['role'] in ['assistant', 'tool'] %}{{ '<|turn|><|' ~ message['role'] ~ '|>' ~ (message['content'] or '') | string | trim ~ '<|end|>' }}
{%- else %}{{ raise_exception('Unknown role: ' ~ message['role']) }}{% endif %}
{%- endfor %}{% if add_generation_prompt %}{{ '<|turn|><|bot|>' }}{% if switch.thinking == '/no_think' %}<think>

</think>{% endif %}{% endif %}"""

_VICUNA = """{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] | trim + '\n\n' %}{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}{{ bos_token + system }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}{{ 'USER: ' + message['content'] | trim + '\n' }}{% elif message['role'] == 'assistant' %}{% generation %}{{ 'ASSISTANT: ' + message['content'] | trim + eos_token + '\n' }}{% endgeneration %}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"""

FAMILIES = {"llama31": _LLAMA31, "mistral_tools": _MISTRAL_TOOLS, "qwen3": _QWEN3, "types": _TYPES, "deepseek": _DEEPSEEK,
            "phi": _PHI, "command": _COMMAND, "vicuna": _VICUNA}

# Templates for which a random comparison with Jinja found differences, and similar ones.
MORE_SNIPPETS = [
    "{% for x in [[1, [2]], [3]] recursive %}[{{ loop.depth }}{{ loop.index }}{% if x is iterable %}{{ loop(x) }}{% else %}{{ x }}{% endif %}]{% endfor %}",
    "{% for x in l recursive %}{{ x }}{% else %}none{{ loop is defined }}{% endfor %}", "{% for x in l %}{{ loop(l) }}{% endfor %}",
    "{% for x in [1, 2, 3] if x > 1 recursive %}{{ x }}{% if loop.depth0 < 1 %}({{ loop([0, 5]) }}){% endif %}{% endfor %}",
    "{% for x in nested.values() recursive %}{{ x | tojson }}{% if x is mapping %}{{ loop(x.values()) }}{% endif %}{% endfor %}",
    "{% for k, group in people | groupby('age') %}{{ k }}:{{ group | map(attribute='name') | join('+') }} {% endfor %}",
    "{% for g in names | map('upper') | map('list') | groupby(0) %}{{ g.grouper }}{{ g.list | length }} {% endfor %}",
    "{{ people | groupby('tags', default='z') }}", "{{ [{'n': 'b'}, {'n': 'B'}, {'n': 'a'}] | groupby('n') }}", "{{ [{'n': 'b'}, {'n': 'B'}] | groupby('n', case_sensitive=true) }}",
    "{{ people | sort(attribute='age,name') | map(attribute='name') | list }}", "{{ people | sort(attribute='tags') | length }}", "{{ names | sort(case_sensitive=true) }}",
    "{{ range(7) | slice(3) | list }}", "{{ range(7) | slice(3, 'x') | list }}", "{{ [] | slice(2) | list }}", "{{ s | slice(2) | list }}",
    "{{ u | urlencode }}", "{{ {'a b': 'c/d', 'e': 1} | urlencode }}", "{{ [['k', 'v w']] | urlencode }}", "{{ 'a/b?c=d e' | urlencode }}", "{{ 5 | urlencode }}",
    "{{ {'class': 'x', 'id': none, 'q': html} | xmlattr }}|{{ {} | xmlattr }}|{{ {'a': 1} | xmlattr(false) }}", "{{ {'a b': 1} | xmlattr }}", "{{ html | forceescape }}",
    "{% set j = joiner(', ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}", "{{ cycler() }}",
    "{% for x in [[1], [1], [2]] %}{{ loop.changed(x) }} {% endfor %}", "{% set x = n %}{{ x[1:] }}", "{% set x = 5 %}{{ x[:2] }}", "{{ d[:1] if true }}", "{{ a | truncate(3) }}",
    "{% macro m(a, b=1) %}{% endmacro %}{{ m.arguments }}{{ m.name }}", "{{ n | map('upper') | list }}", "{{ false | select | list }}", "{{ 5 | map('upper') | list }}", "{{ missing | map('upper') | list }}",
    "{{ 'a\\tb\\t' .expandtabs(4) }}|", "{{ 'Hello World'.istitle() }}{{ 'hello'.istitle() }}{{ ''.istitle() }}{{ 'A1B'.istitle() }}{{ 'AB'.istitle() }}", "{{ 'é'.isascii() }}{{ 'e'.isascii() }}{{ ''.isascii() }}",
]
