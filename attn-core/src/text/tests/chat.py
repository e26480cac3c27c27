"""Conversations as `transformers` writes them, with templates that use what published ones use.

    python -m venv venv
    venv/bin/pip install transformers==5.24.0 jinja2==3.1.6
    venv/bin/python attn-core/src/text/tests/chat.py

`chat.json` has conversations, and templates, each with options, and the texts of conversations or the reasons why there are none.
"""

import datetime
import json
from pathlib import Path

import transformers.utils.chat_template_utils as utils
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

HELLO = [{"role": "user", "content": " Hello, <you> & \"me\"!\n"}]
TALK = [
    {"role": "system", "content": "Answer in verse."},
    {"role": "user", "content": "Wer bist du?"},
    {"role": "assistant", "content": "<think>\nWho asks? \n</think>\n\nIch bin's. 🦀"},
    {"role": "user", "content": "  And\tnow? "},
]
TWICE = [HELLO[0], HELLO[0]]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": "what?"}]}]
CALLS = [
    {"role": "user", "content": "Weather?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": {"town": "Köln", "days": 2, "exact": True}}}],
    },
    {"role": "tool", "name": "weather", "content": "rain"},
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "What's the <weather>?",
            "parameters": {"type": "object", "properties": {"town": {"type": "string"}, "days": {"type": "integer"}}, "required": []},
        },
    }
]

TEMPLATES = {
    # A system message that is there or not, the first and the last message.
    "turns": """\
{% if messages[0]['role'] != 'system' %}
    {{- '[system]Be brief.[end]\\n' }}
{% endif %}
{% for message in messages %}
    {%- if loop.first and message.role == 'system' -%}
        [system]{{ message.content }}[end]
{% else %}
{{ '[' + message['role'] + ']' + message['content'] | trim + '[end]' }}{% if not loop.last %}{{ '\\n' }}{% endif %}
    {%- endif %}
{%- endfor %}
{% if add_generation_prompt %}
[assistant]
{%- endif %}""",
    # Roles that take turns, and what refuses others.
    "strict": """\
{{ bos_token }}{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}{% set first = messages[0].content.strip() + '\\n\\n' %}
{%- else %}{% set rest = messages %}{% set first = '' %}{% endif %}
{%- for message in rest %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('user and assistant must take turns, not ' ~ message.role ~ ' at ' ~ loop.index) }}
    {%- endif %}
    {%- set content = first + message.content if loop.index0 == 0 else message.content %}
    {{- '<Q> ' ~ content.strip() ~ ' </Q>' if message.role == 'user' else ' ' + content | trim + eos_token }}
{%- endfor %}""",
    # Namespaces, a loop backwards, splits and strips with characters, options that may not be there.
    "thoughts": """\
{%- set ns = namespace(last=-1, seen=false) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if not ns.seen and message.role == "user" and not (message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}
        {%- set ns.last = index %}
        {%- set ns.seen = true %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if '</think>' in content %}
        {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- message.role }}{% if thought is defined and loop.index0 > ns.last %} ({{ thought }}){% endif %}: {{ content }}
{% endfor %}
{%- if add_generation_prompt -%}
    assistant: {% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}
{%- endif %}""",
    # Parts of a content, and other names for roles.
    "parts": """\
{% for message in messages %}
{% set role = 'model' if (message['role'] == 'assistant') else message['role'] %}
<{{ role }}>
{%- if message['content'] is string %}
{{ message['content'] | trim }}
{% elif message['content'] is iterable %}
{% for item in message['content'] %}
{% if item['type'] == 'image' %}
{{ '<image>' }}
{%- elif item['type'] == 'text' -%}
{{ item['text'] }}
{%- endif %}
{% endfor %}
{% else %}
{{ raise_exception('no content') }}
{% endif %}
{% endfor %}
""",
    # Tools as JSON, calls, macros, methods of dictionaries.
    "tools": """\
{%- macro call(function) %}
{{- function.name }}({% for name, value in function.arguments.items() %}{{ name }}={{ value | tojson }}{{ ", " if not loop.last }}{% endfor %})
{%- endmacro %}
{%- if tools %}
    {{- "Tools:\\n" }}
    {%- for tool in tools %}
        {{- tool | tojson }}{{ "\\n" }}
        {{- tool.function.parameters | tojson(indent=2) }}{{ "\\n" }}
        {{- tool.function.get('strict', 'not strict') }}{{ tool.function.parameters.properties.keys() | list | join('/') }}
        {{- tool.function.parameters.properties | dictsort | first | tojson(separators=(',', ':')) }}
        {{- tool | tojson(sort_keys=true, ensure_ascii=true) }}
    {%- endfor %}
{%- endif %}
{%- for message in messages %}
    {%- if message.tool_calls is defined and message.tool_calls %}
        {%- for each in message.tool_calls %}{{ '\\n' + call(each.function) }} {{ each.function.arguments | tojson }}{% endfor %}
    {%- elif message.content is none %}nothing
    {%- else %}
        {{- '\\n' ~ message.role ~ (' ' ~ message.name if message.name) ~ ': ' ~ message.content }}
    {%- endif %}
{%- endfor %}""",
    # Dates.
    "dates": """\
{{ strftime_now('%d %b %Y') }}, {{ strftime_now("%A %-d %B %y, %H:%M:%S %I %p %j %% %Y-%m-%d") }}
{%- if not date_string is defined %}{% set date_string = strftime_now("%b %d %Y") %}{% endif %} {{ date_string }}
""",
    # What an assistant says is marked.
    "marked": """\
{% for message in messages %}
{% if message.role == 'assistant' %}
{%- generation -%}
{{ message.content }}{{ eos_token }}
{%- endgeneration -%}
{% else %}
{{ message.role }} {%+ generation %}x{% endgeneration %}

{% endif %}
{% endfor %}
""",
    # Blanks, comments, raw text, blocks that are set, and a signs that keep blanks.
    "blanks": """\
{# a comment #}
  {% set text %}
    in a block {{ messages | length }}
  {% endset %}
<{{ text }}>
  {%+ if true %}kept{% endif +%}

{% raw %}{{ not read }}{% endraw %}
   {{- ' x ' -}}   y
{% for i in range(5) %}
    {% if i == 1 %}{% continue %}{% endif %}
    {% if i == 3 %}{% break %}{% endif %}
    {{ i }}
{% else %}
none
{% endfor %}
	tab {% if false %}{% endif %}
end


""",
    # How values are written, and filters and tests.
    "values": """\
{{ true }} {{ none }} {{ 1.0 }} {{ 7 // 2 }} {{ 7 / 2 }} {{ 2 ** 3 }} {{ -7 % 3 }} {{ [1, 'a', true, none, 2.5] }} {{ {'b': 1, 'a': 'x'} }}
{{ missing }}|{{ missing is defined }}|{{ missing | default('d') }}|{{ '' | default('e', true) }}|{{ 'x' if missing }}
{{ 'a' ~ 1 ~ true ~ none }} {{ 'abc'[1:] }} {{ 'abc'[-1] }} {{ 'abc'[::-1] }} {{ 'ab' * 2 }} {{ [1] + [2] }} {{ 'b' in 'abc' }} {{ 'z' not in ['a'] }}
{{ 'hello world'.title() }} {{ 'Ab'.upper() }} {{ 'Ab'.lower() }} {{ 'x-y-z'.replace('-', '+') }} {{ 'a b  c'.split() }} {{ 'a,b,c'.split(',', 1) }}
{{ messages | map(attribute='role') | join(', ') }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }}
{{ messages | rejectattr('role', 'eq', 'user') | map(attribute='role') | list }} {{ [3, 1, 2] | sort | last }} {{ ['a', 'a'] | unique | list }}
{{ 'x' is string }} {{ 'x' is iterable }} {{ 'x' is sequence }} {{ {} is mapping }} {{ {} is sequence }} {{ [] is iterable }} {{ 3 is number }} {{ 3 is odd }} {{ true is true }} {{ none is none }}
{{ messages[0].role }} {{ messages[-1]['role'] }} {{ messages[0].get('name', '?') }} {{ (1, 2) }} {{ "tab\\tq" }} {{ 'a\\nb' | indent(2) }} {{ [[1, 2], [3, 4]] | map('first') | list }}
{% for key, value in {'k': 1, 'j': 2}.items() %}{{ loop.index }}{{ key }}{{ value }}{{ loop.cycle('-', '+') }}{% endfor %} {{ 'ab' | list }} {{ ' x ' | trim }} {{ '%s and %d' | format('a', 2) }}
{% set a, b = [1, 2] %}{{ a + b }} {{ 'A' < 'B' and not false or x }} {{ messages | first | length }} {{ 3 | string + 'x' }} {{ '4' | int + 1 }} {{ 2.7 | round | int }} {{ dict(a=1) }} {{ 'a\\\\b' }} {{ "it's" | tojson }}
""",
    "unfinished": "line one\n{% if messages %}\n{{ messages[0].content }",
    "unknown": "one\ntwo {{ messages | nonsense }}",
    "deep": "one\ntwo\n{{ messages[0].author.name }}",
}
# With `add_generation_prompt` or without.
CONVERSATIONS = [(HELLO, True), (TALK, True), (TALK[:3], False), (TWICE, False), (PARTS, True), (CALLS, True)]
# What these write hardly depends on the conversation.
ALIKE = ["dates", "blanks", "values", "unfinished", "unknown", "deep"]
OPTIONS = {"thoughts": [{}, {"enable_thinking": False}], "tools": [{}, {"tools": TOOLS}], "dates": [{}, {"date_string": "today"}]}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 2, 29, 15, 4, 9)


def written(tokenizer, template, conversation, options):
    messages, prompt = CONVERSATIONS[conversation]
    case = {"conversation": conversation, "options": options}
    try:
        text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, add_generation_prompt=prompt, **options)
        return case | {"text": text}
    except Exception as error:
        return case | {"refused": str(error)}


def main():
    utils.datetime = Clock
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>", eos_token="</s>")
    templates = []
    for name, template in TEMPLATES.items():
        conversations = range(2 if name in ALIKE else len(CONVERSATIONS))
        cases = [written(tokenizer, template, each, options) for options in OPTIONS.get(name, [{}]) for each in conversations]
        templates.append({"name": name, "template": template, "cases": cases})
    conversations = [{"messages": messages, "add_generation_prompt": prompt} for messages, prompt in CONVERSATIONS]
    fixture = {"conversations": conversations, "templates": templates}
    Path(__file__).with_name("chat.json").write_text(json.dumps(fixture, indent=1) + "\n")


main()
