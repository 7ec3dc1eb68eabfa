#!/usr/bin/env python3
"""How fast models that are too large to fetch would be on this machine: real shapes with random weights.

    python3 bench/shapes.py [--work DIR] [--shapes qwen3.5-4b,qwen3-30b-a3b] [--layers N]

Writes an MLX 4-bit folder per shape (3 and 18 GB, less with fewer layers; kept in DIR), runs `hearth bench` on it, and puts the
figures beside what the machine could do: decoding beside the bytes of the weights that one token needs and
the bandwidth measured right before and after, prompts beside the peak of 8-bit multiply-adds. The codes
are random, so that the router of a mixture sends every token elsewhere; what the model says is noise.

Uses only the standard library and a C compiler.
"""

import argparse
import json
import math
import pathlib
import random
import statistics
import struct
import subprocess

from comparison.machine import Limits
from comparison.setup import Setup
from served import HEARTH, REPOSITORY

GROUP = 64
BITS = 4
# A piece of random codes that is written again and again, at an odd size so that no two rows are alike.
NOISE = random.Random(7).randbytes((64 << 20) + 12_340)

QWEN3_5_4B = {
    "model_type": "qwen3_5_text", "vocab_size": 248_320, "hidden_size": 2560, "intermediate_size": 9216,
    "num_hidden_layers": 32, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
    "rms_norm_eps": 1e-6, "max_position_embeddings": 32_768, "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
}
QWEN3_30B_A3B = {
    "model_type": "qwen3_moe", "vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 6144,
    "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "rms_norm_eps": 1e-6, "rope_theta": 1e6,
    "max_position_embeddings": 32_768, "tie_word_embeddings": False,
}
SHAPES = {"qwen3.5-4b": QWEN3_5_4B, "qwen3-30b-a3b": QWEN3_30B_A3B}


class Tensors:
    """The tensors of a model in order: name, type, shape and what fills it."""

    def __init__(self):
        self.list = []
        # Weights of matrices that every token of a prompt meets, experts by how many it meets.
        self.macs = 0
        # Bytes that one decoded token reads, and writes of states.
        self.bytes = 0
        # Those of states, half of which are written.
        self.state_bytes = 0

    def matrix(self, name, rows, cols, experts=None, top_k=1, share=1.0):
        lead = [] if experts is None else [experts]
        used = share * (1 if experts is None else top_k / experts)
        # The codes are even over 0..15: spread like this they make numbers of the size 1 / sqrt(cols).
        scale = 0.2 / math.sqrt(cols)
        for suffix, dtype, width, fill in [
            ("weight", "U32", cols * BITS // 32, None),
            ("scales", "BF16", cols // GROUP, scale),
            ("biases", "BF16", cols // GROUP, -7.5 * scale),
        ]:
            shape = [*lead, rows, width]
            self.list.append((f"{name}.{suffix}", dtype, shape, fill))
            self.bytes += used * math.prod(shape) * (4 if dtype == "U32" else 2)
        if ".layers." in name:
            self.macs += used * math.prod([*lead, rows, cols])

    def vector(self, name, shape, value):
        self.list.append((name, "BF16", shape, value))
        self.bytes += 2 * math.prod(shape)


def tensors(config):
    c, t = config, Tensors()
    hidden, head = c["hidden_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    delta = c.get("full_attention_interval")
    tied = c["tie_word_embeddings"]
    # An embedding that is only looked up costs a row.
    t.matrix("model.embed_tokens", c["vocab_size"], hidden, share=1.0 if tied else 0.0)
    if not tied:
        t.matrix("lm_head", c["vocab_size"], hidden)
    t.vector("model.norm.weight", [hidden], 1.0)
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            t.vector(f"{layer}.{norm}.weight", [hidden], 1.0)
        if delta and (i + 1) % delta:
            delta_rule(c, t, f"{layer}.linear_attn")
        else:
            # The gate of each head comes with its query.
            t.matrix(f"{layer}.self_attn.q_proj", q * (2 if delta else 1), hidden)
            t.matrix(f"{layer}.self_attn.k_proj", kv, hidden)
            t.matrix(f"{layer}.self_attn.v_proj", kv, hidden)
            t.matrix(f"{layer}.self_attn.o_proj", hidden, q)
            for norm in ("q_norm", "k_norm"):
                t.vector(f"{layer}.self_attn.{norm}.weight", [head], 1.0)
        if n := c.get("num_experts"):
            inner, some = c["moe_intermediate_size"], {"experts": n, "top_k": c["num_experts_per_tok"]}
            t.matrix(f"{layer}.mlp.gate", n, hidden)
            for name in ("gate_proj", "up_proj"):
                t.matrix(f"{layer}.mlp.switch_mlp.{name}", inner, hidden, **some)
            t.matrix(f"{layer}.mlp.switch_mlp.down_proj", hidden, inner, **some)
        else:
            inner = c["intermediate_size"]
            for name in ("gate_proj", "up_proj"):
                t.matrix(f"{layer}.mlp.{name}", inner, hidden)
            t.matrix(f"{layer}.mlp.down_proj", hidden, inner)
    return t


def delta_rule(c, t, name):
    hidden, k_heads, v_heads = c["hidden_size"], c["linear_num_key_heads"], c["linear_num_value_heads"]
    k_cols, v_cols = k_heads * c["linear_key_head_dim"], v_heads * c["linear_value_head_dim"]
    t.matrix(f"{name}.in_proj_qkv", 2 * k_cols + v_cols, hidden)
    t.matrix(f"{name}.in_proj_z", v_cols, hidden)
    t.matrix(f"{name}.in_proj_b", v_heads, hidden)
    t.matrix(f"{name}.in_proj_a", v_heads, hidden)
    t.matrix(f"{name}.out_proj", hidden, v_cols)
    t.vector(f"{name}.conv1d.weight", [2 * k_cols + v_cols, c["linear_conv_kernel_dim"], 1], 0.3)
    t.vector(f"{name}.A_log", [v_heads], 0.5)
    t.vector(f"{name}.dt_bias", [v_heads], 0.1)
    t.vector(f"{name}.norm.weight", [c["linear_value_head_dim"]], 1.0)
    # The state is read and written, in f32.
    state = 2 * 4 * v_heads * c["linear_key_head_dim"] * c["linear_value_head_dim"]
    t.bytes += state
    t.state_bytes += state


def write(folder, config, router=1.0):
    """The model as one safetensors file, in large pieces. `router` is how much opinion routers have."""
    made = tensors(config)
    if (folder / "config.json").exists():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    header, at = {}, 0
    for name, dtype, shape, _ in made.list:
        size = math.prod(shape) * (4 if dtype == "U32" else 2)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb", buffering=16 << 20) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, dtype, shape, fill in made.list:
            n = math.prod(shape)
            if fill is None:
                noise(file, 4 * n)
            else:
                fill *= router if ".mlp.gate." in name else 1.0
                # The upper half of a binary32.
                file.write(struct.pack("<f", fill)[2:] * n)
    section = {"group_size": GROUP, "bits": BITS}
    (folder / "config.json").write_text(json.dumps(config | {"quantization": section}))
    return made


def noise(file, size):
    for begin in range(0, size, len(NOISE)):
        file.write(NOISE[: min(len(NOISE), size - begin)])


def bench(hearth, folder, more):
    command = [str(hearth), "bench", str(folder), "--json", "--runs", "3", *more]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure(args, name):
    config = SHAPES[name]
    if args.layers:
        config, name = config | {"num_hidden_layers": args.layers}, f"{name}-{args.layers}"
    folder = args.work / "shapes" / name
    made = write(folder, config)
    limits = Limits(Setup(args.work, args.hearth, None, args.threads))
    before = limits.measure()
    (decode,) = bench(args.hearth, folder, ["--prompt", "0", "--gen", "48", "--threads", str(args.threads)])
    after = limits.measure()
    (prompt,) = bench(args.hearth, folder, ["--prompt", "512", "--gen", "0", "--threads", str(args.threads)])
    bandwidth = statistics.mean(x[f"bandwidth_{args.threads}"] for x in (before, after))
    peak = statistics.mean(x["int8_peak"] for x in (before, after))
    needed, done = decode["tok_s"] * made.bytes / 1e9, prompt["tok_s"] * made.macs / 1e9
    print(f"{name}: {made.bytes / 1e6:.0f} MB and {made.macs / 1e6:.0f} M multiply-adds a token")
    print(f"  decode      {decode['tok_s']:7.2f} tok/s: {needed:.1f} of {bandwidth:.1f} GB/s, {needed / bandwidth:.0%}")
    print(f"  prefill 512 {prompt['tok_s']:7.2f} tok/s: {done:.1f} of {peak:.1f} GMAC/s, {done / peak:.0%}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, default=REPOSITORY / "target/compare")
    parser.add_argument("--hearth", type=pathlib.Path, default=HEARTH)
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--layers", type=int, help="fewer than the shape has, where the disk is small")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    for name in args.shapes.split(","):
        measure(args, name)


if __name__ == "__main__":
    main()
