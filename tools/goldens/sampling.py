"""Makes crates/engine/tests/fixtures/sampling.json: which tokens pass the sampling filters.

The filters of Transformers, in the order its generate() applies them, on logits given by a formula
that is exact in f32. Run from the root of the repository, with torch and transformers.
"""

import json

import torch
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

OUT = "crates/engine/tests/fixtures/sampling.json"


def logits_of(n, step, spread):
    """No two are equal: an odd step visits every residue once."""
    values = [((i * step + 77) % 8192) / spread - 8.0 for i in range(n)]
    return torch.tensor([values], dtype=torch.float32)


def processors(case):
    if case.get("repetition_penalty", 1.0) != 1.0:
        yield RepetitionPenaltyLogitsProcessor(case["repetition_penalty"])
    if case.get("bad_words_ids"):
        yield NoBadWordsLogitsProcessor(case["bad_words_ids"], case.get("eos_token_id"))
    if case.get("suppress_tokens"):
        yield SuppressTokensLogitsProcessor(case["suppress_tokens"])
    if case.get("begin_suppress_tokens"):
        yield SuppressTokensAtBeginLogitsProcessor(case["begin_suppress_tokens"], case["n_prompt"])
    yield TemperatureLogitsWarper(case["temperature"])
    if case.get("top_k", 0) > 0:
        yield TopKLogitsWarper(case["top_k"])
    if case.get("top_p", 1.0) < 1.0:
        yield TopPLogitsWarper(case["top_p"])
    if case.get("min_p", 0.0) > 0.0:
        yield MinPLogitsWarper(case["min_p"])


def clear_of_edges(scores, top_p):
    """The next larger p at which no token is so near the edge that rounding decides."""
    probs = scores.double().softmax(-1).sort(descending=True).values[0]
    before = probs.cumsum(0) - probs
    while (before - top_p).abs().min() < 1e-5:
        top_p = round(top_p + 0.00013, 6)
    return top_p


def run(case):
    logits = logits_of(case["n"], case["step"], case["spread"])
    scores = logits.clone()
    ids = torch.tensor([case["history"]], dtype=torch.long)
    for processor in processors(case):
        if isinstance(processor, TopPLogitsWarper):
            case["top_p"] = clear_of_edges(scores, case["top_p"])
            processor = TopPLogitsWarper(case["top_p"])
        scores = processor(ids, scores)
    probs = scores.double().softmax(-1)[0]
    kept = [i for i in range(case["n"]) if scores[0, i] > -torch.inf]
    shown = sorted(kept, key=lambda i: -probs[i])[:12]
    raw = logits.double().log_softmax(-1)[0]
    top = raw.topk(5)
    return {
        **case,
        "kept": len(kept),
        "kept_sum_of_ids": sum(kept),
        "best": [[i, probs[i].item()] for i in shown],
        "logprobs": [[i, v] for i, v in zip(top.indices.tolist(), top.values.tolist())],
    }


def cases():
    small = {"n": 60, "step": 2741, "spread": 512, "history": [1]}
    large = {"n": 8000, "step": 4093, "spread": 512, "history": [5, 5, 9]}
    flat = {"n": 8000, "step": 2741, "spread": 4096, "history": [2]}
    best = logits_of(60, 2741, 512)[0].topk(4).indices.tolist()
    for base in (small, large, flat):
        for temperature in (0.3, 1.0, 1.7):
            yield {**base, "temperature": temperature}
            yield {**base, "temperature": temperature, "top_k": 40}
            yield {**base, "temperature": temperature, "top_k": 1}
            yield {**base, "temperature": temperature, "top_p": 0.9}
            yield {**base, "temperature": temperature, "top_p": 0.05}
            yield {**base, "temperature": temperature, "min_p": 0.1}
            yield {**base, "temperature": temperature, "top_k": 300, "top_p": 0.8, "min_p": 0.02}
    for penalty in (0.8, 1.3):
        history = list(range(0, 50, 3)) * 2
        yield {**small, "history": history, "temperature": 1.0, "repetition_penalty": penalty}
        yield {
            **small,
            "history": history,
            "temperature": 0.7,
            "repetition_penalty": penalty,
            "top_k": 20,
            "top_p": 0.95,
            "min_p": 0.01,
        }
    for settings in ({}, {"top_k": 3}, {"repetition_penalty": 1.3, "top_p": 0.9, "min_p": 0.001}):
        base = {**small, "history": [4, 9, 1, 7, 9], "temperature": 0.8, **settings}
        yield {**base, "suppress_tokens": [best[0], best[2], 9]}
        yield {**base, "begin_suppress_tokens": best[:2], "n_prompt": 5}
        yield {**base, "begin_suppress_tokens": best[:2], "n_prompt": 4}
        yield {**base, "bad_words_ids": [[best[0]], [9, best[1]], [7, 9, best[2]], [4, 9, best[3]]]}
        yield {**base, "bad_words_ids": [[best[0]], [9, best[0]], [best[1]]], "eos_token_id": [best[0], 3]}
        yield {**base, "bad_words_ids": [[5, 4, 9, 1, 7, 9, best[0]], [4, 9, 1, 7, 9, best[1]]]}


if __name__ == "__main__":
    with open(OUT, "w") as file:
        rows = ",\n".join(json.dumps(run(case)) for case in cases())
        file.write(f"[\n{rows}\n]\n")
