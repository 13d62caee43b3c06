"""Small templates for text_chat_goldens.py: every part of the language, and ways to use it wrongly."""

CONTEXT = {
    "a": 7, "b": -3, "f": 2.5, "s": "Hello World", "t": True, "n": None, "empty": "", "u": "Größe 日本 😀", "l": [3, 1, 2], "e": [],
    "d": {"x": 1, "y": [1, 2], "Z": None, "items": "own"}, "names": ["bob", "Alice", "carol", "alice"],
    "people": [{"name": "Bo", "age": 30, "tags": ["x"]}, {"name": "Al", "age": 25, "tags": []}, {"name": "Cy", "age": 30}],
    "html": "<a href=\"x\">'&'</a>", "lines": "one\ntwo\n\nthree", "big": 9007199254740993, "quote": "it's \"q\"",
    "nested": {"a": {"b": [{"c": "deep"}]}},
}

_EXPRESSIONS = """
1 + 2 * 3
(1 + 2) * 3
7 // 2
-7 // 2
7 // -2
7 % 3
-7 % 3
7 % -3
7 / 2
6 / 2
2 ** 10
2 ** -1
-2 ** 2
2 ** 3 ** 2
1 / 0
7.5 // 2
-7.5 % 2
7.0
1e3
1e16
1e-5
123456789.123
0.1 + 0.2
1_000
0x1f
0b101
3.0 * 2
a + b
a * 'ab'
'ab' * 3
'ab' * -1
[1, 2] * 2
[1] + [2, 3]
(1, 2) + (3,)
'a' + 'b'
'a' + 1
1 + 'a'
'a' ~ 1 ~ None ~ True ~ 1.0
-a
+a
-'x'
not a
not empty
a and b
empty or 'x'
n or 0
a > 3 and b < 0
1 < 2 < 3
1 < 3 < 2
1 == 1.0
1 == True
'1' == 1
[1, 2] == [1, 2]
(1, 2) == [1, 2]
{'a': 1} == {'a': 1.0}
1 != 2
'a' < 'b'
'a' < 1
[1, 2] < [1, 3]
1 in [1, 2]
'ell' in s
4 not in l
'x' in d
1 in 'a1'
'a' in missing
n in l
true
none
True and False
'x' if a else 'y'
'x' if empty else 'y'
'x' if empty
('x' if empty) is defined
missing
missing.attr
missing['x']
missing is defined
missing is undefined
missing == missing
missing + 1
missing()
missing | length
missing | default('z')
missing | upper
missing ~ 'x'
not missing
s.missing
s.missing.more
d.x
d['x']
d.missing
d.missing.more
d['missing']
d.items
d['items']
d.items()
d.keys() | list
d.values() | list
d.get('x')
d.get('q')
d.get('q', 5)
d.pop('x')
d.update({'q': 1})
l.append(4)
l[0]
l[-1]
l[5]
l[5].x
l.0
l[1:]
l[:-1]
l[::-1]
l[::2]
l[5:]
l[-2:]
l[1:2]
s[0]
s[-1]
s[1:4]
s[::-1]
u[1:8]
u | length
u[6]
(1, 2, 3)[1:]
range(5)[1:3]
l['x']
n.x
n['x']
a.x
s.__class__
s.__class__.__mro__
''.__class__
d.__class__
nested.a.b[0].c
nested['a']['b'][0]['c']
[1, 'a', None, True, 1.5]
[]
()
(1,)
(1, 2)
{}
{'a': 1, 'b': [1, 2]}
{1: 2, 'x': {'y': none}}
['it\\'s', "say \\"x\\"", 'both \\' "']
['\\n\\t\\\\', 'é', '\\x00', '\\u200b']
'\\n' ~ '\\t' ~ '\\x41' ~ '\\u00e9' ~ '\\'' ~ "\\""
'\\q'
'a' 'b'
"it's"
s.upper()
s.lower()
s.title()
s.capitalize()
s.swapcase()
s.split()
s.split(' ')
s.split('o')
s.split('o', 1)
s.split('')
s.rsplit('o', 1)
s.split('l', maxsplit=2)
'  a  b  '.split()
'  a  b  '.split(None, 1)
'  a  b  c '.rsplit(None, 1)
'a,b,,c'.split(',')
''.split()
''.split(',')
lines.splitlines()
lines.splitlines(true)
'a\\r\\nb\\rc'.splitlines()
'  x '.strip() ~ '|'
'  x '.lstrip() ~ '|'
'  x '.rstrip() ~ '|'
'xxaxx'.strip('x')
'abcba'.strip('ab')
'xxaxx'.lstrip('x')
s.startswith('He')
s.startswith(('x', 'He'))
s.startswith('ello', 1)
s.endswith('ld')
s.endswith(('x', 'y'))
s.startswith(1)
s.replace('l', 'L')
s.replace('l', 'L', 1)
s.replace('', '-')
s.find('o')
s.find('o', 5)
s.find('zz')
s.rfind('o')
s.index('o')
s.index('zz')
s.count('l')
u.find('日')
','.join(['a', 'b'])
','.join([1, 2])
','.join('abc')
'5'.zfill(3)
'-5'.zfill(4)
'x'.center(6, '*') ~ '|'
'ab'.ljust(4) ~ '|'
'ab'.rjust(4) ~ '|'
'a-b-c'.partition('-')
'a-b-c'.rpartition('-')
'abc'.removeprefix('a')
'abc'.removesuffix('bc')
'12'.isdigit()
'1a'.isdigit()
'ab'.isalpha()
'ab1'.isalnum()
'AB'.isupper()
'ab'.islower()
' '.isspace()
''.isspace()
'{} and {}'.format(1, 'x')
'{1} {0}'.format('a', 'b')
'{x}'.format(x=3)
'{{}}'.format()
'%s-%d' % ('a', 3)
'%5.2f|' % 3.14159
'%05d' % 42
'%x' % 255
'%s' % s
'%s' % [1]
'%(x)s' % d
'%d%%' % 5
'%s' % (1, 2)
l.index(1)
l.count(3)
a is odd
a is even
6 is divisibleby 3
6 is divisibleby(4)
a is number
f is float
a is integer
t is integer
t is boolean
s is string
d is mapping
l is sequence
d is sequence
l is iterable
a is iterable
s is iterable
n is none
n is not none
t is true
t is false
a is defined
s is lower
'abc' is lower
'ABC' is upper
s is sameas s
n is sameas none
1 is sameas true
a is eq 7
a is ne 7
a is gt 3
a is lessthan 3
a is in [7]
a is not in [7]
range is callable
s.upper is callable
'upper' is filter
'nope' is filter
'odd' is test
a is nope
a | nope
s | length
s | count
d | length
a | length
l | first
l | last
e | first
e | last
s | first
u | last
l | join
l | join(', ')
l | join('-') | upper
people | join(', ', attribute='name')
l | sort
l | sort(reverse=true)
names | sort
names | sort(case_sensitive=true)
people | sort(attribute='age') | map(attribute='name') | list
people | sort(attribute='age', reverse=true) | map(attribute='name') | list
[1, 'a'] | sort
d | dictsort
{'b': 1, 'A': 2, 'c': 0} | dictsort
{'b': 1, 'A': 2, 'c': 0} | dictsort(by='value')
{'b': 1, 'A': 2, 'c': 0} | dictsort(true, reverse=true)
names | unique | list
names | unique(case_sensitive=true) | list
people | unique(attribute='age') | map(attribute='name') | join
l | reverse | list
s | reverse
l | sum
people | sum(attribute='age')
l | sum(start=10)
l | min
l | max
e | min
names | max
people | max(attribute='age')
people | map(attribute='age') | list
people | map(attribute='tags.0', default='none') | list
people | map(attribute='tags') | list
names | map('upper') | list
names | map('replace', 'b', 'B') | join(' ')
names | map('nope') | list
l | select('odd') | list
l | select('gt', 1) | list
[0, 1, '', 'a'] | select | list
l | reject('odd') | list
people | selectattr('age', 'equalto', 30) | map(attribute='name') | join(',')
people | selectattr('tags') | list | length
people | selectattr('tags', 'defined') | list | length
people | rejectattr('age', 'gt', 26) | list
people | selectattr('age', '==', 30) | list | count
people | selectattr('name', 'in', ['Bo', 'Cy']) | map(attribute='age') | sum
l | map('string') | list
l | list
s | list
d | list
d | items | list
n | items
missing | items | list
missing | list
l | batch(2) | list
l | batch(2, 'x') | list
s | upper
s | lower
html | escape
html | e
html | safe
'hello wOrld-foo (bar)' | title
'hello World' | capitalize
'  x  ' | trim ~ '|'
'xxaxx' | trim('x')
s | replace('l', 'L')
s | replace('l', 'L', 1)
a | string ~ 'x'
n | string
'42' | int
'4.7' | int
'x' | int
'x' | int(5)
'ff' | int(base=16)
n | int
4.9 | int
'  12 ' | int
'3.5' | float
'x' | float
n | float
7 | float
-5 | abs
-5.5 | abs
2.5 | round
3.5 | round
2.567 | round(2)
2.567 | round(1, 'floor')
2.1 | round(method='ceil')
5 | round
lines | indent
lines | indent(2, true)
lines | indent(width=1, first=false, blank=true)
lines | indent('> ', true)
'%s is %d' | format('x', 3)
'%(a)s' | format(a=1)
s | wordcount
'a b-c d' | wordcount
missing | d('x')
empty | default('x')
empty | default('x', true)
n | default('x')
n | d('x', boolean=true)
d | tojson
l | tojson
s | tojson
n | tojson
t | tojson
u | tojson
html | tojson
f | tojson
quote | tojson
lines | tojson
d | tojson(indent=2)
nested | tojson(indent=4)
e | tojson(indent=2)
{} | tojson
(1, 2) | tojson
{'b': 1, 'a': 2} | tojson(sort_keys=true)
u | tojson(ensure_ascii=true)
d | tojson(separators=(',', ':'))
missing | tojson
{1: 2, none: 3, true: 4} | tojson
1e20 | tojson
'\\u2028\\x7f\\x01' | tojson
d.items() | tojson
d.items() | list | tojson
range(3)
range(3) | list
range(1, 10, 3) | list
range(5, 0, -2) | list
range(0)
range(3) | length
range(1000000)
range(1, 2, 0)
range()
dict(a=1, b=2)
dict([('a', 1)])
dict({'x': 1}, y=2)
namespace(a=1).a
namespace(a=1).b
raise_exception('no')
strftime_now('%%')
s | upper | lower | title
s.split() | map('first') | join('.')
-l[0]
-a | abs
2 * a | string
a | string * 2
'a' ~ 'b' | upper
1 if 0 else 2 if 0 else 3
not a == 7
not (a == 8)
a in l or b in l
'a' if t and not n else 'b'
[x for x in l]
l | attr('index')
{'a': 1}.a
'abc'[1]
'abc'[5]
(l | length) > 2
l | length > 2
d.y[0] + d['y'][1]
people[0].name ~ people[-1]['name']
people[0].tags[0]
people[2].tags
people[2].tags | length
big
big + 1
quote
[quote]
[u]
[f, t, n]
s | truncate(8)
s | truncate(8, true, '')
html | length
lines.split('\\n')[-1]
'%s' | format(n)
loop
loop.index
cycler(1)
'%s|%r' % (missing, missing)
'%s' % missing
'%r' % missing
'x' % missing
'x' % l
'x' % d
'x' % range(3)
'x' % n
'%d' % missing
'%f' % missing
'%(x)s' % missing
'%s|%r' | format(missing, missing)
'%08.3d|%+05d|% d|%-5d|%-05d|' % (42, 3, 3, 3, 3)
'%i|%u|%d|%d|%d' % (3, 4, 2.9, -2.9, true)
'%x|%X|%o|%#x|%#X|%#o|%#010x|%x' % (255, 255, 8, 255, 255, 8, -255, -255)
'%#.5x|%.5d|%+.3d|%.d' % (255, 42, 42, 0)
'%x' % 2.5
'%d' % 'x'
'%f' % 'x'
'%f|%.1f|%.f|%10.3f|%-10.3f|%010.3f|%+.2f|% .2f' % (f, f, f, f, f, -f, f, f)
'%e|%E|%g|%G|%#g|%#.3g|%g' % (f, f, f, f, 1, 1, 1e20)
'%06f|%06F|%-6f|%+f' % ('inf' | float, '-inf' | float, 'nan' | float, 'nan' | float)
'%.30f|%.20e|%3000.1f' % (0.1, 0.1, f)
'%d' % 1e20
'%d' % ('inf' | float)
'%5s|%-5s|%.2s|%5.1s|%05s|%.3r' % ('ab', 'ab', 'abc', u, 'a', s)
'%q' % 1
'%' % 1
'1e999' | int
'-1e999' | int(5)
'inf' | int(3)
'nan' | int(3)
'nan' | float | int(4)
'1e999' | float | int
1e22 | int
0.5 | round
-0.4 | round
2.675 | round(2)
1.5e-10 | round(10)
1.5e-10 | round(30)
1e300 | round(5)
123456.789 | round(-2)
missing is callable
d.missing is callable
namespace is callable
cycler(1) is callable
joiner() is callable
(-9223372036854775807 - 1) % 3
missing | sort
missing | groupby('age')
missing | slice(2) | list
missing | reverse
l | map('string') | reverse
l | truncate(1)
d | truncate(300)
l | truncate(4, true, '', 0)
missing | truncate(3)
d[l]
d[d]
joiner(1)()
joiner(none)()
2.5 is even
4.0 is even
3.0 is odd
'x' is odd
missing is even
7.5 is divisibleby 2.5
7 is divisibleby 0
10.0 ** 400
0.0 ** -1
0 ** -1
2.0 ** -2
-0.5 // -3
-0.5 // 3
l.index(1, 1)
l.index(3, 1)
l.index(2, -1, 9)
l.index(1, 0, -2)
""".strip("\n").split("\n")

_STATEMENTS = [
    "{% for i in l %}{% break %}{% else %}none{% endfor %}", "{% for i in l %}{% continue %}{% else %}none{% endfor %}", "{% for i in l %}{% if loop.last %}{% break %}{% endif %}{{ i }}{% else %}none{% endfor %}", "{% for i in l %}{{ loop | length }}{% endfor %}",
    "{% for i in l %}{{ loop is callable }}{% endfor %}", "{% macro m() %}{% endmacro %}{{ m is callable }}",
    "", "plain text\n", "two\n\n", "{{ a }}\n", "a\r\nb\rc\n", "{# comment #}x", "{# c #}\nx", "x {#- c -#} y", "{{ '{{' }}", "{% raw %}{{ a }}{% endraw %}|", "{% raw -%}\n x {{ }} {%- endraw %}\n|", "  {% raw %}\n x\n  {% endraw %}\ny",
    "{% if a %}\nyes\n{% endif %}\nend", "  {% if a %}\n    yes\n  {% endif %}\nend", "x  {% if a %} y {% endif %}  z", "{%- if a -%}  y  {%- endif -%}  z", "a\n  {%- if a %}\n b {%- endif %}\n c", "a\n  {%+ if a %}\nb{% endif +%}\nc", "{{- a }} {{ a -}}  x", "  {{ a }}\n  {{- a }}\n", "x\n\t {% if a %}\ny{% endif %}", "{% if a -%}\n\n  y{% endif %}", "{{ a }}\n\n\n{{ b }}\n\n",
    "{% if n %}1{% elif empty %}2{% elif a %}3{% else %}4{% endif %}", "{% if missing %}1{% else %}2{% endif %}", "{% if a %}x", "{% endif %}", "{% if %}x{% endif %}", "{% unknown %}", "{{ a", "{{ }}", "{% if a = 1 %}{% endif %}", "{{ a b }}", "{{ 'x }}", "{{ [1, }}", "{{ (1 }}", "{{ a | }}", "{{ 1.2.3 }}", "{{ a.1b }}", "{# open", "{% raw %}x", "{{ @ }}", "}} %} #}", "{ {", "{{ {'a': {'b': 1}} }}", "{{ {'a': 1}}}",
    "{% for x in l %}{{ x }},{% endfor %}", "{% for x in l %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.index0 }};{% endfor %}", "{% for x in e %}x{% else %}none{% endfor %}", "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in l if x > 1 %}{{ x }}:{{ loop.index }}/{{ loop.length }} {% else %}no{% endfor %}", "{% for x in l if x > 9 %}{{ x }}{% else %}no{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for k, v in d | dictsort %}{{ k }}={{ v }};{% endfor %}", "{% for (i, j), k in [((1, 2), 3)] %}{{ i + j + k }}{% endfor %}", "{% for a, b in l %}{% endfor %}", "{% for c in s %}{{ c }}.{% endfor %}", "{% for x in a %}{% endfor %}", "{% for x in n %}{% endfor %}", "{% for x in missing %}x{% else %}empty{% endfor %}", "{% for x in range(3) %}{% for y in range(2) %}{{ x }}{{ y }}{{ loop.depth }} {% endfor %}{% endfor %}", "{% for i in l %}{{ loop.cycle('odd', 'even') }} {% endfor %}", "{% for x in [1, 1, 2] %}{{ loop.changed(x) }} {% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% break %}", "{% for x in l %}{{ x }}{% endfor %}{{ x }}", "{% for x in l recursive %}{% endfor %}{{ q }}{{ missing.x }}", "{% for a in l %}{{ a }}{% endfor %}{{ a }}", "{% set x = 1 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}", "{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = x + 1 %}{{ x }} {% endfor %}{{ x }}", "{% if a %}{% set x = 5 %}{% endif %}{{ x }}", "{% set d.x = 1 %}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = 1 %}", "{% set a, b = [1, 2, 3] %}", "{% set x = 1, 2 %}{{ x }}", "{% set x %}a{{ a }}{% endset %}[{{ x }}]", "{% set x | upper %}abc{% endset %}{{ x }}", "{% set x %}{% set y = 1 %}{% endset %}{{ y }}", "{% set loop = 1 %}", "{% set true = 1 %}", "{% set ns = namespace(a=1, b='x') %}{{ ns.a }}{{ ns.b }}{{ ns.c }}", "{% set ns = namespace({'q': 2}) %}{{ ns.q }}",
    "{% macro m(x, y=2) %}{{ x }}-{{ y }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(y=5, x=4) }} {{ m() }}", "{% macro m() %}x{% endmacro %}{{ m(1) }}", "{% macro m() %}x{% endmacro %}{{ m(q=1) }}", "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, x=2) }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, z=3) }}", "{% macro m(x, y=x) %}{{ y }}{% endmacro %}{{ m(3) }}", "{% macro m(x=1, y) %}{% endmacro %}", "{% set g = 'g' %}{% macro m() %}{{ g }}{% endmacro %}{% set g = 'h' %}{{ m() }}", "{% macro m() %}{% set z = 1 %}{% endmacro %}{{ m() }}{{ z }}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}body{{ a }}{% endcall %}", "{% macro m() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(x, y) m() %}{{ x }}{{ y }}{% endcall %}", "{% macro m() %}x{% endmacro %}{% call m() %}b{% endcall %}", "{% macro m() %}  x\n{% endmacro %}{{ m() | trim }}|{{ m().strip() }}", "{% macro m() %}{% endmacro %}{{ m.name }}", "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{{ m() }}{% macro m() %}late{% endmacro %}", "{% macro m() %}{{ loop }}{% endmacro %}{% for x in l %}{{ m() }}{% endfor %}", "{% macro m(x) %}{{ x | upper }}{% endmacro %}{{ ['a', 'b'] | map('upper') | join }}{{ m('c') }}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aa{% endfilter %}", "{% with x = 1, y = 2 %}{{ x + y }}{% endwith %}{{ x }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}", "{% generation %}x{{ a }}{% endgeneration %}y", "{% set f = s.upper %}{{ f() }}", "{% set r = people | selectattr('age') %}{{ r | list | length }}{{ r | list | length }}", "{% set x = l | map('string') %}{% for i in x %}{{ i }}{% endfor %}|{% for i in x %}{{ i }}{% endfor %}", "{{ range(3) | map('string') | list | join('') }}", "{{ dict(**{'a': 1}) }}", "{{ range(*[1, 4]) | list }}", "{% set x = {'a': 1} %}{% set y = dict(x, b=2) %}{{ x }}{{ y }}", "{{ raise_exception('x') if a == 8 else 'ok' }}", "{{ (l + [4]) | tojson }}", "{% for m in people %}{% if loop.index0 % 2 == 0 %}{{ m['name'] }}{% endif %}{% endfor %}", "{% if 'name' in people[0] and people[0].name is string %}ok{% endif %}", "{{ people | map(attribute='name') | map('lower') | list }}", "{% for p in people | reverse %}{{ p.name }}{% endfor %}", "{% set x = [] %}{% for i in l %}{% set x = x + [i] %}{% endfor %}{{ x }}", "{% set ns = namespace(l=[]) %}{% for i in l %}{% set ns.l = ns.l + [i * 2] %}{% endfor %}{{ ns.l }}", "{% for i in range(3) -%}\n  {{ i }}\n{%- endfor %}", "{%- for i in range(2) %}\n  {{- i }}\n{% endfor -%}\n\nx", "\n\n{%- set x = 1 -%}\n\n{{ x }}", "{{ '\n' }}|", "{{ 'a\\\nb' }}", "{% if a %}\n\n{% endif %}\n", "x{% if a %}\ny\n  {% endif %}z", "{% set x = 'a' if a == 7 else 'b' %}{{ x }}", "{{ [1,2,3,] }}{{ {'a':1,} }}{{ (1,2,) }}", "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}", "{% for x in [1, 2, 3][:2] %}{{ x }}{% endfor %}", "{{ d['x'] if 'x' in d else 0 }}", "{{ 'x' in d and d.x is not none }}", "{% set _ = 1 %}{{ _ }}", "{% set é = 2 %}{{ é }}", "{{ a is defined and a is not none and a | string | length == 1 }}", "{{ a if a is defined else 'x' }}", "{{ none is none }}{{ None is none }}", "{%if a%}x{%endif%}", "{{a}}{{b}}", "{%- if a %}x{% endif -%}\n", "a {{- ' b ' -}} c", "{% autoescape true %}x{% endautoescape %}{{ missing.x }}", "{% do l %}", "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{{ joiner(',').x.y }}", "{{ lipsum.__globals__.os }}", "{{ ''.__class__.__base__.__subclasses__() }}", "{{ (''|attr('__class__')).__mro__ }}", "{{ d | attr('x') }}|", "{{ namespace.__init__.__globals__ }}", "{{ raise_exception.__globals__ }}|", "{{ m.x }}", "{% set a = 1 %}{% set a = a + 1 %}{{ a }}", "{{ a\n+\nb }}", "{{ {'k': 'v'}\n['k'] }}", "{% set x = namespace(v=0) %}{% for i in range(10) %}{% if i is divisibleby 3 %}{% set x.v = x.v + 1 %}{% endif %}{% endfor %}{{ x.v }}",
]

SNIPPETS = ["{{ " + e + " }}" for e in _EXPRESSIONS] + _STATEMENTS
