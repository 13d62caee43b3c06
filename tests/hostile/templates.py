"""Templates in requests: values captured in every way, endless work, expensive operations."""

import re

import wire
from stage import scenario, timed_out

TRUSTING = ("--trust_request_templates",)
CHAT = "/v1/chat/completions"
ENDED = {200, 400}


def chat(template, **fields):
    return {"model": "base", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "chat_template": template,
            **fields}


def ask_all(address, labelled):
    """Sends each (label, body) as a chat request, one after another."""
    answers = []
    for label, body in labelled:
        answers.append(wire.ask(address, CHAT, body, label, timeout=30))
        if str(answers[-1].status).startswith("ConnectionRefused"):
            break  # the server has ended
    return answers


# --- captured values ---------------------------------------------------------------------------------------------

# Ways to keep a reference to the value v: an expression, or statements that set ns.x.
CAPTURES = {
    "cycler": "{% set ns.x = cycler(v) %}",
    "cycler.next": "{% set ns.x = cycler(v).next %}",
    "cycler.reset": "{% set ns.x = cycler(v, 1).reset %}",
    "joiner": "{% set ns.x = joiner(v) %}",
    "list": "{% set ns.x = [v] %}",
    "tuple": "{% set ns.x = (v, v) %}",
    "dict": "{% set ns.x = {'k': v} %}",
    "dict()": "{% set ns.x = dict(k=v) %}",
    "namespace": "{% set ns.x = namespace(k=v) %}",
    "bound list method": "{% set ns.x = [v].append %}",
    "bound dict method": "{% set ns.x = {'k': v}.items %}",
    "dict items": "{% set ns.x = {'k': v}.items()|list %}",
    "filter": "{% set ns.x = [v]|map('list')|list %}",
    "lazy filter": "{% set ns.x = [v]|select %}",
    "batch": "{% set ns.x = [v]|batch(1)|list %}",
    "default": "{% set ns.x = [v]|first|default(v) %}",
    "sum": "{% set ns.x = [[v]]|sum(start=[]) %}",
    "slice": "{% set ns.x = [v, v][:1] %}",
    "concatenation": "{% set ns.x = [v] + [v] %}",
    "macro": "{% set w = v %}{% macro m() %}{{ w }}{% endmacro %}{% set ns.x = m %}",
    "macro default": "{% macro m(a=v) %}{{ a }}{% endmacro %}{% set ns.x = m %}",
    "varargs": "{% macro m() %}{% set ns.x = varargs %}{% endmacro %}{{ m(v) }}",
    "kwargs": "{% macro m() %}{% set ns.x = kwargs %}{% endmacro %}{{ m(k=v) }}",
    "caller": "{% set w = v %}{% macro m() %}{% set ns.x = caller %}{% endmacro %}{% call m() %}{{ w }}{% endcall %}",
    "loop": "{% for w in [v] %}{% set ns.x = loop %}{% endfor %}",
    "loop.cycle": "{% for w in [v] %}{% set ns.x = loop.cycle(v, v) %}{% endfor %}",
    "set block": "{% set w %}{{ v is defined }}{% endset %}{% set ns.x = [w, v] %}",
    "through a cycler's list": "{% set ns.x = cycler([v]).next %}",
}
ENDINGS = ["done", "{{ ns.x }}", "{{ ns.x|string|length }}", "{{ ns.x == ns.x }}{{ [ns.x] == [ns.x] }}", "{{ ns.x|tojson }}",
           "{{ ns.x() }}", "{% for y in ns.x %}{{ y }}{% endfor %}", "{{ [ns.x, ns.x]|sort }}{{ [ns.x]|unique|list }}"]
SIZES = [(20, 1), (300, 15), (1300, 135), (6000, 3), (20000, 1)]


def capture_template(capture, count, brackets, ending):
    """Nests `count` captures in one another, each within `brackets` lists."""
    nested, left, current = "", brackets, "ns.x"
    while left > 0:
        step = min(left, 15)
        nested += f"{{% set v = {'[' * step}{current}{']' * step} %}}"
        current, left = "v", left - step
    return ("{% set ns = namespace(x=0) %}{% for i in range(" + str(count) + ") %}" + nested + capture + "{% endfor %}"
            + ending)


@scenario("template-captures", flags=TRUSTING, quick=True)
def template_captures(stage):
    requests = []
    for index, (name, capture) in enumerate(CAPTURES.items()):
        for number, (count, brackets) in enumerate(SIZES):
            # Each capture runs with each ending at some size, and with plain freeing at every size.
            for ending in {"done", ENDINGS[(index + number) % len(ENDINGS)]}:
                requests.append((f"{name} {count}x{brackets} {ending[:20]}",
                                 chat(capture_template(capture, count, brackets, ending))))
    stage.check_answers(stage.attack(ask_all, requests), ENDED, within=10)


@scenario("template-recursion", flags=TRUSTING)
def template_recursion(stage):
    """Deep nesting of template text and calls, not of values."""
    requests = []
    for depth in (10, 100, 1000, 10000):
        for name, template in {
            "brackets": "{{ " + "[" * depth + "]" * depth + " }}",
            "parentheses": "{{ " + "(" * depth + "1" + ")" * depth + " }}",
            "not": "{{ " + "not " * depth + "1 }}",
            "minus": "{{ " + "-" * depth + "1 }}",
            "if": "{% if 1 %}" * depth + "{% endif %}" * depth,
            "for": "{% for i in [1] %}" * depth + "{% endfor %}" * depth,
            "filters": "{{ 1" + "|string" * depth + " }}",
            "attributes": "{{ x" + ".a" * depth + " }}",
            "concatenation": "{{ 1" + " ~ 1" * depth + " }}",
            "conditional": "{{ 1" + " if 1 else 1" * depth + " }}",
            "powers": "{{ 1" + " ** 1" * depth + " }}",
            "self-call": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(" + str(depth) + ") }}",
            "caller chain": "{% macro f(n) %}{% if n %}{% call f(n - 1) %}{{ caller() }}{% endcall %}{% endif %}"
                            "{% endmacro %}{% call f(" + str(depth) + ") %}x{% endcall %}",
            "recursive loop": "{% for x in [" + str(depth) + "] recursive %}{% if x %}{{ loop([x - 1]) }}{% endif %}"
                              "{% endfor %}",
        }.items():
            requests.append((f"{name} {depth}", chat(template)))
    # Deep values in the request itself.
    for depth in (10, 31, 100):
        nested = 1
        for _ in range(depth):
            nested = {"a": [nested]}
        requests.append((f"kwargs {depth}", chat("{{ deep|tojson }}{{ deep == deep }}{{ deep }}",
                                                 chat_template_kwargs={"deep": nested})))
    stage.check_answers(stage.attack(ask_all, requests), ENDED, within=10)


# --- work -----------------------------------------------------------------------------------------------------------

# Names that operations use. Each template sets only those it needs, because the total size of values is limited too.
SETTINGS = {
    "a": "{% set a = 'a' * SIZE %}", "b": "{% set b = 'a' * (SIZE // 2) ~ 'b' %}", "c": "{% set c = 'b' ~ 'a' * (SIZE // 2) %}",
    "l": "{% set l = range(SIZE // 100)|list %}", "m": "{% set m = range(SIZE // 100)|map('string')|list %}",
    "t": "{% set t = ['a' * SIZE, 'a' * SIZE ~ 'b', 'a' * SIZE] %}",
}
OPERATIONS = {
    "partition": "a.partition(b)", "rpartition": "a.rpartition(c)", "find": "a.find(b)", "rfind": "a.rfind(c)",
    "count": "a.count(b)", "in": "b in a", "split": "a.split(b)", "split letters": "a.split('a')",
    "rsplit": "a.rsplit(c)", "splitlines": "a.splitlines()", "replace": "a.replace(b, '')",
    "replace growing": "a.replace('a', 'bb')", "replace filter": "a|replace('a', 'b')", "strip": "a.strip('xyzb' * 9999)",
    "upper": "a.upper()", "title": "a.title()", "capitalize": "a|capitalize", "is lower": "a is lower",
    "isalpha": "a.isalpha()", "startswith": "a.startswith(a)", "equal": "a == 'a' * 1500000", "less": "a < a ~ 'b'",
    "concatenation": "a ~ b", "repeat": "b * 3", "join": "''.join(t)", "join filter": "m|join(a)", "slice": "a[::2]",
    "reverse": "a[::-1]", "list of letters": "a|list", "length": "a|length", "sort": "m|sort", "sort texts": "t|sort",
    "unique": "m|unique|list", "max": "t|max", "list.count": "[l, l].count(m)", "list equal": "l == m",
    "index": "m.index('89999')", "groupby": "[{'k': a}] * 9|groupby('k')", "tojson": "t|tojson", "format": "'%s' % a",
    "format method": "'{}'.format(a)", "int": "('9' * 100000)|int", "power": "9 ** 99999", "dict key": "{a: 1}[a]",
    "escape": "a|escape", "indent": "a|indent", "wordcount": "a|wordcount", "trim": "(' ' * 1000000)|trim",
    "center": "a|center(9999999)", "urlencode": "a|urlencode", "xmlattr": "{'k': a}|xmlattr", "truncate": "a|truncate(9)",
    "select": "m|select('equalto', a)|list", "map": "t|map('upper')|list", "batch": "l|batch(2)|list",
    "range": "range(999999999)|list", "zfill": "'1'.zfill(9999999)", "items": "dict(k=t).items()|list",
}


def work_template(operation, times, size=1_500_000):
    """Runs the operation times * times times, by two nested loops."""
    used = set(re.findall(r"\b[abclmt]\b", re.sub(r"'[^']*'", "", operation)))
    settings = "".join(SETTINGS[name] for name in sorted(used)).replace("SIZE", str(size))
    loops = f"{{% for i in range({times}) %}}{{% for j in range({times}) %}}"
    return settings + loops + f"{{% if {operation} %}}" + "{% endif %}{% endfor %}{% endfor %}"


def endless_requests():
    """Each operation in an endless loop, on texts of one of three sizes."""
    sizes = (1_500_000, 300_000, 20_000)
    return [(f"{name} of {sizes[index % 3]}", chat(work_template(operation, 30000, sizes[index % 3])))
            for index, (name, operation) in enumerate(OPERATIONS.items())]


def leave_all(address, bodies):
    """Sends each request and disconnects at once."""
    for body in bodies:
        wire.send_and_leave(address, wire.request_bytes(CHAT, body))


@scenario("template-work", flags=TRUSTING, quick=True)
def template_work(stage):
    """A few hundred bytes ask for hours of work: a waiting client gets a 400, a client that disconnects costs nothing
    more.
    """
    endless = endless_requests()
    stage.attack(leave_all, [body for _, body in endless[:24]])
    stage.linger(2)
    # Two clients at once.
    for answers in stage.attack_all([(ask_all, endless[0::2]), (ask_all, endless[1::2])]):
        stage.check_answers(answers, {400}, within=10)


@scenario("template-operations", flags=TRUSTING)
def template_operations(stage):
    """Each operation a few times on long texts is answered or refused, quickly in both cases."""
    labelled = [(f"{name} x{times * times} of {size}", chat(work_template(operation, times, size)))
                for name, operation in OPERATIONS.items() for times in (1, 3) for size in (1_500_000, 300_000)]
    stage.check_answers(stage.attack(ask_all, labelled), ENDED, within=5)


@scenario("template-growth", flags=TRUSTING)
def template_growth(stage):
    """A few bytes ask for much memory: texts and lists that double, with many alive at once."""
    templates = {
        "doubling": "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "output": "{% for i in range(10**9) %}{{ 'a' * 1000 }}{% endfor %}",
        "list of texts": "{% set n = namespace(x=[]) %}{% for i in range(10**9) %}{% set n.x = n.x + ['a' * 10000 ~ i] %}"
                         "{% endfor %}",
        "list doubling": "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "repeat": "{{ 'a' * 10**12 }}", "list repeat": "{{ [1] * 10**12 }}", "range": "{{ range(10**12)|list }}",
        "join": "{{ (['a'] * 99999)|join('b' * 999999) }}", "replace": "{{ ('a' * 999999)|replace('', 'b' * 999999) }}",
        "indent": "{{ ('\n' * 99999)|indent(99999) }}", "center": "{{ 'a'|center(10**12) }}",
        "format": "{{ '%999999999d' % 1 }}", "tojson indent": "{{ ([[1]] * 9999)|tojson(indent=999999) }}",
        "macros": "{% macro f(x) %}{{ x ~ x }}{% endmacro %}{{ f(f(f(f(f(f(f('a' * 99999))))))) }}",
        "shared lists": "{% set n = namespace(x=[1]) %}{% for i in range(999) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
                        "{{ n.x|tojson }}",
        "dicts": "{% set n = namespace(x={}) %}{% for i in range(10**7) %}{% set n.x = dict(n.x, **{i|string: i}) %}"
                 "{% endfor %}",
    }
    for round_ in range(3):
        answers = stage.attack_all([(ask_all, [(f"{name} {round_}", chat(template)) for name, template in part])
                                    for part in (list(templates.items())[0::2], list(templates.items())[1::2])])
        for part in answers:
            stage.check_answers(part, ENDED, within=10)


@scenario("template-work-at-sigterm", flags=TRUSTING, ends_server=True)
def template_work_at_sigterm(stage):
    """SIGTERM ends the server within the drain time while endless templates hold every intake thread."""
    endless = endless_requests()
    stage.attack(leave_all, [body for _, body in endless[:32]])
    with stage.during([(ask_all, endless[0::2]), (ask_all, endless[1::2])], begun_s=2.0):
        code, seconds = stage.server.end()
    stage.check_time(code == 0, f"SIGTERM beside endless templates: status {code} after {seconds:.1f} s")
    stage.check(code in (0, None), f"SIGTERM beside endless templates: status {code}")


@scenario("template-refused", quick=True)
def template_refused(stage):
    """Without --trust_request_templates every template in a request gets a 403."""
    bodies = [("plain", chat("{{ messages[0].content }}")), ("empty", chat("")), ("no text", chat(7)),
              ("endless", chat(work_template("a.partition(b)", 30000))), ("large", chat("x" * 4_000_000))]
    bodies += [(f"captures {name}", chat(capture_template(capture, 1300, 135, "done"))) for name, capture in CAPTURES.items()]
    answers = stage.attack(ask_all, bodies)
    stage.check_answers(answers, {400, 403}, within=5)
    for answer in answers or []:
        if timed_out(answer.status):
            continue  # check_answers() says that it was late
        named = answer.status == 403 and "--trust_request_templates" in answer.body
        stage.check(named or answer.label == "no text", f"{answer.label}: the flag is not named: {answer.status} {answer.body}")
    plain = stage.attack(ask_all, [("none", {**chat("x"), "chat_template": None})])
    stage.check_answers(plain, {200})
