#!/usr/bin/env python3
"""Checks a running server with OpenAI's own Python SDK.

    pip install -r tools/clients/requirements.txt
    hearth serve &
    python tools/clients/openai_sdk.py http://127.0.0.1:8000

Without a model, `cargo run -p hearth-server --example scripted` is a server to check as well.

Prints one line per check and exits with 1 if any failed. The answers may say anything: what is
checked is what the SDK makes of them. Not a benchmark.
"""

import json
import sys
import traceback

import openai

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def user(text):
    return [{"role": "user", "content": text}]


def chat(client, **fields):
    fields = {"model": "default", "messages": user("Name three birds."), "max_tokens": 16} | fields
    return client.chat.completions.create(**fields)


def refused(kind, param, call, **fields):
    """The call must raise `kind`, with the SDK's fields filled."""
    for stream in (False, True):
        try:
            call(stream=stream, **fields)
        except kind as error:
            assert error.code and error.type and str(error), repr(error)
            assert param is None or (error.param or "").startswith(param), (fields, error.param)
        else:
            raise AssertionError(f"accepted: {fields}")


@check
def models_are_listed(client):
    models = list(client.models.list())
    assert models and models[0].object == "model"
    assert client.models.retrieve(models[0].id).id == models[0].id
    assert client.models.retrieve("default").id == models[0].id


@check
def a_chat_is_answered(client):
    reply = chat(client)
    choice = reply.choices[0]
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length")
    usage = reply.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 < usage.completion_tokens <= 16
    assert usage.prompt_tokens_details.cached_tokens >= 0
    assert usage.model_extra["timings"]["prompt_ms"] >= 0
    assert reply._request_id


@check
def a_stream_says_the_same(client):
    fields = {"seed": 11, "temperature": 0.9}
    whole = chat(client, **fields)
    options = {"include_usage": True}
    chunks = list(chat(client, stream=True, stream_options=options, **fields))
    assert chunks[0].choices[0].delta.role == "assistant"
    ends = [c for c in chunks if c.choices and c.choices[0].finish_reason]
    assert len(ends) == 1 and ends[0].choices[0].finish_reason == whole.choices[0].finish_reason
    usages = [c for c in chunks if c.usage]
    assert len(usages) == 1 and usages[0] is chunks[-1] and not usages[0].choices
    assert usages[0].usage.completion_tokens == whole.usage.completion_tokens
    assert len({(c.id, c.created, c.model) for c in chunks}) == 1
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content, (text, whole.choices[0].message.content)
    assert all(c.usage is None for c in chat(client, stream=True))


@check
def the_stream_helper_follows(client):
    with client.chat.completions.stream(
        model="default", messages=user("Hello"), max_tokens=8
    ) as stream:
        deltas = [e.delta for e in stream if e.type == "content.delta"]
        whole = stream.current_completion_snapshot
    assert "".join(deltas) == (whole.choices[0].message.content or "")


@check
def seeds_repeat_answers(client):
    fields = {"temperature": 1.0, "max_tokens": 24}
    one, two = chat(client, seed=5, **fields), chat(client, seed=5, **fields)
    assert one.choices[0].message.content == two.choices[0].message.content
    drawn = chat(client, **fields)
    again = chat(client, seed=drawn.usage.model_extra["seed"], **fields)
    assert drawn.choices[0].message.content == again.choices[0].message.content


@check
def several_choices(client):
    fields = {"temperature": 1.0, "seed": 3}
    reply = chat(client, n=2, **fields)
    assert [c.index for c in reply.choices] == [0, 1]
    alone = chat(client, **fields | {"seed": 4})
    assert reply.choices[1].message.content == alone.choices[0].message.content
    chunks = [c.choices[0] for c in chat(client, n=2, stream=True, **fields)]
    for choice in reply.choices:
        mine = [c for c in chunks if c.index == choice.index]
        assert "".join(c.delta.content or "" for c in mine) == choice.message.content
        assert len([c for c in mine if c.finish_reason]) == 1


@check
def log_probabilities(client):
    reply = chat(client, logprobs=True, top_logprobs=3, temperature=0)
    content = reply.choices[0].logprobs.content
    assert content and all(len(t.top_logprobs) == 3 and t.logprob <= 0 for t in content)
    said = b"".join(bytes(t.bytes) for t in content).decode(errors="replace")
    assert said.strip().startswith(reply.choices[0].message.content.strip()[:4])
    assert all(t.top_logprobs[0].token == t.token for t in content)


@check
def stop_strings(client):
    whole = chat(client, temperature=0, max_tokens=24).choices[0].message.content
    stop = whole[len(whole) // 2 :][:4]
    cut = chat(client, temperature=0, max_tokens=24, stop=[stop]).choices[0]
    assert cut.finish_reason == "stop"
    assert cut.message.content == whole[: whole.index(stop)]


@check
def completions(client):
    def ask(**fields):
        fields = {"model": "default", "prompt": "The lid is", "max_tokens": 8} | fields
        return client.completions.create(**fields)

    reply = ask(temperature=0, logprobs=2)
    assert reply.object == "text_completion"
    scores = reply.choices[0].logprobs
    assert len(scores.tokens) == len(scores.token_logprobs) == len(scores.text_offset) > 0
    text = "".join(c.choices[0].text for c in ask(temperature=0, stream=True))
    assert text == reply.choices[0].text
    echoed = ask(temperature=0, echo=True).choices[0].text
    assert echoed == "The lid is" + text
    assert len(ask(prompt=["a", "b"], n=2).choices) == 4
    refused(openai.BadRequestError, "prompt", ask, prompt=[])
    refused(openai.BadRequestError, "suffix", ask, suffix="x")
    refused(openai.BadRequestError, "best_of", ask, best_of=3)
    refused(openai.BadRequestError, "logprobs", ask, logprobs=50)


@check
def bad_fields_are_typed_errors(client):
    def ask(**fields):
        return chat(client, **fields)

    schema = {"name": "q", "schema": {"type": "array", "uniqueItems": True}}
    for fields in (
        {"temperature": 2.5},
        {"temperature": -0.1},
        {"top_p": 0},
        {"presence_penalty": 9},
        {"max_tokens": 0},
        {"max_completion_tokens": 0},
        {"n": 0},
        {"logprobs": True, "top_logprobs": 25},
        {"messages": []},
        {"messages": [{"role": "wizard", "content": "x"}]},
        {"response_format": {"type": "xml"}},
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        {"response_format": {"type": "json_schema", "json_schema": schema}},
        {"tools": [{"type": "function"}]},
        {"tool_choice": "required"},
        {"stop": [""]},
        {"logit_bias": {"x": 1}},
        {"modalities": ["audio"]},
    ):
        refused(openai.BadRequestError, list(fields)[-1], ask, **fields)
    refused(openai.BadRequestError, "messages", ask, messages=user("word " * 1_000_000))
    refused(openai.NotFoundError, "model", ask, model="no-such-model")


@check
def formats_and_calls_are_held_to(client):
    """Only the form is looked at; and what is cut off at `max_tokens` is no whole of anything."""
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 20},
            "degrees": {"type": "integer", "minimum": -50, "maximum": 50},
            "sky": {"enum": ["clear", "cloudy"]},
        },
        "required": ["city", "degrees", "sky"],
        "additionalProperties": False,
    }

    def holds(text):
        value = json.loads(text)
        assert list(value) == ["city", "degrees", "sky"], value
        assert isinstance(value["city"], str) and -50 <= value["degrees"] <= 50, value
        assert value["sky"] in ("clear", "cloudy"), value

    weather = {"messages": user("What is the weather in Oslo?"), "max_tokens": 200, "seed": 7}
    wanted = {"type": "json_schema", "json_schema": {"name": "weather", "schema": schema}}
    whole = chat(client, response_format=wanted, **weather).choices[0].message.content
    holds(whole)
    stream = chat(client, response_format=wanted, stream=True, **weather)
    assert "".join(c.choices[0].delta.content or "" for c in stream if c.choices) == whole
    reply = chat(client, response_format={"type": "json_object"}, **weather | {"max_tokens": 400})
    if reply.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(reply.choices[0].message.content), dict)
    tool = {"type": "function", "function": {"name": "report", "parameters": schema}}
    for choice in ("required", {"type": "function", "function": {"name": "report"}}):
        reply = chat(
            client, tools=[tool], tool_choice=choice, parallel_tool_calls=False, **weather
        ).choices[0]
        assert reply.finish_reason == "tool_calls" and len(reply.message.tool_calls) == 1, reply
        call = reply.message.tool_calls[0]
        assert call.id and call.function.name == "report"
        holds(call.function.arguments)


@check
def every_field_of_the_sdk_is_documented(_):
    import pathlib
    from openai.types import completion_create_params as plain
    from openai.types.chat import completion_create_params as talk

    docs = pathlib.Path(__file__).parents[2] / "docs" / "api.md"
    rows = [line.split("|")[1] for line in docs.read_text().splitlines() if line.startswith("| `")]
    known = {name.strip(" `") for row in rows for name in row.split(",")}
    for params in (talk.CompletionCreateParamsBase, plain.CompletionCreateParamsBase):
        missing = set(params.__annotations__) - known
        assert not missing, f"not in docs/api.md: {sorted(missing)}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    url = sys.argv[1].rstrip("/") + "/v1"
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=300)
    failed = 0
    for function in CHECKS:
        try:
            function(client)
            print(f"ok      {function.__name__}")
        except Exception:
            failed += 1
            print(f"FAILED  {function.__name__}")
            traceback.print_exc()
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} checks passed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
