#!/usr/bin/env python3
"""How well a served model keeps to tools and schemas, with and without being held to them.

    hearth serve qwen2.5-0.5b-coder-q4_k_m &
    python bench/held.py --bfcl BFCL_v4_simple_python.json --calls 200 --schemas 100

Calls: questions of the Berkeley Function Calling Leaderboard (package `bfcl-eval` 2026.3.23, file
`bfcl_eval/data/BFCL_v4_simple_python.json`), each asked with `tool_choice` `required` and `auto`. A call
counts if its arguments are JSON that the tool's schema allows; whether it is the right one is not asked.
Schemas: made up of many words, each asked with and without `response_format`. `jsonschema` judges both; not
made up is the format `time`, of which it knows only an old meaning, without the offset that RFC 3339 has.
"""

import argparse
import json
import random
import statistics
import urllib.request

import jsonschema

TYPES = {"dict": "object", "float": "number", "tuple": "array"}


def standard(schema):
    """A schema of the leaderboard, which has Python's names for types, as JSON Schema has it."""
    if isinstance(schema, list):
        return [standard(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {}
    for word, value in schema.items():
        if word == "type" and isinstance(value, str):
            if value != "any":
                out[word] = TYPES.get(value, value)
        elif word == "properties":
            out[word] = {name: standard(part) for name, part in value.items()}
        elif word in ("default", "format", "enum"):
            if word == "enum":
                out[word] = value
        elif word not in ("optional",):
            out[word] = standard(value)
    return out


def made_up(n):
    """Schemas of objects with properties of many kinds; the same for the same `n`."""
    draw = random.Random(n)
    leaves = [
        lambda: {"type": "string", "maxLength": draw.randint(1, 40)},
        lambda: {"type": "integer", "minimum": draw.randint(-50, 0), "maximum": draw.randint(1, 900)},
        lambda: {"type": "number", "exclusiveMinimum": 0},
        lambda: {"type": "boolean"},
        lambda: {"enum": draw.sample(["red", "green", "blue", 1, 2.5, None, True], 3)},
        lambda: {"type": ["string", "null"]},
        lambda: {"type": "string", "pattern": draw.choice(["^[A-Z]{2}-\\d{3}$", "^\\w+@\\w+\\.com$", "a+b"])},
        lambda: {"type": "string", "format": draw.choice(["date", "uuid", "email", "ipv4"])},
        lambda: {"type": "array", "items": leaf(), "minItems": 1, "maxItems": draw.randint(1, 4)},
        lambda: {"anyOf": [leaf(), {"type": "object", "properties": {"k": leaf()}, "required": ["k"],
                                    "additionalProperties": False}]},
        lambda: {"$ref": "#/$defs/shared"},
    ]

    def leaf():
        return draw.choice(leaves)()

    names = draw.sample(["name", "size", "tags", "owner", "state", "when", "note", "mail"], draw.randint(1, 6))
    return {
        "$defs": {"shared": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"],
                             "additionalProperties": False}},
        "type": "object",
        "properties": {name: leaf() for name in names},
        "required": draw.sample(names, draw.randint(1, len(names))),
        "additionalProperties": False,
    }


class Server:
    def __init__(self, url, model, max_tokens):
        self.url, self.model, self.max_tokens = url, model, max_tokens

    def ask(self, **fields):
        body = {"model": self.model, "temperature": 0.7, "seed": 1, "max_tokens": self.max_tokens, **fields}
        request = urllib.request.Request(
            self.url + "/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as response:
            return json.load(response)


class Tally:
    """What became of the answers asked for in one way."""

    def __init__(self, name):
        self.name, self.n, self.parsed, self.valid, self.cut, self.rates = name, 0, 0, 0, 0, []

    def add(self, reply, texts, schemas):
        """`texts` must be JSON, one or more; each with what must allow it."""
        self.n += 1
        self.cut += reply["choices"][0]["finish_reason"] == "length"
        self.rates.append(reply["usage"]["timings"]["predicted_per_second"])
        try:
            values = [json.loads(text) for text in texts]
        except (TypeError, ValueError):
            return
        if not values:
            return
        self.parsed += 1
        judge = lambda value, schema: jsonschema.Draft202012Validator(
            schema, format_checker=jsonschema.FormatChecker()
        ).is_valid(value)
        self.valid += all(map(judge, values, schemas))

    def show(self):
        rate = statistics.median(self.rates) if self.rates else 0
        print(f"{self.name:24} {self.n:4} answers: {self.parsed} parse, {self.valid} are valid, "
              f"{self.cut} cut by max_tokens; median {rate:.1f} tokens/s", flush=True)


def calls(server, path, n):
    with open(path, encoding="utf-8") as file:
        cases = [json.loads(line) for line in file][:n]
    for choice in ("required", "auto"):
        tally = Tally(f"tool_choice {choice}")
        for case in cases:
            functions = [{**f, "parameters": standard(f["parameters"])} for f in case["function"]]
            tools = [{"type": "function", "function": function} for function in functions]
            reply = server.ask(messages=case["question"][0], tools=tools, tool_choice=choice,
                               parallel_tool_calls=False)
            made = reply["choices"][0]["message"].get("tool_calls") or []
            known = {function["name"]: function["parameters"] for function in functions}
            tally.add(reply, [call["function"]["arguments"] for call in made],
                      [known.get(call["function"]["name"], False) for call in made])
        tally.show()


def schemas(server, n):
    for held in (True, False):
        tally = Tally("schemas, enforced" if held else "schemas, in the prompt")
        for i in range(n):
            schema = made_up(i)
            message = "Make up an example. Answer with JSON alone, of this schema: " + json.dumps(schema)
            form = {"type": "json_schema", "json_schema": {"name": "example", "schema": schema}}
            more = {"response_format": form} if held else {}
            reply = server.ask(messages=[{"role": "user", "content": message}], **more)
            tally.add(reply, [reply["choices"][0]["message"]["content"]], [schema])
        tally.show()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="default")
    parser.add_argument("--bfcl", help="BFCL_v4_simple_python.json")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--schemas", type=int, default=100)
    parser.add_argument("--max-tokens", type=int, default=400)
    args = parser.parse_args()
    server = Server(args.url, args.model, args.max_tokens)
    if args.bfcl:
        calls(server, args.bfcl, args.calls)
    schemas(server, args.schemas)


if __name__ == "__main__":
    main()
