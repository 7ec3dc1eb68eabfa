"""Renders chat templates with transformers, and encodes the prompts of the two real models.

Run: python tools/goldens/templates.py MODELS_DIR [TOKENIZERS_DIR]
with transformers==5.24.0, tokenizers==0.23.3, jinja2==3.1.6, gguf==0.19.0.
MODELS_DIR holds the two GGUF files named below, from which templates and vocabularies are read.
Writes crates/text/tests/fixtures/templates.json (prompts) and prompt_ids.json (ids on the real
vocabularies). With TOKENIZERS_DIR it also writes NAME/tokenizer.json there for the tests that need
the real vocabularies (cargo feature `fetched-models`).
"""

import datetime
import json
import sys
from pathlib import Path
from unittest import mock

# A file beside this one has the name of a package: keep this folder out of the way.
sys.path = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]

import gguf  # noqa: E402
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers  # noqa: E402
from tokenizers import pre_tokenizers  # noqa: E402
from transformers.utils import chat_template_utils  # noqa: E402

OUT = Path(__file__).resolve().parents[2] / "crates/text/tests/fixtures"
FILES = {
    "smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "qwen2.5-coder": "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
}
NOW = datetime.datetime(2025, 11, 27, 0, 0, 0)

# Our own templates: each exercises a group of constructs of the Jinja that models ship.
OWN = {
    "chatml-think": """{%- set ns = namespace(last=messages|length - 1, seen=false) -%}
{%- for m in messages[::-1] -%}
    {%- set index = (messages|length - 1) - loop.index0 -%}
    {%- if not ns.seen and m.role == "user" and m.content is string -%}
        {%- set ns.seen = true -%}
        {%- set ns.last = index -%}
    {%- endif -%}
{%- endfor -%}
{%- for m in messages -%}
    {%- if m.role == "assistant" -%}
        {%- set content = m.content -%}
        {%- set thought = '' -%}
        {%- if m.reasoning_content is string -%}
            {%- set thought = m.reasoning_content -%}
        {%- elif '</think>' in content -%}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') -%}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') -%}
        {%- endif -%}
        {{- '<|im_start|>' ~ m.role ~ '\\n' -}}
        {%- if loop.index0 > ns.last -%}
            {{- '<think>\\n' ~ thought.strip('\\n') ~ '\\n</think>\\n\\n' -}}
        {%- endif -%}
        {{- content -}}
        {%- for c in m.tool_calls or [] -%}
            {%- if c.function -%}{%- set c = c.function -%}{%- endif -%}
            {{- '\\n<tool_call>\\n{"name": "' ~ c.name ~ '", "arguments": ' -}}
            {%- if c.arguments is string -%}{{- c.arguments -}}{%- else -%}{{- c.arguments | tojson -}}{%- endif -%}
            {{- '}\\n</tool_call>' -}}
        {%- endfor -%}
        {{- '<|im_end|>\\n' -}}
    {%- else -%}
        {{- '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
    {%- if enable_thinking is defined and enable_thinking is false -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}
{%- endif -%}
""",
    "headers": """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start|>system<|sep|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}<|eot|>
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start|>' + message['role'] + '<|sep|>\\n\\n'+ message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start|>assistant<|sep|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}<|eot|>
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start|>ipython<|sep|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant<|sep|>\\n\\n' }}
{%- endif %}
""",
    "alternating": """{% if messages[0]['role'] == 'system' %}{% set offset = 1 %}{% else %}{% set offset = 0 %}{% endif %}
{{ bos_token }}
{% for message in messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == offset) %}
        {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {% endif %}
    {% if message['role'] == 'user' %}
[INST] {{ message['content'] | trim }} [/INST]
    {% elif message['role'] == 'system' %}
<<SYS>>
{{ message['content'] }}
<</SYS>>

    {% else %}
        {% generation %}
 {{ message['content'] | trim }} {{ eos_token }}
        {% endgeneration %}
    {% endif %}
{% endfor %}
""",
    "macros": """{%- macro show(value, depth=0) -%}
{%- if value is mapping -%}
    {%- for k, v in value.items() -%}
        {{ "\\n" ~ "  " * depth ~ k ~ ": " }}{{ show(v, depth + 1) }}
    {%- endfor -%}
{%- elif value is sequence and value is not string -%}
    {%- for v in value -%}
        {{ "\\n" ~ "  " * depth ~ "- " }}{{ show(v, depth + 1) }}
    {%- endfor -%}
{%- elif value is none -%}null
{%- elif value is boolean -%}{{ 'yes' if value else 'no' }}
{%- elif value is number -%}{{ value }}
{%- else -%}{{ value | string }}
{%- endif -%}
{%- endmacro -%}
{#- tools first -#}
{%- for t in tools or [] -%}
    {%- if loop.index > 2 -%}{%- break -%}{%- endif -%}
    tool {{ loop.index }}/{{ loop.length }}:{{ show(t.function) }}
{% endfor -%}
{%- for m in messages if m.role != 'system' -%}
    {%- if not m.content and not m.tool_calls -%}{%- continue -%}{%- endif -%}
    {{ m.role | upper }}[{{ loop.index0 }}]{{ '!' if loop.last else ',' }} {{ m.get('name', '?') }} {{ m.content | length }}
    {%- for c in m.tool_calls | default([]) -%}
        {{ ' ' ~ c.function.name }}{{ show(c.function.arguments) }} {{ c.function.arguments }}
        {{- c.function.arguments | dictsort | tojson(separators=(',', ':')) }}
        {{- c.function.arguments | tojson(sort_keys=True, ensure_ascii=True) }}
    {%- endfor %}
{% endfor -%}
""",
    "strings": """{%- for m in messages -%}
{{ m.content.split() | join('|') }};{{ m.content.splitlines() | length }};{{ m.content.strip() | title | length }};
{{- m.content[:5] }};{{ m.content[-3:] }};{{ m.content[::-1] | trim }};{{ m.content.startswith('H') }};{{ m.content.endswith('?') }};
{{- m.content.replace('e', 'E', 2) }};{{ m.content.upper().lower() | capitalize }};{{ m.content.find('a') }};{{ m.content.count('o') }};
{{- m.content.partition(' ') }};{{ m.content.rsplit(' ', 1) }};{{ m.content.split(' ', 1)[-1].ljust(3) }};{{ [m.content, none, true, 1.0, 1e20, 2.5e-7, {'k': m.role}] }}
{%- set parts = [] -%}
{%- for w in ['x', 'y'] %}{% set parts = parts + [w] %}{% endfor -%}
{{ parts }} {{ 7 // 2 }} {{ 7 / 2 }} {{ -7 % 3 }} {{ 2 ** 3 }} {{ none ~ true }} {{ m.missing is defined }} {{ m.missing }}{{ loop.cycle('a', 'b') }}
{% endfor -%}
{% set text %}block {{ messages | map(attribute='role') | unique | join('+') }}{% endset %}{{ text | upper }}
{{- messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', 'in', ['user']) | map(attribute='content') | first | default('none', true) }}
{% if tools %}  {{ tools | tojson }}
{% endif %}
  {%- if true %} a {% endif +%}
 b
{% raw %}{{ raw }}{% endraw %}

""",
}

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Wärme in <b>°C</b> & 'K' — \"now\"", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "e.g. 東京"}, "days": {"type": "integer", "minimum": 1, "default": 1},
                                         "scale": {"enum": ["C", "F", None, 1.5]}}, "required": ["city"], "additionalProperties": False}}},
    {"type": "function", "function": {"name": "run", "description": "", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "третий", "description": "line\nbreak\ttab \\ slash \u007f \u2028", "parameters": {}}},
]

WORDS = [
    "Hi", "What is the capital of France?", "  padded  ", "multi\nline\n\ntext\n", "Grüße aus Köln — naïve café", "你好，世界！",
    "🦜 emoji 👩‍👩‍👧 and 🇩🇪", "def f(x):\n    return {'a': x, \"b\": [1, 2]}\n", "<b>html & \"quotes\" 'single'</b>", "tabs\tand\r\nwindows",
    "```rust\nfn main() { println!(\"{}\", 1); }\n```", "{{ not a template }} {% raw %}", "ends with a question?", "مرحبا بالعالم", "> quoted\n> text <", "a",
]


def call(name, arguments, n):
    return {"type": "function", "id": f"call{n:05}", "function": {"name": name, "arguments": arguments}}


def conversations():
    """Fifty conversations: (messages, tools, kwargs)."""
    out = []
    user = lambda x: {"role": "user", "content": x}  # noqa: E731
    said = lambda x: {"role": "assistant", "content": x}  # noqa: E731
    system = lambda x: {"role": "system", "content": x}  # noqa: E731
    for word in WORDS:
        out.append(([user(word)], None, {}))
    for a, b in zip(WORDS[:10], WORDS[6:]):
        out.append(([system(b), user(a), said(b), user(b + a)], None, {}))
    for n, word in enumerate(WORDS[:8]):
        out.append(([system("You are helpful."), user(word)], TOOLS[: n % 3 + 1], {}))
    arguments = [{}, {"city": "Köln"}, {"city": "東京", "days": 3, "deep": {"x": [1, 2.5, None, True], "s": "a\"b\\c\n"}}, {"z": 1, "a": 1e-7, "m": 12345678901234567890}]
    for n, args in enumerate(arguments):
        turn = [user("call"), {"role": "assistant", "content": "", "tool_calls": [call("get_weather", args, n)]},
                {"role": "tool", "content": json.dumps(args, ensure_ascii=False), "tool_call_id": f"call{n:05}"}]
        out.append((turn, TOOLS, {}))
        out.append((turn + [said("done " + WORDS[n]), user("thanks")], TOOLS[:1], {}))
    two = {"role": "assistant", "content": "both", "tool_calls": [call("run", {}, 1), call("get_weather", {"city": "x"}, 2)]}
    out.append(([user("two"), two, {"role": "tool", "content": "1", "tool_call_id": "call00001"}, {"role": "tool", "content": "2", "tool_call_id": "call00002"}], TOOLS, {}))
    out.append(([user("q"), said("<think>\nhm\n</think>\n\nanswer"), user("more")], None, {}))
    out.append(([user("q"), {"role": "assistant", "content": "answer", "reasoning_content": "hm\nhm"}], None, {}))
    out.append(([user("q")], None, {"enable_thinking": False}))
    out.append(([user("q")], None, {"enable_thinking": True, "date_string": "1 Jan 2000"}))
    out.append(([system("a"), user("b"), said("c"), system("late"), user("d")], None, {}))
    out.append(([user("b"), user("c")], None, {}))
    out.append(([said("first")], None, {}))
    assert len(out) == 50, len(out)
    return out


def render(source, messages, tools, kwargs):
    compiled = chat_template_utils._compile_jinja_template(source)

    class Fixed(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return NOW

    with mock.patch.object(chat_template_utils, "datetime", Fixed):
        return compiled.render(messages=messages, tools=tools, documents=None, add_generation_prompt=True,
                               bos_token="<s>", eos_token="</s>", **kwargs)


def field(reader, key):
    return reader.fields[key].contents()


def real_tokenizer(name, reader):
    """The tokenizer.json that the model's publisher ships, rebuilt from the vocabulary in the GGUF."""
    tokens, kinds = field(reader, "tokenizer.ggml.tokens"), field(reader, "tokenizer.ggml.token_type")
    merges = [tuple(m.split(" ")) for m in field(reader, "tokenizer.ggml.merges")]
    n_plain = len(tokens)
    if name == "qwen2.5-coder":
        n_plain = next(i for i, kind in enumerate(kinds) if kind != 1)
    t = Tokenizer(models.BPE(vocab={x: i for i, x in enumerate(tokens[:n_plain])}, merges=merges))
    if name == "smollm2":
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    else:
        t.normalizer = normalizers.NFC()
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    for i, kind in enumerate(kinds):
        if kind == 3 or (kind == 4 and i >= n_plain):
            token = AddedToken(tokens[i], normalized=False, special=kind == 3)
            t.add_special_tokens([token]) if kind == 3 else t.add_tokens([token])
        assert kind in (1, 5) or t.token_to_id(tokens[i]) == i, (i, tokens[i], kind)
    return t


def main(models_dir, tokenizers_dir=None):
    talks = conversations()
    sources = dict(OWN)
    ids = {}
    for name, file in FILES.items():
        reader = gguf.GGUFReader(Path(models_dir) / file)
        sources[name] = field(reader, "tokenizer.chat_template")
        tokenizer = real_tokenizer(name, reader)
        prompts = [attempt(sources[name], talk) for talk in talks]
        ids[name] = [tokenizer.encode(p["text"], add_special_tokens=False).ids if "text" in p else None for p in prompts]
        if tokenizers_dir:
            folder = Path(tokenizers_dir) / name
            folder.mkdir(parents=True, exist_ok=True)
            tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    golden = {
        "conversations": [{"messages": m, "tools": t, "kwargs": k} for m, t, k in talks],
        "templates": {name: {"source": source, "prompts": [attempt(source, talk) for talk in talks]} for name, source in sources.items()},
    }
    for file, value in (("templates.json", golden), ("prompt_ids.json", ids)):
        (OUT / file).write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def attempt(source, talk):
    try:
        return {"text": render(source, *talk)}
    except Exception as error:  # noqa: BLE001  (a template may fail in any way)
        return {"error": type(error).__name__, "says": str(error)}


if __name__ == "__main__":
    main(*sys.argv[1:])
