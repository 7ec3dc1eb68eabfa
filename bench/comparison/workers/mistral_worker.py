"""One measurement of mistral.rs, in a process of its own: reads a task as JSON, prints the result."""

import json
import os
import sys
import time

start = time.perf_counter()
from mistralrs import CompletionRequest, Runner, Which  # noqa: E402

task = json.load(sys.stdin)
folder, file = os.path.split(task["model"])
which = Which.GGUF(quantized_model_id=folder, quantized_filename=file)
runner = Runner(which=which, prefix_cache_n=0)
result = {"load_ms": (time.perf_counter() - start) * 1e3}


def run(text, n_tokens):
    request = CompletionRequest(
        model="default", prompt=text, max_tokens=n_tokens, temperature=0.0, ignore_eos=True
    )
    start = time.perf_counter()
    usage = runner.send_completion_request(request).usage
    assert usage.completion_tokens == n_tokens, usage.completion_tokens
    return usage, time.perf_counter() - start


warm, measured = task["prompts"]
run(warm["text"], 8)
if task["kind"] == "prefill":
    # By the clock or by its own account, whichever is better.
    usage, seconds = run(measured["text"], 1)
    result["tok_s"] = max(usage.prompt_tokens / seconds, usage.avg_prompt_tok_per_sec)
else:
    usage, _ = run(measured["text"], task["n_gen"] + 1)
    result["tok_s"] = usage.avg_compl_tok_per_sec
result["prompt_tokens"] = usage.prompt_tokens
print(json.dumps(result))
