"""Cases of mixtures of experts."""

from .dense import MLX
from .sizes import SIZES, rope, without

MOE = dict(moe_intermediate_size=16, num_experts_per_tok=2)
TWO = dict(num_hidden_layers=2)

# name -> (model_type, config, variants {name: config changes}, config keys whose change must show)
CASES = {
    "gpt_oss": (
        "gpt_oss",
        {**SIZES, **TWO, "intermediate_size": 24, "num_local_experts": 5, "num_experts_per_tok": 2,
         "sliding_window": 24, "swiglu_limit": 1.25, "tie_word_embeddings": False,
         **rope("yarn", 50.0, factor=4.0, original_max_position_embeddings=32, truncate=False)},
        {"even": {"layer_types": ["full_attention"] * 2, **rope("default", 100.0)}},
        {"sliding_window": 25, "num_experts_per_tok": 3, "swiglu_limit": 7.0, "swiglu_alpha": 1.0},
    ),
    "glm4_moe": (
        "glm4_moe",
        {**SIZES, **TWO, **MOE, "intermediate_size": 24, "n_routed_experts": 8, "n_group": 4, "topk_group": 2, "n_shared_experts": 2,
         "routed_scaling_factor": 2.5, "attention_bias": True, "use_qk_norm": True, "tie_word_embeddings": False,
         **rope("default", 100.0, partial_rotary_factor=0.5)},
        {"free": {"n_group": 1, "topk_group": 1, "norm_topk_prob": False}},
        {"topk_group": 4, "norm_topk_prob": False, "num_experts_per_tok": 3, "routed_scaling_factor": 1.0},
    ),
    "mixtral": (
        "mixtral",
        {**SIZES, **TWO, "intermediate_size": 24, "num_local_experts": 5, "num_experts_per_tok": 2,
         "sliding_window": 24, "tie_word_embeddings": False, **rope("default", 100.0)},
        {},
        {"sliding_window": 25, "num_experts_per_tok": 3},
    ),
    "granitemoe": (
        "granitemoe",
        {**without(SIZES, "head_dim"), **TWO, "intermediate_size": 24, "num_local_experts": 5,
         "num_experts_per_tok": 2, "embedding_multiplier": 2.0, "attention_multiplier": 0.25,
         "residual_multiplier": 0.6, "logits_scaling": 3.0, "tie_word_embeddings": True, **rope("default", 100.0)},
        {},
        {"num_experts_per_tok": 3, "embedding_multiplier": 1.0, "attention_multiplier": 0.35,
         "residual_multiplier": 1.0, "logits_scaling": 1.0},
    ),
    "ernie4_5_moe": (
        "ernie4_5_moe",
        {**SIZES, **TWO, "intermediate_size": 24, "moe_intermediate_size": 16, "moe_num_experts": 5, "moe_k": 2, "moe_num_shared_experts": 2,
         "moe_layer_start_index": 1, "tie_word_embeddings": False, **rope("default", 100.0)},
        {},
        {"moe_k": 3, "moe_norm_min": 5.0},
    ),
    "minimax_m2": (
        "minimax_m2",
        {**SIZES, **TWO, "intermediate_size": 24, "num_local_experts": 5, "num_experts_per_tok": 2,
         "tie_word_embeddings": False, **rope("default", 100.0, partial_rotary_factor=0.5)},
        {},
        {"num_experts_per_tok": 3},
    ),
    "olmoe": (
        "olmoe",
        {**without(SIZES, "head_dim"), **TWO, "intermediate_size": 24, "num_experts": 5, "num_experts_per_tok": 2,
         "norm_topk_prob": False, "tie_word_embeddings": False, **rope("default", 100.0)},
        {"even": {"norm_topk_prob": True}},
        {"norm_topk_prob": True, "num_experts_per_tok": 3},
    ),
    "hunyuan_v1_moe": (
        "hunyuan_v1_moe",
        {**SIZES, **TWO, "intermediate_size": 24, "num_experts": 5, "moe_topk": [2, 3],
         "tie_word_embeddings": False, **rope("default", 100.0)},
        {},
        {"moe_topk": [3, 2]},
    ),
}

# name -> (module of mlx-lm, config, group, bits)
MLX_CASES = {
    "ling_affine4": (
        "bailing_moe",
        {"model_type": "bailing_moe", **MLX, "intermediate_size": 64, "moe_intermediate_size": 32, "num_experts": 8,
         "num_experts_per_tok": 2, "num_shared_experts": 2, "norm_topk_prob": True, "n_group": 4, "topk_group": 2,
         "first_k_dense_replace": 1, "score_function": "sigmoid", "moe_router_enable_expert_bias": True,
         "routed_scaling_factor": 2.5, "use_qk_norm": True, "partial_rotary_factor": 0.5, "use_qkv_bias": True,
         "tie_word_embeddings": False},
        32, 4,
    ),
    "bailing_softmax_affine4": (
        "bailing_moe",
        {"model_type": "bailing_moe", **MLX, "intermediate_size": 64, "moe_intermediate_size": 32, "num_experts": 4,
         "num_experts_per_tok": 2, "num_shared_experts": 1, "norm_topk_prob": True, "first_k_dense_replace": 0,
         "tie_word_embeddings": True},
        32, 4,
    ),
}
