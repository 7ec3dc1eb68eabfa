"""Compares a GGUF model in hearth with an f32 run of the same dequantised weights in transformers,
and with llama.cpp on the same file and positions; writes the small fixture that the tests use.

    python tools/goldens/real_models.py MODEL.gguf HEARTH_BINARY \
        [--llama-logits PROGRAM] [--fixture OUT.json]

HEARTH_BINARY is `target/release/hearth`; PROGRAM is tools/goldens/llama_logits.cpp, compiled.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np
import torch
from gguf import GGUFReader, dequantize
from transformers import AutoConfig, AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
POSITIONS = 1000
NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def halves(weight, heads):
    """Undoes the row order that GGUF gives q and k of the llama architecture."""
    rows = weight.shape[0] // heads // 2
    return weight.reshape(heads, rows, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def transformers_model(path):
    """An f32 model with the dequantised weights of a llama or qwen2 GGUF."""
    reader = GGUFReader(path)
    fields = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    arch = fields["general.architecture"]
    get = lambda key, default=None: fields.get(f"{arch}.{key}", default)
    heads, kv_heads = get("attention.head_count"), get("attention.head_count_kv")
    state = {}
    for tensor in reader.tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(shape)
        base, kind = tensor.name.rsplit(".", 1)
        if base.startswith("blk."):
            _, layer, part = base.split(".")
            if arch == "llama" and part in ("attn_q", "attn_k"):
                weight = halves(weight, heads if part == "attn_q" else kv_heads)
            name = f"model.layers.{layer}.{LAYER_NAMES[part]}.{kind}"
        else:
            name = f"{NAMES[base]}.{kind}"
        state[name] = torch.from_numpy(np.ascontiguousarray(weight))
    tied = "lm_head.weight" not in state
    config = AutoConfig.for_model(
        arch,
        hidden_size=get("embedding_length"),
        intermediate_size=get("feed_forward_length"),
        num_hidden_layers=get("block_count"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        rms_norm_eps=float(f"{get('attention.layer_norm_rms_epsilon'):.3g}"),
        rope_parameters={"rope_type": "default", "rope_theta": float(get("rope.freq_base"))},
        vocab_size=state["model.embed_tokens.weight"].shape[0],
        max_position_embeddings=get("context_length"),
        tie_word_embeddings=tied,
    )
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model.eval()


def log_softmax(logits):
    logits = logits.astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def compare(name, reference, logits):
    """Mean KL(reference || logits) in nats and top-1 agreement, row by row to save memory."""
    kl, worst, agree = 0.0, 0.0, 0
    for p, q in zip(reference, logits):
        p, q = log_softmax(p), log_softmax(q)
        divergence = float((np.exp(p) * (p - q)).sum())
        kl, worst = kl + divergence, max(worst, divergence)
        agree += int(p.argmax() == q.argmax())
    n = len(reference)
    print(f"{name:<28} mean KL {kl / n:.3e}  worst {worst:.3e}  top-1 {100 * agree / n:.2f} %")


def hearth_logits(hearth, model, ids, folder, *flags):
    ids_file, out = folder / "ids.json", folder / "logits.npy"
    ids_file.write_text(json.dumps(ids))
    window = ["--window", str(len(ids))]
    command = [hearth, "perplexity", model, ids_file, *window, "--logits", out, *flags]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return np.load(out)


def llama_logits(program, model, ids, folder):
    ids_file, out = folder / "ids.txt", folder / "logits.f32"
    ids_file.write_text(" ".join(map(str, ids)))
    subprocess.run([program, model, ids_file, out, "2"], check=True)
    return np.fromfile(out, dtype=np.float32).reshape(len(ids), -1)


def token_ids(model):
    """Ids of the passages, by the vocabulary of the file and the rules of its tokenizer."""
    from transformers import AutoTokenizer

    path = pathlib.Path(model)
    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    text = (HERE / "passages.txt").read_text()
    return tokenizer(text, add_special_tokens=False)["input_ids"][:POSITIONS]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("hearth")
    parser.add_argument("--llama-logits")
    parser.add_argument("--fixture")
    args = parser.parse_args()

    ids = token_ids(args.model)
    assert len(ids) == POSITIONS, len(ids)
    with torch.no_grad():
        reference = transformers_model(args.model)(torch.tensor([ids])).logits[0].numpy()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        hearth = lambda *flags: hearth_logits(args.hearth, args.model, ids, folder, *flags)
        compare("hearth, f32 activations", reference, hearth("--exact-activations"))
        compare("hearth, 8-bit activations", reference, hearth())
        if args.llama_logits:
            theirs = llama_logits(args.llama_logits, args.model, ids, folder)
            compare("llama.cpp", reference, theirs)
    if args.fixture:
        logp = [log_softmax(row) for row in reference]
        next_logp = [round(float(row[next_id]), 5) for row, next_id in zip(logp, ids[1:])]
        top = [int(row.argmax()) for row in reference]
        fixture = {"ids": ids, "top": top, "next_logprob": next_logp}
        pathlib.Path(args.fixture).write_text(json.dumps(fixture, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
