"""Cases with multi-head latent attention."""

from .dense import MLX
from .sizes import SIZES, rope, without

LATENT = dict(
    num_hidden_layers=2, num_key_value_heads=4, kv_lora_rank=24, q_lora_rank=20, qk_rope_head_dim=8,
    qk_nope_head_dim=12, v_head_dim=10,
)
YARN = rope(
    "yarn", 50.0, factor=4.0, original_max_position_embeddings=32, mscale=1.3, mscale_all_dim=0.6,
    beta_fast=8.0, beta_slow=0.5,
)
GROUPED = dict(
    n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, moe_intermediate_size=8,
    n_shared_experts=2, intermediate_size=32,
)

CASES = {
    "youtu": (
        "youtu",
        {**without(SIZES, "head_dim"), **LATENT, "attention_bias": True, "tie_word_embeddings": True,
         **rope("default", 100.0)},
        {"halves": {"rope_interleave": False}, "yarn": YARN},
        {"rope_interleave": False},
    ),
    "minicpm3": (
        "minicpm3",
        {**without(SIZES, "head_dim"), **LATENT, "scale_emb": 3, "scale_depth": 1.1, "dim_model_base": 16,
         "tie_word_embeddings": True, **rope("default", 100.0)},
        {},
        {"scale_depth": 1.4, "dim_model_base": 32, "scale_emb": 4},
    ),
    "deepseek_v2": (
        "deepseek_v2",
        {**without(SIZES, "head_dim"), **LATENT, **GROUPED, "q_lora_rank": None, "first_k_dense_replace": 1,
         "topk_method": "group_limited_greedy", "routed_scaling_factor": 1.7, **YARN},
        {"greedy": {"topk_method": "greedy"}},
        {"routed_scaling_factor": 1.0, "topk_group": 1, "num_experts_per_tok": 2},
    ),
    "deepseek_v3": (
        "deepseek_v3",
        {**without(SIZES, "head_dim"), **LATENT, **GROUPED, "first_k_dense_replace": 1, "norm_topk_prob": True,
         "routed_scaling_factor": 1.7, **YARN},
        {"plain": {"norm_topk_prob": False, "n_group": 1, "topk_group": 1}},
        {"norm_topk_prob": False, "routed_scaling_factor": 1.0, "topk_group": 1, "num_experts_per_tok": 2},
    ),
    "glm4_moe_lite": (
        "glm4_moe_lite",
        {**without(SIZES, "head_dim"), **LATENT, **GROUPED, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
         "routed_scaling_factor": 1.7, "tie_word_embeddings": False, **rope("default", 100.0)},
        {},
        {"norm_topk_prob": False, "routed_scaling_factor": 1.0, "num_experts_per_tok": 2},
    ),
}

# name -> (module of mlx-lm, config, group, bits)
MLX_LATENT = dict(
    num_key_value_heads=4, kv_lora_rank=32, q_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=32, v_head_dim=16,
    n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=32, intermediate_size=64,
    first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.7, rope_scaling=None, attention_bias=False,
    tie_word_embeddings=False,
)
MLX_CASES = {
    "deepseek_v3_affine4": (
        "deepseek_v3", {"model_type": "deepseek_v3", **MLX, **MLX_LATENT, "n_group": 2, "topk_group": 1}, 32, 4,
    ),
    "glm4_moe_lite_affine4": (
        "glm4_moe_lite", {"model_type": "glm4_moe_lite", **MLX, **MLX_LATENT, "n_group": 1, "topk_group": 1}, 32, 4,
    ),
}
