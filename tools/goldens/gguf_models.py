"""Tiny GGUF files of every architecture, for the tests of names and configs.

Writes crates/weights/tests/fixtures/gguf/models/ARCH.gguf and a model in two parts. Sizes are the
smallest that keep every axis different; a matrix is Q8_0 and holds zeros, a vector is F32 and holds
1.5. The metadata keys are those that llama.cpp's own converter writes for the family.

    pip install gguf==0.19.0
    python tools/goldens/gguf_models.py
"""

import math
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as T, GGUFWriter, quantize

OUT = Path(__file__).resolve().parents[2] / "crates/weights/tests/fixtures/gguf/models"
HIDDEN, FFN, VOCAB, LAYERS, HEADS, KV, DIM = 32, 96, 40, 2, 4, 1, 16
EXPERTS, EXPERT_FFN = 3, 64


def matrix(*shape):
    return quantize(np.zeros(shape, np.float32), T.Q8_0), T.Q8_0


def vector(n):
    return np.full(n, 1.5, np.float32), T.F32


def dense():
    return {"ffn_gate.weight": matrix(FFN, HIDDEN), "ffn_up.weight": matrix(FFN, HIDDEN),
            "ffn_down.weight": matrix(HIDDEN, FFN)}


def moe():
    return {"ffn_gate_inp.weight": (np.zeros((EXPERTS, HIDDEN), np.float32), T.F32),
            "ffn_gate_exps.weight": matrix(EXPERTS, EXPERT_FFN, HIDDEN),
            "ffn_up_exps.weight": matrix(EXPERTS, EXPERT_FFN, HIDDEN),
            "ffn_down_exps.weight": matrix(EXPERTS, HIDDEN, EXPERT_FFN)}


def shared():
    return {"ffn_gate_inp_shexp.weight": vector(HIDDEN), "ffn_gate_shexp.weight": matrix(FFN, HIDDEN),
            "ffn_up_shexp.weight": matrix(FFN, HIDDEN), "ffn_down_shexp.weight": matrix(HIDDEN, FFN)}


def attention():
    return {"attn_norm.weight": vector(HIDDEN), "attn_q.weight": matrix(HEADS * DIM, HIDDEN),
            "attn_k.weight": matrix(KV * DIM, HIDDEN), "attn_v.weight": matrix(KV * DIM, HIDDEN),
            "attn_output.weight": matrix(HIDDEN, HEADS * DIM), "ffn_norm.weight": vector(HIDDEN)}


def biases():
    return {"attn_q.bias": vector(HEADS * DIM), "attn_k.bias": vector(KV * DIM), "attn_v.bias": vector(KV * DIM)}


def qk_norms():
    return {"attn_q_norm.weight": vector(DIM), "attn_k_norm.weight": vector(DIM)}


def llama3_factors():
    """What the converter writes for factor 8, bounds 1 and 4, original context 8192."""
    out = []
    for pair in range(DIM // 2):
        wavelength = 2 * math.pi * 500000.0 ** (2 * pair / DIM)
        smooth = (8192 / wavelength - 1) / 3
        out.append(1 if wavelength < 2048 else 8 if wavelength > 8192 else 1 / ((1 - smooth) / 8 + smooth))
    return np.array(out, np.float32), T.F32


def sampling():
    """What the converter makes of a generation_config.json, and what others add."""
    return {"general.sampling.top_k": 64, "general.sampling.top_p": 0.95, "general.sampling.temp": 0.5,
            "general.sampling.min_p": 0.0, "general.sampling.penalty_repeat": 1.25,
            "general.sampling.penalty_last_n": 32, "general.sampling.xtc_probability": 0.25,
            "general.sampling.xtc_threshold": 0.125, "general.sampling.mirostat": 2,
            "general.sampling.sequence": "top_k;temperature", "tokenizer.ggml.suppress_tokens": [38, 7]}


def write(path, arch, layer, top=(), tied=True, part=None, **values):
    w = GGUFWriter(path, arch)
    base = dict(context_length=512, embedding_length=HIDDEN, block_count=LAYERS, feed_forward_length=FFN)
    base |= {"attention.head_count": HEADS, "attention.head_count_kv": KV, "attention.key_length": DIM}
    for key, value in (base | values).items():
        key = key.replace("__", ".")
        key = key if key.startswith(("general.", "tokenizer.")) else f"{arch}.{key}"
        if isinstance(value, bool):
            w.add_bool(key, value)
        elif isinstance(value, float):
            w.add_float32(key, value)
        elif isinstance(value, str):
            w.add_string(key, value)
        elif isinstance(value, list):
            w.add_array(key, value)
        else:
            w.add_uint32(key, value)
    tensors = {"token_embd.weight": matrix(VOCAB, HIDDEN), "output_norm.weight": vector(HIDDEN)}
    tensors |= {} if tied else {"output.weight": matrix(VOCAB, HIDDEN)}
    tensors |= {f"blk.{i}.{name}": t for i in range(LAYERS) for name, t in layer.items()}
    tensors |= dict(top)
    if part is not None:
        w.add_uint16("split.no", part)
        w.add_uint16("split.count", 2)
        w.add_int32("split.tensors.count", len(tensors))
        tensors = dict(list(tensors.items())[part::2])
    for name, (data, ty) in tensors.items():
        w.add_tensor(name, data, raw_dtype=ty)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    rms = {"attention__layer_norm_rms_epsilon": 1e-5, "rope__freq_base": 500000.0}
    small = {"attention__layer_norm_rms_epsilon": 1e-6, "rope__freq_base": 1000000.0}
    experts = dict(expert_count=EXPERTS, expert_used_count=2, expert_feed_forward_length=EXPERT_FFN)
    write(OUT / "llama.gguf", "llama", attention() | dense(), {"rope_freqs.weight": llama3_factors()},
          rope__dimension_count=DIM, vocab_size=VOCAB, **rms)
    write(OUT / "mixtral.gguf", "llama", attention() | moe(), tied=False, expert_count=EXPERTS,
          expert_used_count=2, **rms)
    write(OUT / "qwen2.gguf", "qwen2", attention() | biases() | dense(), tied=False,
          rope__scaling__type="yarn", rope__scaling__factor=4.0,
          rope__scaling__original_context_length=128, **small)
    write(OUT / "qwen2moe.gguf", "qwen2moe", attention() | biases() | moe() | shared(), tied=False,
          expert_shared_feed_forward_length=FFN, **experts, **small)
    write(OUT / "qwen3.gguf", "qwen3", attention() | qk_norms() | dense(), **small)
    write(OUT / "qwen3moe.gguf", "qwen3moe", attention() | qk_norms() | moe(), tied=False, **experts, **small)
    post = {"post_attention_norm.weight": vector(HIDDEN), "post_ffw_norm.weight": vector(HIDDEN)}
    write(OUT / "gemma3.gguf", "gemma3", attention() | qk_norms() | dense() | post,
          attention__sliding_window=16, rope__scaling__type="linear", rope__scaling__factor=8.0, **small,
          **sampling())
    qkv = {"attn_norm.weight": vector(HIDDEN), "attn_qkv.weight": matrix((HEADS + 2 * KV) * DIM, HIDDEN),
           "attn_output.weight": matrix(HIDDEN, HEADS * DIM), "ffn_norm.weight": vector(HIDDEN),
           "ffn_up.weight": matrix(2 * FFN, HIDDEN), "ffn_down.weight": matrix(HIDDEN, FFN)}
    factors = {"rope_factors_long.weight": (np.linspace(1, 8, DIM // 4, dtype=np.float32), T.F32),
               "rope_factors_short.weight": (np.linspace(1, 2, DIM // 4, dtype=np.float32), T.F32)}
    write(OUT / "phi3.gguf", "phi3", qkv, factors, tied=False, rope__dimension_count=DIM // 2,
          attention__sliding_window=128, rope__scaling__original_context_length=128,
          rope__scaling__attn_factor=1.25, **rms)
    ling = {name: t for name, t in (attention() | qk_norms()).items() if name not in
            ("attn_q.weight", "attn_k.weight", "attn_v.weight")} | moe() | shared()
    del ling["ffn_gate_inp_shexp.weight"]
    ling |= {"attn_qkv.weight": matrix((HEADS + 2 * KV) * DIM, HIDDEN), "exp_probs_b.bias": vector(EXPERTS)}
    write(OUT / "bailingmoe2.gguf", "bailingmoe2", ling, tied=False, rope__dimension_count=DIM // 2,
          leading_dense_block_count=0, expert_shared_feed_forward_length=FFN, expert_weights_scale=2.5,
          expert_shared_count=1, expert_weights_norm=True, expert_gating_func=2, expert_group_count=3,
          expert_group_used_count=1, nextn_predict_layers=0, **experts, **small)
    for part in range(2):
        write(OUT / f"split-{part + 1:05}-of-00002.gguf", "llama", attention() | dense(), part=part, **rms)


if __name__ == "__main__":
    main()
