"""Tiny models in every MLX packing with the logits that mlx-lm computes for them.

    python tools/goldens/mlx_models.py crates/models/tests/fixtures/mlx [case...]

Per case: `config.json` and `model.safetensors` as mlx-lm writes them, `input.json` beside all of them,
and `logits_kv16.f32` (rows x vocab, little endian): mlx-lm's own loader and model on its CPU wheel,
everything widened to f32 (scales and biases exactly), keys and values rounded to f16 as every Hearth
device stores them.
"""

import copy
import importlib
import json
import pkgutil
import sys
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models import bailing_moe, gemma4, glm4_moe, gpt_oss, llama, minimax, qwen3_5_moe, qwen3_moe, qwen3_next
from mlx_lm.models.cache import KVCache
from mlx_lm.utils import load_model, quantize_model

import cases

VOCAB = 96
ROWS = 40
SIZES = dict(
    vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=100.0,
)
LLAMA = (llama, {"model_type": "llama", "tie_word_embeddings": True, **SIZES})
UNTIED = (llama, {"model_type": "llama", "tie_word_embeddings": False, **SIZES})
MOE = (
    qwen3_moe,
    {
        "model_type": "qwen3_moe", "tie_word_embeddings": False, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 64, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True,
        **SIZES,
    },
)

DELTA = dict(
    full_attention_interval=2, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
    linear_value_head_dim=32, linear_conv_kernel_dim=4, num_experts=4, num_experts_per_tok=2,
    moe_intermediate_size=64, shared_expert_intermediate_size=64, norm_topk_prob=True, decoder_sparse_step=1,
)
HYBRID = (
    qwen3_5_moe,
    {
        "model_type": "qwen3_5_moe",
        "text_config": {
            "model_type": "qwen3_5_moe_text", "tie_word_embeddings": False, **SIZES, **DELTA,
            "rope_parameters": {"type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.25},
        },
    },
)
NEXT = (
    qwen3_next,
    {"model_type": "qwen3_next", "tie_word_embeddings": False, "partial_rotary_factor": 0.5, "mlp_only_layers": [],
     **SIZES, **DELTA},
)

GPT_OSS = (
    gpt_oss,
    {"model_type": "gpt_oss", "tie_word_embeddings": False, "num_local_experts": 4, "num_experts_per_tok": 2,
     "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"], **SIZES, "intermediate_size": 64},
)
GLM = (
    glm4_moe,
    {"model_type": "glm4_moe", "tie_word_embeddings": False, "n_routed_experts": 8, "num_experts_per_tok": 2,
     "n_group": 4, "topk_group": 2, "n_shared_experts": 2, "routed_scaling_factor": 2.5, "norm_topk_prob": True,
     "moe_intermediate_size": 64, "first_k_dense_replace": 1, "use_qk_norm": True, "attention_bias": False,
     "rope_scaling": None, "partial_rotary_factor": 0.5, **SIZES},
)
MINIMAX = (
    minimax,
    {"model_type": "minimax_m2", "tie_word_embeddings": False, "num_local_experts": 4, "num_experts_per_tok": 2,
     "shared_intermediate_size": 0, "rotary_dim": 8, **SIZES, "intermediate_size": 64},
)


# Its head is divided by the lengths of its columns as it is loaded.
NORM_HEAD = (
    bailing_moe,
    {"model_type": "bailing_moe", "tie_word_embeddings": False, "num_experts": 4, "num_experts_per_tok": 2,
     "num_shared_experts": 1, "norm_topk_prob": True, "first_k_dense_replace": 0, "moe_intermediate_size": 32,
     "norm_head": True, **{k: v for k, v in SIZES.items() if k != "head_dim"}, "intermediate_size": 64},
)


GEMMA = (
    gemma4,
    {
        "model_type": "gemma4", "vocab_size": VOCAB,
        "text_config": {
            "model_type": "gemma4_text", "tie_word_embeddings": True, **SIZES, "num_hidden_layers": 4,
            "intermediate_size": 32, "layer_types": ["sliding_attention", "full_attention"] * 2,
            "sliding_window": 24, "global_head_dim": 32, "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
            "hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": VOCAB,
            "final_logit_softcapping": 4.0,
            "rope_parameters": {
                "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
        },
    },
)


def mixed(path, module):
    """Settings of their own for some layers, as the files of several publishers have them."""
    if path == "lm_head":
        return False
    if path.endswith("down_proj"):
        return {"group_size": 32, "bits": 6}
    if path.endswith("layers.1.self_attn.v_proj"):
        return {"group_size": 64, "bits": 8}
    return True


def own_settings(path, module):
    """Experts, attention and router in settings of their own."""
    if path.endswith("router"):
        return {"group_size": 64, "bits": 8}
    if "self_attn" in path:
        return {"group_size": 32, "bits": 6, "mode": "affine"}
    return True


def plain_head(path, module):
    """All but the head."""
    return path != "lm_head"


def modes(path, module):
    """Several modes in one file."""
    if path.endswith("q_proj"):
        return {"group_size": 32, "bits": 4, "mode": "mxfp4"}
    if path.endswith("mlp.gate"):
        return {"group_size": 64, "bits": 8, "mode": "affine"}
    return True


# name -> (model, group, bits, mode, type of what is not packed, predicate)
CASES = {
    "affine2": (LLAMA, 32, 2, "affine", mx.bfloat16, None),
    "affine3": (LLAMA, 64, 3, "affine", mx.float16, None),
    "affine4": (LLAMA, 64, 4, "affine", mx.bfloat16, None),
    "affine5": (LLAMA, 32, 5, "affine", mx.float32, None),
    "affine6": (LLAMA, 64, 6, "affine", mx.bfloat16, None),
    "affine8": (UNTIED, 64, 8, "affine", mx.bfloat16, None),
    "mxfp4": (LLAMA, 32, 4, "mxfp4", mx.bfloat16, None),
    "mxfp8": (LLAMA, 32, 8, "mxfp8", mx.bfloat16, None),
    "nvfp4": (UNTIED, 16, 4, "nvfp4", mx.bfloat16, None),
    "mixed": (UNTIED, 64, 4, "affine", mx.bfloat16, mixed),
    "moe_affine4": (MOE, 64, 4, "affine", mx.bfloat16, None),
    "hybrid_affine4": (HYBRID, 32, 4, "affine", mx.bfloat16, None),
    "gemma4_affine4": (GEMMA, 32, 4, "affine", mx.bfloat16, None),
    "hybrid_next_mxfp4": (NEXT, 32, 4, "mxfp4", mx.bfloat16, None),
    "moe_nvfp4_modes": (MOE, 16, 4, "nvfp4", mx.bfloat16, modes),
    "gpt_oss_affine4": (GPT_OSS, 64, 4, "affine", mx.bfloat16, None),
    "gpt_oss_mxfp4": (GPT_OSS, 32, 4, "mxfp4", mx.bfloat16, own_settings),
    "glm_affine4": (GLM, 64, 4, "affine", mx.bfloat16, None),
    "minimax_affine4": (MINIMAX, 32, 4, "affine", mx.bfloat16, None),
    "bailing_norm_head_affine4": (NORM_HEAD, 32, 4, "affine", mx.float32, plain_head),
}
# Those of the families lie with their other cases: name -> (module of mlx-lm, config, group, bits).
for area in pkgutil.iter_modules(cases.__path__, "cases."):
    for case, (module, config, group, bits) in getattr(importlib.import_module(area.name), "MLX_CASES", {}).items():
        model = (importlib.import_module(f"mlx_lm.models.{module}"), config)
        CASES[case] = (model, group, bits, "affine", mx.bfloat16, None)


def in_f16(cache):
    """Has a cache give keys and values back as f16 would."""
    if hasattr(cache, "update_and_fetch"):
        plain = cache.update_and_fetch
        cache.update_and_fetch = lambda *kv: plain(*[x.astype(mx.float16).astype(mx.float32) for x in kv])
    return cache


def randomise(model, seed):
    """Weights drawn large, gains away from one, so that a wrong term shows."""
    rng = np.random.default_rng(seed)
    drawn = []
    for name, p in sorted(tree_flatten(model.parameters())):
        noise = rng.standard_normal(p.shape).astype(np.float32)
        if "norm" in name:
            value = 1.0 + 0.35 * noise
        elif name.endswith("layer_scalar"):
            value = 1.0 + 0.3 * noise
        elif name.endswith(("correction_bias", "expert_bias")):
            value = 0.3 * np.abs(noise)  # mlx-lm takes experts of groups it left out for such of zero.
        elif name == "lm_head.weight" and getattr(model, "norm_head", False):
            value = noise * np.linspace(0.2, 2.0, p.shape[-1], dtype=np.float32)
        elif name.endswith("correct_output_scale"):
            value = 1.0 + 0.35 * noise
        elif name.endswith("modality_router.weight"):
            value = noise * p.shape[-1] ** 0.5  # What it reads is divided by as many as it has columns.
        elif "embed_tokens" in name:
            value = noise
        elif name.endswith(("gate.weight", "router.weight", "gate.gate_proj.weight", "router.layer.weight")):
            value = 2.5 * noise * p.shape[-1] ** -0.5
        else:
            value = 1.3 * noise * p.shape[-1] ** -0.5
        drawn.append((name, mx.array(value)))
    model.load_weights(drawn)


def f32_logits(folder, ids):
    model, _ = load_model(folder)
    widen = lambda x: x.astype(mx.float32) if mx.issubdtype(x.dtype, mx.floating) else x
    model.update(tree_map(widen, model.parameters()))
    plain = model.make_cache() if hasattr(model, "make_cache") else [KVCache() for _ in model.layers]
    return model(ids, cache=[in_f16(c) for c in plain])[0]


def write_case(root, name, model, group, bits, mode, dtype, predicate, ids):
    module, config = model[0], copy.deepcopy(model[1])
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    model = module.Model(module.ModelArgs.from_dict(config))
    randomise(model, seed=len(name))
    model.set_dtype(dtype)
    model, config = quantize_model(
        model, config, group_size=group, bits=bits, mode=mode,
        quant_predicate=predicate or getattr(model, "quant_predicate", None),
    )
    mx.save_safetensors(
        str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())), {"format": "mlx"}
    )
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    logits = f32_logits(folder, ids)
    (folder / "logits_kv16.f32").write_bytes(np.array(logits).astype("<f4").tobytes())
    size = (folder / "model.safetensors").stat().st_size
    print(f"{name:16} {size:7} bytes, std {mx.std(logits).item():.3f}")


if __name__ == "__main__":
    mx.set_default_device(mx.cpu)
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    ids = np.random.default_rng(7).integers(3, VOCAB, (1, ROWS))
    (target / "input.json").write_text(json.dumps(ids[0].tolist()) + "\n")
    for name in sys.argv[2:] or CASES:
        write_case(target, name, *CASES[name], mx.array(ids))
