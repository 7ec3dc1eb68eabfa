"""Tiny GGUF models with the logits that transformers computes on their dequantised weights.

    python tools/goldens/gguf_logits.py crates/models/tests/fixtures/gguf [case...]

Per case `NAME.gguf` and `NAME_kv16.f32` (rows x vocab, little endian; keys and values rounded to f16 as
every Hearth device stores them), and one `input.json`. Metadata and tensor layouts are those of
llama.cpp's converter: q and k of llama permuted, Gemma's gains with the one added, experts stacked,
Llama 3's scaling as a table of factors.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from gguf import (
    GGML_QUANT_SIZES, ExpertGatingFuncType, GGMLQuantizationType as T, GGUFWriter, RopeScalingType, dequantize, quantize
)
from transformers import AutoModelForCausalLM
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import gguf_gemmas
from cases.sizes import rope
from families import logits, make_config, randomise, router_margin, write_f32
from gguf_blocks import HALVES

VOCAB = 64
ROWS = 48
SMALL = dict(
    vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=128, rms_norm_eps=1e-5,
    pad_token_id=0, bos_token_id=1, eos_token_id=2,
)
WIDE = SMALL | dict(hidden_size=256, intermediate_size=256, num_hidden_layers=1, num_attention_heads=4, head_dim=64)
MOE = dict(moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2)
LLAMA3 = rope(
    "llama3", 100.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64
)
GEMMA = {
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "sliding_window": 20, "query_pre_attn_scalar": 16, "num_hidden_layers": 7, "layer_types": None,
}
LONG = dict(
    rope_type="longrope", rope_theta=100.0, partial_rotary_factor=0.75, short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    long_factor=[1.5, 2.0, 3.0, 4.0, 5.0, 6.0],
)

# Packings taken in turn by the matrices of a model.
LEGACY = [T.Q4_0, T.Q8_0, T.Q4_1, T.Q5_0, T.Q5_1, T.F16, T.BF16, T.IQ4_NL, T.MXFP4]
SUPER = [T.Q4_K, T.Q6_K, T.Q5_K, T.Q3_K, T.Q2_K]

# name -> (architecture, model_type, config, packings)
CASES = {
    "llama": ("llama", "llama", {**SMALL, "tie_word_embeddings": True, **rope("default", 100.0)}, LEGACY),
    "llama3": ("llama", "llama", {**SMALL, "tie_word_embeddings": False, **LLAMA3}, [T.Q8_0, T.Q4_0]),
    "llama_k": ("llama", "llama", {**WIDE, "tie_word_embeddings": True, **rope("default", 100.0)}, SUPER),
    "qwen2": ("qwen2", "qwen2", {k: v for k, v in SMALL.items() if k != "head_dim"}
              | {"tie_word_embeddings": False, **rope("default", 100.0)}, [T.Q8_0, T.Q5_1]),
    "qwen2moe": ("qwen2moe", "qwen2_moe", {k: v for k, v in SMALL.items() if k != "head_dim"} | MOE
                 | {"shared_expert_intermediate_size": 64, "norm_topk_prob": False, **rope("default", 100.0)},
                 [T.Q8_0, T.Q4_0]),
    "qwen3": ("qwen3", "qwen3", {**SMALL, "tie_word_embeddings": True, **rope("default", 100.0)}, [T.Q8_0]),
    "qwen3moe": ("qwen3moe", "qwen3_moe", {**SMALL, **MOE, "norm_topk_prob": True, **rope("default", 100.0)},
                 [T.Q4_1, T.Q8_0]),
    "gemma3": ("gemma3", "gemma3_text", {**SMALL, **GEMMA}, [T.Q4_0, T.Q8_0]),
    "phi3": ("phi3", "phi3", {k: v for k, v in SMALL.items() if k != "head_dim"}
             | {"sliding_window": 20, "original_max_position_embeddings": 32, "rope_parameters": LONG},
             [T.Q8_0, T.Q5_0]),
}

PLAIN = {k: v for k, v in SMALL.items() if k != "head_dim"}
LAYER_NORM = {k: v for k, v in PLAIN.items() if k != "rms_norm_eps"}
YARN = dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=32)
WINDOWS = dict(sliding_window=20, layer_types=["sliding_attention", "full_attention"])
TIED, UNTIED = ({"tie_word_embeddings": tied, **rope("default", 100.0)} for tied in (True, False))

# As above; these architectures are llama with a twist.
CASES |= {
    "cohere": ("command-r", "cohere", {**LAYER_NORM, "use_qk_norm": True, "logit_scale": 0.5, **TIED}, [T.Q8_0, T.Q4_0]),
    "cohere2": ("cohere2", "cohere2", {**LAYER_NORM, **WINDOWS, "logit_scale": 0.5, **TIED}, [T.Q8_0, T.Q4_0]),
    "ernie4_5": ("ernie4_5", "ernie4_5", {**SMALL, "use_bias": False, **TIED}, [T.Q8_0, T.Q4_0]),
    "exaone4": ("exaone4", "exaone4", {**SMALL, **WINDOWS, **UNTIED}, [T.Q8_0, T.Q4_0]),
    "glm4": ("glm4", "glm4", {**SMALL, "attention_bias": True, "tie_word_embeddings": False,
                              **rope("default", 100.0, partial_rotary_factor=0.5)}, [T.Q8_0, T.Q4_0]),
    "granite": ("granite", "granite", {**PLAIN, "embedding_multiplier": 3.0, "attention_multiplier": 0.2,
                                       "residual_multiplier": 0.4, "logits_scaling": 2.0, **TIED}, [T.Q8_0, T.Q4_0]),
    "hunyuan_dense": ("hunyuan-dense", "hunyuan_v1_dense", {**SMALL, **TIED}, [T.Q8_0, T.Q4_0]),
    "lfm2": ("lfm2", "lfm2", {
        **{k: v for k, v in PLAIN.items() if k != "rms_norm_eps"}, "norm_eps": 1e-5, "num_hidden_layers": 3,
        "layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 3, "conv_bias": False,
        "block_auto_adjust_ff_dim": False, **TIED}, [T.Q8_0, T.Q4_0]),
    "ministral3": ("mistral3", "ministral3", {
        **SMALL, "sliding_window": None, "tie_word_embeddings": False,
        "rope_parameters": {**YARN, "llama_4_scaling_beta": 0.4, "mscale": 1.0, "mscale_all_dim": 1.0}}, [T.Q8_0, T.Q4_0]),
    "olmo2": ("olmo2", "olmo2", {**PLAIN, **UNTIED}, [T.Q8_0, T.Q4_0]),
    "olmo3": ("olmo2", "olmo3", {**PLAIN, **WINDOWS, "tie_word_embeddings": False, "rope_parameters": {
        "full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}}, [T.Q8_0, T.Q4_0]),
    "seed_oss": ("seed_oss", "seed_oss", {**SMALL, "attention_bias": True, **UNTIED}, [T.Q8_0, T.Q4_0]),
    "smollm3": ("smollm3", "smollm3", {**PLAIN, "num_hidden_layers": 4, "intermediate_size": 32, **TIED}, [T.Q8_0, T.Q4_0]),
}

# As above; mixtures of experts.
CASES |= {
    "gpt_oss": ("gpt-oss", "gpt_oss", {
        **SMALL, **WINDOWS, "intermediate_size": 64, "num_local_experts": 4, "num_experts_per_tok": 2,
        "tie_word_embeddings": False, "rope_parameters": {**YARN, "truncate": False}}, [T.Q8_0, T.MXFP4]),
    "granitemoe": ("granitemoe", "granitemoe", {
        **PLAIN, "intermediate_size": 64, "num_local_experts": 4, "num_experts_per_tok": 2, "embedding_multiplier": 3.0,
        "attention_multiplier": 0.2, "residual_multiplier": 0.4, "logits_scaling": 2.0, **TIED}, [T.Q8_0, T.Q4_0]),
    "minimax_m2": ("minimax-m2", "minimax_m2", {
        **SMALL, "intermediate_size": 64, "num_local_experts": 4, "num_experts_per_tok": 2, "tie_word_embeddings": False,
        **rope("default", 100.0, partial_rotary_factor=0.5)}, [T.Q8_0, T.Q4_0]),
    "olmoe": ("olmoe", "olmoe", {**PLAIN, "intermediate_size": 64, "num_experts": 4, "num_experts_per_tok": 2, **UNTIED},
              [T.Q8_0, T.Q4_0]),
}

LATENT = {
    **PLAIN, "num_key_value_heads": 4, "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 32,
    "v_head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 32,
    "intermediate_size": 64, "first_k_dense_replace": 1, "routed_scaling_factor": 1.7, "tie_word_embeddings": False,
}
# As above; DeepSeek's attention or its mixture. One file has one projection from latents, as older ones do.
CASES |= {
    "deepseek2": ("deepseek2", "deepseek_v3", {
        **LATENT, "q_lora_rank": 32, "n_group": 4, "topk_group": 2, "norm_topk_prob": True,
        "rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.7}}, [T.Q8_0, T.Q4_0]),
    "deepseek2_lite": ("deepseek2", "deepseek_v2", {
        **LATENT, "q_lora_rank": None, "n_group": 1, "topk_group": 1, "topk_method": "greedy", "norm_topk_prob": False,
        **rope("default", 100.0)}, [T.Q8_0, T.Q4_0]),
    "glm4moe": ("glm4moe", "glm4_moe", {
        **SMALL, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
        "moe_intermediate_size": 32, "intermediate_size": 64, "first_k_dense_replace": 1, "routed_scaling_factor": 1.7,
        "norm_topk_prob": True, "use_qk_norm": True, "attention_bias": True, "tie_word_embeddings": False,
        **rope("default", 100.0, partial_rotary_factor=0.5)}, [T.Q8_0, T.Q4_0]),
    "lfm2moe": ("lfm2moe", "lfm2_moe", {
        **{k: v for k, v in PLAIN.items() if k != "rms_norm_eps"}, "norm_eps": 1e-5, "layer_types": ["conv", "full_attention"],
        "conv_L_cache": 3, "conv_bias": False, "intermediate_size": 64, "moe_intermediate_size": 32, "num_experts": 4,
        "num_experts_per_tok": 2, "num_dense_layers": 1, "use_expert_bias": True, "norm_topk_prob": True, **TIED},
        [T.Q8_0, T.Q4_0]),
}

# As above; a table of positions, and matrices that the converter turns over.
CASES |= {
    "gpt2": ("gpt2", "gpt2", dict(
        vocab_size=VOCAB, n_embd=64, n_head=4, n_layer=2, n_positions=128, n_inner=96, layer_norm_epsilon=1e-5,
        bos_token_id=1, eos_token_id=2), [T.Q8_0, T.Q4_0]),
}

DELTA = dict(
    layer_types=["linear_attention", "full_attention"], full_attention_interval=2, linear_num_key_heads=2,
    linear_num_value_heads=6, linear_key_head_dim=16, linear_value_head_dim=32, linear_conv_kernel_dim=4,
    **rope("default", 100.0, partial_rotary_factor=0.25),
)
SHARED = dict(shared_expert_intermediate_size=64, norm_topk_prob=True, tie_word_embeddings=False)
MAMBA = dict(
    mamba_n_heads=4, mamba_d_head=32, mamba_d_state=16, mamba_n_groups=1, mamba_d_conv=4, mamba_expand=2,
    mamba_chunk_size=16, mamba_conv_bias=True, mamba_proj_bias=False,
)
GRANITE = {
    **PLAIN, **MAMBA, "layer_types": ["linear_attention", "full_attention"], "embedding_multiplier": 3.0,
    "attention_multiplier": 0.2, "residual_multiplier": 0.4, "logits_scaling": 2.0, "position_embedding_type": None,
    "tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
}
NEMOTRON = {
    **{k: v for k, v in SMALL.items() if k not in ("rms_norm_eps", "num_hidden_layers", "intermediate_size")},
    "mamba_num_heads": 4, "mamba_head_dim": 32, "n_groups": 2, "ssm_state_size": 16, "conv_kernel": 4, "chunk_size": 16,
    "use_conv_bias": True, "layer_norm_epsilon": 1e-5, "mlp_hidden_act": "relu2", "tie_word_embeddings": False,
}
# As above; layers that carry a state.
CASES |= {
    "qwen3next": ("qwen3next", "qwen3_next", {**SMALL, **MOE, **DELTA, **SHARED}, [T.Q8_0, T.Q4_0]),
    "qwen35": ("qwen35", "qwen3_5_text", {**SMALL, **DELTA, "tie_word_embeddings": True}, [T.Q8_0, T.Q4_0]),
    "qwen35moe": ("qwen35moe", "qwen3_5_moe_text", {**SMALL, **MOE, **DELTA, **SHARED}, [T.Q8_0, T.Q4_0]),
    "granitehybrid": ("granitehybrid", "granitemoehybrid", {
        **GRANITE, "intermediate_size": 32, "shared_intermediate_size": 64, "num_local_experts": 4,
        "num_experts_per_tok": 2}, [T.Q8_0, T.Q4_0]),
    "granitehybrid_dense": ("granitehybrid", "granitemoehybrid", {
        **GRANITE, "shared_intermediate_size": 96, "num_local_experts": 0, "num_experts_per_tok": 0,
        "position_embedding_type": "rope"}, [T.Q8_0, T.Q4_0]),
    "nemotron_h": ("nemotron_h", "nemotron_h", {
        **NEMOTRON, "intermediate_size": 96, "layers_block_type": ["linear_attention", "mlp", "full_attention"]},
        [T.Q8_0, T.Q4_0]),
    "nemotron_h_moe": ("nemotron_h_moe", "nemotron_h", {
        **NEMOTRON, "intermediate_size": 96, "layers_block_type": ["linear_attention", "moe", "full_attention"],
        "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 1, "topk_group": 1,
        "moe_shared_expert_intermediate_size": 64, "norm_topk_prob": True, "routed_scaling_factor": 1.7},
        [T.Q8_0, T.Q4_0]),
    "nemotron_h_latent": ("nemotron_h_moe", "nemotron_h", {
        **NEMOTRON, "intermediate_size": 96, "layers_block_type": ["full_attention", "moe"], "moe_latent_size": 32,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "n_group": 1, "topk_group": 1,
        "moe_shared_expert_intermediate_size": 64, "norm_topk_prob": True, "routed_scaling_factor": 0.7}, [T.Q8_0]),
}

# As above; the other Gemmas, and biases everywhere.
CASES |= {
    "gemma": ("gemma", "gemma", {**SMALL, **rope("default")}, [T.Q8_0, T.Q4_0]),
    "gemma2": ("gemma2", "gemma2", {
        **SMALL, "sliding_window": 20, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 4.0, **rope("default")}, [T.Q8_0, T.Q4_0]),
    "starcoder2": ("starcoder2", "starcoder2", {
        **{k: v for k, v in PLAIN.items() if k != "rms_norm_eps"}, "norm_epsilon": 1e-5, "sliding_window": None, **TIED},
        [T.Q8_0, T.Q4_0]),
}

FACTORS = dict(
    embedding_multiplier=2.0, lm_head_multiplier=0.5, key_multiplier=0.7, attention_in_multiplier=1.3,
    attention_out_multiplier=0.8, ssm_in_multiplier=1.2, ssm_out_multiplier=0.7,
    ssm_multipliers=[0.8, 1.3, 0.6, 1.5, 1.2], mlp_multipliers=[0.7, 1.4],
)
# As above; states again. The converter multiplies Falcon's factors into its weights.
CASES |= {
    "mamba2": ("mamba2", "mamba2", dict(
        vocab_size=VOCAB, hidden_size=64, num_hidden_layers=2, num_heads=4, head_dim=32, state_size=16, n_groups=2,
        conv_kernel=4, expand=2, use_bias=False, use_conv_bias=True, chunk_size=16, layer_norm_epsilon=1e-5,
        tie_word_embeddings=False, pad_token_id=0, bos_token_id=1, eos_token_id=2), [T.Q8_0, T.Q4_0]),
    "falcon_h1": ("falcon-h1", "falcon_h1", {
        **SMALL, **MAMBA, **FACTORS, "mamba_n_groups": 2, "mamba_d_ssm": 128, "mamba_rms_norm": True,
        "mamba_norm_before_gate": False, **UNTIED}, [T.Q8_0, T.Q4_0]),
    "kimi_linear": ("kimi-linear", "kimi_linear", {
        **{k: v for k, v in LATENT.items() if k not in ("max_position_embeddings", "n_routed_experts", "first_k_dense_replace")},
        "model_max_length": 128, "layer_types": ["linear_attention", "full_attention"], "mlp_layer_types": ["dense", "sparse"],
        "linear_num_heads": 4, "linear_head_dim": 32, "linear_conv_kernel_dim": 4, "q_lora_rank": None, "num_experts": 8,
        "n_group": 1, "topk_group": 1, "norm_topk_prob": True}, [T.Q8_0, T.Q4_0]),
}

CASES |= gguf_gemmas.cases(SMALL, T.Q8_0, T.Q4_0)

NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up", "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.experts.gate": "ffn_gate_exps", "mlp.experts.up": "ffn_up_exps", "mlp.experts.down": "ffn_down_exps",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}
POST_NAMES = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
# What differs from NAMES.
TWISTS = {
    "gemma3": {**POST_NAMES, "pre_feedforward_layernorm": "ffn_norm"},
    "olmo2": POST_NAMES,
    "exaone4": POST_NAMES,
    "glm4": {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"},
    "seed_oss": {"post_attention_layernorm": "post_attention_norm"},
    "gpt-oss": {"post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp"},
    "granitemoe": {
        "block_sparse_moe.router": "ffn_gate_inp", "block_sparse_moe.experts.gate": "ffn_gate_exps",
        "block_sparse_moe.experts.up": "ffn_up_exps", "block_sparse_moe.experts.down": "ffn_down_exps",
    },
    "lfm2": {
        "self_attn.out_proj": "attn_output", "self_attn.q_layernorm": "attn_q_norm", "operator_norm": "attn_norm",
        "self_attn.k_layernorm": "attn_k_norm", "conv.in_proj": "shortconv.in_proj", "conv.conv": "shortconv.conv",
        "conv.out_proj": "shortconv.out_proj", "ffn_norm": "ffn_norm", "feed_forward.w1": "ffn_gate",
        "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down",
    },
    "glm4moe": {"post_attention_layernorm": "post_attention_norm"},
    "hunyuan-dense": {"self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm"},
}
TWISTS["lfm2moe"] = TWISTS["lfm2"] | {
    "feed_forward.gate": "ffn_gate_inp", "feed_forward.experts.gate": "ffn_gate_exps",
    "feed_forward.experts.up": "ffn_up_exps", "feed_forward.experts.down": "ffn_down_exps",
}
TWISTS["deepseek2"] = {
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
}
for twist in ("deepseek2", "glm4moe"):
    TWISTS[twist] |= {f"mlp.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")}
DELTAS = ("qwen3next", "qwen35", "qwen35moe")
for twist in DELTAS:
    TWISTS[twist] = {
        "post_attention_layernorm": "post_attention_norm", "linear_attn.in_proj_qkv": "attn_qkv",
        "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha",
        "linear_attn.in_proj_ba": "ssm_ba", "linear_attn.conv1d": "ssm_conv1d", "linear_attn.norm": "ssm_norm",
        "linear_attn.out_proj": "ssm_out",
    }
STATE = {name: f"ssm_{name.split('_')[0]}" for name in ("in_proj", "conv1d", "norm", "out_proj")}
TWISTS["granitehybrid"] = TWISTS["granitemoe"] | {f"mamba.{k}": v for k, v in STATE.items()} | {
    "shared_mlp.gate": "ffn_gate_shexp", "shared_mlp.up": "ffn_up_shexp", "shared_mlp.output_linear": "ffn_down_shexp",
}
TWISTS["nemotron_h"] = TWISTS["nemotron_h_moe"] = {f"mixer.{k}": v for k, v in STATE.items()} | {
    "norm": "attn_norm", "mixer.q_proj": "attn_q", "mixer.k_proj": "attn_k", "mixer.v_proj": "attn_v",
    "mixer.o_proj": "attn_output", "mixer.up_proj": "ffn_up", "mixer.down_proj": "ffn_down", "mixer.gate": "ffn_gate_inp",
    "mixer.fc1_latent_proj": "ffn_latent_down", "mixer.fc2_latent_proj": "ffn_latent_up", "mixer.experts.up": "ffn_up_exps", "mixer.experts.down": "ffn_down_exps",
    "mixer.shared_experts.up_proj": "ffn_up_shexp", "mixer.shared_experts.down_proj": "ffn_down_shexp",
}
TWISTS["gemma2"] = TWISTS["gemma3"]
TWISTS["starcoder2"] = {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
TWISTS["mamba2"] = TWISTS["nemotron_h"]
TWISTS["falcon-h1"] = {f"mamba.{k}": v for k, v in STATE.items()} | {
    f"feed_forward.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")
}
TWISTS["kimi-linear"] = TWISTS["deepseek2"] | {
    "self_attn.q_conv1d": "ssm_conv1d_q", "self_attn.k_conv1d": "ssm_conv1d_k", "self_attn.v_conv1d": "ssm_conv1d_v",
    "self_attn.forget_gate.f_a_proj": "ssm_f_a", "self_attn.forget_gate.f_b_proj": "ssm_f_b", "self_attn.b_proj": "ssm_beta",
    "self_attn.g_a_proj": "ssm_g_a", "self_attn.g_b_proj": "ssm_g_b", "self_attn.o_norm": "ssm_norm",
}
TWISTS |= {arch: gguf_gemmas.TWISTS for arch in gguf_gemmas.ARCHS}
# Those whose gains lack the one.
GEMMAS = ("gemma", "gemma2", "gemma3")
PERMUTED = ("llama", "granite", "granitemoe", "granitehybrid", "smollm3", "mistral3")


def gguf_name(arch, path):
    module, kind = path.rsplit(".", 1)
    if arch in gguf_gemmas.ARCHS and (lone := gguf_gemmas.name(path)):
        return lone
    top = gguf_gemmas.TOP | {
        "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
        "model.embedding_norm": "token_embd_norm", "model.embeddings": "token_embd", "model.norm_f": "output_norm",
        "backbone.embeddings": "token_embd", "backbone.norm_f": "output_norm", "model.final_layernorm": "output_norm",
    }
    if module in top:
        return f"{top[module]}.{kind}"
    if arch == "gpt2":
        top = {"transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm"}
        parts = {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm",
                 "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
        if module in top:
            return f"{top[module]}.{kind}"
        _, _, layer, part = module.split(".", 3)
        return f"blk.{layer}.{parts[part]}.{kind}"
    _, _, layer, part = module.split(".", 3)
    if path.endswith("self_attn.sinks"):
        return f"blk.{layer}.attn_sinks.weight"
    if path.endswith(("e_score_correction_bias", "expert_bias")):
        return f"blk.{layer}.exp_probs_b.bias"
    for end, lone in (("A_log", "ssm_a"), (".D", "ssm_d"), ("dt_bias", "ssm_dt.bias")):
        if path.endswith(end):
            return f"blk.{layer}.{lone}"
    if part == "pre_ff_layernorm":
        return f"blk.{layer}.ffn_norm"  # With nothing behind it.
    name = (NAMES | TWISTS.get(arch, {}))[part]
    return f"blk.{layer}.{name}.{kind}"


def halves_to_pairs(w, heads):
    """The converter's permutation of the rows of q and k."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def pairs_to_halves(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def packed(values, ty, rng):
    """Blocks of `values`; for types that gguf-py cannot write, random blocks of the same spread."""
    try:
        return quantize(values, ty)
    except NotImplementedError:
        pass
    n, size = GGML_QUANT_SIZES[ty]
    blocks = rng.integers(0, 256, (values.size // n, size), dtype=np.uint8)
    scale, offset = np.float16(1.0), {T.Q2_K: 1.5, T.Q4_K: 7.5, T.Q5_K: 15.5}.get(ty, 0.0)
    for scale in (scale, None):
        if scale is None:
            spread = dequantize(blocks.reshape(-1), ty).std()
            scale = np.float16(values.std() / spread)
        for at, x in zip(HALVES[ty], (scale, np.float16(offset * scale))):
            blocks[:, at : at + 2] = np.frombuffer(x.tobytes(), np.uint8)
    return blocks.reshape(values.shape[0], -1) if values.ndim == 2 else blocks.reshape(*values.shape[:2], -1)


def heads_in_turn(config, path, n):
    """Where the converter of Qwen3.5 takes the rows of a tensor from, or the columns of the last one."""
    k, v, dim = config.linear_num_key_heads, config.linear_num_value_heads, config.linear_value_head_dim
    if path.endswith((".linear_attn.norm.weight",)):
        return np.arange(n)
    length = 1 if path.endswith(("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias")) else dim
    turned = np.arange(v * length).reshape(k, v // k, length).swapaxes(0, 1).reshape(-1)
    return np.concatenate([np.arange(n - len(turned)), turned + n - len(turned)])


def as_converted(arch, config, path, w):
    """What the converters of models with states make of a tensor, and how to take that back."""
    if path.endswith("A_log"):
        stored, back = as_converted_order(arch, config, path, -np.exp(w))
        return stored, lambda x: np.log(-back(x))
    if arch in DELTAS and path.endswith("norm.weight") and "linear_attn" not in path:
        return w + 1, lambda x: x - 1
    if path.endswith("mixer.norm.weight") or path.endswith("mamba.norm.weight"):
        groups = getattr(config, "n_groups", None) or config.mamba_n_groups
        return w.reshape(groups, -1), lambda x: x.reshape(-1)
    if path.endswith((".D", "A_log")) and arch not in DELTAS:
        return w.reshape(-1, 1), lambda x: x.reshape(-1)
    if arch == "kimi-linear" and "conv1d.weight" in path:
        return w.reshape(1, w.shape[0], 1, w.shape[-1]), lambda x: x.reshape(w.shape)
    if "conv1d.weight" in path:
        stored, back = as_converted_order(arch, config, path, w.squeeze(1))
        return stored, lambda x: back(x)[:, None]
    return as_converted_order(arch, config, path, w)


def as_converted_order(arch, config, path, w):
    if arch not in ("qwen35", "qwen35moe") or "linear_attn." not in path:
        return w, lambda x: x
    if path.endswith("out_proj.weight"):
        order = heads_in_turn(config, path, w.shape[1])
        return np.ascontiguousarray(w[:, order]), lambda x: x[:, np.argsort(order)]
    order = heads_in_turn(config, path, w.shape[0])
    return w[order], lambda x: x[np.argsort(order)]


def split_heads(state, config):
    """Qwen3-Next has queries, keys, values and gates by key head; GGUF has the gates apart, all by kind."""
    out, k = {}, config.linear_num_key_heads
    group = config.linear_num_value_heads // k * config.linear_value_head_dim
    for path, w in state.items():
        if not path.endswith("in_proj_qkvz.weight"):
            out[path] = w
            continue
        parts = w.view(k, -1, w.shape[1]).split([config.linear_key_head_dim] * 2 + [group] * 2, dim=1)
        q, key, v, z = (part.reshape(-1, w.shape[1]) for part in parts)
        out[path.replace("qkvz", "qkv")], out[path.replace("qkvz", "z")] = torch.cat([q, key, v]), z.clone()
    return out


def join_heads(state, config, parts):
    """Puts what packing made of these parts back into the matrix they are of."""
    k, dims = config.linear_num_key_heads, [config.linear_key_head_dim] * 2
    group = config.linear_num_value_heads // k * config.linear_value_head_dim
    for path, w in state.items():
        if path.endswith("in_proj_qkvz.weight"):
            qkv, z = parts[path.replace("qkvz", "qkv")], parts[path.replace("qkvz", "z")]
            cols = w.shape[1]
            q, key, v = qkv.split([k * dims[0], k * dims[1], k * group])
            whole = torch.cat([x.reshape(k, -1, cols) for x in (q, key, v, z)], dim=1)
            w.copy_(whole.reshape(-1, cols))


def split_experts(state):
    """Transformers stacks gate and up of all experts in one tensor; GGUF has three."""
    out = {}
    for path, w in state.items():
        base, _, kind = path.rpartition("experts.")
        if f"{base}experts.gate_up_proj_bias" in state:
            # gpt-oss has inputs and outputs the other way round, and gates and ups in turn.
            if kind in ("gate_up_proj", "gate_up_proj_bias"):
                both, end = (w.transpose(1, 2), "weight") if kind == "gate_up_proj" else (w, "bias")
                out[f"{base}experts.gate.{end}"], out[f"{base}experts.up.{end}"] = both[:, ::2], both[:, 1::2]
                continue
            if kind in ("down_proj", "down_proj_bias"):
                down, end = (w.transpose(1, 2), "weight") if kind == "down_proj" else (w, "bias")
                out[f"{base}experts.down.{end}"] = down
                continue
        if path.endswith("experts.gate_up_proj"):
            base = path.removesuffix("_up_proj").removesuffix("gate")
            out[f"{base}gate.weight"], out[f"{base}up.weight"] = w.chunk(2, dim=1)
        elif path.endswith(("experts.down_proj", "experts.up_proj")):
            out[path.removesuffix("_proj") + ".weight"] = w
        else:
            out[path] = w
    return out


def split_convolutions(state):
    out = {}
    for path, w in state.items():
        parts = w.chunk(3) if path.endswith(".conv1d.weight") else [w]
        names = [path.replace(".conv1d", f".{part}_conv1d") for part in "qkv"] if len(parts) > 1 else [path]
        out |= dict(zip(names, parts))
    return out


def split_shared(state):
    out = {}
    for path, w in state.items():
        if path.endswith(("shared_mlp.input_linear.weight", "block_sparse_moe.input_linear.weight")):
            base = path.replace("input_linear.weight", "")
            base = base.replace("block_sparse_moe.", "block_sparse_moe.experts.")
            out[f"{base}gate.weight"], out[f"{base}up.weight"] = w.chunk(2, dim=-2)
        elif path.endswith("block_sparse_moe.output_linear.weight"):
            out[path.replace("output_linear", "experts.down")] = w
        else:
            out[path] = w
    return out


def split_latents(out, name, weight, config, pack):
    """Newer files have the projection from latents as two: keys the other way round, and values."""
    (p, w), plain = weight, config.qk_nope_head_dim
    w = w.reshape(config.num_attention_heads, plain + config.v_head_dim, -1)
    parts = {"attn_k_b": np.ascontiguousarray(w[:, :plain].swapaxes(1, 2)), "attn_v_b": np.ascontiguousarray(w[:, plain:])}
    back = {}
    for part, values in parts.items():
        stored = out[name.replace("attn_kv_b", part)] = pack(values)
        back[part] = dequantize(*stored).reshape(values.shape)
    p.copy_(torch.from_numpy(np.concatenate([back["attn_k_b"].swapaxes(1, 2), back["attn_v_b"]], 1).reshape(p.shape)))


def factor(arch, config, path):
    """What the converter multiplies a matrix with, by rows."""
    if arch != "falcon-h1" or path.endswith("norm.weight"):
        return 1.0
    inner, states = config.mamba_d_ssm, config.mamba_n_groups * config.mamba_d_state
    lengths = [inner, inner, states, states, config.mamba_n_heads]
    rows = np.repeat(np.float32(config.ssm_multipliers), lengths)[:, None] * config.ssm_in_multiplier
    of = {
        "gate_proj.weight": config.mlp_multipliers[0], "down_proj.weight": config.mlp_multipliers[1],
        "k_proj.weight": config.key_multiplier * config.attention_in_multiplier,
        "q_proj.weight": config.attention_in_multiplier, "v_proj.weight": config.attention_in_multiplier,
        "o_proj.weight": config.attention_out_multiplier, "out_proj.weight": config.ssm_out_multiplier,
        "in_proj.weight": rows, "lm_head.weight": config.lm_head_multiplier, "embed_tokens.weight": config.embedding_multiplier,
    }
    return np.float32(of.get(path if path == "lm_head.weight" else path.rsplit(".", 2)[-2] + ".weight", 1.0))


def tensors(arch, config, model, types, seed):
    """Packs every parameter, puts back into the model what the packing made of it."""
    rng, turn = np.random.default_rng(seed), 0
    out = {}
    state = gguf_gemmas.stacked(model.state_dict()) if arch in gguf_gemmas.ARCHS else split_experts(model.state_dict())
    if arch == "qwen3next":
        state = split_heads(state, config)
    if arch == "granitehybrid":
        state = split_shared(state)
    if arch == "kimi-linear":
        state = split_convolutions(state)
    if config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    for path, p in state.items():
        w = p.numpy().astype(np.float32)
        kind = path.split(".")[-2]
        heads = arch in PERMUTED and {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(kind)
        permuted = heads = heads and getattr(config, heads)
        if permuted:
            w = halves_to_pairs(w, heads)
        name = gguf_name(arch, path)
        if arch == "granitehybrid" and not config.num_local_experts:
            name = name.replace("_shexp", "")
        if "ssm_" in name or (arch in DELTAS and ("norm" in name or "linear_attn" in path)):
            w, restore = as_converted(arch, config, path, w)
        else:
            restore = lambda x: x
        if arch == "gpt2" and ".c_" in path and w.ndim == 2:
            w, restore = np.ascontiguousarray(w.T), lambda x: x.T
        if "ssm_conv1d" in name or name.endswith(("ssm_a", "ssm_d", "ssm_dt.bias")) or "norm" in name and arch in DELTAS:
            w = np.ascontiguousarray(w)
            out[name] = (w, T.F32)
            p.copy_(torch.from_numpy(np.ascontiguousarray(restore(w))))
            continue
        if w.ndim == 3 and "conv" in name:
            w = w.squeeze(1)
            out[name] = (w, T.F32)
            continue
        is_small = w.ndim == 1 or "ffn_gate_inp" in name or w.shape[-1] % 32
        if is_small or "position" in name or "norm" in name or name.endswith("bias"):
            stored = w + 1 if arch in GEMMAS and "norm" in name else w
            out[name] = (stored.reshape(-1) if w.shape[0] == 1 else stored, T.F32)
            p.copy_(torch.from_numpy(restore(stored - 1 if arch in GEMMAS and "norm" in name else stored)))
            continue
        ty = types[turn % len(types)]
        turn += 1
        by = factor(arch, config, path)
        w = w * by
        if name.endswith("attn_kv_b.weight") and config.model_type in ("deepseek_v3", "kimi_linear"):
            split_latents(out, name, (p, w), config, lambda x: (packed(x, ty, rng), ty))
            continue
        blocks = packed(w, ty, rng)
        out[name] = (blocks, ty)
        back = dequantize(blocks, ty).reshape(w.shape)
        back = restore(back) / by
        p.copy_(torch.from_numpy(np.ascontiguousarray(pairs_to_halves(back, heads) if permuted else back)))
    if arch == "qwen3next":
        join_heads(model.state_dict(), config, state)
    if arch in gguf_gemmas.ARCHS:
        gguf_gemmas.unstack(model.state_dict(), state)
    return out


def metadata(writer, arch, config):
    rope_parameters = getattr(config, "rope_parameters", None) or {"rope_type": "default", "rope_theta": 10000.0}
    rope_parameters = rope_parameters.get("full_attention", rope_parameters)
    if arch == "gpt2":
        writer.add_context_length(config.n_positions)
        writer.add_embedding_length(config.n_embd)
        writer.add_block_count(config.n_layer)
        writer.add_feed_forward_length(config.n_inner)
        writer.add_head_count(config.n_head)
        return writer.add_layer_norm_eps(config.layer_norm_epsilon)
    if arch == "mamba2":
        return alone(writer, config)
    if arch in gguf_gemmas.ARCHS:
        return gguf_gemmas.metadata(writer, arch, config)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_context_length(getattr(config, "model_max_length", None) or config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    # A layer that guesses further tokens is counted too; of its tensors there is one.
    writer.add_block_count(config.num_hidden_layers + (arch == "glm4moe"))
    if arch.startswith("nemotron"):
        width = config.moe_intermediate_size if "moe" in arch else config.intermediate_size
        writer.add_feed_forward_length([width if kind in ("mlp", "moe") else 0 for kind in config.layers_block_type])
    else:
        writer.add_feed_forward_length(
        config.shared_intermediate_size if arch == "granitehybrid" and not config.num_local_experts else config.intermediate_size
    )
    writer.add_head_count(config.num_attention_heads)
    kv_heads = config.num_key_value_heads
    if arch.startswith("lfm2"):
        writer.add_shortconv_l_cache(config.conv_L_cache)
        kv_heads = [0 if kind == "conv" else kv_heads for kind in config.layer_types]
    if arch in ("granitehybrid", "nemotron_h", "nemotron_h_moe"):
        kinds = config.layers_block_type if arch != "granitehybrid" else config.layer_types
        kv_heads = [kv_heads if kind in ("full_attention", "attention") else 0 for kind in kinds]
        state(writer, arch, config)
    if arch == "falcon-h1":
        state(writer, arch, config)
    if arch == "kimi-linear":
        kv_heads = [1 if kind == "full_attention" else 0 for kind in config.layer_types]
        writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
        writer.add_kda_head_dim(config.linear_head_dim)
    if arch in DELTAS:
        delta(writer, config, head_dim)
    writer.add_head_count_kv(kv_heads)
    if arch in ("gemma", "gemma2"):
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_key_length(head_dim)
        if arch == "gemma2":
            writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
            writer.add_final_logit_softcapping(config.final_logit_softcapping)
            writer.add_sliding_window(config.sliding_window)
        return None
    if hasattr(config, "layer_norm_eps"):
        writer.add_layer_norm_eps(config.layer_norm_eps)
    elif arch == "starcoder2":
        writer.add_layer_norm_eps(config.norm_epsilon)
    else:
        eps = "norm_eps" if arch.startswith("lfm2") else "layer_norm_epsilon" if arch.startswith("nemotron") else "rms_norm_eps"
        writer.add_layer_norm_rms_eps(getattr(config, eps))
    writer.add_rope_freq_base(rope_parameters["rope_theta"])
    writer.add_key_length(head_dim if arch not in ("deepseek2", "kimi-linear") else latent(writer, config))
    if arch == "llama":
        writer.add_rope_dimension_count(head_dim)
    if arch == "glm4":
        writer.add_rope_dimension_count(head_dim // 2)
    if arch in ("granite", "granitemoe", "granitehybrid"):
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if arch in ("cohere2", "command-r"):
        writer.add_logit_scale(config.logit_scale)
    if config.model_type in ("cohere2", "exaone4", "olmo3"):
        writer.add_sliding_window(config.sliding_window)
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
    if rope_parameters["rope_type"] == "yarn":
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope_parameters["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope_parameters["original_max_position_embeddings"])
    if arch == "deepseek2" and "mscale_all_dim" in rope_parameters:
        writer.add_rope_scaling_yarn_log_mul(0.1 * rope_parameters["mscale_all_dim"])
    if arch == "mistral3":
        writer.add_rope_scaling_yarn_log_mul(rope_parameters["mscale_all_dim"])
        writer.add_attn_temperature_scale(rope_parameters["llama_4_scaling_beta"])
    if arch in ("gemma3", "phi3"):
        writer.add_sliding_window(config.sliding_window)
    if arch == "gemma3":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope_parameters["factor"])
    if arch == "phi3":
        original = config.original_max_position_embeddings
        writer.add_rope_dimension_count(int(head_dim * 0.75))
        writer.add_rope_scaling_orig_ctx_len(original)
        ratio = config.max_position_embeddings / original
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(ratio) / np.log(original))))
    if arch == "minimax-m2":
        writer.add_rope_dimension_count(head_dim // 2)
    if arch == "gpt-oss":
        writer.add_sliding_window(config.sliding_window)
    if arch == "glm4moe":
        writer.add_rope_dimension_count(head_dim // 2)
        writer.add_nextn_predict_layers(1)
    if arch == "lfm2moe":
        writer.add_leading_dense_block_count(config.num_dense_layers)
        writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)
    if arch == "kimi-linear":
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_leading_dense_block_count(1)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
    if arch in ("glm4moe", "deepseek2"):
        sigmoid = config.model_type != "deepseek_v2"
        writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID if sigmoid else ExpertGatingFuncType.SOFTMAX)
        writer.add_leading_dense_block_count(config.first_k_dense_replace)
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_weights_norm(sigmoid)
        if config.n_group > 1:
            writer.add_expert_group_count(config.n_group)
            writer.add_expert_group_used_count(config.topk_group)
    if arch == "nemotron_h_moe":
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_expert_weights_norm(config.norm_topk_prob)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_shared_feed_forward_length(config.moe_shared_expert_intermediate_size)
        if config.moe_latent_size:
            writer.add_moe_latent_size(config.moe_latent_size)
    has_experts = arch in ("gpt-oss", "minimax-m2", "deepseek2", "qwen3next", "kimi-linear") or arch.endswith("moe")
    if has_experts or arch == "granitehybrid" and config.num_local_experts:
        counts = (getattr(config, key, None) for key in ("num_experts", "num_local_experts", "n_routed_experts"))
        writer.add_expert_count(next(n for n in counts if n))
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(getattr(config, "moe_intermediate_size", None) or config.intermediate_size)
    if arch in ("qwen2moe", "qwen3next", "qwen35moe"):
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)


def alone(writer, config):
    """Mamba-2 and nothing else."""
    writer.add_context_length(2**20)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_ssm_conv_kernel(config.conv_kernel)
    writer.add_ssm_inner_size(config.num_heads * config.head_dim)
    writer.add_ssm_state_size(config.state_size)
    writer.add_ssm_time_step_rank(config.num_heads)
    writer.add_ssm_group_count(config.n_groups)
    writer.add_layer_norm_rms_eps(config.layer_norm_epsilon)


def state(writer, arch, config):
    """Sizes of Mamba-2 layers."""
    names = ("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv")
    if arch not in ("granitehybrid", "falcon-h1"):
        names = ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel")
    heads, dim, groups, size, taps = (getattr(config, name) for name in names)
    writer.add_ssm_conv_kernel(taps)
    writer.add_ssm_state_size(size)
    writer.add_ssm_group_count(groups)
    writer.add_ssm_inner_size(heads * dim)
    writer.add_ssm_time_step_rank(heads)
    if arch == "granitehybrid":
        writer.add_rope_scaling_finetuned(config.position_embedding_type == "rope")
        if config.num_local_experts:
            writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)


def delta(writer, config, head_dim):
    """Sizes of gated delta rules."""
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_group_count(config.linear_num_key_heads)
    writer.add_ssm_time_step_rank(config.linear_num_value_heads)
    writer.add_ssm_inner_size(config.linear_value_head_dim * config.linear_num_value_heads)
    writer.add_full_attention_interval(2)
    writer.add_rope_dimension_count(head_dim // 4)


def latent(writer, config):
    """Sizes of latent attention; newer files say those of its heads apart. Returns the length of a key."""
    writer.add_kv_lora_rank(config.kv_lora_rank)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    if config.q_lora_rank:
        writer.add_q_lora_rank(config.q_lora_rank)
    length = config.qk_nope_head_dim + config.qk_rope_head_dim
    if config.model_type == "deepseek_v2":
        writer.add_value_length(config.v_head_dim)
        return length
    writer.add_key_length_mla(length)
    writer.add_value_length_mla(config.v_head_dim)
    writer.add_value_length(config.kv_lora_rank)
    return config.kv_lora_rank + config.qk_rope_head_dim


def factors(arch, config, model):
    """The tables of divisors that stand for Llama 3's rule and for longrope."""
    table = lambda values: (np.array(values, np.float32), T.F32)
    if config.model_type == "phi3":
        return {f"rope_factors_{k}.weight": table(LONG[f"{k}_factor"]) for k in ("long", "short")}
    if arch == "llama" and config.rope_parameters["rope_type"] == "llama3":
        inv_freq = model.model.rotary_emb.inv_freq.numpy()
        plain = config.rope_parameters["rope_theta"] ** -(np.arange(0, config.head_dim, 2) / config.head_dim)
        return {"rope_freqs.weight": table(plain / inv_freq)}
    if arch == "gemma4":
        return {"rope_freqs.weight": table(gguf_gemmas.factors(config))}
    return {}


def kv16_as_stored(module, query, key, value, *args, **kwargs):
    """As `kv16` of families.py, of keys and values in which all factors are already."""
    eager = sys.modules[type(module).__module__].eager_attention_forward
    return eager(module, query, key.half().float(), value.half().float(), *args, **kwargs)


ALL_ATTENTION_FUNCTIONS.register("kv16_as_stored", kv16_as_stored)
ALL_MASK_ATTENTION_FUNCTIONS.register("kv16_as_stored", eager_mask)


@torch.no_grad()
def write_case(root, name, arch, model_type, values, types, ids):
    for seed in range(20):
        model = AutoModelForCausalLM.from_config(make_config(model_type, values)).float().eval()
        randomise(model, seed)
        stored = tensors(arch, model.config, model, types, seed)
        if router_margin(model, ids) > 2e-3:
            break
    writer = GGUFWriter(root / f"{name}.gguf", arch)
    metadata(writer, arch, model.config)
    for path, (data, ty) in (stored | factors(arch, model.config, model)).items():
        writer.add_tensor(path, data, raw_dtype=ty)
    if arch == "glm4moe":
        writer.add_tensor(f"blk.{model.config.num_hidden_layers}.nextn.enorm.weight", np.ones(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    out = logits(model, ids, "kv16_as_stored" if arch == "falcon-h1" else "kv16")
    write_f32(root / f"{name}_kv16.f32", out)
    print(f"{name:10} seed {seed} {(root / f'{name}.gguf').stat().st_size:7} bytes, std {out.std():.3f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    ids = torch.randint(3, VOCAB, (1, ROWS), generator=torch.Generator().manual_seed(7))
    (target / "input.json").write_text(json.dumps(ids[0].tolist()) + "\n")
    for name in sys.argv[2:] or CASES:
        write_case(target, name, *CASES[name], ids)
