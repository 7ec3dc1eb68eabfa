"""Cases of Gemma 3n and 4."""

from .dense import MLX
from .sizes import SIZES, VOCAB

ROPES = {"rope_parameters": {
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}}
S, F = "sliding_attention", "full_attention"

THREE_N_ROPES = {"rope_parameters": {
    "full_attention": {"rope_type": "default", "rope_theta": 1000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}}

CASES = {
    # Some tokens bring nothing of their own along; two layers share keys and values, two keep few activations.
    "gemma3n": (
        "gemma3n_text",
        {**SIZES, **THREE_N_ROPES, "num_hidden_layers": 4, "layer_types": [S, F, S, F], "sliding_window": 24,
         "intermediate_size": [24, 24, 40, 24], "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 8,
         "vocab_size_per_layer_input": VOCAB - 4, "laurel_rank": 8, "final_logit_softcapping": 4.0,
         "activation_sparsity_pattern": [0.8, 0.0, 0.6, 0.0]},
        {},
        {"sliding_window": 25, "final_logit_softcapping": 5.0, "hidden_activation": "silu", "altup_correct_scale": False,
         "activation_sparsity_pattern": [0.0, 0.0, 0.6, 0.0], "altup_active_idx": 1},
    ),
    # As the small ones are: the upper layers share keys and values, tokens bring inputs for every layer.
    "gemma4": (
        "gemma4_text",
        {**SIZES, **ROPES, "num_hidden_layers": 4, "layer_types": [S, F, S, F], "sliding_window": 24, "intermediate_size": 24,
         "global_head_dim": 24, "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
         "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCAB, "final_logit_softcapping": 4.0},
        {},
        {"sliding_window": 25, "final_logit_softcapping": None, "hidden_activation": "silu"},
    ),
    # As the large ones are: keys that are values too, fewer of them, in the full layers.
    "gemma4_unified": (
        "gemma4_unified_text",
        {**SIZES, **ROPES, "layer_types": [S, F, F], "sliding_window": 24, "global_head_dim": 24,
         "attention_k_eq_v": True, "num_global_key_value_heads": 1, "attention_bias": True},
        {},
        {"sliding_window": 25, "hidden_activation": "silu"},
    ),
    # As the 26B is: experts beside every feed-forward layer, no inputs for layers.
    "gemma4_experts": (
        "gemma4_text",
        {**SIZES, **ROPES, "num_hidden_layers": 2, "layer_types": [S, F], "sliding_window": 24, "intermediate_size": 24,
         "global_head_dim": 24, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
         "hidden_size_per_layer_input": 0, "enable_moe_block": True, "num_experts": 5, "top_k_experts": 2,
         "moe_intermediate_size": 8},
        {},
        {"top_k_experts": 3, "sliding_window": 25},
    ),
}

# name -> (module of mlx-lm, config, group, bits)
MLX_CASES = {
    "gemma3n_affine4": (
        "gemma3n",
        {"model_type": "gemma3n",
         "text_config": {
             "model_type": "gemma3n_text", "tie_word_embeddings": True, **MLX, "head_dim": 16, "num_hidden_layers": 3,
             "intermediate_size": 64, "layer_types": [S, F, S], "sliding_window": 24, "num_kv_shared_layers": 1,
             "hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": 92, "laurel_rank": 32,
             "activation_sparsity_pattern": [0.6, 0.0, 0.4], "altup_num_inputs": 4, "altup_coef_clip": 120.0,
             "altup_correct_scale": True, "altup_active_idx": 0, "final_logit_softcapping": 30.0,
             "rope_theta": 1000.0, "rope_local_base_freq": 100.0}},
        32, 4,
    ),
    "gemma4_experts_affine4": (
        "gemma4",
        {"model_type": "gemma4", "vocab_size": 96,
         "text_config": {
             "model_type": "gemma4_text", "tie_word_embeddings": True, **MLX, "intermediate_size": 64, "layer_types": [S, F],
             "sliding_window": 24, "global_head_dim": 32, "num_kv_shared_layers": 0, "use_double_wide_mlp": False,
             "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 96, "enable_moe_block": True,
             "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32, "final_logit_softcapping": 4.0, **ROPES}},
        32, 4,
    ),
}
