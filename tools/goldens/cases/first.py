"""Cases of the families that came first."""

from .sizes import SIZES, rope, without

MOE = dict(moe_intermediate_size=24, num_experts=6, num_experts_per_tok=2)
SEVEN_LAYERS = dict(num_hidden_layers=7)
DELTA = dict(
    num_hidden_layers=4, layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"],
    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12,
    linear_conv_kernel_dim=4,
)

YARN = rope("yarn", 50.0, factor=4.0, original_max_position_embeddings=32)
LONG = dict(
    short_factor=[1.0, 1.1, 1.3], long_factor=[1.5, 3.0, 6.0], rope_theta=100.0, partial_rotary_factor=0.75
)

# name -> (model_type, config, variants {name: config changes}, config keys whose change must show)
CASES = {
    "llama": (
        "llama",
        {**SIZES, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False, **rope("default", 100.0)},
        {
            "linear": rope("linear", 100.0, factor=3.0),
            "llama3": rope(
                "llama3", 100.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=64,
            ),
            "yarn": YARN,
            "yarn_mscale": rope(
                "yarn", 50.0, factor=4.0, original_max_position_embeddings=32, mscale=1.3,
                mscale_all_dim=0.6, beta_fast=8.0, beta_slow=0.5, truncate=False,
            ),
        },
        {"rms_norm_eps": 1e-1},
    ),
    "llama_tied": (
        "llama",
        {**without(SIZES, "head_dim"), "num_key_value_heads": 4, "tie_word_embeddings": True, **rope("default", 100.0)},
        {},
        {},
    ),
    "mistral": (
        "mistral",
        {**SIZES, "sliding_window": 24, **rope("default", 100.0)},
        {"full": {"sliding_window": None}},
        {"sliding_window": 25},
    ),
    "qwen2": (
        "qwen2",
        {**without(SIZES, "head_dim"), "use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1,
         "tie_word_embeddings": True, **rope("default", 100.0)},
        {"full": {"use_sliding_window": False, "sliding_window": None, "layer_types": ["full_attention"] * 3}},
        {"sliding_window": 21},
    ),
    "qwen2_moe": (
        "qwen2_moe",
        {**without(SIZES, "head_dim"), **MOE, "shared_expert_intermediate_size": 40, "norm_topk_prob": False,
         "mlp_only_layers": [1], **rope("default", 100.0)},
        {},
        {"norm_topk_prob": True, "num_experts_per_tok": 3},
    ),
    "qwen3": ("qwen3", {**SIZES, "tie_word_embeddings": False, **rope("default", 100.0)}, {}, {}),
    "qwen3_moe": (
        "qwen3_moe",
        {**SIZES, **MOE, "norm_topk_prob": True, "decoder_sparse_step": 2, "num_hidden_layers": 4, **rope("default", 100.0)},
        {},
        {"norm_topk_prob": False, "num_experts_per_tok": 3},
    ),
    "qwen3_next": (
        "qwen3_next",
        {**SIZES, **MOE, **DELTA, "shared_expert_intermediate_size": 40, "norm_topk_prob": True, "mlp_only_layers": [1],
         "tie_word_embeddings": False, **rope("default", 100.0, partial_rotary_factor=0.25)},
        {"half": rope("default", 100.0, partial_rotary_factor=0.5)},
        {"norm_topk_prob": False, "num_experts_per_tok": 3, "rms_norm_eps": 1e-1},
    ),
    "qwen3_5": (
        "qwen3_5_text",
        {**SIZES, **DELTA, "linear_num_value_heads": 6, "tie_word_embeddings": True,
         **rope("default", 100.0, partial_rotary_factor=0.25)},
        {},
        {"rms_norm_eps": 1e-1},
    ),
    "qwen3_5_moe": (
        "qwen3_5_moe_text",
        {**without(SIZES, "intermediate_size"), **MOE, **DELTA, "shared_expert_intermediate_size": 40,
         "linear_conv_kernel_dim": 3, "tie_word_embeddings": False,
         **rope("default", 100.0, partial_rotary_factor=0.5)},
        {},
        {"num_experts_per_tok": 3},
    ),
    "gemma2": (
        "gemma2",
        {**SIZES, "sliding_window": 24, "query_pre_attn_scalar": 9, "attn_logit_softcapping": 3.0,
         "final_logit_softcapping": 4.0, **rope("default", 100.0)},
        {},
        {"attn_logit_softcapping": None, "final_logit_softcapping": None, "query_pre_attn_scalar": 16,
         "sliding_window": 25, "hidden_activation": "silu"},
    ),
    "gemma3": (
        "gemma3_text",
        {**SIZES, **SEVEN_LAYERS, "sliding_window": 24, "query_pre_attn_scalar": 9, "layer_types": None,
         "rope_parameters": {
             "full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 1000.0},
             "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
         }},
        {"capped": {"final_logit_softcapping": 4.0}},
        {"query_pre_attn_scalar": 16, "sliding_window": 25, "hidden_activation": "silu"},
    ),
    "phi3": (
        "phi3",
        {**without(SIZES, "head_dim"), "sliding_window": None, "original_max_position_embeddings": 256,
         **rope("default", 100.0, partial_rotary_factor=0.75)},
        {
            # The prompt is longer than the first trained length, so that transformers takes the long list.
            "long": {"original_max_position_embeddings": 32, "rope_parameters": {"rope_type": "longrope", **LONG}},
            "short": {"original_max_position_embeddings": 128, "rope_parameters": {"rope_type": "longrope", **LONG}},
            "window": {"sliding_window": 24},
        },
        {},
    ),
}
