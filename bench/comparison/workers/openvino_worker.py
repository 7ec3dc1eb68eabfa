"""One measurement of OpenVINO GenAI, in a process of its own: reads a task as JSON, prints the result."""

import json
import sys
import time

start = time.perf_counter()
import numpy  # noqa: E402
import openvino  # noqa: E402
import openvino_genai  # noqa: E402

task = json.load(sys.stdin)
pipeline = openvino_genai.LLMPipeline(task["model"], "CPU", INFERENCE_NUM_THREADS=task["threads"])
result = {"load_ms": (time.perf_counter() - start) * 1e3}


def run(tokens, n_tokens):
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos, config.do_sample = n_tokens, True, False
    config.apply_chat_template = False
    ids = openvino.Tensor(numpy.array([tokens], dtype=numpy.int64))
    metrics = pipeline.generate(ids, config).perf_metrics
    assert metrics.get_num_generated_tokens() == n_tokens, metrics.get_num_generated_tokens()
    return metrics


warm, measured = task["prompts"]
run(warm["ids"], 8)
if task["kind"] == "prefill":
    first_ms = run(measured["ids"], 1).get_ttft().mean
    result["tok_s"] = len(measured["ids"]) / first_ms * 1e3
else:
    result["tok_s"] = 1e3 / run(measured["ids"], task["n_gen"] + 1).get_tpot().mean
print(json.dumps(result))
