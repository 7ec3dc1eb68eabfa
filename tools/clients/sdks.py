#!/usr/bin/env python3
"""Checks a scripted server with the SDKs of OpenAI, Anthropic and Ollama, and with frameworks that are
built on them: each has a chat, a stream, a call of a tool with its result, and a stream that it leaves.

    cargo build -p hearth-server --example scripted
    pip install -r tools/clients/requirements.txt
    python tools/clients/sdks.py target/debug/examples/scripted
    pip install -r tools/clients/frameworks.txt
    python tools/clients/sdks.py target/debug/examples/scripted --frameworks

The model is a script: it calls `get_weather` when it is offered and has no result yet, else it says
`word0 word1 …`. Prints one line per client and exits with 1 if any failed.
"""

import json
import os
import re
import subprocess
import sys
import time
import traceback
import urllib.request

QUESTION = "What is the weather in Paris?"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "description": "The weather of a city", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FUNCTION}
ALL = "".join(f"word{n} " for n in range(300))


def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: Its name.
    """
    CALLED.append(city)
    return "sunny"


CALLED = []


def said(text):
    """The words must be the beginning of what the script says."""
    assert text.strip() and ALL.startswith(text.strip()), repr(text[:80])


def openai_chat(url):
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    ask = client.chat.completions.create
    messages = [{"role": "user", "content": QUESTION}]
    said(ask(model="default", messages=messages, max_tokens=8).choices[0].message.content)
    chunks = ask(model="default", messages=messages, max_tokens=8, stream=True)
    said("".join(chunk.choices[0].delta.content or "" for chunk in chunks))
    reply = ask(model="default", messages=messages, tools=[TOOL]).choices[0]
    assert reply.finish_reason == "tool_calls", reply
    call = reply.message.tool_calls[0]
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    messages += [reply.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    said(ask(model="default", messages=messages, tools=[TOOL], max_tokens=8).choices[0].message.content)
    with ask(model="default", messages=messages, stream=True) as left:
        next(iter(left))


def openai_responses(url):
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    ask = client.responses.create
    tool = {"type": "function", "strict": False} | FUNCTION
    said(ask(model="default", input=QUESTION, max_output_tokens=8).output_text)
    with client.responses.stream(model="default", input=QUESTION) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        said("".join(deltas))
        assert stream.get_final_response().output_text == "".join(deltas)
    first = ask(model="default", input=QUESTION, tools=[tool])
    call = next(item for item in first.output if item.type == "function_call")
    assert json.loads(call.arguments) == {"city": "Paris"}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    fields = {"model": "default", "input": [result], "tools": [tool], "max_output_tokens": 8}
    second = ask(previous_response_id=first.id, **fields)
    said(second.output_text)
    assert client.responses.retrieve(second.id).output_text == second.output_text
    client.responses.delete(second.id)
    with ask(model="default", input=QUESTION, stream=True) as left:
        next(iter(left))


def anthropic_messages(url):
    import anthropic

    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    tool = {"name": "get_weather", "description": "Weather", "input_schema": SCHEMA}
    messages = [{"role": "user", "content": QUESTION}]
    fields = {"model": "default", "max_tokens": 8, "messages": messages}
    said(client.messages.create(**fields).content[0].text)
    with client.messages.stream(**fields) as stream:
        text = "".join(stream.text_stream)
        said(text)
        final = stream.get_final_message()
    assert final.content[0].text == text and final.stop_reason == "max_tokens"
    assert final.usage.output_tokens == 8 and final.usage.input_tokens >= 0
    assert client.messages.count_tokens(model="default", messages=messages).input_tokens > 0
    with client.messages.stream(**fields, tools=[tool]) as stream:
        reply = stream.get_final_message()
    call = reply.content[0]
    assert (call.type, call.input, reply.stop_reason) == ("tool_use", {"city": "Paris"}, "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": [result]}]
    said(client.messages.create(**fields, tools=[tool]).content[0].text)
    try:
        client.messages.create(**fields, extra_body={"temperature": 9})
    except anthropic.BadRequestError as error:
        assert error.request_id and "temperature" in str(error)
    else:
        raise AssertionError("a temperature of 9 was accepted")
    with client.messages.stream(**fields | {"max_tokens": 1000}) as left:
        next(iter(left))


def ollama_api(url):
    import ollama

    client = ollama.Client(host=url)
    assert client.list().models and client.ps().models and client.show("default").modelinfo
    messages = [{"role": "user", "content": QUESTION}]
    fields = {"model": "default", "messages": messages, "options": {"num_predict": 8}}
    said(client.chat(**fields).message.content)
    lines = list(client.chat(**fields, stream=True))
    said("".join(line.message.content for line in lines))
    assert lines[-1].done_reason == "length" and lines[-1].eval_count == 8
    said(client.generate(model="default", prompt=QUESTION, options={"num_predict": 8}).response)
    reply = client.chat(model="default", messages=messages, tools=[get_weather]).message
    assert reply.tool_calls[0].function.arguments == {"city": "Paris"}, reply
    messages += [reply, {"role": "tool", "tool_name": "get_weather", "content": "sunny"}]
    said(client.chat(**fields, tools=[get_weather]).message.content)
    left = client.chat(model="default", messages=messages, stream=True)
    next(left)
    left.close()


def langchain(model):
    """A chat, a stream, a round trip and a stream that is left, through one of its models."""
    from langchain_core.messages import HumanMessage, ToolMessage

    def text(message):
        parts = message.content
        return parts if isinstance(parts, str) else "".join(part.get("text", "") for part in parts)

    messages = [HumanMessage(QUESTION)]
    said(text(model.invoke(messages)))
    said("".join(text(chunk) for chunk in model.stream(messages)))
    tools = model.bind_tools([TOOL])
    call = tools.invoke(messages)
    assert call.tool_calls[0]["args"] == {"city": "Paris"}, call
    messages += [call, ToolMessage("sunny", tool_call_id=call.tool_calls[0]["id"])]
    said(text(tools.invoke(messages)))
    left = model.stream(messages)
    next(left)
    left.close()


def langchain_openai(url):
    from langchain_openai import ChatOpenAI

    langchain(ChatOpenAI(base_url=f"{url}/v1", api_key="none", model="default"))


def langchain_responses(url):
    from langchain_openai import ChatOpenAI

    fields = {"base_url": f"{url}/v1", "api_key": "none", "model": "default"}
    langchain(ChatOpenAI(**fields, use_responses_api=True))


def langchain_anthropic(url):
    from langchain_anthropic import ChatAnthropic

    langchain(ChatAnthropic(base_url=url, api_key="none", model="default", max_tokens=2000))


def langchain_ollama(url):
    from langchain_ollama import ChatOllama

    langchain(ChatOllama(base_url=url, model="default"))


def pydantic_ai(url):
    from pydantic_ai import Agent
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    openai = OpenAIProvider(base_url=f"{url}/v1", api_key="none")
    anthropic = AnthropicProvider(base_url=url, api_key="none")
    for model in (
        OpenAIChatModel("default", provider=openai),
        OpenAIResponsesModel("default", provider=openai),
        AnthropicModel("default", provider=anthropic),
    ):
        CALLED.clear()
        said(Agent(model).run_sync(QUESTION).output)
        said(Agent(model, tools=[get_weather]).run_sync(QUESTION).output)
        assert CALLED == ["Paris"], CALLED


def smolagents(url):
    from smolagents import OpenAIServerModel

    model = OpenAIServerModel(model_id="default", api_base=f"{url}/v1", api_key="none", max_tokens=8)
    messages = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    said(model.generate(messages).content)
    said("".join(delta.content or "" for delta in model.generate_stream(messages)))


def litellm(url):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    messages = [{"role": "user", "content": QUESTION}]
    for model, base in (
        ("openai/default", f"{url}/v1"),
        ("anthropic/default", url),
        ("ollama_chat/default", url),
    ):
        fields = {"model": model, "api_base": base, "api_key": "none", "messages": messages}
        said(litellm.completion(**fields, max_tokens=8).choices[0].message.content)
        chunks = litellm.completion(**fields, max_tokens=8, stream=True)
        said("".join(chunk.choices[0].delta.content or "" for chunk in chunks))
        call = litellm.completion(**fields, tools=[TOOL]).choices[0].message.tool_calls[0]
        assert json.loads(call.function.arguments) == {"city": "Paris"}, (model, call)


SDKS = [openai_chat, openai_responses, anthropic_messages, ollama_api]
FRAMEWORKS = [
    langchain_openai,
    langchain_responses,
    langchain_anthropic,
    langchain_ollama,
    pydantic_ai,
    smolagents,
    litellm,
]


def idle(url):
    """Answers that nobody reads must be gone soon."""
    for _ in range(100):
        with urllib.request.urlopen(f"{url}/v1/requests") as response:
            if not json.load(response)["data"]:
                return
        time.sleep(0.05)
    raise AssertionError("an answer goes on that nobody reads")


def main():
    clients = FRAMEWORKS if "--frameworks" in sys.argv else SDKS
    command = [sys.argv[1], "0", "get_weather", '{"city": "Paris"}']
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    failed = 0
    try:
        url = re.search(r"http://\S+", server.stdout.readline())[0]
        for client in clients:
            try:
                client(url)
                idle(url)
                print("ok  ", client.__name__)
            except Exception:
                failed += 1
                print("FAIL", client.__name__)
                traceback.print_exc()
    finally:
        server.terminate()
        server.wait(timeout=60)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
