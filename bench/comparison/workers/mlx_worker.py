"""One measurement of mlx-lm, in a process of its own: reads a task as JSON, prints the result."""

import json
import sys
import time

start = time.perf_counter()
import mlx.core  # noqa: E402
import mlx_lm  # noqa: E402
from mlx_lm.generate import generate_step  # noqa: E402

task = json.load(sys.stdin)
model, _ = mlx_lm.load(task["model"])
result = {"load_ms": (time.perf_counter() - start) * 1e3}


def run(tokens, n_tokens):
    """Seconds to the first token, and from there to the last."""
    start = first = time.perf_counter()
    for n, _ in enumerate(generate_step(mlx.core.array(tokens), model, max_tokens=n_tokens)):
        if n == 0:
            first = time.perf_counter()
    return first - start, time.perf_counter() - first


warm, measured = task["prompts"]
run(warm["ids"][:4], 2)
if task["kind"] == "prefill":
    result["tok_s"] = len(measured["ids"]) / run(measured["ids"], 1)[0]
else:
    result["tok_s"] = task["n_gen"] / run(measured["ids"], task["n_gen"] + 1)[1]
print(json.dumps(result))
